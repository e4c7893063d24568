#!/bin/bash
# Mixed precision with real daemons: two train in bf16, one of them is killed and comes back; whoever says another precision is
# refused and told which; a run alone, deterministic, is run again from its log, bit for bit, and in single precision is another.
. "$(dirname "$0")/lib.sh"
data=$root/tests/data
run=half
run_data=$data/digits

daemon_start a
daemon_start b --join "$(address a)"
digits_spec 'd["validation"] = {"every": 5}' >"$work/spec.json"
refuse 1 'precision: is fp64, and state and gradients are in single precision' hive a run start "$work/spec.json" --data "$run_data" --precision fp64
refuse 1 'unknown precision "bf61"; did you mean "bf16"?' hive a run start "$work/spec.json" --data "$run_data" --precision bf61
hive a run start "$work/spec.json" --name half --data "$run_data" --precision bf16 >/dev/null || fail "the run was refused"
[ "$(json a spec.precision run show half)" = bf16 ] || fail "it is not shown in bf16"
wait_for 20 joined b
for n in a b; do wait_for 20 members $n 2; done
daemon_kill b
wait_for 20 goes_on a
daemon_start b --join "$(address a)"
for n in a b; do wait_for 30 members $n 2; done
wait_for 60 learned a
one_history half 4 a b
hive a run stop half --yes >/dev/null || fail "it cannot be stopped"

# alone NAME PRECISION
alone() {
	digits_spec 'd["strategy"] = "single"' 'd["stop"] = {"epochs": 6}' \
		'd["local"] = {"batch": 32, "deterministic": True, "log": "64MiB"}' >"$work/$1.json"
	hive a run start "$work/$1.json" --name "$1" --data "$run_data" --precision "$2" >/dev/null || fail "$1 was refused"
	wait_for 60 json_is done a state run show "$1"
}
loss() { json a rows.0.0 query "select e.loss from epochs e join runs r on e.run = r.run where r.name = '$1' and e.epoch = 6"; }
alone bf bf16
alone single fp32
out=$("$HIVEMINDD" --replay "$work/a/runs/$(json a run run show bf)" 2>&1) || fail "$out"
[[ $out =~ 6\ epochs\ are\ equal,\ every\ bit ]] || fail "$out"
[ "$(loss bf)" != "$(loss single)" ] || fail "both have a loss of $(loss bf)"
python3 -c 'import sys; a, b = map(float, sys.argv[1:]); sys.exit(abs(a / b - 1) > 0.05)' "$(loss bf)" "$(loss single)" ||
	fail "a loss of $(loss bf) in bf16, $(loss single) in single precision"
