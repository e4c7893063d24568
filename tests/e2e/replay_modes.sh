#!/bin/bash
# Three daemons train digits, in each way in which something is under way beside micro-batches or every peer steps by
# itself; one is killed with SIGKILL behind a checkpoint and comes back with it. From the logs of all four lives the run
# is run again in one process: every loss, and the parameters after every epoch, bit for bit. Without the log of the life
# that was killed it cannot be.
. "$(dirname "$0")/lib.sh"
data=$root/tests/data
again() { "$HIVEMINDD" --replay "$@"; }
printf '{"batch": 32, "deterministic": true, "log": "256MiB", "checkpoint_every": 10}' >"$work/local.json"
ended() { json_is stopped "$1" state run show "$2"; }
newest() { find "${1%/*}" -name '*.safetensors' | sort | tail -n 1; }
saved_since() { [ "$(newest "$1")" != "$2" ]; }
folder_of() { printf '%s/%s/runs/%s' "$work" "$1" "$(json "$1" run run show "$run")"; }
run_log_of() { printf '%s/run.log' "$(folder_of "$1")"; }
peer_of() { head -n 1 "$(run_log_of "$1")" | grep -o '[0-9a-f]\{16\}'; }

mode() {        # NAME STRATEGY AVERAGING
	local name=$1 at n out dead
	run=$name
	digits_spec "d['name'], d['strategy'], d['averaging'] = '$1', '$2', json.loads('{$3}')" \
		"d['local'] = json.load(open('$work/local.json'))" 'd["model"].insert(0, {"type": "sleep", "fwd_ms": 5})' \
		>"$work/$name.json"
	hive a run start "$work/$name.json" --data "$data/digits" >/dev/null || fail "run $name was refused"
	for n in b c; do wait_for 20 joined $n --local "$work/local.json"; done
	for n in a b c; do wait_for 30 members $n 3; done
	at=$(epoch a)
	wait_for 30 past a $((at + 5))
	dead=$(run_log_of c)
	at=$(newest "$dead")
	wait_for 30 saved_since "$dead" "$at"
	# It comes back with that state: the log that ends here has to have its copy. What it gives while its disk is busy
	# with that may be with the others and not in its log, so in the other modes it goes on for a moment.
	[ "$name" = seldom ] || wait_for 30 past c $(($(epoch c) + 2))
	daemon_kill c
	at=$(epoch a)
	wait_for 30 past a $((at + 5))
	daemon_start c --join "$(address a)"
	for n in a b c; do wait_for 30 members $n 3; done
	at=$(epoch a)
	for n in a b c; do wait_for 30 past $n $((at + 5)); done
	hive a run stop "$name" --yes >/dev/null || fail "$name cannot be stopped"
	for n in a b c; do wait_for 30 ended $n "$name"; done
	# the folder of c has the log of the life that was killed, too
	out=$(again "$(folder_of a)" "$(folder_of b)" "$(folder_of c)" 2>"$work/said") || fail "$name: $(cat "$work/said")"
	[[ $out =~ ^$name:\ ([0-9]+)\ epochs\ are\ equal,\ .*\ of\ 3\ peers\ \(4\ logs\) ]] || fail "$name: $out"
	[ "${BASH_REMATCH[1]}" -ge 15 ] || fail "$name: $out"
	refuse 1 "are in no log" again "$(run_log_of a)" "$(run_log_of b)" "$(run_log_of c)"
	refuse 1 "no log of theirs is here: $(peer_of b) from epoch " again "$(folder_of a)" "$(folder_of c)"
	say "$name: $out"
}

daemon_start a
for n in b c; do daemon_start $n --join "$(address a)"; done
mode delayed hivemind '"delay_grad": true, "delay_step": true'
mode async allreduce '"async": true'
mode delta hivemind '"local_updates": true, "delay_state": true'
mode seldom hivemind '"local_updates": true, "average_optimizer": true, "every": 2'
mode streaming diloco '"inner_steps": 8, "fragments": 2, "overlap": 1'

# Ctrl-C ends it at once, while it runs.
python3 - "$HIVEMINDD" "$(folder_of a)" "$(folder_of b)" "$(folder_of c)" <<'END' || fail "SIGINT does not end it at once"
import os, signal, subprocess, sys
for _ in range(5):
	said, err = os.openpty()
	p = subprocess.Popen([sys.argv[1], '--replay'] + sys.argv[2:], stdout=subprocess.DEVNULL, stderr=err,
		preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))        # who runs the tests may ignore it
	os.close(err)
	os.read(said, 1)                        # the first epoch has been compared
	p.send_signal(signal.SIGINT)
	if p.wait(timeout=5) == -signal.SIGINT:
		sys.exit(0)
	os.close(said)
sys.exit(1)
END
for n in c b a; do daemon_stop $n; done
