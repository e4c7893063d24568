#!/bin/bash
# The whole swarm is killed, each peer with another checkpoint, and started again, the one with the oldest first: it waits
# for the others, and the run goes on from the newest checkpoint; no epoch up to that is made a second time.
. "$(dirname "$0")/lib.sh"
data=$root/tests/data
python3 - "$data/digits.json" >"$work/spec.json" <<'END'
import json, sys
d = json.load(open(sys.argv[1]))
d["schedule"], d["stop"], d["validation"] = {"name": "constant"}, {"epochs": 1000000}, {"every": 0}
d["local"] = {"batch": 32, "checkpoint_every": 1000000}
print(json.dumps(d))
END
printf '{"batch": 32, "checkpoint_every": 1000000}' >"$work/local.json"
saved() { json "$1" checkpoints.0.epoch checkpoint digits; }
row() { json "$1" rows.0.0 query "select digest from epochs where discarded = 0 and epoch = $2" 2>/dev/null; }

daemon_start a
for n in b c; do daemon_start $n --join "$(address a)"; done
hive a run start "$work/spec.json" --data "$data/digits" >/dev/null || fail "the run was refused"
for n in b c; do wait_for 20 joined $n --local "$work/local.json"; done
for n in a b c; do wait_for 30 members $n 3; done
for n in c b a; do
	wait_for 30 past $n $(($(show a epoch) + 5))
	newest=$(saved $n) || fail "$n cannot save a checkpoint"
done
wait_for 30 past a $((newest + 1))
digest=$(row a "$newest")
[ -n "$digest" ] || fail "a has no epoch $newest"
for n in a b c; do daemon_kill $n; done

daemon_start c
wait_for 15 logged c "are waited for"
! past c "$newest" || fail "c has not waited for the others"
daemon_start b --join "$(address c)"
daemon_start a --join "$(address c)"
for n in a b c; do wait_for 60 members $n 3; done
for n in a b c; do wait_for 30 past $n $((newest + 3)); done
[ "$(row a "$newest")" = "$digest" ] || fail "a has another epoch $newest"
for n in b c; do
	[ "$(json $n rows.0.0 query "select count(*) from (select epoch from epochs where epoch <= $newest group by epoch having count(*) > 1)")" = 0 ] ||
		fail "$n has made epochs a second time"
done
for n in a b c; do
	[ "$(json $n ledger.proof.exactly_once run show digits --data)" = true ] || fail "$n: $(json $n ledger run show digits --data)"
done
for n in c b a; do daemon_stop $n; done
say done
