#!/usr/bin/env python3
"""Converts the UCI handwritten digits (digits.csv.gz of Debian's python3-sklearn) to IDX, split by class.

    apt-get download python3-sklearn && dpkg -x python3-sklearn_*.deb x
    tests/data/make-digits.py x/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz tests/data/digits

Of every class one image in five is held out for validation, chosen by a fixed hash of its row, so that the split is
stratified and the same for ever. Images are 8 x 8 bytes from 0 to 16. Needs only the standard library."""
import gzip
import hashlib
import os
import struct
import sys

source, folder = sys.argv[1:]
rows = [[int(float(v)) for v in line.split(",")] for line in gzip.open(source, "rt").read().split()]
assert len(rows) == 1797 and all(len(r) == 65 and max(r[:64]) <= 16 and 0 <= r[64] <= 9 for r in rows)

held = set()
for digit in range(10):
    mine = [i for i, r in enumerate(rows) if r[64] == digit]
    mine.sort(key=lambda i: hashlib.sha256(b"digits %d" % i).digest())
    held.update(mine[:round(len(mine) / 5)])

for part, chosen in (("train", [i for i in range(1797) if i not in held]), ("validation", sorted(held))):
    with open(os.path.join(folder, part + "-images-idx3-ubyte"), "wb") as f:
        f.write(struct.pack(">IIII", 0x0803, len(chosen), 8, 8))
        f.write(bytes(v for i in chosen for v in rows[i][:64]))
    with open(os.path.join(folder, part + "-labels-idx1-ubyte"), "wb") as f:
        f.write(struct.pack(">II", 0x0801, len(chosen)))
        f.write(bytes(rows[i][64] for i in chosen))
    print("%s: %d images, per class %s" % (part, len(chosen),
          [sum(rows[i][64] == d for i in chosen) for d in range(10)]))
