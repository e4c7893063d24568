#!/usr/bin/env python3
"""Writes images_odd.h with Pillow: images that are not plain red, green, blue, and what Pillow makes of them.
usage: make-golden-odd-images.py tests/unit

Run once with Pillow and commit the result; the tests need no Python. 17 x 11 pixels. 16 bits: the upper 8 count (Pillow
clips grey ones instead, so they are made here by hand). EXIF orientation is left alone by both."""
import io
import math
import os
import struct
import sys
import zlib
import PIL
from PIL import Image

W, H = 17, 11
out = ["/* Written by tests/data/make-golden-odd-images.py with Pillow %s. Do not edit. */" % PIL.__version__,
       "#ifndef TESTS_IMAGES_ODD_H", "#define TESTS_IMAGES_ODD_H", "#include <stdint.h>", ""]


def emit(name, data):
    rows = [", ".join("%d" % b for b in data[i:i + 22]) for i in range(0, len(data), 22)]
    out.append("static const uint8_t %s[] = {\n\t%s,\n};" % (name, ",\n\t".join(rows)))


def planes(im):
    return b"".join(bytes(c.tobytes()) for c in im.split())


def wave(x, y, c):
    return int(127.5 + 127 * math.sin(0.4 * x * (c + 1) + 0.23 * y * (3 - c) + c))


def both(name, file, rgb=None):
    emit("odd_" + name, file)
    emit("odd_%s_rgb" % name, rgb if rgb else planes(Image.open(io.BytesIO(file)).convert("RGB")))


def saved(im, **how):
    b = io.BytesIO()
    im.save(b, **how)
    return b.getvalue()


def png(depth, color, rows, interlaced=0):
    part = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return (b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", W, H, depth, color, 0, 0, interlaced)) +
            part(b"IDAT", zlib.compress(b"".join(b"\0" + r for r in rows))) + part(b"IEND", b""))


picture = Image.new("RGB", (W, H))
picture.putdata([tuple(wave(x, y, c) for c in range(3)) for y in range(H) for x in range(W)])
grey = picture.convert("L")
cmyk = saved(picture.convert("CMYK"), format="JPEG", quality=95)
both("cmyk", cmyk)
emit("odd_cmyk_grey", Image.open(io.BytesIO(cmyk)).convert("L").tobytes())
exif = Image.Exif()
exif[0x112] = 6
both("turned", saved(picture, format="JPEG", quality=90, exif=exif))
both("grey_alpha", saved(grey.convert("LA"), format="PNG"), planes(grey.convert("RGB")))
both("one_bit", saved(picture.convert("1"), format="PNG"))
both("four_bits", saved(picture.quantize(11), format="PNG"))
deep = [[wave(x, y, 0) * 257 - 100 if wave(x, y, 0) else 0 for x in range(W)] for y in range(H)]
both("grey_16", png(16, 0, [struct.pack(">%dH" % W, *r) for r in deep]), bytes(v >> 8 for r in deep for v in r) * 3)
wide = [[max(0, wave(x, y, c) * 256 - 7) for x in range(W) for c in range(3)] for y in range(H)]
both("rgb_16", png(16, 2, [struct.pack(">%dH" % (3 * W), *r) for r in wide]),
     bytes(wide[y][3 * x + c] >> 8 for c in range(3) for y in range(H) for x in range(W)))
out += ["", "#endif", ""]
with open(os.path.join(sys.argv[1], "images_odd.h"), "w") as f:
    f.write("\n".join(out))
