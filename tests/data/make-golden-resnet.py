#!/usr/bin/env python3
"""Writes tests/unit/resnet_golden.h: one training step of torchvision's ResNet-18 in double, both stems (row A06).

usage: make-golden-resnet.py FILE.h

Parameters are those of make-golden-models.py; the images are its noise at another phase, because a ReLU whose input is
almost 0 falls on one side in double and on the other in float, and changes early gradients by 1e-3: PyTorch's own
float32, too (at phase 0.5 oneDNN has none on the other side, PyTorch's native convolutions have one). At the phases
here, the best of some hundred, no input of a ReLU is nearer to 0 than four roundings there, those of 4x4 tiles included:
margin is the least, over all ReLUs, of min |input| / rms(float32 - float64) by PyTorch, whose rounding is less."""
import copy
import math
import sys
import torch
import torchvision

CASES = [("imagenet", 64, 2, 96.5), ("cifar", 16, 2, 92.5)]


def noise(shape, k):
    n = math.prod(shape)
    u = torch.sin(12.9898 * torch.arange(n, dtype=torch.float64) + k) * 43758.5453
    return (2 * (u - torch.floor(u)) - 1).reshape(shape)


def model(stem):
    m = torchvision.models.resnet18(num_classes=10).double()
    if stem == "cifar":
        m.conv1 = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False).double()
        m.maxpool = torch.nn.Identity()
    for k, (key, p) in enumerate(m.named_parameters()):
        fan = p[0].numel() if p.dim() > 1 else 1
        v = noise(p.shape, k) / math.sqrt(fan)
        norm = p.dim() == 1 and key != "fc.bias"
        v = 1 + 0.2 * v if norm and key.endswith("weight") else 0.2 * v if p.dim() == 1 else v
        p.data = v.float().double()             # what a float holds: both precisions begin with the same numbers
    return m


def step(m, x):
    """Output, gradients, and what went into every ReLU."""
    seen, dtype = [], next(m.parameters()).dtype
    for part in m.modules():
        if isinstance(part, torch.nn.ReLU):
            part.inplace = False
            part.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach().double()))
    y = m.train()(x.to(dtype))
    dy = torch.sin(0.37 * torch.arange(y.numel(), dtype=torch.float64) + 0.9).reshape(y.shape)
    y.backward(dy.float().to(dtype))
    return y.detach().double(), {k: p.grad.double() for k, p in m.named_parameters()}, seen


def rows(stem, side, batch, phase):
    m = model(stem)
    x = noise((batch, 3, side, side), phase).float()
    single = step(copy.deepcopy(m).float(), x)
    y, grads, seen = step(m, x)
    margin = min(float(a.abs().min() / (a - b).square().mean().sqrt()) for a, b in zip(seen, single[2]))
    out = ["/* %s stem: the nearest ReLU is %.1f roundings of PyTorch's float32 away */" % (stem, margin),
           "enum { %s_SIDE = %d, %s_BATCH = %d };" % (stem.upper(), side, stem.upper(), batch),
           "#define %s_PHASE %r" % (stem.upper(), phase), "static const struct golden_grad %s[] = {" % stem]
    for key, g in grads.items():
        flat = g.flatten()
        along = float((flat * torch.cos(0.7 * torch.arange(len(flat), dtype=torch.float64) + 0.3)).sum())
        off = float((single[1][key] - g).norm() / g.norm())
        out.append('\t{ "%s", %.17g, %.17g, %.3g },' % (key, float(g.norm()), along, off))
    out += ["};", "static const double %s_y[] = {" % stem, "\t%s" % ", ".join("%.17g" % v for v in y[0, :4].tolist()), "};", ""]
    return out


def losses(stem, side, batch, phase):
    """Five steps as people train: SGD with momentum, no decay of biases and norms; then the output in evaluation mode."""
    m, out = model(stem).train(), []
    x, y = noise((batch, 3, side, side), phase).float().double(), torch.arange(batch) % 10
    parts = [{"params": [p for p in m.parameters() if p.dim() > 1], "weight_decay": 0.05},
             {"params": [p for p in m.parameters() if p.dim() == 1], "weight_decay": 0}]
    opt = torch.optim.SGD(parts, lr=0.01, momentum=0.9)
    for _ in range(5):
        opt.zero_grad()
        loss = torch.nn.functional.cross_entropy(m(x), y)
        loss.backward()
        opt.step()
        out.append(float(loss.detach()))
    with torch.no_grad():
        out += m.eval()(x)[0, :4].tolist()
    return ["/* losses of five steps of SGD, lr 0.01, momentum 0.9, weight decay 0.05; then the first outputs in evaluation */",
            "static const double %s_steps[] = {" % stem, "\t" + ", ".join("%.17g" % v for v in out[:5]) + ",",
            "\t" + ", ".join("%.17g" % v for v in out[5:]), "};", ""]


torch.set_num_threads(1)
text = ["/* Written by tests/data/make-golden-resnet.py. Do not edit. */", "#ifndef TESTS_RESNET_GOLDEN_H",
        "#define TESTS_RESNET_GOLDEN_H", "",
        "/* Of a gradient g in double: its norm, the sum of g[i] cos(0.7 i + 0.3), and how far PyTorch's float32 is off, as",
        " * the norm of the difference over the norm. */",
        "struct golden_grad { const char *name; double norm, along, float_off; };", ""]
for case in CASES:
    text += rows(*case)
text += losses(*CASES[1])
with open(sys.argv[1], "w") as f:
    f.write("\n".join(text + ["#endif"]) + "\n")
