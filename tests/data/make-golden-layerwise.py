#!/usr/bin/env python3
"""Writes tests/unit/layerwise_golden.h: LARS and LAMB straight from their papers' formulae, in double, tensor by tensor.

Independent of kernels/: plain Python, sums with math.fsum. Tensors, starts and gradients are wave(i, phase) =
sin(0.37 i + phase), which the test computes by itself; the second weight starts at zero (the guard of both papers)."""
import math
import sys

TENSORS = [(12, 2, 1.0), (4, 1, 1.0), (6, 2, 0.0), (3, 1, 0.0)]        # elements, dimensions, scale of the start
STEPS = 5


def norm(x):
    return math.sqrt(math.fsum(a * a for a in x))


def lars(w, g, s, dims, t, lr, trust, mu, wd):
    wd = wd if dims > 1 else 0.0
    rate = lr
    if dims > 1 and norm(w) > 0 and norm(g) + wd * norm(w) > 0:
        rate = lr * trust * norm(w) / (norm(g) + wd * norm(w))
    v = s.setdefault("v", [0.0] * len(w))
    for i in range(len(w)):
        v[i] = mu * v[i] + rate * (g[i] + wd * w[i])
        w[i] -= v[i]


def lamb(w, g, s, dims, t, lr, b1, b2, eps, wd):
    wd = wd if dims > 1 else 0.0
    m, v = s.setdefault("m", [0.0] * len(w)), s.setdefault("v", [0.0] * len(w))
    r = []
    for i in range(len(w)):
        m[i] = b1 * m[i] + (1 - b1) * g[i]
        v[i] = b2 * v[i] + (1 - b2) * g[i] * g[i]
        r.append(m[i] / (1 - b1 ** t) / (math.sqrt(v[i] / (1 - b2 ** t)) + eps) + wd * w[i])
    ratio = norm(w) / norm(r) if norm(w) > 0 and norm(r) > 0 else 1.0
    for i in range(len(w)):
        w[i] -= lr * ratio * r[i]


CASES = [
    ("lars", "lr=1 trust=0.02", lambda *a: lars(*a, 1.0, 0.02, 0.9, 0.0)),
    ("lars", "lr=0.5 trust=0.1 momentum=0.8 weight_decay=0.05", lambda *a: lars(*a, 0.5, 0.1, 0.8, 0.05)),
    ("lamb", "lr=0.02", lambda *a: lamb(*a, 0.02, 0.9, 0.999, 1e-6, 0.01)),
    ("lamb", "lr=0.05 beta1=0.8 beta2=0.95 eps=1e-3 weight_decay=0.3", lambda *a: lamb(*a, 0.05, 0.8, 0.95, 1e-3, 0.3)),
]
out = ["/* Written by tests/data/make-golden-layerwise.py. Do not edit. */", "#ifndef TESTS_LAYERWISE_GOLDEN_H",
       "#define TESTS_LAYERWISE_GOLDEN_H", ""]
rows = []
for k, (name, hyper, step) in enumerate(CASES):
    flat = []
    base = 0
    for count, dims, scale in TENSORS:
        w = [scale * math.sin(0.37 * (base + i) + 0.5) for i in range(count)]
        s = {}
        for t in range(1, STEPS + 1):
            step(w, [math.sin(0.37 * (base + i) + t - 1) for i in range(count)], s, dims, t)
        flat += w
        base += count
    lines = [", ".join("%.15g" % x for x in flat[i:i + 5]) for i in range(0, len(flat), 5)]
    out.append("static const double golden_layerwise_%d[] = {\n\t%s,\n};\n" % (k, ",\n\t".join(lines)))
    rows.append('\t{ "%s", "%s", golden_layerwise_%d },' % (name, hyper, k))
out.append("static const struct { const char *optim, *hyper; const double *param; } golden_layerwise[] = {\n%s\n};\n" %
           "\n".join(rows))
out.append("#endif")
with open(sys.argv[1], "w") as f:
    f.write("\n".join(out) + "\n")
