#!/usr/bin/env python3
"""Writes tests/unit/kernels_golden.h: what PyTorch computes for the optimizers, layers and losses of kernels/.

Run once with PyTorch 2.x (float64 on the CPU) and commit the result; the tests need no Python.
Inputs are wave(i, phase) = sin(0.37 i + phase), which the tests compute by themselves."""
import math
import sys
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
out = []


def wave(n, phase, scale=1.0):
    return torch.tensor([scale * math.sin(0.37 * i + phase) for i in range(n)])


def emit(name, t):
    v = t.detach().reshape(-1).tolist()
    rows = [", ".join("%.12g" % x for x in v[i:i + 6]) for i in range(0, len(v), 6)]
    out.append("static const double %s[] = {\n\t%s,\n};\n" % (name, ",\n\t".join(rows)))


# Optimizers: 11 parameters, 5 steps, gradients wave(11, step).
OPTIMS = [
    ("sgd", "lr=0.1", lambda p: torch.optim.SGD(p, lr=0.1)),
    ("sgd", "lr=0.1 momentum=0.9 weight_decay=0.01", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01)),
    ("sgd", "lr=0.1 momentum=0.9 dampening=0.3", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3)),
    ("sgd", "lr=0.1 momentum=0.8 nesterov=1", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.8, nesterov=True)),
    ("adam", "lr=0.05", lambda p: torch.optim.Adam(p, lr=0.05)),
    ("adam", "lr=0.05 beta1=0.8 beta2=0.95 eps=1e-6 weight_decay=0.1",
     lambda p: torch.optim.Adam(p, lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)),
    ("adamw", "lr=0.05", lambda p: torch.optim.AdamW(p, lr=0.05)),
    ("adamw", "lr=0.05 weight_decay=0.2", lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.2)),
    ("rmsprop", "lr=0.02", lambda p: torch.optim.RMSprop(p, lr=0.02)),
    ("rmsprop", "lr=0.02 alpha=0.9 momentum=0.5 weight_decay=0.05",
     lambda p: torch.optim.RMSprop(p, lr=0.02, alpha=0.9, momentum=0.5, weight_decay=0.05)),
    ("rmsprop", "lr=0.02 centered=1", lambda p: torch.optim.RMSprop(p, lr=0.02, centered=True)),
    ("rmsprop", "lr=0.02 centered=1 momentum=0.5", lambda p: torch.optim.RMSprop(p, lr=0.02, centered=True, momentum=0.5)),
    ("adagrad", "lr=0.1", lambda p: torch.optim.Adagrad(p, lr=0.1)),
    ("adagrad", "lr=0.1 lr_decay=0.1 weight_decay=0.01 initial_accumulator_value=0.5",
     lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.1, weight_decay=0.01, initial_accumulator_value=0.5)),
]
table = []
for i, (name, hyper, make) in enumerate(OPTIMS):
    p = torch.nn.Parameter(wave(11, 0.5))
    opt = make([p])
    for step in range(5):
        p.grad = wave(11, float(step))
        opt.step()
    emit("golden_optim_%d" % i, p)
    table.append('\t{ "%s", "%s", golden_optim_%d },\n' % (name, hyper, i))
out.append("static const struct { const char *optim, *hyper; const double *param; } golden_optim[] = {\n%s};\n" % "".join(table))


def layer(tag, module, shape, batch):
    """Forward and backward of one layer: y, dx and all parameter gradients."""
    n = batch * math.prod(shape)
    x = wave(n, 0.2).reshape(batch, *shape).requires_grad_()
    with torch.no_grad():
        for j, p in enumerate(module.parameters()):
            p.copy_(wave(p.numel(), 1.0 + j, 0.4).reshape(p.shape))
    y = module(x)
    y.backward(wave(y.numel(), 2.5).reshape(y.shape))
    emit("golden_%s_y" % tag, y)
    emit("golden_%s_dx" % tag, x.grad)
    grads = [p.grad.reshape(-1) for p in module.parameters()]
    if grads:
        emit("golden_%s_dparam" % tag, torch.cat(grads))


layer("linear", torch.nn.Linear(5, 3), (5,), 2)
layer("linear_nobias", torch.nn.Linear(4, 2, bias=False), (3, 4), 2)
layer("conv", torch.nn.Conv2d(2, 3, 3, padding=1), (2, 4, 5), 2)
layer("conv_stride", torch.nn.Conv2d(2, 2, 3, stride=2, padding=2, bias=False), (2, 5, 4), 2)
layer("maxpool", torch.nn.MaxPool2d(3, stride=2, padding=1), (2, 5, 6), 2)
layer("relu", torch.nn.ReLU(), (7,), 2)
layer("sigmoid", torch.nn.Sigmoid(), (7,), 2)
layer("tanh", torch.nn.Tanh(), (7,), 2)

for tag, fn, target in [
    ("cross_entropy", F.cross_entropy, torch.tensor([2, 0, 3])),
    ("bce_with_logits", F.binary_cross_entropy_with_logits, wave(12, 0.7).reshape(3, 4) * 0.5 + 0.5),
    ("mse", F.mse_loss, wave(12, 0.7).reshape(3, 4)),
]:
    z = (wave(12, 0.3) * 3).reshape(3, 4).requires_grad_()
    loss = fn(z, target)
    loss.backward()
    emit("golden_%s_loss" % tag, loss.reshape(1))
    emit("golden_%s_dz" % tag, z.grad)

g = wave(20, 0.1) * 2
p = torch.nn.Parameter(torch.zeros(20))
p.grad = g.clone()
emit("golden_clip_norm", torch.nn.utils.clip_grad_norm_([p], 1.5).reshape(1))
emit("golden_clip_grad", p.grad)

with open(sys.argv[1], "w") as f:
    f.write("/* Written by tests/data/make-golden.py with PyTorch %s (float64). Do not edit. */\n" % torch.__version__.split("+")[0])
    f.write("#ifndef TESTS_KERNELS_GOLDEN_H\n#define TESTS_KERNELS_GOLDEN_H\n\n" + "\n".join(out) + "\n#endif\n")
