#!/bin/bash
# Three daemons average digits in signed bytes with error feedback; the encoding changes while they train, one is killed,
# and all end with equal digests, the accuracy that floats give, and a fraction of the bytes.
. "$(dirname "$0")/lib.sh"
data=$root/tests/data
epochs=$(fewer 400)
python3 - "$data/digits.json" "$epochs" >"$work/spec.json" <<'END'
import json, sys
d, epochs = json.load(open(sys.argv[1])), int(sys.argv[2])
d["schedule"]["total"], d["stop"], d["local"] = epochs, {"epochs": epochs}, {"batch": 32}
d["averaging"] = {"codec": {"default": "blockwise8", "small": "none", "small_below": 100}, "robust": "none"}
print(json.dumps(d))
END
finished() { [ "$(show "$1" state)" = "done" ]; }
chain() { hive "$1" --json query "select epoch, digest from epochs where discarded = 0 and epoch > $2 order by epoch"; }
# bytes that the three sent in a round that was everybody's (whoever is late on a busy machine is left out of one, and sends
# nothing in it), on the way there and back; how much each sends is a matter of its bandwidth
bytes() {
	local n sum=0
	for n in a b c; do
		sum=$((sum + $(json $n rows.0.0 query "select cast(avg(bytes_sent) as integer) from rounds where outcome = 'done' and members = 3 and
			epoch between $1 and $2")))
	done
	echo $sum
}

python3 -c 'import json,sys; d=json.load(open(sys.argv[1])); d["averaging"]["codec"]="zip"; print(json.dumps(d))' "$work/spec.json" \
	>"$work/bad.json"
daemon_start a
for n in b c; do daemon_start $n --join "$(address a)"; done
refuse 1 "blockwise8" hive a run start "$work/bad.json" --data "$data/digits"
hive a run start "$work/spec.json" --data "$data/digits" >/dev/null || fail "the run was refused"
for n in b c; do wait_for 30 joined $n; done
for n in a b c; do wait_for 60 members $n 3; done
wait_for 60 past a $(($(epoch a) + 20))
refuse 1 "fp16_scaled" hive a set digits codec=fp17
refuse 1 "trimmed" hive a set digits robust=krum
before=$(epoch a)
changed=$(json a epoch set digits codec=none) || fail "set was refused"
wait_for 60 past a $((changed + 10))
expect none hive b get digits codec
plain=$(bytes $((changed + 1)) $((changed + 10)))
coded=$(bytes $((before - 10)) $before)
[ "${plain:-0}" -gt 0 ] && [ $((coded * 37)) -lt $((plain * 10)) ] || fail "$coded bytes a round in bytes, $plain in floats"
hive c set digits codec=fp16 2>/dev/null && fail "another than the author changed the encoding"
hive a set digits codec=blockwise8 >/dev/null || fail "set again was refused"
daemon_kill c
for n in a b; do wait_for 120 finished $n; done
chain a 20 >"$work/chain.a"
chain b 20 >"$work/chain.b"
python3 - "$work/chain.a" "$work/chain.b" "$epochs" <<'END' || fail "the chains differ"
import json, sys
a, b = (dict(json.load(open(f))["rows"]) for f in sys.argv[1:3])
both = a.keys() & b.keys()              # who fetched state has no row of the epochs between
differ = [e for e in sorted(both) if a[e] != b[e]]
print(f"codec: {len(both)} epochs known to both, {len(differ)} differ", differ[:3])
sys.exit(len(both) < int(sys.argv[3]) // 4 or bool(differ))
END
for n in a b; do
	accuracy=$(show $n val_accuracy)
	python3 -c "import sys; sys.exit(not float(sys.argv[1]) >= 0.95)" "$accuracy" || fail "$n: held-out accuracy $accuracy"
done
for n in b a; do daemon_stop $n; done
say "$coded bytes a round instead of $plain; accuracy $accuracy"
