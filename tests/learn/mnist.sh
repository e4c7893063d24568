#!/bin/bash
# LeNet-5 on the sixty thousand digits of MNIST, with a real daemon: at least 98.8 % of the ten thousand held-out ones after three
# passes over the data. They are looked for in $HIVEMIND_DATA/mnist and beside the source tree; without them it is skipped.
. "$(dirname "$0")/../e2e/lib.sh"
data=${HIVEMIND_DATA:-$root/../shared/data}/mnist
[ -e "$data/train-images-idx3-ubyte.gz" ] || skip "no MNIST in $data (set HIVEMIND_DATA)"

# Three times sixty thousand samples in batches of 32.
cat >"$work/spec.json" <<END
{"name": "lenet", "model": {"zoo": "lenet5"}, "loss": "cross_entropy", "optimizer": {"name": "adam", "lr": 0.0015},
 "schedule": {"name": "cosine", "total": 5625, "warmup": 50, "min": 0.01}, "target_batch": 32, "seed": 1,
 "data": {"name": "mnist", "kind": "idx", "steps": [{"type": "normalize", "mean": 33.3, "std": 78.6}]},
 "validation": {"every": 0}, "stop": {"epochs": 5625}, "local": {"batch": 32}}
END
daemon_start a
hive a run start "$work/spec.json" --data "$data" >/dev/null || fail "the run was refused"
wait_for 240 json_is done a state run show lenet
accuracy=$(json a val_accuracy run show lenet)
say "held-out accuracy $accuracy after $(json a samples run show lenet) samples"
python3 -c "import sys; sys.exit(not float(sys.argv[1]) >= 0.988)" "$accuracy" || fail "held-out accuracy $accuracy, at least 0.988 was wanted"
figure accuracy "$accuracy" share higher
daemon_stop a
