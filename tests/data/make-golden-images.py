#!/usr/bin/env python3
"""Writes images_golden.h and what it includes with Pillow: small JPEG and PNG files, what Pillow decodes and resizes
them to. usage: make-golden-images.py tests/unit

Run once with Pillow and commit the result; the tests need no Python. The picture is wave(x, y) in three channels."""
import io
import math
import os
import sys
import PIL
from PIL import Image

W, H = 37, 23
HEAD = "/* Written by tests/data/make-golden-images.py with Pillow %s. Do not edit. */\n" % PIL.__version__
parts = {"jpeg": [], "png": [], "resized": []}


def emit(name, data):
    rows = [", ".join("%d" % b for b in data[i:i + 22]) for i in range(0, len(data), 22)]
    part = "resized" if name.startswith("resized") else "png" if "png" in name else "jpeg"
    parts[part].append("static const uint8_t %s[] = {\n\t%s,\n};\n" % (name, ",\n\t".join(rows)))


def planes(im):
    return b"".join(bytes(c.getdata()) for c in im.split())


picture = Image.new("RGB", (W, H))
picture.putdata([tuple(int(127.5 + 127 * math.sin(0.31 * x * (c + 1) + 0.17 * y * (3 - c) + c)) for c in range(3))
                 for y in range(H) for x in range(W)])
files = {}
for name, im, how in [
    ("jpeg", picture, dict(format="JPEG", quality=85)),
    ("jpeg_progressive", picture, dict(format="JPEG", quality=70, progressive=True)),
    ("jpeg_grey", picture.convert("L"), dict(format="JPEG", quality=85)),
    ("png", picture, dict(format="PNG")),
    ("png_palette", picture.quantize(16), dict(format="PNG")),
    ("png_alpha", picture.convert("RGBA"), dict(format="PNG")),
]:
    b = io.BytesIO()
    im.save(b, **how)
    files[name] = b.getvalue()
    emit("file_" + name, files[name])
    back = Image.open(io.BytesIO(files[name])).convert("RGB")
    if name in ("jpeg", "png_palette"):
        emit("planes_" + name, planes(back))
b = Image.open(io.BytesIO(files["png"]))
for w, h in [(8, 8), (50, 31), (37, 5), (20, 60), (1, 1)]:
    emit("resized_%d_%d" % (h, w), planes(b.resize((w, h), Image.BILINEAR)))


def write(name, lines):
    guard = "TESTS_IMAGES_%s_H" % name.upper()
    with open(os.path.join(sys.argv[1], "images_%s.h" % name), "w") as f:
        f.write(HEAD + "#ifndef %s\n#define %s\n%s\n#endif\n" % (guard, guard, "\n".join(lines)))


for name, lines in parts.items():
    write(name, ["#include <stdint.h>", ""] + lines)
write("golden", ['#include "images_%s.h"' % name for name in parts] + [""])
