#!/bin/bash
# Sleep layers really wait in the daemon, and never hold up its end: a run with layers of an hour leaves at once, and so
# does the daemon.
. "$(dirname "$0")/lib.sh"
spec() {        # NAME FWD_MS EPOCHS
	cat <<END
{"name": "$1", "input": [8], "model": [{"type": "sleep", "fwd_ms": $2, "bwd_ms": $2}, {"type": "linear", "out": 4}],
 "loss": "cross_entropy", "optimizer": {"name": "sgd", "lr": 0.1}, "target_batch": 16, "strategy": "single",
 "data": {"name": "x", "kind": "synthetic", "count": 100}, "stop": {"epochs": $3}, "validation": {"every": 1}, "local": {"batch": 16, "data": "/x"}}
END
}
start() { spec "$@" >"$work/$1.json"; hive a run start "$work/$1.json" >/dev/null || fail "run $1 was refused"; }
over() { local s; s=$(json a state run show "$1" 2>/dev/null) && [ "$s" = "$2" ]; }

spec night 3600000 2 >"$work/night.json"
daemon_start a
begun=$(now_ms)
start nap 25 8
wait_for 20 over nap done
took=$(($(now_ms) - begun))
[ "$took" -ge 400 ] || fail "8 epochs of 50 ms took $took ms"
# Forward, and forward again for the validation. The fastest: on a busy machine some of them take longer, none takes less.
least=$(json a rows.0.0 query "select min(took_us) from epochs where epoch > 1")
[ "$least" -ge 50000 ] && [ "$least" -lt $((100000 * HIVE_SLOW)) ] || fail "an epoch of 50 ms took $least us"

# What is predicted from the times of the first micro-batches is what then happens; on a machine that is busy with other
# things both swing, so no more than a third or three times is asked for here (test_plan_predict has exact figures).
start steady 10 100000
times() { json a "times.$1" run show steady 2>/dev/null; }
known() { local e; e=$(times epoch_us) && [ "$e" -gt 0 ]; }
wait_for 20 known
python3 - "$HIVE_SLOW" $(times micro_batch_predicted_us) $(times micro_batch_us) $(times epoch_predicted_us) $(times epoch_us) <<'END' ||
import sys
slow, mp, m, ep, e = map(float, sys.argv[1:])
sys.exit(not (20000 <= mp and 20000 <= m and max(mp / m, m / mp, ep / e, e / ep) < 3 * slow))
END
	fail "predicted and measured: $(json a times run show steady)"
say "predicted and measured: $(json a times run show steady)"
expect "from measured times" hive a run plan steady
refuse 1 '--members is of a spec or a model that does not run' hive a run plan steady --members 4
[ "$(json a predicted.1.stuck run plan steady)" = false ] || fail "the step is predicted to be stuck"
# Who asks for the gradient of the data? Nobody: the wait backward of a first layer without parameters does not happen.
python3 -c 'import sys; f, b, s = map(float, sys.argv[1:]); sys.exit(not (f >= 10000 and b < 10000 and s > 0.5))' \
	"$(json a layers.0.forward_us run layers steady)" "$(json a layers.0.backward_us run layers steady)" \
	"$(json a layers.0.share run layers steady)" || fail "a layer that waits 10 ms: $(hive a run layers steady)"
expect "backward ms" hive a run layers steady
hive a run stop steady --yes >/dev/null || fail "the run cannot be stopped"

# A wait of 30 ms in one of several layers ranks first (row N05), in a run and in a profile beforehand.
cat >"$work/wait.json" <<'END'
{"name": "wait", "input": [3, 16, 16], "model": [{"type": "conv2d", "name": "c", "out": 8, "kernel": 3, "padding": 1}, {"type": "relu"},
 {"type": "flatten"}, {"type": "linear", "name": "wide", "out": 64}, {"type": "sleep", "name": "injected", "fwd_ms": 30}, {"type": "linear", "out": 4}],
 "loss": "cross_entropy", "optimizer": {"name": "sgd", "lr": 0.1}, "target_batch": 16, "strategy": "single",
 "data": {"name": "x", "kind": "synthetic", "count": 100}, "stop": {"epochs": 100000}, "validation": {"every": 0}, "local": {"batch": 16, "data": "/x"}}
END
first() {       # COMMAND...: the layer that takes longest, and how long forward
	"$@" | python3 -c '
import json, sys
l = max(json.load(sys.stdin)["layers"], key=lambda l: l["forward_us"] + l["backward_us"])
print(l["name"], int(l["forward_us"]) >= 30000)'
}
[ "$(first hive a --json model profile --spec "$work/wait.json" --batch 16)" = 'injected True' ] ||
	fail "a profile: $(hive a model profile --spec "$work/wait.json" --batch 16)"
hive a run start "$work/wait.json" >/dev/null || fail "run wait was refused"
slowest() { [ "$(first hive a --json run layers wait 2>/dev/null)" = 'injected True' ]; }
wait_for 20 slowest
# Who trains goes on while a model is measured: the two take turns.
now=$(epoch a wait)
hive a --json model profile lenet5 --batch 8 --passes 30 >"$work/lenet.json" || fail "a profile beside a run"
python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
assert d["runs_training"] == 1 and d["passes"] == 30 and len(d["layers"]) == 12, d
assert 0 < d["layers_us"] <= 1.25 * (d["forward_us"] + d["backward_us"]), d
assert sum(l["weight_bytes"] for l in d["layers"]) == 4 * 61706, d' "$work/lenet.json" || fail "LeNet-5: $(cat "$work/lenet.json")"
further() { [ "$(epoch a wait)" -gt "$((now + 1))" ]; }
wait_for 20 further
hive a run stop wait --yes >/dev/null || fail "the run cannot be stopped"
sed 's/"fwd_ms": 30/"fwd_ms": 2000/' "$work/wait.json" >"$work/long.json"
refuse 1 'passes: must be 1 to 1000' hive a model profile lenet5 --passes 0
refuse 1 'would take about 7200 s' hive a model profile --spec "$work/night.json"
refuse 1 'a pass of 1 samples takes 2.00 s, and 1000 of them too long: say --passes=' hive a model profile --spec "$work/long.json" --passes 1000
refuse 1 'measuring takes' hive a model profile gpt2 layers=40 width=16384 heads=128
refuse 1 'unknown model "lenet"; did you mean' hive a model profile lenet

training() { json_is train a state run show "$1"; }
start night 3600000 2
wait_for 10 training night
begun=$(now_ms)
hive a run leave night >/dev/null
wait_for 10 over night left
say "a run with layers of an hour left after $(($(now_ms) - begun)) ms"
start night2 3600000 2
wait_for 10 training night2
begun=$(now_ms)
daemon_stop a
took=$(($(now_ms) - begun))
[ "$took" -lt $((10000 * HIVE_SLOW)) ] || fail "the daemon took $took ms to end"
# And one that measures a model: whoever waits for that is told.
daemon_start a
hive a model profile --spec "$work/long.json" --passes 20 >"$work/asked" 2>&1 &
asked=$!
measures() { hive a model profile lenet5 --passes 0 2>&1 | grep -q 'measured already'; }
wait_for 20 measures
daemon_stop a
wait "$asked" && fail "a profile has an answer that nobody measured"
grep -q 'the daemon is stopping' "$work/asked" || fail "whoever waited was told: $(cat "$work/asked")"
say "and the daemon ended after $took ms"
