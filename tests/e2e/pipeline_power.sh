#!/bin/bash
# Power fails: all daemons of a pipeline are killed at once, each with checkpoints of some epochs on its disk, and started
# again. They go on from the newest epoch that is whole on the disks together, and what they learn has the bits of one
# daemon that nothing has disturbed. Then all but one are killed: what that one has in memory is not enough, and it goes
# back with them.
. "$(dirname "$0")/lib.sh"
spec() {        # STRATEGY NAME EPOCHS PLAN
	printf '{"name": "%s", "input": [12], "model": [{"type": "linear", "out": 48}, {"type": "batchnorm"},
 {"type": "relu"}, {"type": "linear", "out": 40}, {"type": "tanh"}, {"type": "linear", "out": 24},
 {"type": "batchnorm"}, {"type": "linear", "out": 4}], "loss": "cross_entropy",
 "optimizer": {"name": "adamw", "lr": 0.01, "weight_decay": 0.1}, "target_batch": 64, "strategy": "%s"%s,
 "stop": {"epochs": %s}, "validation": {"every": 0}, "seed": 5, "data": {"name": "x", "kind": "synthetic",
 "count": 4000}, "local": {"batch": 8, "data": "/x"}}\n' "$2" "$1" "$4" "$3"
}
joins() { hive "$1" run join $run --data=/x >/dev/null 2>&1; }
ended() { [ "$(json "$1" state run show $run)" = done ]; }
whole_on_disk() {       # the newest epoch of which these state folders together have every tensor, 0: none
	compare "$@" <<'P'
import glob, sys
from tensors import load
import json
epochs = {}
for folder in sys.argv[1:]:
    for path in glob.glob(folder + '/runs/*/epoch-*.safetensors'):
        meta = load(path)[0]
        point = json.loads(meta['point'])
        for lo, hi, slo, shi in json.loads(meta['crew_parts']):
            epochs.setdefault((point['epoch'], point['prev']), set()).update(
                [('p', i) for i in range(lo, hi)] + [('s', i) for i in range(slo, shi)])
most = max((len(v) for v in epochs.values()), default=0)
print(max((k[0] for k, v in epochs.items() if len(v) == most), default=0))
P
}
states() { for n in a b c; do state $n; echo; done; }
restarted() {   # NAME...: with one another's addresses
	local join=
	for n in "$@"; do daemon_start "$n" ${join:+--join "$join"}; join=$(address "$n"); done
}

daemon_start a
for n in b c; do daemon_start $n --join "$(address a)"; done
run=line
spec pipeline line 1000000 ', "stages": 3, "micro_batches": 4' >"$work/line.json"
hive a run start "$work/line.json" >/dev/null || fail "pipeline was refused"
for n in b c; do wait_for 20 joins $n; done
for n in a b c; do wait_for 90 past $n 70; done

# All at once.
kill -KILL "${daemon_pid[a]}" "${daemon_pid[b]}" "${daemon_pid[c]}"
for n in a b c; do daemon_ended $n; done
mapfile -t folders < <(states)
whole=$(whole_on_disk "${folders[@]}")
[ "$whole" -ge 20 ] || fail "after 70 epochs nothing is whole on the disks"
restarted c a b
for n in a b c; do wait_for 60 past $n $((whole + 25)); done
say "power was lost, and epoch $whole was whole: at epoch $(epoch a)"

# Two of three.
kill -KILL "${daemon_pid[b]}" "${daemon_pid[c]}"
for n in b c; do daemon_ended $n; done
mapfile -t folders < <(states)
whole=$(whole_on_disk "${folders[@]}")
for n in b c; do daemon_start $n --join "$(address a)"; done
for n in a b c; do wait_for 90 past $n $((whole + 25)); done
say "two of three died: at epoch $(epoch a)"

# They stop in order; one alone goes there, too.
for n in a b c; do daemon_stop $n; done
saved() { basename "$(find "$(state "$1")"/runs -name 'epoch-*.safetensors' | sort | tail -n 1)"; }
last=$(for n in a b c; do saved $n; done | sort | tail -n 1 | tr -dc 0-9 | sed 's/^0*//')
daemon_start s
run=alone
spec single alone "$last" '' >"$work/alone.json"
hive s run start "$work/alone.json" >/dev/null || fail "single was refused"
wait_for 120 ended s
compare "$(state s)" "$(state a)" "$(state b)" "$(state c)" <<'P' || fail "what was learned is not what one alone has learned"
import sys
from tensors import newest
name, whole = newest(sys.argv[1])
holders = {}
for folder in sys.argv[2:]:
    its, parts = newest(folder)
    if its != name:
        continue
    for k, v in parts.items():
        assert v == whole[k], k
        holders[k] = holders.get(k, 0) + 1
assert set(holders) == set(whole), set(whole) - set(holders)
print(len(whole), 'tensors of', name)
P
say done
