#!/bin/bash
# Parts of a pipeline of every kind: with running statistics and without, one that has no parameters at all, and one that
# two replicas hold. What they learn together has the bits of one daemon that has the whole model, on both who hold a
# part; replicas, which add the same numbers in another order, are apart from it by rounding only, and equal to each
# other.
. "$(dirname "$0")/lib.sh"
spec() {        # STRATEGY NAME EPOCHS PLAN
	printf '{"name": "%s", "input": [12], "model": [{"type": "linear", "out": 48}, {"type": "batchnorm"},
 {"type": "relu"}, {"type": "linear", "out": 40}, {"type": "tanh"}, {"type": "relu"}, {"type": "linear", "out": 24},
 {"type": "batchnorm"}, {"type": "linear", "out": 4}], "loss": "cross_entropy",
 "optimizer": {"name": "adamw", "lr": 0.01, "weight_decay": 0.1}, "target_batch": 64, "strategy": "%s"%s,
 "stop": {"epochs": %s}, "validation": {"every": 0}, "seed": 5,
 "data": {"name": "x", "kind": "synthetic", "count": 4000}, "local": {"batch": 8, "data": "/x"}}\n' "$2" "$1" "$4" "$3"
}
ended() { [ "$(json "$1" state run show "$run")" = done ]; }
joins() { hive "$1" run join "$run" --data=/x >/dev/null 2>&1; }
alone() {       # NAME EPOCHS
	run=$1
	spec single "$1" "$2" '' >"$work/$1.json"
	hive a run start "$work/$1.json" >/dev/null || fail "single was refused"
	wait_for 60 ended a
}
line() {        # NAME EPOCHS STAGES DAEMON...: of a's and of theirs
	run=$1
	spec pipeline "$1" "$2" ", \"stages\": $3, \"micro_batches\": 4" >"$work/$1.json"
	shift 3
	hive a run start "$work/$run.json" >/dev/null || fail "$run was refused"
	for n in "$@"; do wait_for 20 joins "$n"; done
	for n in a "$@"; do wait_for 60 ended "$n"; done
}

for n in a b c d; do daemon_start $n ${at:+--join "$at"}; at=$(address a); done
alone long 60
line statistics 60 '[{"layers": 3}, {"layers": 3}, {"layers": 3}]' b c
line bare 60 '[{"layers": 4}, {"layers": 2}, {"layers": 3}]' b c
alone short 1
line replicas 1 '[{"layers": 3}, {"layers": 4, "replicas": 2}, {"layers": 2}]' b c d

compare "$(state a)" "$(state b)" "$(state c)" "$(state d)" <<'P' || fail "the parts are not the whole"
import glob, struct, sys
from tensors import load
runs = {}
for folder in sys.argv[1:]:
    for path in sorted(glob.glob(folder + '/runs/*/epoch-*.safetensors')):
        meta, parts = load(path)
        runs.setdefault(meta['name'], {})[folder] = parts
def whole(name):
    part, = runs[name].values()
    return part
def of(name, n):
    v = [p for p in runs[name].values() if len(p) > 1]
    assert len(runs[name]) == n, (name, len(runs[name]))
    return v
for name in 'statistics', 'bare':
    seen = {}
    for part in of(name, 3):
        for k, v in part.items():
            assert v == whole('long')[k], (name, k)
            seen[k] = seen.get(k, 0) + 1
    assert set(seen) == set(whole('long')), (name, set(whole('long')) - set(seen))
    assert min(seen.values()) >= 2, (name, seen)
floats = lambda v: struct.unpack('<%df' % (len(v) // 4), v)
all, apart = {}, 0
for part in of('replicas', 4):
    for k, v in part.items():
        assert all.setdefault(k, v) == v, ('replicas differ', k)
for k, v in all.items():
    if k != 'optimizer.clock':
        apart = max([apart] + [abs(x - y) for x, y in zip(floats(v), floats(whole('short')[k]))])
assert set(all) == set(whole('short')) and apart < 1e-6, apart
print('replicas are apart from one by at most', apart)
P
say done
