#!/bin/bash
# hivectl model export with real daemons: a pipeline of three and a spare while it trains, after it has ended, with one
# of them killed and back; what any of them writes has the bits of one daemon that has the whole model, at that epoch.
. "$(dirname "$0")/pipeline_lib.sh"
layers='{"type": "linear", "out": 48}, {"type": "batchnorm"}, {"type": "tanh"}, {"type": "linear", "out": 2000},
 {"type": "dropout", "p": 0.1}, {"type": "linear", "out": 48}, {"type": "batchnorm"}, {"type": "relu"}, {"type": "linear", "out": 4}'
local_more=', "checkpoint_every": 50'
run=line
over() { [ "$(json "$1" state run show $run)" = stopped ]; }
saved() { [ -e "$(echo "$(state s)"/runs/*/"epoch-$(printf %010d "$1").safetensors")" ]; }
# The one alone goes no further than it must: it keeps all that it saves.
reached() {
	saved "$1" && return
	hive s run resume alone >/dev/null || fail "s does not go on"
	wait_for 60 saved "$1"
	hive s run pause alone >/dev/null || fail "s does not pause"
}
exports() {     # NAME FOLDER: the epoch that it says
	local out
	out=$(hive "$1" --json model export $run "$work/$2") || fail "$1 exports nothing: $out"
	[ ! -e "$work/$2.part" ] || fail "$2.part is left behind"
	epoch=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["epoch"])' <<<"$out")
	reached "$epoch"
	same "$work/$2" "$(echo "$(state s)"/runs/*/"epoch-$(printf %010d "$epoch").safetensors")" || fail "$2 has other bits"
	say "$1: $out"
}
same() {        # FOLDER CHECKPOINT
	compare "$1" "$2" <<'P'
import json, sys
from tensors import load
meta, its = load(sys.argv[1] + '/model.safetensors')
whole = {k: v for k, v in load(sys.argv[2])[1].items() if not k.startswith('optimizer.')}
assert set(its) == set(whole), set(its) ^ set(whole)
assert any('running_mean' in k for k in its), list(its)
for k, v in its.items():
    assert v == whole[k], k
assert meta['format'] == 'pt' and int(meta['epoch']) == int(sys.argv[2].split('epoch-')[1].split('.')[0]), meta
assert json.load(open(sys.argv[1] + '/spec.json'))['model'], 'no spec'
P
}

daemon_start s
local_more="$local_more, \"checkpoint_keep\": 1000" spec single alone 1000000 '' >"$work/alone.json"
hive s run start "$work/alone.json" >/dev/null || fail "single was refused"
hive s run pause alone >/dev/null || fail "s does not pause"
daemon_start a
spec pipeline $run 1000000 ', "schedule": "1f1b", "stages": 3, "micro_batches": 4, "redundancy": 1' >"$work/line.json"
hive a run start "$work/line.json" >/dev/null || fail "pipeline was refused"
refuse 1 "no part of run line is saved yet" hive a model export $run "$work/early"
for n in b c; do
	daemon_start $n --join "$(address a)"
	wait_for 20 joins $n
done
for n in a b c; do wait_for 60 past $n 52; done
daemon_start d --join "$(address a)"
wait_for 20 joins d
wait_for 60 past d 52

# Members whose disks are slow save every other epoch that the others do, so that it may take a while.
whole() { hive a model export $run "$work/whole" >/dev/null 2>&1; }
wait_for 60 whole
rm -r "$work/whole"
# While it trains: a member, and a spare.
exports a member
exports d spare
[ "$(json d crew.rank run show $run)" = null ] || fail "d is no spare"
past a $((epoch + 1)) || fail "it does not go on"
refuse 1 "is there already" hive a model export $run "$work/member"
refuse 1 "the folder above must be there" hive a model export $run "$work/no/where"
refuse 1 'no run "lin"' hive a model export lin "$work/x"
refuse 3 "dir" hive a model export $run

# When it is over; with one of three parts gone, and back.
expect "stopped" hive a run stop $run --yes
for n in a b c d; do wait_for 60 over $n; done
exports b after
exports d spare_after
daemon_kill b
refuse 1 "have no holder among them" hive d model export $run "$work/less"
[ ! -e "$work/less" ] && [ ! -e "$work/less.part" ] || fail "something is left behind"
daemon_start b --join "$(address a)"
back() { hive d model export $run "$work/back" >/dev/null 2>&1; }
wait_for 60 back
same "$work/back" "$(echo "$(state s)"/runs/*/"epoch-$(printf %010d "$epoch").safetensors")" || fail "back has other bits"

# One that has the whole model: what it has learned until now; and when it is over.
run=alone
exports s whole
[ "$epoch" -gt 50 ] || fail "s exports epoch $epoch"
expect "stopped" hive s run stop alone --yes
exports s whole_after
spec single slow 1000000 '' | sed 's/"target_batch": 64/"target_batch": 1000000000/' >"$work/slow.json"
hive s run start "$work/slow.json" >/dev/null || fail "slow was refused"
refuse 1 "has not learned anything yet" hive s model export slow "$work/slow"
say done
