#!/usr/bin/env python3
"""Writes tests/unit/convnets_golden.h: a forward and a backward pass of AlexNet and VGG-16 in double by PyTorch (row A06).

usage: make-golden-convnets.py FILE.h

The networks are torchvision's, with a narrow classifier, on small images. Element i of the k-th parameter, of fan-in f, is
u sqrt(6 / f) with u = 2 frac(43758.5453 sin(12.9898 i + k)) - 1, of a bias 0.2 u; images are that noise at a phase. As in
make-golden-resnet.py the phase is the one of some at which the nearest input of a ReLU is farthest from 0, in roundings of
PyTorch's float32, and so are the two largest of each window of a max pooling from each other: on the other side of either
a gradient is another."""
import copy
import math
import sys
import torch
from torch import nn

HIDDEN, CLASSES, PHASES = 64, 10, 60


def noise(shape, k):
    n = math.prod(shape)
    u = torch.sin(12.9898 * torch.arange(n, dtype=torch.float64) + k) * 43758.5453
    return (2 * (u - torch.floor(u)) - 1).reshape(shape)


class Net(nn.Module):
    def __init__(self, features, pool, classifier):
        super().__init__()
        self.features, self.pool, self.classifier = nn.Sequential(*features), nn.AdaptiveAvgPool2d(pool), nn.Sequential(*classifier)
        for k, p in enumerate(self.parameters()):
            v = noise(p.shape, k)
            p.data = (v * math.sqrt(6 / p[0].numel()) if p.dim() > 1 else 0.2 * v).float().double()

    def forward(self, x):
        return self.classifier(torch.flatten(self.pool(self.features(x)), 1))


def alexnet():
    conv = lambda *a, **k: [nn.Conv2d(*a, **k), nn.ReLU()]
    return Net(conv(3, 64, 11, stride=4, padding=2) + [nn.MaxPool2d(3, 2)] + conv(64, 192, 5, padding=2) + [nn.MaxPool2d(3, 2)] +
               conv(192, 384, 3, padding=1) + conv(384, 256, 3, padding=1) + conv(256, 256, 3, padding=1) + [nn.MaxPool2d(3, 2)], 6,
               [nn.Dropout(0), nn.Linear(256 * 36, HIDDEN), nn.ReLU(), nn.Dropout(0), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(),
                nn.Linear(HIDDEN, CLASSES)])


def vgg16():
    features, width = [], 3
    for n, out in zip((2, 2, 3, 3, 3), (64, 128, 256, 512, 512)):
        for _ in range(n):
            features += [nn.Conv2d(width, out, 3, padding=1), nn.ReLU()]
            width = out
        features.append(nn.MaxPool2d(2))
    return Net(features, 7, [nn.Linear(512 * 49, HIDDEN), nn.ReLU(), nn.Dropout(0), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Dropout(0),
                             nn.Linear(HIDDEN, CLASSES)])


def step(m, x):
    """Output, gradients, and how far from another side everything is: inputs of ReLUs, leads in windows of poolings."""
    seen, dtype = [], next(m.parameters()).dtype

    def look(part, given):
        v = given[0].detach().double()
        if isinstance(part, nn.ReLU):
            seen.append(v)
            return
        size = part.kernel_size
        w = nn.functional.unfold(v.reshape(-1, 1, *v.shape[2:]), size, stride=part.stride).topk(2, dim=1).values
        seen.append((w[:, 0] - w[:, 1])[w[:, 0] > 0])       # a window of zeros has no gradient
    hooks = [p.register_forward_pre_hook(look) for p in m.modules() if isinstance(p, (nn.ReLU, nn.MaxPool2d))]
    m.zero_grad()
    y = m.train()(x.to(dtype))
    dy = torch.sin(0.37 * torch.arange(y.numel(), dtype=torch.float64) + 0.9).reshape(y.shape)
    y.backward(dy.float().to(dtype))
    for h in hooks:
        h.remove()
    return y.detach().double(), {k: p.grad.double().clone() for k, p in m.named_parameters()}, seen


def rows(name, make, side):
    double, best = make().double(), None
    single = copy.deepcopy(double).float()
    for k in range(PHASES):
        phase = k + 0.5
        x = noise((1, 3, side, side), phase).float()
        a, b = step(double, x), step(single, x)
        same = all(u.shape == v.shape for u, v in zip(a[2], b[2]))
        margin = min(float(u.abs().min() / (u - v).square().mean().sqrt()) for u, v in zip(a[2], b[2])) if same else 0
        if not best or margin > best[0]:
            best = margin, phase, a, b
    margin, phase, (y, grads, _), (_, floats, _) = best
    out = ["/* the nearest other side is %.1f roundings of PyTorch's float32 away */" % margin,
           "enum { %s_SIDE = %d };" % (name.upper(), side), "#define %s_PHASE %r" % (name.upper(), phase),
           "static const struct golden_grad %s[] = {" % name]
    for key, g in grads.items():
        flat = g.flatten()
        along = float((flat * torch.cos(0.7 * torch.arange(len(flat), dtype=torch.float64) + 0.3)).sum())
        out.append('\t{ "%s", %.17g, %.17g },' % (key, float(g.norm()), along))
        print(name, key, float((floats[key] - g).norm() / g.norm()), file=sys.stderr)
    return out + ["};", "static const double %s_y[] = {" % name, *("\t%s," % ", ".join("%.17g" % v for v in y[0, i:i + 4].tolist()) for i in range(0, CLASSES, 4)), "};", ""]


text = ["/* Written by tests/data/make-golden-convnets.py. Do not edit. */", "#ifndef TESTS_CONVNETS_GOLDEN_H",
        "#define TESTS_CONVNETS_GOLDEN_H", "", "/* Of a gradient g: its norm, and the sum of g[i] cos(0.7 i + 0.3). */",
        "struct golden_grad { const char *name; double norm, along; };", ""]
text += rows("alexnet", alexnet, 64) + rows("vgg16", vgg16, 32)
with open(sys.argv[1], "w") as f:
    f.write("\n".join(text + ["#endif"]) + "\n")
