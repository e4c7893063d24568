#!/bin/bash
# Every way to average, on three daemons that train digits: delayed gradients and steps, local updates with the delta
# rule, averaging every n target batches, one batch of every peer a step, every k steps, without waiting, DiLoCo. In each
# of them one is killed and comes back; a rate that follows the peers does so. All learn, and whoever commits an epoch has the same commit.
. "$(dirname "$0")/lib.sh"
data=$root/tests/data
spec() {        # NAME STRATEGY AVERAGING [ORDER]
	digits_spec "d['name'], d['strategy'], d['averaging'] = '$1', '$2', json.loads('{$3}')" \
		'd["local"], d["validation"] = {"batch": 32, "checkpoint_every": 10}, {"every": 5}' \
		"d['data']['order'] = '${4:-ledger}'" "if d['name'] == 'plain': d['schedule'].update(base_batch=64, track='peers')" \
		'd["model"].insert(0, {"type": "sleep", "fwd_ms": 5})'
}
rate() {        # NAME PEERS: of its last step, which had 32 samples of each
	json "$1" lr run show "$run" | python3 -c 'import sys; sys.exit(float(sys.stdin.read()) != 0.003 * (32 * int(sys.argv[1]) / 64))' "$2"
}
ended() { json_is stopped "$1" state run show "$2"; }

# mode NAME STRATEGY AVERAGING EQUALITY [ORDER]
mode() {
	local name=$1 equality=$4 at begun n
	run=$name
	spec "$1" "$2" "$3" ${5:-} >"$work/$name.json"
	hive a run start "$work/$name.json" --data "$data/digits" >/dev/null || fail "run $name was refused"
	begun=$(now_ms)
	for n in b c; do wait_for 20 joined $n; done
	expect "$equality" json a equality run show "$name"
	for n in a b c; do wait_for 30 members $n 3; done
	[ "$name" != plain ] || wait_for 30 rate a 3
	daemon_kill c
	[ "$name" != plain ] || wait_for 30 rate a 2
	at=$(epoch a)
	wait_for 30 past a $((at + 5))
	daemon_start c --join "$(address a)"
	for n in a b c; do wait_for 30 members $n 3; done
	for n in a b; do wait_for 60 learned $n; done
	at=$(epoch a)
	one_history "$name" 3 a b c
	if [ "${5:-}" ]; then
		expect "null" json a ledger.proof.exactly_once run show "$name" --data
		expect "there is no proof: data.order is independent" json a ledger.proof.why run show "$name" --data
		refuse 1 "" json a ledger.committed run show "$name" --data
	fi
	hive a run stop "$name" --yes >/dev/null || fail "$name cannot be stopped"
	for n in a b c; do wait_for 30 ended $n "$name"; done
	say "$name: held-out accuracy 0.8 by epoch $at, $(($(now_ms) - begun)) ms"
}

daemon_start a
for n in b c; do daemon_start $n --join "$(address a)"; done
spec bad hivemind '"sync_every": 3' >"$work/bad.json"
refuse 1 "averaging.sync_every: belongs to strategy allreduce" hive a run start "$work/bad.json" --data "$data/digits"
mode delayed hivemind '"delay_grad": true, "delay_step": true' "work with those of the epoch before"
mode laterstep hivemind '"delay_step": true' "work with those of the epoch before"
mode delta hivemind '"local_updates": true, "delay_state": true' "each peer adds what it learned meanwhile"
mode seldom hivemind '"local_updates": true, "every": 2' "right after each averaging"
mode plain allreduce '' "equal after every commit"
mode everyk allreduce '"sync_every": 4' "right after each averaging"
mode async allreduce '"async": true' "equal after the same commit"
mode own hivemind '' "equal after every commit" independent
mode diloco diloco '"inner_steps": 4' "right after each outer step"
mode streaming diloco '"inner_steps": 8, "fragments": 2, "overlap": 1, "codec": "blockwise8"' "mixed with the anchor"
for n in c b a; do daemon_stop $n; done
