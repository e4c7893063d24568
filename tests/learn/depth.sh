#!/bin/bash
# Depth pays when the norms stand inside the residual branches (Megatron-LM's BERT, Shoeybi et al., arXiv:1909.08053,
# section 3): four layers guess the hidden characters of tiny Shakespeare at least as well as two after the same steps.
# Two daemons, side by side. The text is looked for in $HIVEMIND_DATA and beside the source tree; without it: skipped.
. "$(dirname "$0")/../e2e/lib.sh"
text=${HIVEMIND_DATA:-$root/../shared/data}/tinyshakespeare/input.txt
[ -e "$text" ] || skip "no tiny Shakespeare at $text (set HIVEMIND_DATA)"
steps=4000

for layers in 2 4; do
	cat >"$work/spec$layers.json" <<END
{"name": "depth", "model": {"zoo": "bert", "layers": $layers, "width": 64, "heads": 4, "inner": 256, "vocab": 257, "positions": 32,
  "context": 32, "norm": "pre", "dropout": 0}, "loss": {"type": "cross_entropy", "ignore": -100},
 "optimizer": {"name": "adamw", "lr": 0.0005, "weight_decay": 0.01}, "clip_norm": 1, "strategy": "single", "seed": 1,
 "schedule": {"name": "cosine", "total": $steps, "warmup": 200, "min": 0.05}, "target_batch": 32,
 "data": {"name": "text", "kind": "text"}, "validation": {"every": $steps}, "stop": {"epochs": $steps},
 "local": {"batch": 32, "threads": 1}}
END
	daemon_start "d$layers"
	hive "d$layers" run start "$work/spec$layers.json" --data "$text" >/dev/null || fail "the run of $layers layers was refused"
done
for layers in 2 4; do
	wait_for 500 json_is done "d$layers" state run show depth
	loss[layers]=$(json "d$layers" val_loss run show depth)
	say "$layers layers: $(json "d$layers" parameters run show depth) parameters, validation loss ${loss[layers]} after $steps steps"
	daemon_stop "d$layers"
done
for layers in 2 4; do figure "loss_of_$layers" "${loss[layers]}" nats lower; done
python3 -c "import sys; sys.exit(not float(sys.argv[2]) <= float(sys.argv[1]))" "${loss[2]}" "${loss[4]}" ||
	fail "four layers have a validation loss of ${loss[4]}, two of ${loss[2]}: depth should not hurt"
