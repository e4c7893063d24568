#!/bin/bash
# Schedule 2bw with real daemons: three hold a stage each, epochs run on into each other, and what they learn has the bits
# of one daemon whose gradients are one step late, though one is killed and comes back, one is paused, and all are
# stopped and started again on the way.
. "$(dirname "$0")/pipeline_lib.sh"
layers='{"type": "linear", "out": 48}, {"type": "tanh"}, {"type": "linear", "out": 48}, {"type": "layernorm"},
 {"type": "dropout", "p": 0.1}, {"type": "linear", "out": 48}, {"type": "relu"}, {"type": "linear", "out": 4}'
local_more=', "checkpoint_every": 5'
plan=', "schedule": "2bw", "stages": 3, "replicas": 1'

# One daemon alone, with all of it; nobody else is late, and it is itself.
daemon_start s
run=alone
spec pipeline alone 1000 ', "schedule": "2bw", "stages": 1, "redundancy": 1' >"$work/alone.json"
hive s run start "$work/alone.json" >/dev/null || fail "one stage was refused"

daemon_start a
spec pipeline bad 10 "$plan, \"micro_batches\": 4" >"$work/bad.json"
refuse 1 "a version of the weights comes of all 8 micro-batches" hive a run plan "$work/bad.json" --members 3
for n in b c; do daemon_start $n --join "$(address a)"; done
begins line 1000 "$plan" b c
for n in a b c; do wait_for 30 past $n 20; done
refuse 1 "there are 3 members and 2 micro-batches" hive a set $run target_batch=16
late=$(json a trainer.stale_most run show $run)
[ "$late" = 1 ] || fail "gradients are late by $late steps"

daemon_kill c
wait_for 30 waits a "3 stages need 3 members, and there are 2"
at=$(epoch a)
daemon_start c --join "$(address a)"
for n in a b c; do wait_for 60 past $n $((at + 30)); done

hive a run pause $run >/dev/null || fail "not paused"
stands() { local was; was=$(epoch a); sleep 0.3; [ "$(epoch a)" = "$was" ]; }
wait_for 20 stands
hive a run resume $run >/dev/null || fail "not resumed"
at=$(epoch a)
for n in a b c; do wait_for 30 past $n $((at + 30)); done

for n in c b a; do daemon_stop $n; done
daemon_start a
for n in b c; do daemon_start $n --join "$(address a)"; done
for n in a b c; do wait_for 90 ended $n; done
run=alone
wait_for 90 ended s

whole s a b c
say done
