#!/bin/bash
# A run that has ended: who comes later is told so, and so is who comes back from an older checkpoint, instead of going on
# alone; one that was stopped may be begun again by its author, and then others join it as ever.
. "$(dirname "$0")/lib.sh"
spec() { # NAME EPOCHS
	printf '{"name":"%s","input":[16],"model":[{"type":"sleep","fwd_ms":5,"bwd_ms":5},{"type":"linear","out":4}],"loss":"cross_entropy",
"target_batch":64,"optimizer":{"name":"sgd","lr":0.01},"validation":{"every":0},"stop":{"epochs":%s},
"data":{"name":"d","kind":"synthetic","count":4000},"local":{"batch":8,"checkpoint_every":5}}\n' "$1" "$2" >"$work/$1.json"
}
error_says() { json "$1" error run show "$2" 2>/dev/null | grep -q "$3"; }

daemon_start a
for n in b c d; do daemon_start $n --join "$(address a)"; done
spec short 120
hive a run start "$work/short.json" >/dev/null || fail "short was refused"
for n in b c; do wait_for 20 hive $n run join short >/dev/null; done
wait_for 60 past c 12 short
daemon_kill c
wait_for 120 json_is done a state run show short
wait_for 20 json_is done b state run show short
refuse 1 "run short has ended: done at epoch 120" hive d run join short
[ "$(hive d --json run list | grep -c short)" = 0 ] || fail "d lists a run that it was refused"

# It has a checkpoint of before, and goes on with it nowhere.
daemon_start c --join "$(address a)"
wait_for 40 json_is failed c state run show short
error_says c short "has ended: done at epoch 120" || fail "c says $(json c error run show short)"
past c 120 short && fail "c has made the end by itself"
hive c events | grep -q "whoever may still hand that over is waited for" || fail "c does not say what it waits for"

spec long 1000000
hive a run start "$work/long.json" >/dev/null || fail "long was refused"
wait_for 20 hive b run join long >/dev/null
wait_for 30 past b 10 long
hive a --yes run stop long >/dev/null || fail "no stop"
wait_for 20 json_is stopped b state run show long
refuse 1 "run long has ended: stopped at epoch" hive d run join long
hive a run start "$work/long.json" >/dev/null || fail "its author may not begin it again"
wait_for 20 hive d run join long >/dev/null
wait_for 30 past d 12 long
wait_for 20 hive b run join long >/dev/null
wait_for 20 json_is train b state run show long
wait_for 20 json_is train a state run show long
say "short has ended for who came later and who came back; long was begun again"
