#!/bin/bash
# A run is stopped again and again while large vectors are being summed on another thread: what a sum reads stays until it
# has ended, on who stops and on who hears of it. TURNS times, layers WIDE wide; the nightly runs it with a daemon built
# with ThreadSanitizer, too. What is given back too early is another map's memory, or none: the daemon dies.
. "$(dirname "$0")/lib.sh"

turns=${TURNS:-5} wide=${WIDE:-4096}
spec() {
	cat <<E
{"name":"wide$1","input":[2048],"model":[{"type":"linear","out":$wide,"name":"x"},{"type":"linear","out":1024,"name":"y"},
{"type":"linear","out":4,"name":"z"}],"loss":"cross_entropy","optimizer":{"name":"sgd","lr":0.001},"target_batch":24,
"averaging":{"robust":"median"},"data":{"name":"d","kind":"synthetic","count":4000},"local":{"batch":8,"checkpoint_every":1000}}
E
}

for n in a b c; do daemon_start $n ${first:+--join "$first"}; first=${first:-$(address a)}; done
for i in $(seq "$turns"); do
	spec "$i" >"$work/spec.json"
	run=$(json a run run start "$work/spec.json") || fail "run start"
	run_data=
	for n in b c; do wait_for 30 joined $n; done
	for n in a b c; do wait_for 60 past $n 2; done
	wait_for 60 members a 3
	sleep "0.$((RANDOM % 10))$((RANDOM % 10))"
	hive a --yes run stop "$run" >/dev/null || fail "stop was refused"
	for n in a b c; do
		wait_for 30 json_is stopped $n state run show "$run"
		alive $n || fail "$n died when the run was stopped in turn $i"
	done
done
crashed && fail "a sum has read what was no longer there"
for n in c b a; do daemon_stop $n; done
crashed && fail "a sum has read what was no longer there"
say done
