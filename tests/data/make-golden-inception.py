#!/usr/bin/env python3
"""Writes tests/unit/inception_golden.h: a training step of Inception-v3 in double by PyTorch (row A06).

usage: make-golden-inception.py FILE.h

The network is torchvision's without its second classifier, with an eighth of the channels, on two images of 107 x 107.
Element i of the k-th parameter, of fan-in f, is u / sqrt(f) with u = 2 frac(43758.5453 sin(12.9898 i + k)) - 1, of a
norm's weight 1 + 0.2 u, of a bias 0.2 u; images are that noise at a phase. As in make-golden-resnet.py the phase is the one
of some at which the nearest input of a ReLU is farthest from 0, in roundings of PyTorch's float32: on the other side a
gradient is another. Printed is how far PyTorch's float32 is from its double there."""
import copy
import math
import sys
import torch
from torch import nn
from torch.nn import functional as F

WIDTH, SIDE, BATCH, CLASSES, PHASES = 8, 107, 2, 10, 40


def noise(shape, k):
    n = math.prod(shape)
    u = torch.sin(12.9898 * torch.arange(n, dtype=torch.float64) + k) * 43758.5453
    return (2 * (u - torch.floor(u)) - 1).reshape(shape)


class Basic(nn.Module):
    def __init__(self, cin, out, kernel, **k):
        super().__init__()
        self.conv = nn.Conv2d(cin, out // WIDTH, kernel, bias=False, **k)
        self.bn = nn.BatchNorm2d(out // WIDTH, eps=0.001)
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(self.bn(self.conv(x)))


class Block(nn.Module):
    """parts: name -> (input channels or the name of the part before, output channels, kernel, options); branches: what is
    put side by side, each a list of parts, or 'max' or 'mean', the pool before them."""
    def __init__(self, cin, parts, branches):
        super().__init__()
        self.branches, width = branches, {}
        for name, (of, out, kernel, *rest) in parts.items():
            width[name] = out // WIDTH
            setattr(self, name, Basic(width[of] if of else cin, out, kernel, **(rest[0] if rest else {})))
        self.out = sum(width.get(b[-1], cin) for b in branches)

    def forward(self, x):
        out = []
        for b in self.branches:
            y = x
            for name in b:
                y = F.max_pool2d(y, 3, 2) if name == 'max' else F.avg_pool2d(y, 3, 1, 1) if name == 'mean' else getattr(self, name)(y)
            out.append(y)
        return torch.cat(out, 1)


def a(cin, pool):
    return Block(cin, {'branch1x1': (None, 64, 1), 'branch5x5_1': (None, 48, 1), 'branch5x5_2': ('branch5x5_1', 64, 5, dict(padding=2)),
        'branch3x3dbl_1': (None, 64, 1), 'branch3x3dbl_2': ('branch3x3dbl_1', 96, 3, dict(padding=1)),
        'branch3x3dbl_3': ('branch3x3dbl_2', 96, 3, dict(padding=1)), 'branch_pool': (None, pool, 1)},
        [['branch1x1'], ['branch5x5_1', 'branch5x5_2'], ['branch3x3dbl_1', 'branch3x3dbl_2', 'branch3x3dbl_3'], ['mean', 'branch_pool']])


def b(cin):
    return Block(cin, {'branch3x3': (None, 384, 3, dict(stride=2)), 'branch3x3dbl_1': (None, 64, 1),
        'branch3x3dbl_2': ('branch3x3dbl_1', 96, 3, dict(padding=1)), 'branch3x3dbl_3': ('branch3x3dbl_2', 96, 3, dict(stride=2))},
        [['branch3x3'], ['branch3x3dbl_1', 'branch3x3dbl_2', 'branch3x3dbl_3'], ['max']])


FLAT, TALL = ((1, 7), dict(padding=(0, 3))), ((7, 1), dict(padding=(3, 0)))


def c(cin, n):
    d = 'branch7x7dbl_'
    return Block(cin, {'branch1x1': (None, 192, 1), 'branch7x7_1': (None, n, 1), 'branch7x7_2': ('branch7x7_1', n, *FLAT),
        'branch7x7_3': ('branch7x7_2', 192, *TALL), d + '1': (None, n, 1), d + '2': (d + '1', n, *TALL), d + '3': (d + '2', n, *FLAT),
        d + '4': (d + '3', n, *TALL), d + '5': (d + '4', 192, *FLAT), 'branch_pool': (None, 192, 1)},
        [['branch1x1'], ['branch7x7_1', 'branch7x7_2', 'branch7x7_3'], [d + str(i) for i in range(1, 6)], ['mean', 'branch_pool']])


def d(cin):
    s = 'branch7x7x3_'
    return Block(cin, {'branch3x3_1': (None, 192, 1), 'branch3x3_2': ('branch3x3_1', 320, 3, dict(stride=2)), s + '1': (None, 192, 1),
        s + '2': (s + '1', 192, *FLAT), s + '3': (s + '2', 192, *TALL), s + '4': (s + '3', 192, 3, dict(stride=2))},
        [['branch3x3_1', 'branch3x3_2'], [s + str(i) for i in range(1, 5)], ['max']])


def e(cin):
    flat, tall, x, y = ((1, 3), dict(padding=(0, 1))), ((3, 1), dict(padding=(1, 0))), 'branch3x3_', 'branch3x3dbl_'
    return Block(cin, {'branch1x1': (None, 320, 1), x + '1': (None, 384, 1), x + '2a': (x + '1', 384, *flat), x + '2b': (x + '1', 384, *tall),
        y + '1': (None, 448, 1), y + '2': (y + '1', 384, 3, dict(padding=1)), y + '3a': (y + '2', 384, *flat), y + '3b': (y + '2', 384, *tall),
        'branch_pool': (None, 192, 1)}, [['branch1x1'], [x + '1', x + '2a'], [x + '1', x + '2b'], [y + '1', y + '2', y + '3a'],
        [y + '1', y + '2', y + '3b'], ['mean', 'branch_pool']])


class Net(nn.Module):
    """Parts that two branches share run twice, in training a norm's statistics, too: gradients are the same."""
    def __init__(self):
        super().__init__()
        w = lambda n: n // WIDTH
        self.Conv2d_1a_3x3, self.Conv2d_2a_3x3 = Basic(3, 32, 3, stride=2), Basic(w(32), 32, 3)
        self.Conv2d_2b_3x3, self.Conv2d_3b_1x1, self.Conv2d_4a_3x3 = Basic(w(32), 64, 3, padding=1), Basic(w(64), 80, 1), Basic(w(80), 192, 3)
        at = w(192)
        for name, make, *rest in (('5b', a, 32), ('5c', a, 64), ('5d', a, 64), ('6a', b), ('6b', c, 128), ('6c', c, 160), ('6d', c, 160),
                ('6e', c, 192), ('7a', d), ('7b', e), ('7c', e)):
            setattr(self, 'Mixed_' + name, make(at, *rest))
            at = getattr(self, 'Mixed_' + name).out
        self.fc = nn.Linear(at, CLASSES)
        for k, p in enumerate(self.parameters()):
            v = noise(p.shape, k)
            norm = p.dim() == 1 and p is not self.fc.bias
            v = v / math.sqrt(p[0].numel()) if p.dim() > 1 else 0.2 * v
            p.data = v.float().double()
        for m in self.modules():
            if isinstance(m, nn.BatchNorm2d):
                m.weight.data = (1 + m.weight.data).float().double()

    def forward(self, x):
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))
        x = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(F.max_pool2d(x, 3, 2)))
        x = F.max_pool2d(x, 3, 2)
        for name in ('5b', '5c', '5d', '6a', '6b', '6c', '6d', '6e', '7a', '7b', '7c'):
            x = getattr(self, 'Mixed_' + name)(x)
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


def step(m, x):
    seen, dtype = [], next(m.parameters()).dtype
    hooks = [p.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach().double()))
             for p in m.modules() if isinstance(p, nn.ReLU)]
    m.zero_grad()
    y = m.train()(x.to(dtype))
    dy = torch.sin(0.37 * torch.arange(y.numel(), dtype=torch.float64) + 0.9).reshape(y.shape)
    y.backward(dy.float().to(dtype))
    for h in hooks:
        h.remove()
    return y.detach().double(), {k: p.grad.double().clone() for k, p in m.named_parameters()}, seen


def main():
    full = globals()['WIDTH']
    globals()['WIDTH'] = 1
    print(sum(p.numel() for p in Net().parameters()) + 990 * 2049, 'parameters with 1000 classes', file=sys.stderr)
    globals()['WIDTH'] = full
    double, best = Net().double(), None
    single = copy.deepcopy(double).float()
    for k in range(PHASES):
        x = noise((BATCH, 3, SIDE, SIDE), k + 0.5).float()
        p, q = step(double, x), step(single, x)
        margin = min(float(u.abs().min() / (u - v).square().mean().sqrt()) for u, v in zip(p[2], q[2]))
        if not best or margin > best[0]:
            best = margin, k + 0.5, p, q
    margin, phase, (y, grads, _), (_, floats, _) = best
    out = ["/* Written by tests/data/make-golden-inception.py. Do not edit. */", "#ifndef TESTS_INCEPTION_GOLDEN_H",
        "#define TESTS_INCEPTION_GOLDEN_H", "", "enum { INCEPTION_SIDE = %d, INCEPTION_BATCH = %d };" % (SIDE, BATCH),
        "/* the nearest ReLU is %.2g roundings of PyTorch's float32 away */" % margin, "#define INCEPTION_PHASE %r" % phase, "",
        "/* Of a gradient g: its norm, the sum of g[i] cos(0.7 i + 0.3), and how far PyTorch's float32 is off, in its norm. */",
        "static const struct { const char *name; double norm, along, off; } inception[] = {"]
    for key, g in grads.items():
        flat = g.flatten()
        along = float((flat * torch.cos(0.7 * torch.arange(len(flat), dtype=torch.float64) + 0.3)).sum())
        off = float((floats[key] - g).norm() / g.norm())
        out.append('\t{ "%s", %.17g, %.17g, %.2g },' % (key, float(g.norm()), along, off))
    flat = y.flatten().tolist()
    out += ["};", "static const double inception_y[] = {", *("\t%s," % ", ".join("%.17g" % v for v in flat[i:i + 4]) for i in range(0, len(flat), 4)),
        "};", "#endif"]
    print('worst float32', max(float((floats[k] - grads[k]).norm() / grads[k].norm()) for k in grads), 'margin', margin, file=sys.stderr)
    with open(sys.argv[1], "w", encoding='utf-8') as f:
        f.write("\n".join(out) + "\n")


main()
