#!/bin/bash
# hivectl memory: what it says is what a run then takes, to the byte, for ten models, optimizers and batches (row N02).
. "$(dirname "$0")/lib.sh"

daemon_start a
number() { json a "$@"; }

steps() { [ "$(json a epoch run show "$1")" -ge 3 ]; }

# try NAME OPTIMIZER BATCH MODEL [key=value...]
try() {
	local name=$1 optimizer=$2 batch=$3 arena training use
	shift 3
	python3 - "$optimizer" "$batch" "$@" >"$work/$name.json" <<'END'
import json, sys
optimizer, batch, model, words = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]
model = {'zoo': model, **{w.split('=')[0]: json.loads(w.split('=')[1]) if w[-1] in '0123456789]' else w.split('=')[1] for w in words}}
optimizer = {'name': optimizer, **({'momentum': 0.9} if optimizer == 'sgd' else {})}
print(json.dumps({'name': 'x', 'model': model, 'loss': 'cross_entropy', 'optimizer': optimizer, 'target_batch': batch,
	'data': {'name': 'none', 'kind': 'synthetic', 'count': 64}, 'local': {'batch': batch}}))
END
	arena=$(json a arena_bytes memory "$@" --batch "$batch" --optimizer "$optimizer")
	training=$(json a training_bytes memory "$@" --batch "$batch" --optimizer "$optimizer")
	use=$(json a use_bytes memory "$@" --batch "$batch" --optimizer "$optimizer")
	[ "$arena" = "$(json a arena_bytes memory --spec "$work/$name.json")" ] || fail "$name: --spec says something else"
	[ "$training" -gt "$use" ] || fail "$name: training $training, use $use"
	hive a run start "$work/$name.json" --name "$name" >"$work/$name.out" 2>&1 || { cat "$work/$name.out"; fail "$name does not start"; }
	wait_for 60 steps "$name"
	[ "$arena" = "$(json a trainer.arena_peak_bytes run show "$name")" ] ||
		fail "$name: $arena bytes were promised, $(json a trainer.arena_peak_bytes run show "$name") were used"
	hive a run stop "$name" --yes >"$work/$name.out" || fail "$name does not stop"
}

try mlp sgd 64 mlp
try mlp-adam adam 7 mlp widths=[100]
try lenet lamb 16 lenet5
try lenet-one adagrad 1 lenet5
try resnet sgd 4 resnet18 pixels=32 stem=cifar classes=10 width=8
try resnet-stem lars 2 resnet18 pixels=64 width=8 classes=10
try bottleneck rmsprop 2 resnet50 pixels=32 width=8 classes=10
try gpt adamw 4 gpt2 layers=2 width=32 heads=2 vocab=64 positions=16 context=16
try gpt-one adam 1 gpt2 layers=1 width=16 heads=4 vocab=32 positions=8 context=8
try gpt-dropout sgd 3 gpt2 layers=1 width=24 heads=2 vocab=40 positions=12 context=12 dropout=0

expect '530000000000 parameters of 4 bytes: 2120 GB' hive a memory --parameters 530e9
expect 'micro-batch of 32' hive a memory --spec "$root/tests/data/digits.json"
refuse 1 'unknown model "mpl"; did you mean' hive a memory mpl
refuse 1 'name a model' hive a memory
refuse 1 'batch: 0 is out of range' hive a memory mlp --batch 0
refuse 1 'must be 1 to 1e15' hive a memory --parameters=-3
# hivectl flops (row N01), and the zoo by name.
[ "$(json a macs flops resnet18)" = 1814073344 ] || fail "ResNet-18 has $(json a macs flops resnet18) multiply-adds"
[ "$(json a macs flops resnet18)" = "$(json a macs model show resnet18)" ] || fail "model show counts otherwise than flops"
hive a --json flops mlp widths=[30] --batch 5 | python3 -c '
import json, sys
d = json.load(sys.stdin)
f = {l["name"]: l["flops"] for l in d["layers"] if l["type"] == "linear"}
assert d["batch"] == 5 and sorted(f.values()) == sorted([5 * (2 * 784 * 30 + 30), 5 * (2 * 30 * 10 + 10)]), d
assert d["backward_macs"] == d["macs"] + 5 * 30 * 10, d' || fail "flops of two linear layers"
expect alexnet hive a model list
[ "$(json a parameters model show resnet50)" = 25557032 ] || fail "ResNet-50: $(json a parameters model show resnet50)"
refuse 1 'unknown model "mpl"; did you mean' hive a flops mpl
daemon_stop a
