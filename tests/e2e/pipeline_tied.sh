#!/bin/bash
# A pipeline whose first layer and last layer have the same parameters: the first stage and the last one hold them, and a
# spare takes the place of whoever is killed. What is learned has the bits of a pipeline of two that nothing disturbs, on
# all who hold it; the exported model has every tensor once.
. "$(dirname "$0")/pipeline_lib.sh"
layers='{"type": "linear", "out": 12, "name": "first"}, {"type": "layernorm"}, {"type": "relu"}, {"type": "linear", "out": 40},
 {"type": "tanh"}, {"type": "linear", "out": 12}, {"type": "layernorm"}, {"type": "linear", "out": 12, "share": "first", "name": "last"}'
whole() { [ "$(seats "${1:-}" | wc -l)" = 3 ]; }
goes_on() {     # NAME...: who lives; past where they are now
	local at
	at=$(epoch "$1")
	for n in "$@"; do wait_for 60 past "$n" $((at + 20)); done
}

daemon_start a
for n in b c d; do daemon_start $n --join "$(address a)"; done
begins line 1000000 ', "stages": 3, "micro_batches": 4' b c d
wait_for 30 whole
goes_on a b c d
plan=$(hive a run plan $run) || fail "no plan"
grep -q "w.tied" <<<"$plan" || fail "nothing is tied: $plan"

# Each of those who hold a stage dies once.
for victim in $(seats); do
	daemon_kill "$victim"
	others=$(for n in a b c d; do [ "$n" = "$victim" ] || echo "$n"; done)
	wait_for 60 whole "$victim"
	goes_on $others
	join=$(set -- $others; address "$1")
	daemon_start "$victim" --join "$join"
	goes_on a b c d
	say "$victim died and came back, at epoch $(epoch a)"
done
hive a model export $run "$work/model" >/dev/null || fail "it is not exported"
for n in a b c d; do daemon_stop $n; done

# Two that nothing disturbs, each of which holds all of it.
last=$(for n in a b c d; do saved "$n"; done | sort | tail -n 1 | tr -dc 0-9 | sed 's/^0*//')
daemon_start s
daemon_start t --join "$(address s)"
run=pair
spec pipeline pair "$last" ', "stages": 2, "micro_batches": 4' >"$work/pair.json"
hive s run start "$work/pair.json" >/dev/null || fail "pair was refused"
wait_for 20 joins t
for n in s t; do wait_for 120 ended $n; done
for n in s t; do daemon_stop $n; done
compare "$(state s)" "$(state a)" "$(state b)" "$(state c)" "$(state d)" "$work/model" <<'P' || fail "what was learned is not what two have learned"
import sys
from tensors import holders, load
count, name = holders(sys.argv[1], sys.argv[2:6])
assert min(count.values()) >= 2, count
assert count['first.weight'] >= 3 and 'last.weight' not in count, count
its = load(sys.argv[6] + '/model.safetensors')[1]
assert set(its) == {k for k in count if not k.startswith('optimizer.')}, set(its)
print(len(count), 'tensors of', name, 'in two places at least, what is tied in', count['first.weight'])
P
say done
