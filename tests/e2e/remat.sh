#!/bin/bash
# Rematerialization: a model that local.memory refuses trains with --remat, in exactly the bytes that were predicted, and
# after every epoch with the bits of a run that keeps everything; also over a SIGKILL, and in a swarm of which only one
# peer computes twice. What cannot be is refused by name.
. "$(dirname "$0")/lib.sh"
data=$root/tests/data/digits
epochs=$(fewer 40)
deep() {        # NAME STATEMENT...: a dozen convolutions with norms, dropout and a value that goes past some of them
	local name=$1
	shift
	digits_spec "d['name'], d['strategy'], d['stop'], d['target_batch'] = '$name', 'single', {'epochs': $epochs}, 128" '
layers = []
for i in range(12):
    layers += [{"type": "conv2d", "name": f"conv{i}", "out": 16, "kernel": 3, "padding": 1}, {"type": "batchnorm", "name": f"norm{i}"}]
    if i == 3: layers += [{"type": "add", "name": f"sum{i}", "inputs": [f"norm{i}", f"relu{i - 2}"]}]
    layers += [{"type": "relu", "name": f"relu{i}"}]
d["model"] = layers + [{"type": "dropout", "p": 0.2, "name": "drop"}, {"type": "flatten"}, {"type": "linear", "name": "fc", "out": 10}]
d["local"] = {"batch": 32, "checkpoint_every": 2, "log": "64MiB"}' "$@" >"$work/$name.json"
}
bytes() { json a training_bytes memory --spec "$work/deep.json" "$@" || fail "memory: $*"; }
chain() {       # NAME: the digests of its epochs, as the logs of its lives have them, all the same
	python3 - "$epochs" "$work/a/runs/$(json a run run show "$1")"/run.log* <<'END'
import re, sys
of = {}
for line in (l for f in sys.argv[2:] for l in open(f, errors='replace')):
    if m := re.search(r'"ev":"applied","epoch":(\d+),"digest":"([0-9a-f]{16,})"', line):
        of.setdefault(int(m[1]), set()).add(m[2])
epochs = int(sys.argv[1])
if sorted(of) != list(range(1, epochs + 1)) or any(len(d) != 1 for d in of.values()):
    sys.exit(f'not one digest for each of {epochs} epochs: {of}')
print(*(d.pop() for _, d in sorted(of.items())))
END
}
ended() { json_is done a state run show "$1"; }
written() { chain "$1" >/dev/null 2>&1; }       # all epochs, which are on disk a little later
begin() { hive a run start "$work/deep.json" --data "$data" --name "$@" >"$work/said" 2>&1 || fail "run start $*: $(cat "$work/said")"; }
no_start() {    # WORDS OPTION...
	local words=$1; shift
	refuse 1 "$words" hive a run start "$work/deep.json" --data "$data" --name not "$@"
}

daemon_start a
deep deep
plain=$(bytes) less=$(bytes --remat periodic)
[ "$less" -lt $((plain * 2 / 3)) ] || fail "$less bytes with remat, $plain without"
expect "activations kept for backward" hive a memory --spec "$work/deep.json" --remat periodic
echo "{\"memory\": $less}" >"$work/room.json"
no_start "or --remat periodic:" --local "$work/room.json"
begin small --local "$work/room.json" --remat periodic
wait_for 60 past a 4 small
daemon_kill a
daemon_start a
begin whole
for n in small whole; do wait_for 120 ended $n; done
for n in small whole; do wait_for 20 written $n; done
[ "$(chain small)" = "$(chain whole)" ] || fail "other bits: $(chain small), without remat $(chain whole)"
deep endless "d['stop'] = {'epochs': 1000000}"
for remat in none periodic; do
	hive a run start "$work/endless.json" --data "$data" --name "$remat" --remat $remat >"$work/said" || fail "$(cat "$work/said")"
	wait_for 60 past a 3 $remat
	peak=$(show a trainer.arena_peak_bytes $remat)
	[ "$peak" = "$(show a trainer.arena_predicted_bytes $remat)" ] || fail "$remat: $peak bytes, and others were predicted"
	hive a run stop $remat --yes >"$work/said" || fail "$(cat "$work/said")"
done
[ "$peak" -le "$less" ] || fail "$peak bytes were used, $less are allowed"
say "$less bytes instead of $plain, the same bits, over a SIGKILL"

# As many segments as it takes; a byte less than the least is refused with what is missing.
begin fitted --remat "periodic:$((plain * 9 / 10000))kB"
wait_for 120 ended fitted
wait_for 20 written fitted
[ "$(chain fitted)" = "$(chain whole)" ] || fail "other bits with a stated memory: $(chain fitted), without remat $(chain whole)"
no_start "bytes more; --batch" --remat "periodic:$(($(bytes --batch 1 --remat periodic) / 1000 + 300))kB"
no_start "bytes are missing" --remat periodic:1KiB
no_start "local.remat.policy: unknown policy \"peridic\"" --remat peridic
no_start "local.remat.segments: 40 are asked for, and policy periodic can cut this model of 40 layers into" --remat periodic:40
no_start "norm2 cannot be one: what relu1 makes goes past it and would be lost; the nearest that can: relu1, sum3" --remat user:norm2
no_start "remat must be one of: none boundary auto" --remat periodic --strategy pipeline --stages 2

# Shown before it runs, and while it does.
expect "remat periodic: 4 segments of at most" hive a run plan "$work/deep.json" --remat periodic:4
expect "remat boundary: " hive a run plan "$work/deep.json" --remat boundary --draw
refuse 1 "bytes are missing; --remat periodic:" hive a run plan "$work/deep.json" --memory "$less"
refuse 1 ": 1 bytes are missing; --remat periodic:" hive a run plan "$work/deep.json" --memory $((plain - 1))
expect "state" hive a run plan "$work/deep.json" --memory "$plain"
refuse 1 "bytes are missing; with --remat at least" hive a run plan "$work/deep.json" --memory 1KiB
hive a --json run plan "$work/deep.json" --remat user:relu1,sum3 >"$work/answer" || fail "$(cat "$work/answer")"
python3 - "$work/answer" <<'END' || fail "run plan: $(head -c 2000 "$work/answer")"
import json, sys
r = json.load(open(sys.argv[1]))["remat"]
names = [(s["first_layer"], s["last_layer"], s["twice"]) for s in r["list"]]
assert names == [("conv0", "relu1", True), ("conv2", "sum3", True), ("relu3", "fc", False)], names
assert r["most_bytes"] < r["most_bytes_plain"] and r["forward_layers"] == 40 + 12, r
END

# What it costs in time: four layers of 10 ms and back 20 ms, of which two run forward twice. The fastest of some, within 15 %.
python3 - >"$work/nap.json" <<'END'
import json
layers = [l for i in range(4) for l in ({"type": "linear", "out": 8}, {"type": "sleep", "fwd_ms": 10, "bwd_ms": 20})]
print(json.dumps({"name": "nap", "input": [8], "model": layers + [{"type": "linear", "out": 4}], "loss": "cross_entropy",
	"optimizer": {"name": "sgd", "lr": 0.1}, "target_batch": 16, "strategy": "single", "stop": {"epochs": 20},
	"data": {"name": "x", "kind": "synthetic", "count": 100}, "local": {"batch": 16, "data": "/x", "remat": "user:4"}}))
END
said=$(json a predicted.us run plan "$work/nap.json")
hive a run start "$work/nap.json" >"$work/said" || fail "$(cat "$work/said")"
wait_for 20 ended nap
took=$(json a rows.0.0 query "select min(took_us) from epochs where epoch > 1 and run = '$(json a run run show nap)'")
[ "$took" -ge 140000 ] || fail "140 ms of sleep took $took us"
python3 -c 'import sys; s, t = map(float, sys.argv[1:]); sys.exit(not abs(s - t) < 0.15 * t)' "$said" "$took" ||
	fail "$said us were predicted, and the fastest took $took"
say "predicted $said us, the fastest took $took"

# A swarm: one computes twice, one does not.
deep both "d['strategy'], d['stop'] = 'hivemind', {'epochs': 1000000}"
daemon_start b --join "$(address a)"
hive a run start "$work/both.json" --data "$data" --remat boundary >"$work/said" || fail "$(cat "$work/said")"
run=both run_data=$data
wait_for 20 joined b
wait_for 60 members a 2
goes_on b
expect "remat boundary: " hive a run plan both --draw
expect "a micro-batch:" hive b run plan both
daemon_kill a
goes_on b
daemon_start a --join "$(address b)"
wait_for 60 members b 2
goes_on a
expect "remat boundary: " hive a run plan both
one_history both 4 a b
daemon_stop a
daemon_stop b
say "done"
