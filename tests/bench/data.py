#!/usr/bin/env python3
"""Images per second and core: decode, crop, flip, normalize with bench_data and with torchvision and Pillow, in turns.

usage: data.py BENCH_DATA [CIFAR.tar.gz]      JSON; medians of the rounds, spread, and their ratio

CIFAR-10 as JPEG comes from a tar archive (default: ../shared/data beside the source tree, left out when it is not there);
the larger pictures, 500 x 375, are made here from a seed: smooth colours, shapes and a little noise, quality 90, 4:2:0.
Files are in memory or in the page cache for both. Without torchvision and Pillow it says so and measures nothing."""
import io
import json
import os
import random
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from words import usage

usage(__doc__, 1, 2)

try:
    import numpy as np
    import PIL
    import torch
    import torchvision
    import torchvision.transforms as T
    from PIL import Image, ImageDraw
except ImportError as why:
    print(json.dumps({"bench": "data", "skipped": str(why)}))
    sys.exit(0)

ROUNDS = 9
cpu = sorted(os.sched_getaffinity(0))[-1]
os.sched_setaffinity(0, {cpu})          # the child inherits it: both take turns on one core
torch.set_num_threads(1)


def picture(i):
    r, g = random.Random(i), np.random.default_rng(i)
    small = Image.fromarray(g.integers(0, 256, (12, 16, 3), dtype=np.uint8))
    im = small.resize((500, 375), Image.BICUBIC)
    draw = ImageDraw.Draw(im)
    for _ in range(25):
        x, y, w = r.randrange(500), r.randrange(375), r.randrange(10, 120)
        draw.ellipse((x - w, y - w // 2, x + w, y + w // 2), fill=tuple(r.randrange(256) for _ in range(3)))
        draw.line((r.randrange(500), r.randrange(375), x, y), fill=tuple(r.randrange(256) for _ in range(3)), width=3)
    noisy = np.asarray(im, np.int16) + g.integers(-12, 13, (375, 500, 3))
    b = io.BytesIO()
    Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(b, "JPEG", quality=90)
    return b.getvalue()


def ours(exe, work, name, path, size, steps):
    spec = {"name": name, "input": [3, size, size], "model": [{"type": "flatten"}, {"type": "linear", "out": 10}],
            "loss": "cross_entropy", "optimizer": {"name": "sgd"}, "target_batch": 64, "seed": 1,
            "data": {"name": name, "kind": "tar", "steps": steps, "broken_max": 0}}
    file = os.path.join(work, name + ".json")
    with open(file, "w") as f:
        json.dump(spec, f)
    return subprocess.Popen([exe, file, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(child, at, n):
    child.stdin.write("%d %d\n" % (at, n))
    child.stdin.flush()
    return float(child.stdout.readline())


def theirs(files, transform, at, n):
    begun = time.thread_time()
    for i in range(n):
        out = transform(Image.open(io.BytesIO(files[(at + i) % len(files)])).convert("RGB"))
    assert out.dtype == torch.float32
    return time.thread_time() - begun


def against(child, files, transform, n):
    """n: images a round of ours; a round of theirs takes fewer, so that both last about as long."""
    m = max(16, n // 4)
    ask(child, 0, n), theirs(files, transform, 0, m)
    a, b = [], []
    for k in range(ROUNDS):
        a.append(n / ask(child, (k + 1) * n, n))
        b.append(m / theirs(files, transform, k * m, m))
    rate = lambda v: {"median": round(statistics.median(v)), "min": round(min(v)), "max": round(max(v))}
    return {"images_per_s": rate(a), "torchvision_images_per_s": rate(b), "rounds": ROUNDS,
            "ratio": round(statistics.median(a) / statistics.median(b), 2)}


def main():
    exe = sys.argv[1]
    here = os.path.dirname(os.path.abspath(__file__))
    cifar = sys.argv[2] if len(sys.argv) > 2 else os.path.join(here, "../../../shared/data/cifar10-jpeg/cifar10-jpeg.tar.gz")
    mean, std = (124, 116, 104), (58, 57, 57)
    norm = {"type": "normalize", "mean": list(mean), "std": list(std)}
    end = [T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize([m / 255 for m in mean], [s / 255 for s in std])]
    out = {"bench": "data", "cpu": cpu, "torchvision": torchvision.__version__, "pillow": PIL.__version__,
           "torch": torch.__version__, "threads": 1, "workloads": {}}
    with tempfile.TemporaryDirectory() as work:
        if os.path.exists(cifar):
            with tarfile.open(cifar) as t:
                files = []
                for m in t:
                    if m.isfile() and m.name.endswith(".jpg") and len(files) < 4096:
                        files.append(t.extractfile(m).read())
            child = ours(exe, work, "cifar", cifar, 32, [{"type": "crop", "size": 32, "padding": 4}, {"type": "flip"}, norm])
            out["workloads"]["cifar10 32x32 crop"] = against(child, files, T.Compose([T.RandomCrop(32, padding=4)] + end), 4096)
            child.communicate()
        files = [picture(i) for i in range(48)]
        path = os.path.join(work, "large.tar")
        with tarfile.open(path, "w") as t:
            for i, p in enumerate(files):
                info = tarfile.TarInfo("class%d/%d.jpg" % (i % 10, i))
                info.size = len(p)
                t.addfile(info, io.BytesIO(p))
        out["large_bytes"] = round(statistics.mean(map(len, files)))
        for name, size, step, first in [
                ("500x375 crop 224", 224, {"type": "crop", "size": 224}, T.RandomCrop(224)),
                ("500x375 resized_crop 224", 224, {"type": "resized_crop", "size": 224}, T.RandomResizedCrop(224)),
                ("500x375 whole, resize 224", 224, {"type": "resize", "size": [224, 224]}, T.Resize((224, 224)))]:
            child = ours(exe, work, name.split(",")[0].replace(" ", "-"), path, size, [step, {"type": "flip"}, norm])
            out["workloads"][name] = against(child, files, T.Compose([first] + end), 256)
            child.communicate()
    print(json.dumps(out, indent=1))


main()
