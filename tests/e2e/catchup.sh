#!/bin/bash
# A peer whose downloads of the state fail seven times while the others finish epochs faster than it may wait: it must
# catch up all the same, soon after they stop to fail.
. "$(dirname "$0")/lib.sh"
"$HIVEMINDD" --list-failpoints >/dev/null 2>&1 || skip "this build has no fail points"
data=$root/tests/data
python3 - "$data/digits.json" >"$work/spec.json" <<'END'
import json, sys
d = json.load(open(sys.argv[1]))
d["schedule"], d["stop"], d["local"] = {"name": "constant"}, {"epochs": 1000000}, {"batch": 32}
d["target_batch"], d["validation"] = 64, {"every": 0}
print(json.dumps(d))
END
state_is() { [ "$(json "$1" state run show digits 2>/dev/null)" = "$2" ]; }
fails=; for i in 1 2 3 4 5 6 7; do fails=$fails,run.state.ask=error; done

daemon_start a
daemon_start b --join "$(address a)"
hive a run start "$work/spec.json" --data "$data/digits" >/dev/null || fail "the run was refused"
wait_for 20 joined b
wait_for 30 past b 20

daemon_start c --join "$(address a)" --failpoint "${fails#,}"
wait_for 20 joined c
wait_for 30 logged c "a fail point"
wait_for 12 state_is c train
wait_for 30 past c $(($(json a epoch run show digits) + 5))
for n in a b c; do daemon_stop $n; done
say done
