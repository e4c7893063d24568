#!/bin/bash
# Pictures from files: broken ones are skipped, counted and named; too many hold the peer until somebody has looked; the
# figures of each stage are in run show.
. "$(dirname "$0")/lib.sh"
mkdir -p "$work/set/ant" "$work/set/bee"
python3 - "$work" <<'END'
import json, random, struct, sys, zlib
top, r = sys.argv[1], random.Random(7)

def png(w, h, of):
    rows = b"".join(b"\0" + bytes((of * 90 + (x + y) * 5 + r.randrange(60)) % 256 for x in range(w) for _ in range(3)) for y in range(h))
    part = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return (b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0)) +
            part(b"IDAT", zlib.compress(rows, 1)) + part(b"IEND", b""))

for i in range(40):
    p = png(40 + i % 7, 36 + i % 5, i % 2)
    open(f"{top}/set/{('ant', 'bee')[i % 2]}/{i:02}.png", "wb").write(p[:200] if i in (4, 17, 30) else p)
json.dump({"name": "pics", "input": [3, 16, 16], "model": [{"type": "flatten"}, {"type": "linear", "out": 2}],
    "loss": "cross_entropy", "optimizer": {"name": "sgd", "lr": 0.001}, "target_batch": 16, "validation": {"every": 0},
    "data": {"name": "set", "kind": "folder", "broken_max": 2, "steps": [{"type": "resize", "size": [20, 20]},
        {"type": "crop", "size": 16}, {"type": "flip"}, {"type": "normalize", "mean": 128, "std": 64}]},
    "local": {"batch": 8}}, open(f"{top}/spec.json", "w"))
END
run=pics
daemon_start a
hive a run start "$work/spec.json" --data "folder:$work/set" >/dev/null || fail "the run was refused"
wait_for 20 json_is held a state run show pics
expect "3 broken samples, and data.broken_max is 2" hive a run show pics
expect "damaged PNG" hive a run show pics
for i in ant/04 bee/17 ant/30; do expect "$i.png" hive a --json run show pics; done
expect "hivectl run hold pics --off" hive a query "select text from events where kind = 'run.hold'"
at=$(json a epoch run show pics)
hive a run hold pics --off >/dev/null || fail "hold --off was refused"
wait_for 20 past a $((at + 21))
case $(hive a run show pics) in *"broken samples, and"*) fail "the error of the hold is still there" ;; esac
expect "truncated" hive a query "select text from events where kind = 'data.broken'"
json a data run show pics >"$work/data.json"
python3 - "$work/data.json" <<'END' || fail "the figures of the stages"
import json, sys
d = json.load(open(sys.argv[1]))
names = [s["stage"] for s in d["stages"]]
assert names == ["read", "decode", "resize", "crop", "flip", "normalize", "batch"], names
samples = [s["samples"] for s in d["stages"]]
assert samples[0] >= samples[1] >= samples[-1] >= 320, samples
assert all(s["took_us"] > 0 and s["bytes"] > 0 for s in d["stages"] if s["stage"] != "flip"), d
assert d["broken"] == 3 and d["broken_max"] == 2 and len(d["broken_files"]) == 3, d
assert d["bottleneck"] in ("data", "compute") and d["wait_us"] >= 0 and d["workers"] == 1
END
say "held and went on; stages: $(python3 -c 'import json,sys; print(*("%s %.1f us" % (s["stage"], s["took_us"] / max(1, s["samples"])) for s in json.load(open(sys.argv[1]))["stages"]), sep=", ")' "$work/data.json"), bottleneck $(json a data.bottleneck run show pics)"
hive a run stop pics --yes >/dev/null || fail "it does not stop"

# Row A09: where pictures of a megapixel are decoded for a net of a few products it is the data that is waited for; where small
# ones feed a layer that waits, it is not.
python3 - "$work" <<'END'
import json, os, struct, sys, zlib
top = sys.argv[1]
part = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
for i in range(6):
    of, name = f"{top}/large/{('ant', 'bee')[i % 2]}", f"{i:02}.png"
    os.makedirs(of, exist_ok=True)
    rows = b"".join(b"\0" + os.urandom(3000) for _ in range(1000))
    open(f"{of}/{name}", "wb").write(b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", 1000, 1000, 8, 2, 0, 0, 0)) +
        part(b"IDAT", zlib.compress(rows, 1)) + part(b"IEND", b""))
d = json.load(open(f"{top}/spec.json"))
d["data"]["broken_max"] = 9
json.dump({**d, "name": "large", "data": {**d["data"], "name": "large"}}, open(f"{top}/large.json", "w"))
json.dump({**d, "name": "naps", "model": [{"type": "sleep", "fwd_ms": 15, "bwd_ms": 15}] + d["model"]}, open(f"{top}/naps.json", "w"))
END
bottleneck() { [ "$(json a data.bottleneck run show "$1")" = "$2" ]; }
for n in "large data $work/large" "naps compute $work/set"; do
	set -- $n
	hive a run start "$work/$1.json" --data "folder:$3" >/dev/null || fail "the run was refused"
	wait_for 40 past a 12 "$1"
	bottleneck "$1" "$2" || fail "not the $2: $(json a data run show "$1")"
	hive a run stop "$1" --yes >/dev/null || fail "$1 does not stop"
done

# What resize makes is kept, by two daemons in one folder; the third finds it, and finds a damaged one, too.
sed -e 's/"broken_max": 2/"broken_max": 9, "materialize_after": 1/' -e 's/"pics"/"kept"/' "$work/spec.json" >"$work/kept.json"
printf '[data]\ncache = %s\n' "$work/cache" >"$work/cache.conf"
ready() { json_is ready "$1" data.cache.state run show kept; }
for n in b c d; do
	daemon_start $n --config "$work/cache.conf"
	hive $n run start "$work/kept.json" --data "folder:$work/set" >/dev/null || fail "$n: the run was refused"
	wait_for 20 ready $n
	[ "$(ls "$work/cache" | wc -l)" = 1 ] || fail "more than one file: $(ls "$work/cache")"
	expect "prepared data is read from $work/cache" hive $n query "select text from events where kind = 'data.cache'"
done
expect "hivemind" hive b run show kept
for n in c d; do daemon_stop $n; done
file=$(ls "$work"/cache/*.cache)
cp "$file" "$work/before"
printf 'x' | dd of="$file" bs=1 seek=20 conv=notrunc 2>/dev/null
daemon_start d --config "$work/cache.conf"
wait_for 20 ready d
expect "its header is damaged" hive d query "select text from events where kind = 'data.cache'"
cmp "$work/before" "$file" || fail "made again it is another"
refuse 1 "crop of data.steps depends on chance" hive a run start <(sed 's/"materialize_after": 1/"materialize_after": 2/' "$work/kept.json")
for n in a b d; do daemon_stop $n; done
say done
