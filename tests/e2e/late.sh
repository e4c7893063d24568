#!/bin/bash
# Rows A04, C07: who joins behind epoch 50 has the parameters of the others to the bit, and their learning rate, which follows
# from the epoch and from nothing that it has seen itself.
. "$(dirname "$0")/lib.sh"
data=$root/tests/data
digits_spec 'd["schedule"] = {"name": "linear", "total": 5000, "min": 0.1}' 'd["local"], d["target_batch"] = {"batch": 32}, 128' \
	'd["model"].insert(0, {"type": "sleep", "fwd_ms": 4, "bwd_ms": 4})' >"$work/spec.json"
rate=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["optimizer"]["lr"])' "$work/spec.json")

daemon_start a
daemon_start b --join "$(address a)"
hive a run start "$work/spec.json" --data "$data/digits" >/dev/null || fail "the run was refused"
wait_for 20 joined b
wait_for 40 past a 50
daemon_start c --join "$(address a)"
wait_for 20 joined c
for n in a b c; do wait_for 30 members $n 3; done
wait_for 30 past c $(($(epoch a) + 3))
[ "$(epoch c)" -gt 50 ] || fail "c has joined at epoch $(epoch c)"

hive a run pause digits >/dev/null || fail "it cannot be paused"
paused() { [ "$(show a epoch)" = "$(show b epoch)" ] && [ "$(show a epoch)" = "$(show c epoch)" ] && [ "$(show c state)" = paused ]; }
wait_for 30 paused
hold 1 paused
for n in a b c; do
	python3 - "$rate" "$(show $n epoch)" "$(show $n lr)" <<'END' || fail "$n: lr $(show $n lr) at epoch $(show $n epoch)"
import sys
rate, epoch, lr = map(float, sys.argv[1:])
sys.exit(not abs(lr - rate * (0.1 + 0.9 * (1 - epoch / 5000))) < 1e-9)
END
	[ "$(show $n lr)" = "$(show a lr)" ] || fail "$n has lr $(show $n lr), a $(show a lr)"
done
one_history digits 3 a b c
say "epoch $(show c epoch), lr $(show c lr)"
for n in c b a; do daemon_stop $n; done
say done
