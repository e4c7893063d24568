#!/bin/bash
# Nine daemons in a grid of three by three (Moshpit) average their parameters along one dimension after the other: all go
# on epoch by epoch in one history, one dies in between and comes back, all learn.
. "$(dirname "$0")/lib.sh"
data=$root/tests/data
digits_spec 'd["local"], d["target_batch"], d["validation"] = {"batch": 8}, 288, {"every": 5}' \
	'd["averaging"] = {"group_size": 3, "topology": "moshpit", "agree_every": 4, "local_updates": True}' \
	'd["model"].insert(0, {"type": "sleep", "fwd_ms": 20, "bwd_ms": 20})' >"$work/spec.json"
grid() { [ "$(show "$1" rounds_shape.topology)" = moshpit ]; }

sed 's/"local_updates": true/"local_updates": false/' "$work/spec.json" >"$work/bad.json"
daemon_start a
refuse 1 "topology" hive a run start "$work/bad.json" --data "$data/digits"
for n in b c d e f g h i; do daemon_start $n --join "$(address a)"; done
hive a run start "$work/spec.json" --data "$data/digits" >/dev/null || fail "the run was refused"
for n in b c d e f g h i; do wait_for 20 joined $n; done
expect "within 1e-6" json a equality run show digits
wait_for 40 members a 9
wait_for 30 grid i
wait_for 60 past i $(($(epoch a) + 6))
one_history digits 4 a b c d e f g h i

daemon_kill e
wait_for 20 members a 8
wait_for 60 past a $(($(epoch a) + 6))
wait_for 30 grid i
daemon_start e --join "$(address a)"
wait_for 30 members a 9
wait_for 60 past e $(($(epoch a) + 5))
one_history digits 4 a b c d e f g h i
for n in a e i; do wait_for 60 learned $n; done
hive a --json run show digits --data | python3 -c 'import json, sys; sys.exit(json.load(sys.stdin)["ledger"]["violations"])' ||
	fail "a sample was committed twice"
say "at epoch $(epoch a), accuracy $(show a best_accuracy), $(show a rounds_shape)"
for n in a b c d e f g h i; do daemon_stop $n; done
say done
