#!/usr/bin/env python3
"""Writes tests/unit/losses_golden.h: what PyTorch computes for losses with options and for sequences.

Run once with PyTorch 2.x (float64 on the CPU) and commit the result; the tests need no Python.
Scores are 3 sin(0.37 i + 0.3), which the tests compute by themselves."""
import math
import sys
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
out = []


def wave(n, phase):
    return torch.tensor([math.sin(0.37 * i + phase) for i in range(n)])


def emit(name, t):
    v = t.detach().reshape(-1).tolist()
    rows = [", ".join("%.12g" % x for x in v[i:i + 6]) for i in range(0, len(v), 6)]
    out.append("static const double %s[] = {\n\t%s,\n};\n" % (name, ",\n\t".join(rows)))


# Softmax cross entropy with its options: 3 samples, 4 classes; and sequences: 2 samples of 5 positions.
NOW = torch.tensor([2, 0, 3])
SEQ = torch.tensor([[2, 0, 3, 1, 1], [0, -100, 2, -100, 3]])


def per_sample(z, t, smooth):
    """The mean over samples of the mean over each one's own positions that count."""
    return sum(F.cross_entropy(z[i], t[i], ignore_index=-100, label_smoothing=smooth) for i in range(len(z))) / len(z)


def parts(z, t, w, cut):
    text = sum(F.cross_entropy(z[i, :cut], t[i, :cut]) for i in range(len(z))) / len(z)
    image = sum(F.cross_entropy(z[i, cut:], t[i, cut:]) for i in range(len(z))) / len(z)
    return (w[0] * text + w[1] * image) / (w[0] + w[1])


for tag, shape, fn in [
    ("ce_smooth", (3, 4), lambda z: F.cross_entropy(z, NOW, label_smoothing=0.1)),
    ("ce_ignore", (3, 4), lambda z: F.cross_entropy(z, torch.tensor([2, -100, 3]), ignore_index=-100, reduction="sum") / 3),
    ("ce_rows", (2, 5, 4), lambda z: F.cross_entropy(z.reshape(10, 4), SEQ.clamp(min=0).reshape(10))),
    ("ce_rows_ignore", (2, 5, 4), lambda z: per_sample(z, SEQ, 0.0)),
    ("ce_rows_smooth", (2, 5, 4), lambda z: per_sample(z, SEQ, 0.2)),
    ("parts", (2, 5, 4), lambda z: parts(z, SEQ.clamp(min=0), (1.0, 1000.0), 2)),
]:
    z = (wave(math.prod(shape), 0.3) * 3).reshape(shape).requires_grad_()
    loss = fn(z)
    loss.backward()
    emit("golden_%s" % tag, loss.reshape(1))
    emit("golden_%s_dz" % tag, z.grad)

with open(sys.argv[1], "w") as f:
    f.write("/* Written by tests/data/make-golden-losses.py with PyTorch %s (float64). Do not edit. */\n" % torch.__version__.split("+")[0])
    f.write("#ifndef TESTS_LOSSES_GOLDEN_H\n#define TESTS_LOSSES_GOLDEN_H\n\n" + "\n".join(out) + "\n#endif\n")
