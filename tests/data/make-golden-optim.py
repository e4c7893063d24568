#!/usr/bin/env python3
"""Writes tests/data/models/optim.safetensors: 200 steps of torch.optim in float64 on two problems.

usage: make-golden-optim.py OUTDIR

Run once with torch and safetensors, and commit the result; the tests need no Python. quadratic: 40 parameters,
sum of a (p - t)^2 / 2; mlp: 6-5-3 with tanh, 8 samples, mean squared error. All numbers come from wave(n, phase, scale),
which tests/unit/test_kernels_steps.c computes by itself, as it does the gradients. Biases take no weight decay. Each
tensor "OPTIMIZER.NUMBER.PROBLEM" holds the parameters after steps 10, 100 and 200."""
import math
import sys
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

torch.set_default_dtype(torch.float64)
O = torch.optim
# The table of test_kernels_steps.c, in its order.
TABLE = [
    ('sgd', lambda p: O.SGD(p, lr=0.05)),
    ('sgd', lambda p: O.SGD(p, lr=0.02, momentum=0.9, weight_decay=0.01)),
    ('sgd', lambda p: O.SGD(p, lr=0.02, momentum=0.9, nesterov=True)),
    ('rmsprop', lambda p: O.RMSprop(p, lr=0.001, weight_decay=0.01)),
    ('rmsprop', lambda p: O.RMSprop(p, lr=0.001, momentum=0.5, centered=True)),
    ('adam', lambda p: O.Adam(p, lr=0.002)),
    ('adam', lambda p: O.Adam(p, lr=0.002, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.05)),
    ('adamw', lambda p: O.AdamW(p, lr=0.002, weight_decay=0.1)),
    ('adagrad', lambda p: O.Adagrad(p, lr=0.05)),
    ('adagrad', lambda p: O.Adagrad(p, lr=0.05, lr_decay=0.01, weight_decay=0.01, initial_accumulator_value=0.5)),
]
STEPS = (10, 100, 200)


def wave(n, phase, scale=1.0):
    return torch.tensor([scale * math.sin(0.37 * i + phase) for i in range(n)])


def groups(tensors, make):
    """One optimizer per kind of tensor: vectors do not decay."""
    made = []
    for vectors in (False, True):
        mine = [t for t in tensors if (t.dim() == 1) == vectors]
        if mine:
            o = make(mine)
            if vectors:
                o.param_groups[0]['weight_decay'] = 0
            made.append(o)
    return made


def run(tensors, make, loss):
    kept, optims = [], groups(tensors, make)
    for step in range(1, STEPS[-1] + 1):
        for o in optims:
            o.zero_grad()
        loss().backward()
        for o in optims:
            o.step()
        if step in STEPS:
            kept.append(torch.cat([t.detach().reshape(-1) for t in tensors]).clone())
    return torch.stack(kept)


def quadratic(make):
    p, a, t = torch.nn.Parameter(wave(40, 0.5).reshape(40, 1)), wave(40, 1.1, 0.45) + 0.55, wave(40, 2.0)
    return run([p], make, lambda: (a * (p.reshape(-1) - t) ** 2).sum() / 2)


def mlp(make):
    flat, at, tensors = wave(5 * 6 + 5 + 3 * 5 + 3, 0.3, 0.5), 0, []
    for shape in ((5, 6), (5,), (3, 5), (3,)):
        n = math.prod(shape)
        tensors.append(torch.nn.Parameter(flat[at:at + n].reshape(shape).clone()))
        at += n
    x, y = wave(8 * 6, 0.7).reshape(8, 6), wave(8 * 3, 1.9, 0.8).reshape(8, 3)
    w1, b1, w2, b2 = tensors
    return run(tensors, make, lambda: F.mse_loss(F.linear(torch.tanh(F.linear(x, w1, b1)), w2, b2), y))


tensors = {}
for i, (name, make) in enumerate(TABLE):
    tensors['%s.%d.quadratic' % (name, i)] = quadratic(make)
    tensors['%s.%d.mlp' % (name, i)] = mlp(make)
save_file(tensors, sys.argv[1] + '/optim.safetensors', metadata={'torch': torch.__version__})
