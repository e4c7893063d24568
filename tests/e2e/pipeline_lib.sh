# Sourced by scripts about pipelines: lib.sh, one small model whose data nobody has to have, and how one daemon or several
# train it. A script may say other layers, and more of `local`; `run` is the run that it is about.
#
#   spec STRATEGY NAME EPOCHS KEYS  the spec, with those KEYS of the strategy     joins NAME          run join of $run
#   begins NAME EPOCHS KEYS DAEMON... the pipeline of a, which these join         ended NAME [RUN]    its goal is reached
#   alone DAEMON NAME EPOCHS SECONDS one daemon that has all of it comes so far   saved NAME          its newest checkpoint
#   whole DAEMON DAEMON...          what these have saved is, together, what the first one has of the same epoch
#   crew DAEMON KEY                  of run show's `crew`                      waits DAEMON TEXT    it waits, and says why
#   alone_as_far DAEMON...          s has come as far as the newest checkpoint that one of these has
. "$(dirname "$0")/lib.sh"
layers='{"type": "linear", "out": 48}, {"type": "batchnorm"}, {"type": "relu"}, {"type": "linear", "out": 40},
 {"type": "tanh"}, {"type": "linear", "out": 24}, {"type": "batchnorm"}, {"type": "linear", "out": 4}'
local_more=
spec() {
	printf '{"name": "%s", "input": [12], "model": [%s], "loss": "cross_entropy",
 "optimizer": {"name": "adamw", "lr": 0.01, "weight_decay": 0.1}, "target_batch": 64, "strategy": "%s"%s,
 "stop": {"epochs": %s}, "validation": {"every": 0}, "seed": 5, "data": {"name": "x", "kind": "synthetic",
 "count": 4000}, "local": {"batch": 8, "data": "/x"%s}}\n' "$2" "$layers" "$1" "$4" "$3" "$local_more"
}
joins() { hive "$1" run join "$run" --data=/x >/dev/null 2>&1; }
crew() { json "$1" "crew.$2" run show "$run"; }
waits() { crew "$1" waits | grep -q -e "$2"; }
ended() { [ "$(json "$1" state run show "${2:-$run}")" = done ]; }
saved() { basename "$(find "$(state "$1")"/runs -name 'epoch-*.safetensors' | sort | tail -n 1)"; }
begins() {
	run=$1
	spec pipeline "$1" "$2" "$3" >"$work/$1.json"
	shift 3
	hive a run start "$work/$run.json" >/dev/null || fail "$run was refused"
	for n in "$@"; do wait_for 20 joins "$n"; done
}
alone() {
	run=$2
	spec single "$2" "$3" '' >"$work/$2.json"
	hive "$1" run start "$work/$2.json" >/dev/null || fail "single was refused"
	wait_for "$4" ended "$1"
}
alone_as_far() {
	local last
	last=$(for n in "$@"; do saved "$n"; done | sort | tail -n 1 | tr -dc 0-9 | sed 's/^0*//')
	daemon_start s
	alone s alone "$last" 120
}
whole() {
	local folders=() n
	for n in "$@"; do folders+=("$(state "$n")"); done
	compare "${folders[@]}" <<'P' || fail "parts of the pipeline are not the whole"
import sys
from tensors import newest
name, whole = newest(sys.argv[1])
seen = set()
for folder in sys.argv[2:]:
    its, parts = newest(folder)
    assert its == name, (its, name)
    for k, v in parts.items():
        assert v == whole[k], k
        seen.add(k)
    print(len(parts), 'tensors of', its)
assert seen == set(whole), set(whole) - seen
P
}

# Of a, b, c and d: who has a stage, but for NAME.
seated() { json "$1" crew.rank run show "$run" 2>/dev/null | grep -q "^[0-9]"; }
seats() { for n in a b c d; do if [ "$n" != "${1:-}" ] && seated "$n"; then echo "$n"; fi; done; }
