#!/bin/bash
# Parts of a pipeline of every kind: with running statistics and without, one that has no parameters at all, and one that
# two replicas hold. What they learn together has the bits of one daemon that has the whole model, on both who hold a
# part; replicas, which add the same numbers in another order, are apart from it by rounding only, and equal to each
# other.
. "$(dirname "$0")/pipeline_lib.sh"
layers='{"type": "linear", "out": 48}, {"type": "batchnorm"}, {"type": "relu"}, {"type": "linear", "out": 40},
 {"type": "tanh"}, {"type": "relu"}, {"type": "linear", "out": 24}, {"type": "batchnorm"}, {"type": "linear", "out": 4}'
line() {        # NAME EPOCHS STAGES DAEMON...: of a's and of theirs
	begins "$1" "$2" ", \"stages\": $3, \"micro_batches\": 4" "${@:4}"
	for n in a "${@:4}"; do wait_for 60 ended "$n"; done
}

for n in a b c d; do daemon_start $n ${at:+--join "$at"}; at=$(address a); done
alone a long 60 60
line statistics 60 '[{"layers": 3}, {"layers": 3}, {"layers": 3}]' b c
line bare 60 '[{"layers": 4}, {"layers": 2}, {"layers": 3}]' b c
alone a short 1 60
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
