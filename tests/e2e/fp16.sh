#!/bin/bash
# Halves with real daemons: the scale of the loss begins so high that gradients overflow; no one makes those steps, all halve it,
# and who is killed comes back with it. What a scaled loss does not go with is refused. A run alone is run again from its log.
. "$(dirname "$0")/lib.sh"
data=$root/tests/data
run=half
run_data=$data/digits

scale() { json "$1" trainer.loss_scale run show half; }
skipped() { json "$1" trainer.skipped run show half; }
lower() { python3 -c 'import sys; a, n = map(float, sys.argv[1:]); sys.exit(not (1 <= a < 16777216 and n > 0))' "$(scale "$1")" "$(skipped "$1")"; }

daemon_start a
daemon_start b --join "$(address a)"
digits_spec 'd["validation"] = {"every": 5}' 'd["loss_scale"] = {"init_scale": 16777216, "growth_interval": 1000}' >"$work/spec.json"
refuse 1 'loss_scale: is for precision fp16' hive a run start "$work/spec.json" --data "$run_data" --precision bf16
digits_spec 'd["averaging"] = {"codec": "fp16"}' >"$work/coded.json"
refuse 1 'codec: precision fp16 needs codec none' hive a run start "$work/coded.json" --data "$run_data" --precision fp16
hive a run start "$work/spec.json" --name half --data "$run_data" --precision fp16 >/dev/null || fail "the run was refused"
wait_for 20 joined b
for n in a b; do wait_for 20 members $n 2; done
for n in a b; do wait_for 30 lower $n; done
refuse 1 'robust: "median" takes a gradient that overflowed for nonsense' hive a set half robust=median
daemon_kill b
wait_for 20 goes_on a
daemon_start b --join "$(address a)"
for n in a b; do wait_for 30 members $n 2; done
wait_for 60 learned a
alike() { [ "$(scale a)" = "$(scale b)" ]; }
goes_on b                               # it may still be at its checkpoint, in which the scale was another
wait_for 30 alike
expect 'a gradient overflowed, the step was left out' hive a events --lines 500
one_history half 4 a b
hive a run stop half --yes >/dev/null || fail "it cannot be stopped"

digits_spec 'd["strategy"] = "single"' 'd["stop"] = {"epochs": 6}' 'd["loss_scale"] = {"init_scale": 16777216, "growth_interval": 2}' \
	'd["local"] = {"batch": 32, "deterministic": True, "log": "64MiB"}' >"$work/alone.json"
hive a run start "$work/alone.json" --name alone --data "$run_data" --precision fp16 >/dev/null || fail "alone was refused"
wait_for 60 json_is done a state run show alone
out=$("$HIVEMINDD" --replay "$work/a/runs/$(json a run run show alone)" 2>&1) || fail "$out"
[[ $out =~ 6\ epochs\ are\ equal,\ every\ bit ]] || fail "$out"
