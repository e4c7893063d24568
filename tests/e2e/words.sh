#!/bin/bash
# run start with few words: a model of the zoo and data of each kind, without a spec. What comes of it trains, and what
# is wrong is said with its place.
. "$(dirname "$0")/lib.sh"
python3 - "$work" <<'END'
import io, os, random, struct, sys, tarfile, zlib
top, r = sys.argv[1], random.Random(7)

def png(w, h, of):
    rows = b"".join(b"\0" + bytes((of * 90 + (x + y) * 5 + r.randrange(60)) % 256 for x in range(w) for _ in range(3)) for y in range(h))
    part = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return (b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0)) +
            part(b"IDAT", zlib.compress(rows, 1)) + part(b"IEND", b""))

for name, w, h in (("same", 32, 32), ("mixed", 0, 0)):
    with tarfile.open(f"{top}/{name}.tar", "w") as tar:
        for i in range(40):
            p = png(w or 30 + i, h or 50 - i // 2, i % 2)
            path = f"{('ant', 'bee')[i % 2]}/{i}.png"
            os.makedirs(f"{top}/{name}/{os.path.dirname(path)}", exist_ok=True)
            open(f"{top}/{name}/{path}", "wb").write(p)
            info = tarfile.TarInfo(path)
            info.size = len(p)
            tar.addfile(info, io.BytesIO(p))
os.makedirs(f"{top}/cifar")
with open(f"{top}/cifar/data_batch_1.bin", "wb") as f:
    for i in range(60):
        f.write(bytes([i % 10]) + r.randbytes(3072))
with open(f"{top}/table.csv", "w") as f:
    for i in range(60):
        f.write(f"{i % 3},{i % 5},{r.random()},{i % 3}\n")
END
trains() { [ "$(json a epoch run show "$1" 2>/dev/null || echo 0)" -ge 2 ]; }
started() {     # NAME WORDS...: starts, makes two epochs, stops
	local name=$1
	shift
	expect "name:   $name" hive a run start "$name" "$@" --tbs 16 --batch 8 --lr 0.01
	wait_for 60 trains "$name"
	hive a run stop "$name" --yes >/dev/null || fail "$name does not stop"
}
daemon_start a
small="resnet18 width=4 blocks=[1,1]"
started jpeg --model $small --data "cifar10-jpeg:$work/same.tar" --epochs 1000
expect '"mean":[125.31' hive a query "select json_extract(spec, '\$.data') from runs where name = 'jpeg'"
started images --model $small --data "folder:$work/same" --optimizer adam
started mixed --model $small pixels=16 --data "tar:$work/mixed.tar"
started binary --model $small stem=cifar --data "cifar10:$work/cifar"
started table --model mlp "widths=[8]" --data "csv:$work/table.csv"
started digits --model mlp "widths=[32]" --data "idx:$root/tests/data/digits" --seed 3

refuse 1 'unknown model "resnet8"; did you mean "resnet18"?' hive a run start x --model resnet8 --data "tar:$work/same.tar"
refuse 1 'has no parameter "stm"; did you mean "stem"?' hive a run start x --model resnet18 stm=cifar --data "tar:$work/same.tar"
refuse 1 'there is no file "x", and no --model' hive a run start x --data "tar:$work/same.tar"
refuse 1 "--data KIND:PATH is missing" hive a run start x --model resnet18
refuse 1 "the kind stands in front" hive a run start x --model resnet18 --data "$work/same.tar"
refuse 1 'unknown kind "tra"; did you mean "tar' hive a run start x --model resnet18 --data "tra:$work/same.tar"
refuse 1 "No such file" hive a run start x --model resnet18 --data "tar:$work/nothing.tar"
refuse 1 "no images; CLASS/*.jpg" hive a run start x --model resnet18 --data "folder:$work/cifar"
refuse 1 "unknown optimizer" hive a run start x --model $small --data "tar:$work/same.tar" --optimizer sgdd
refuse 1 "the file has a model" hive a run start "$root/tests/data/digits.json" --model mlp
refuse 1 "synthetic data is made for a spec" hive a run start x --model mlp --data synthetic:/x
alive a || fail "the daemon died"
daemon_stop a
say done
