#!/bin/bash
# Power fails: all daemons of a pipeline are killed at once, each with checkpoints of some epochs on its disk, and started
# again. They go on from the newest epoch that is whole on the disks together, and what they learn has the bits of one
# daemon that nothing has disturbed. Then all but one are killed: what that one has in memory is not enough, and it goes
# back with them.
. "$(dirname "$0")/pipeline_lib.sh"
whole_on_disk() {       # the newest epoch of which these state folders together have every tensor, 0: none
	compare "$@" <<'P'
import glob, sys
from tensors import load
import json
def read(folders):
    epochs = {}
    for folder in folders:
        for path in glob.glob(folder + '/runs/*/epoch-*.safetensors'):
            meta = load(path)[0]
            point = json.loads(meta['point'])
            for lo, hi, slo, shi in json.loads(meta['crew_parts']):
                epochs.setdefault((point['epoch'], point['prev']), set()).update(
                    [('p', i) for i in range(lo, hi)] + [('s', i) for i in range(slo, shi)])
    return epochs
while True:
    try:
        epochs = read(sys.argv[1:])
        break
    except FileNotFoundError:   # who lives saves, and removes what is old, between the listing and the reading
        pass
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
begins line 1000000 ', "stages": 3, "micro_batches": 4' b c
for n in a b c; do wait_for 90 past $n 70; done

# All at once.
kill -KILL "${daemon_pid[a]}" "${daemon_pid[b]}" "${daemon_pid[c]}"
for n in a b c; do daemon_ended $n; done
mapfile -t folders < <(states)
whole=$(whole_on_disk "${folders[@]}") || fail "the checkpoints cannot be read"
[ "$whole" -ge 20 ] || fail "after 70 epochs nothing is whole on the disks"
restarted c a b
for n in a b c; do wait_for 60 past $n $((whole + 25)); done
say "power was lost, and epoch $whole was whole: at epoch $(epoch a)"

# Two of three.
kill -KILL "${daemon_pid[b]}" "${daemon_pid[c]}"
for n in b c; do daemon_ended $n; done
mapfile -t folders < <(states)
whole=$(whole_on_disk "${folders[@]}") || fail "the checkpoints cannot be read"
for n in b c; do daemon_start $n --join "$(address a)"; done
for n in a b c; do wait_for 90 past $n $((whole + 25)); done
say "two of three died: at epoch $(epoch a)"

# They stop in order; one alone goes there, too.
for n in a b c; do daemon_stop $n; done
alone_as_far a b c
compare "$(state s)" "$(state a)" "$(state b)" "$(state c)" <<'P' || fail "what was learned is not what one alone has learned"
import sys
from tensors import holders
count, name = holders(sys.argv[1], sys.argv[2:])
print(len(count), 'tensors of', name)
P
say done
