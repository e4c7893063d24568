#!/bin/bash
# A GPT-2 on tiny Shakespeare, with a real daemon and with PyTorch: the same weights to begin with, the same windows in the
# same order, the same AdamW and clipping. The first fifty losses are the same to 1e-3, and both fall. Skipped without the
# text ($HIVEMIND_DATA/tinyshakespeare, or beside the source tree) or without a Python that has PyTorch (PYTHON names it).
. "$(dirname "$0")/../e2e/lib.sh"
text=${HIVEMIND_DATA:-$root/../shared/data}/tinyshakespeare/input.txt
[ -e "$text" ] || skip "no tiny Shakespeare at $text (set HIVEMIND_DATA)"
python=${PYTHON:-python3}
"$python" -c "import torch" 2>/dev/null || skip "$python has no PyTorch (set PYTHON)"
steps=${STEPS:-50}

cat >"$work/spec.json" <<END
{"name": "shakespeare", "model": {"zoo": "gpt2", "layers": 4, "width": 128, "heads": 4, "vocab": 256, "positions": 64, "context": 64,
 "dropout": 0}, "loss": "cross_entropy", "optimizer": {"name": "adamw", "lr": 0.001, "weight_decay": 0.1}, "clip_norm": 1,
 "target_batch": 16, "seed": 5, "strategy": "single", "data": {"name": "shakespeare", "kind": "text"}, "validation": {"every": 0},
 "stop": {"epochs": $steps}, "local": {"batch": 16}}
END
"$python" "$root/tests/learn/shakespeare_torch.py" init "$work/spec.json" "$work/init.safetensors" || fail "no weights to begin with"
daemon_start a
hive a run start "$work/spec.json" --data "$text" --weights "$work/init.safetensors" >/dev/null || fail "the run was refused"
wait_for 280 json_is done a state run show shakespeare
hive a --json query "select epoch, loss, val_loss from epochs order by epoch" --rows 10000 >"$work/ours.json"
say "$(hive a run show shakespeare | grep -E "^(val loss|val perplexity)" | tr -s ' ' | tr '\n' ' ')"
"$python" "$root/tests/learn/shakespeare_torch.py" compare "$work/spec.json" "$work/init.safetensors" "$text" "$work/ours.json" ||
	fail "the losses are not PyTorch's"
daemon_stop a
