#!/bin/bash
# A model that is too large for any one daemon (compute.memory_max) trains over four of them, each with its stage; of two
# it is said how much is missing. What the four learn has the bits of one daemon with room for all of it. Runs of one name
# that two operators have started with different strategies stay two.
. "$(dirname "$0")/pipeline_lib.sh"
spec() {        # STRATEGY NAME PLAN
	printf '{"name": "%s", "input": [200], "model": [{"type": "linear", "out": 1000}, {"type": "tanh"},
 {"type": "linear", "out": 1000}, {"type": "layernorm"}, {"type": "linear", "out": 1000}, {"type": "relu"},
 {"type": "linear", "out": 1000}, {"type": "tanh"}, {"type": "linear", "out": 4}], "loss": "cross_entropy",
 "optimizer": {"name": "adamw", "lr": 0.001}, "target_batch": 64, "strategy": "%s"%s, "stop": {"epochs": 40},
 "validation": {"every": 0}, "seed": 5, "data": {"name": "x", "kind": "synthetic", "count": 1000},
 "local": {"batch": 8, "data": "/x"}}\n' "$2" "$1" "$3"
}
plan=', "stages": 4, "micro_batches": 4, "redundancy": 1'
small=48MiB
printf '[compute]\nmemory_max = %s\n' $small >"$work/small.conf"

daemon_start s
spec single alone '' >"$work/alone.json"
hive s run start "$work/alone.json" >/dev/null || fail "single was refused"

daemon_start a --config "$work/small.conf"
for strategy in single hivemind; do
	spec $strategy one '' >"$work/one.json"
	refuse 1 "compute.memory_max is 48.0 MiB" hive a run start "$work/one.json"
done
run=two
spec pipeline $run ', "stages": 2, "redundancy": 1' >"$work/two.json"
hive a run start "$work/two.json" >/dev/null || fail "two stages were refused before anybody else is there"
daemon_start b --join "$(address a)" --config "$work/small.conf"
wait_for 20 joins b
wait_for 20 waits a "are missing; more stages, a smaller local.batch or schedule 1f1b would help"
for n in a b; do hive $n run leave $run >/dev/null || fail "$n does not leave"; done

run=four
spec pipeline $run ', "stages": 4, "micro_batches": 4' >"$work/four.json"
expect "why not 2: stage" hive a run plan "$work/four.json" --members 4 --memory $small
[[ $(json a fewer_copies run plan "$work/four.json" --members 4 --memory $small) == *"are missing"* ]] || fail "two copies would fit"
spec pipeline $run "$plan" >"$work/four.json"
hive a run start "$work/four.json" >/dev/null || fail "pipeline was refused"
for n in b c d; do
	[ $n = b ] || daemon_start $n --join "$(address a)" --config "$work/small.conf"
	wait_for 20 joins $n
done
for n in a b c d; do
	wait_for 60 past $n 3
	took=$(json $n trainer.arena_peak_bytes run show $run)
	[ "$took" -gt $((8 * 1024 * 1024)) ] && [ "$took" -le $((48 * 1024 * 1024)) ] || fail "$n has taken $took bytes"
	say "$n has taken $took bytes"
done
for n in a b c d; do wait_for 120 ended $n; done
wait_for 120 ended s alone
whole s a b c d

# Two operators, one name.
spec hivemind four '' | sed 's/"target_batch": 64/"target_batch": 32/' >"$work/other.json"
hive s run start "$work/other.json" >/dev/null || fail "the other run was refused"
daemon_start e --join "$(address a)" --join "$(address s)"
daemon_start f --join "$(address s)" --join "$(address a)"
both() { hive e run join four --data=/x >"$work/out" 2>&1 || grep -qF "exists 2 times; choose with --author" "$work/out"; }
wait_for 30 both
say done
