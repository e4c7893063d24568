#!/bin/bash
# Data that is not the run's is refused at the door with the first file that differs, named as it is on both sides: one of
# 700 pictures changed, one more, one renamed so that the order is another, one missing at the end.
. "$(dirname "$0")/lib.sh"
python3 - "$work" <<'END'
import os, struct, sys, tarfile, zlib
work = sys.argv[1]
def png(seed):
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    rows = b"".join(b"\0" + bytes((seed * 7 + r * 3 + c) % 256 for c in range(8)) for r in range(8))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
def folder(name, change=lambda files: None):
    files = {"%s/%03d.png" % ("cat" if i < 350 else "dog", i): png(i) for i in range(700)}
    change(files)
    for path, body in files.items():
        os.makedirs(os.path.join(work, name, os.path.dirname(path)), exist_ok=True)
        with open(os.path.join(work, name, path), "wb") as f: f.write(body)
folder("whole")
folder("changed", lambda f: f.update({"dog/431.png": png(9999)}))
folder("more", lambda f: f.update({"cat/123b.png": png(5)}))
folder("renamed", lambda f: f.update({"cat/000a.png": f.pop("cat/200.png")}))
folder("short", lambda f: f.pop("dog/699.png"))
END
cat >"$work/spec.json" <<'END'
{"name": "pets", "input": [1, 8, 8], "model": [{"type": "flatten"}, {"type": "linear", "out": 2}], "loss": "cross_entropy",
 "optimizer": {"name": "sgd", "lr": 0.1}, "target_batch": 64, "data": {"name": "pets", "kind": "folder"},
 "validation": {"split": 0.1, "every": 0}, "local": {"batch": 16}}
END
daemon_start a
for n in b c; do daemon_start $n --join "$(address a)"; done
hive a run start "$work/spec.json" --data "$work/whole" >/dev/null || fail "the run was refused"
run=pets run_data=$work/whole
wait_for 20 joined c
wait_for 20 members a 2

refuse 1 "file 432 is the first that differs: here dog/431.png (" hive b run join pets --data "$work/changed"
refuse 1 "; 700 files here, 700 there" hive b run join pets --data "$work/changed"
refuse 1 "file 125 is the first that differs: here cat/123b.png (" hive b run join pets --data "$work/more"
refuse 1 " cat/124.png (" hive b run join pets --data "$work/more"
refuse 1 "; 701 files here, 700 there" hive b run join pets --data "$work/more"
refuse 1 "file 2 is the first that differs: here cat/000a.png (" hive b run join pets --data "$work/renamed"
refuse 1 "file 700 is the first that differs: here nothing, at " hive b run join pets --data "$work/short"
refuse 1 " dog/699.png (" hive b run join pets --data "$work/short"
expect "dog/431.png" hive b events
daemon_kill a                           # whoever does not answer is passed over
refuse 1 "file 432 is the first that differs" hive b run join pets --data "$work/changed"
wait_for 20 joined b                    # and with the right files it takes part
for n in c b; do daemon_stop $n; done
