#!/usr/bin/env python3
"""Writes tests/unit/images_golden.h with Pillow: small JPEG and PNG files, and what Pillow decodes and resizes them to.

Run once with Pillow and commit the result; the tests need no Python. The picture is wave(x, y) in three channels."""
import io
import math
import sys
import PIL
from PIL import Image

W, H = 37, 23
out = ["/* Written by tests/data/make-golden-images.py with Pillow %s. Do not edit. */" % PIL.__version__,
       "#ifndef TESTS_IMAGES_GOLDEN_H", "#define TESTS_IMAGES_GOLDEN_H", "#include <stdint.h>", ""]


def emit(name, data):
    rows = [", ".join("%d" % b for b in data[i:i + 24]) for i in range(0, len(data), 24)]
    out.append("static const uint8_t %s[] = {\n\t%s,\n};\n" % (name, ",\n\t".join(rows)))


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
out.append("#endif")
with open(sys.argv[1], "w") as f:
    f.write("\n".join(out) + "\n")
