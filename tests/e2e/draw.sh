#!/bin/bash
# run plan of what does not run: a pipeline from a spec's file or from words, for so many members, drawn as a chart,
# checked and predicted by one daemon without a swarm and without data; what cannot be is refused by name.
. "$(dirname "$0")/lib.sh"
spec() {        # NAME: nine layers, four of which take 10 ms forward and 20 ms backward
	printf '{"name": "%s", "input": [8], "model": [' "$1"
	for _ in 1 2 3 4; do printf '{"type": "linear", "out": 8}, {"type": "sleep", "fwd_ms": 10, "bwd_ms": 20}, '; done
	printf '{"type": "linear", "out": 4}], "loss": "cross_entropy", "optimizer": {"name": "adam", "lr": 0.1},
 "target_batch": 32, "strategy": "pipeline", "schedule": "1f1b", "stages": 4, "micro_batches": 8,
 "data": {"name": "x", "kind": "synthetic", "count": 100}, "local": {"batch": 4, "data": "/nowhere"}}\n'
}
plan() { hive a run plan "$work/four.json" "$@"; }
holds() {       # STATEMENT OPTION...: of the answer d
	local what=$1; shift
	hive a --json run plan "$work/four.json" --members 4 "$@" >"$work/answer" || fail "run plan: $(cat "$work/answer")"
	python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); sys.exit(not eval(sys.argv[2]))' "$work/answer" "$what" ||
		fail "$what: $(head -c 2000 "$work/answer")"
}
not_this() {    # TEXT ARGUMENT...
	local text=$1; shift
	hive a run "$@" >"$work/out" 2>&1 && fail "taken: run $*"
	grep -q -e "$text" "$work/out" || fail "run $*: $(cat "$work/out")"
}

daemon_start a
spec four >"$work/four.json"
plan --members 4 --draw >"$work/chart" || fail "no chart: $(cat "$work/chart")"
cat "$work/chart"
for s in 0 1 2 3; do grep -q "^ *$s train *|" "$work/chart" || fail "member $s has no line"; done
# (p - 1) / (m + p - 1) of the time is idle, nearly: the layers beside those that sleep take some of it.
holds 'all(abs(m["idle"] - 3 / 11) < 0.02 for m in d["members"]) and "plans" not in d' --draw
holds 'len(d["plans"]) == 4 and d["plans"][3]["strategy"] == "pipeline" and "member 3:" in d["text"]'
holds "len(d['digest']) == 64 and d['digest'] == '$(json a digest run plan "$work/four.json" --members 4)'" --draw
# Words go over the file: two stages one after the other, 8 times 120 ms; two such pipelines have half of that each.
holds 'round(d["predicted"]["us"] / 120000) == 8' --stages 2 --schedule naive --replicas 1 --draw
holds 'round(d["predicted"]["us"] / 120000) == 4' --stages 2 --schedule naive --draw
holds '[m["micro_batches"] for m in d["members"]] == [4, 4, 4, 4]' --stages 2
holds '[m["micro_batches"] for m in d["members"]] == [4, 4, 8, 8]' --stages '[{"replicas": 2}, {}, {}]'
# What runs on has no bubble but in the first epoch: 8 times 30 ms for each of four stages, 120 ms for each of two.
holds '235e3 < d["predicted"]["us"] < 245e3 and 320e3 < d["predicted"]["first_us"] < 340e3' --schedule 2bw
holds 'all(m["micro_batches"] == 8 and m["idle"] < 0.02 for m in d["members"])' --schedule 2bw --draw
holds 'round(d["predicted"]["us"] / 60e3) == 8 and d["members"][3]["micro_batches"] == 8' --stages 2 --schedule 2bw --tbs 64
holds '"first_us" not in d["predicted"]' --draw
expect "240.000 ms an epoch, and 330.000 ms the first" plan --members 4 --schedule 2bw --draw
expect "spare" plan --members 5 --draw
# Times that were measured, here or elsewhere, in the place of guessed ones (model profile): they move the cut, too.
profile() {     # US1 US3 US5 US7: made-up times, forward as backward, of the layers that sleep
	python3 -c '
import json, sys
us = dict(zip((1, 3, 5, 7), map(float, sys.argv[1:])))
print(json.dumps({"batch": 4, "layers": [{"name": str(k), "forward_us": us.get(k, 0), "backward_us": us.get(k, 0)} for k in range(9)]}))' \
		"$@" >"$work/times.json"
}
profile 5000 5000 5000 5000
holds 'd["predicted"]["us"] // 1000 == 320' --members 1 --stages 1 --profile "$work/times.json" --draw
expect "from measured times of layers" plan --members 1 --stages 1 --profile "$work/times.json" --draw
holds 'd["members"][0]["last_layer"] in "34"' --members 2 --stages 2 --profile "$work/times.json" --draw
profile 9000 1000 1000 1000
holds 'd["members"][0]["last_layer"] in "12"' --members 2 --stages 2 --profile "$work/times.json" --draw
holds 'd["predicted"]["us"] // 1000 == 2 * 8 * 24' --members 1 --stages 1 --batch 8 --tbs 64 --profile "$work/times.json" --draw
not_this 'layer 3 is "3" without times' plan "$work/four.json" --profile <(sed 's/"name": "3", "forward_us": 1000.0/"name": "3", "forward_us": -1/' "$work/times.json")
not_this 'layer 3 is "x", and the model.s "3": measure this model' plan "$work/four.json" --profile <(sed 's/"name": "3"/"name": "x"/' "$work/times.json")
not_this 'is of 9 layers, and the model has [0-9]*: measure' plan x --model mlp --profile "$work/times.json"
not_this 'this is no profile' plan "$work/four.json" --profile "$work/four.json"
hive a --json model profile --spec "$work/four.json" --batch 4 --passes 3 >"$work/here.json" || fail "the spec cannot be measured"
holds '960e3 <= d["predicted"]["us"]' --members 1 --stages 1 --profile "$work/here.json" --draw

# Left to the planner: sleeping takes as long for many samples as for few, so it takes many.
holds 'd["chosen"]["micro_batch_size"] > 4 and d["chosen"]["stages"] * d["chosen"]["replicas"] <= 4 and d["chosen"]["ways"] > 20' \
	--stages auto --remat auto --micro_batch_size auto --draw
expect "chosen: 4 pipelines of 1 stage, micro-batches of 4, without recomputing: predicted 133." \
	plan --members 4 --stages auto --remat auto --memory 1GiB --draw
holds '"chosen" not in d' --stages 4 --remat boundary --draw
not_this "of [0-9]* ways to lay a pipeline over 4 members none fits: the nearest, .*, lacks [0-9]* bytes" plan "$work/four.json" \
	--members 4 --stages auto --micro_batch_size auto --remat auto --memory 1KiB
not_this "stages must be a number, or a list of 1 to 256 stages, or" plan "$work/four.json" --members 4 --stages many
not_this "remat must be one of: none boundary auto" plan "$work/four.json" --members 4 --remat periodic
not_this "4 stages need 4 members, and there are 3" plan "$work/four.json" --members 3
not_this "20 stages, and the model has 9 layers" plan "$work/four.json" --members 20 --stages 20
not_this "known: naive gpipe 1f1b 2bw" plan "$work/four.json" --members 4 --schedule zigzag
not_this "are missing; more stages" plan "$work/four.json" --members 4 --memory 1KiB
not_this "must be 1 to 256" plan "$work/four.json" --members 1000
not_this "belongs to strategy pipeline, and this run's strategy is single" plan "$work/four.json" --strategy single

# Models of the zoo, in words.
hive a run plan big --model=gpt2 layers=2 --strategy pipeline --stages 4 --members 4 --batch 1 --tbs 16 >"$work/tied" || fail "no plan of gpt2: $(cat "$work/tied")"
[ "$(grep -c "SEND: acc.tied! to 0" "$work/tied")" = 1 ] || fail "the last stage gives nothing to the first: $(cat "$work/tied")"
printf '{"name": "t", "input": [8], "model": [{"type": "linear", "out": 8}, {"type": "linear", "out": 8, "name": "one"}, {"type": "tanh"},
 {"type": "linear", "out": 8, "name": "two", "share": "one"}, {"type": "linear", "out": 4}], "loss": "cross_entropy", "target_batch": 32,
 "optimizer": {"name": "adam", "lr": 0.1}, "strategy": "pipeline", "stages": 3, "data": {"name": "x", "kind": "synthetic", "count": 100},
 "local": {"batch": 4, "data": "/nowhere"}}\n' >"$work/two.json"
not_this "one and two share parameters, which are in one stage, or in the first and the last one" plan "$work/two.json" --members 4 --stages 4
hive a run plan big --model=resnet18 classes=10 --strategy pipeline --stages 3 --members 3 --batch 8 --tbs 96 --mbit 1000 \
	--latency 1ms --draw >"$work/resnet" || fail "no chart of resnet18: $(cat "$work/resnet")"
cat "$work/resnet"

# What runs is drawn as well.
printf '{"name": "nap", "input": [8], "model": [{"type": "sleep", "fwd_ms": 5, "bwd_ms": 5}, {"type": "linear", "out": 4}],
 "loss": "cross_entropy", "optimizer": {"name": "sgd", "lr": 0.1}, "target_batch": 16, "strategy": "single",
 "data": {"name": "x", "kind": "synthetic", "count": 100}, "local": {"batch": 16, "data": "/x"}}' >"$work/nap.json"
not_this "strategy single has the whole model" plan "$work/nap.json" --members 4
hive a run start "$work/nap.json" >/dev/null || fail "nap was refused"
drawn() { hive a run plan nap --draw 2>/dev/null | grep -q "train *|"; }
wait_for 10 drawn
say "drawn, and refused where it should be"
