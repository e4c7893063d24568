#!/bin/bash
# Every way to average, on three daemons that train digits: delayed gradients and steps, local updates with the delta
# rule, averaging every n target batches, one batch of every peer a step, every k steps, without waiting, DiLoCo. In some
# of them one is killed and comes back. All learn, and whoever commits an epoch has the same commit.
. "$(dirname "$0")/lib.sh"
data=$root/tests/data
spec() {        # NAME STRATEGY AVERAGING
	python3 - "$data/digits.json" "$@" <<'END'
import json, sys
d = json.load(open(sys.argv[1]))
d["name"], d["strategy"], d["averaging"] = sys.argv[2], sys.argv[3], json.loads("{" + sys.argv[4] + "}")
d["schedule"], d["stop"], d["local"] = {"name": "constant"}, {"epochs": 1000000}, {"batch": 32, "checkpoint_every": 10}
d["validation"]["every"] = 5
d["model"].insert(0, {"type": "sleep", "fwd_ms": 5})
print(json.dumps(d))
END
}
show() { json "$1" "$3" run show "$2" 2>/dev/null; }
past() { local e; e=$(show "$1" "$2" epoch) && [ "$e" -ge "$3" ]; }
members() { [ "$(show "$1" "$2" members)" = "$3" ]; }
joined() { hive "$1" run join "$2" --data "$data/digits" >/dev/null 2>&1; }
ended() { json_is stopped "$1" state run show "$2"; }
learned() { local v; v=$(show "$1" "$2" best_accuracy) && python3 -c "import sys; sys.exit(not float(sys.argv[1]) >= 0.8)" "$v"; }

# mode NAME STRATEGY AVERAGING EQUALITY [kill]
mode() {
	local name=$1 equality=$4 at begun n
	spec "$1" "$2" "$3" >"$work/$name.json"
	hive a run start "$work/$name.json" --data "$data/digits" >/dev/null || fail "run $name was refused"
	begun=$(now_ms)
	for n in b c; do wait_for 20 joined $n "$name"; done
	expect "$equality" json a equality run show "$name"
	for n in a b c; do wait_for 30 members $n "$name" 3; done
	if [ "${5:-}" = kill ]; then
		daemon_kill c
		at=$(show a "$name" epoch)
		wait_for 30 past a "$name" $((at + 5))
		daemon_start c --join "$(address a)"
		for n in a b c; do wait_for 30 members $n "$name" 3; done
	fi
	for n in a b; do wait_for 60 learned $n "$name"; done
	at=$(show a "$name" epoch)
	for n in a b c; do
		hive $n --json query "select epoch, digest from epochs where discarded = 0 and run = '$(show a "$name" run)'" >"$work/chain.$n"
	done
	python3 - "$work"/chain.? <<'END' || fail "$name: two histories"
import json, sys
chains = [{r[0]: r[1] for r in json.load(open(f))["rows"]} for f in sys.argv[1:]]
common = [e for e in set().union(*chains) if sum(e in c for c in chains) > 1]
sys.exit(len(common) < 3 or any(len({c[e] for c in chains if e in c}) > 1 for e in common))
END
	hive a run stop "$name" --yes >/dev/null || fail "$name cannot be stopped"
	for n in a b c; do wait_for 30 ended $n "$name"; done
	say "$name: held-out accuracy 0.8 by epoch $at, $(($(now_ms) - begun)) ms"
}

daemon_start a
for n in b c; do daemon_start $n --join "$(address a)"; done
spec bad hivemind '"sync_every": 3' >"$work/bad.json"
refuse 1 "averaging.sync_every: belongs to strategy allreduce" hive a run start "$work/bad.json" --data "$data/digits"
mode delayed hivemind '"delay_grad": true, "delay_step": true' "work with those of the epoch before" kill
mode laterstep hivemind '"delay_step": true' "work with those of the epoch before"
mode delta hivemind '"local_updates": true, "delay_state": true' "each peer adds what it learned meanwhile" kill
mode seldom hivemind '"local_updates": true, "every": 2' "right after each averaging"
mode plain allreduce '' "equal after every commit" kill
mode everyk allreduce '"sync_every": 4' "right after each averaging"
mode async allreduce '"async": true' "equal after the same commit" kill
mode diloco diloco '"inner_steps": 4' "right after each outer step" kill
for n in c b a; do daemon_stop $n; done
