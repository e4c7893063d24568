#!/bin/bash
# Three peers train one model together: everybody contributes, a learning rate is changed on the way, one is killed and
# the others finish the round without it, it comes back and catches up, and all end with the same commit.
. "$(dirname "$0")/lib.sh"
data=$root/tests/data
epochs=400
# An epoch should take more than a few round trips; and with sanitizers there are fewer of them.
[ -z "$HM_LINK" ] && [ "$(fewer 4)" = 4 ] || epochs=120
python3 - "$data/digits.json" "$epochs" >"$work/spec.json" <<'END'
import json, sys
d, epochs = json.load(open(sys.argv[1])), int(sys.argv[2])
d["schedule"], d["stop"], d["local"] = {"name": "constant"}, {"epochs": epochs}, {"batch": 32, "checkpoint_every": 10}
if epochs < 400:
    d["target_batch"] *= 3
    d["model"].insert(0, {"type": "sleep", "fwd_ms": 8, "bwd_ms": 8})
print(json.dumps(d))
END
# What the table of epochs says, not what the averager thinks.
members() { [ "$(json "$1" rows.0.0 query 'select members from epochs order by epoch desc limit 1' 2>/dev/null)" = "$2" ]; }
chain() { hive "$1" --json query 'select epoch, digest from epochs where discarded = 0 order by epoch desc limit 10000'; }

wan_client=b                            # behind links one of the three only dials out
daemon_start a
for n in b c; do daemon_start $n --join "$(address a)"; done
hive a run start "$work/spec.json" --data "$data/digits" >/dev/null || fail "the run was refused"
for n in b c; do wait_for 20 joined $n; done
for n in a b c; do wait_for 60 members $n 3; done
at=$(show a epoch)
wait_for 60 past a $((at + 5))
say "three members at epoch $at"
for n in b c; do [ "$(show $n run)" = "$(show a run)" ] || fail "$n knows the run by another id"; done

# A hyperparameter, for everybody from one epoch on.
hive a set digits lr=0.002 >/dev/null || fail "set was refused"
lr_is() { hive "$1" get digits lr 2>/dev/null | grep -q 0.002; }
for n in a b c; do wait_for 30 lr_is $n; done
refuse 1 "lr" hive a set digits lr=fast
# So is the target batch: epochs after the one that carries it have as many samples, on every peer.
target=$(show a target_batch)
from=$(json a epoch set digits target_batch=$((2 * target))) || fail "set was refused"
for n in a b c; do wait_for 30 past $n $((from + 3)); done
for n in a b c; do
	least=$(json $n rows.0.0 query "select min(weight) from epochs where discarded = 0 and epoch between $((from + 1)) and $((from + 3))")
	python3 -c "import sys; sys.exit(not float(sys.argv[1]) >= float(sys.argv[2]))" "$least" $((2 * target)) ||
		fail "$n: an epoch of $least samples after target_batch=$((2 * target))"
done
hive a set digits target_batch="$target" >/dev/null || fail "set was refused"
refuse 1 "author" hive b set digits lr=0.5

# SIGKILL: the survivors go on in well under a second of extra time.
at=$(show a epoch)
daemon_kill c
begun=$(now_ms)
wait_for 30 past a $((at + 2))
say "two epochs further $(($(now_ms) - begun)) ms after SIGKILL"
for n in a b; do wait_for 30 members $n 2; done

# Back: resumes by itself, and is a member again.
daemon_start c --join "$(address a)"
for n in a b c; do wait_for 60 members $n 3; done
say "the third is back at epoch $(show c epoch)"

for n in a b c; do wait_for 150 json_is done $n state run show digits; done
for n in a b c; do
	accuracy=$(show $n val_accuracy)
	python3 -c "import sys; sys.exit(not float(sys.argv[1]) >= 0.95)" "$accuracy" || fail "$n: held-out accuracy $accuracy"
done
# Wherever two peers took part in an epoch they have the same commit, to the last bit.
for n in a b c; do chain $n >"$work/chain.$n"; done
python3 - "$epochs" "$work"/chain.? <<'END' || fail "two histories"
import json, sys
chains = [dict(json.load(open(f))["rows"]) for f in sys.argv[2:]]
every = set().union(*chains)
common = [e for e in every if sum(e in c for c in chains) > 1]
wrong = [e for e in common if len({c[e] for c in chains if e in c}) > 1]
for e in wrong:
    print(f"epoch {e}:", *(c.get(e, "-")[:8] for c in chains))
print(f"{len(every)} epochs, {len(common)} known to more than one peer, {len(wrong)} differ")
sys.exit(len(common) < int(sys.argv[1]) // 4 or max(every) not in common or bool(wrong))
END
for n in c b a; do daemon_stop $n; done
say "held-out accuracy $accuracy"
