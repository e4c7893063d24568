#!/usr/bin/env python3
"""Writes tests/unit/kernels_golden_layers.h: what PyTorch computes for layers of kernels/, in float64.

Inputs, parameters and dy are wave(i, phase) = sin(0.37 i + phase) with the phases 0.2, 0.5 + tensor and 0.9; each row is the
layers as text, the input's shape, and one array of y, dx and all parameters' gradients, one after the other."""
import math
import sys
import textwrap
import torch
import torch.nn as nn

torch.set_default_dtype(torch.float64)
BATCH = 2


def wave(shape, phase):
    return torch.sin(0.37 * torch.arange(math.prod(shape), dtype=torch.float64) + phase).reshape(shape)


class Attend(nn.Module):
    def __init__(self, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal

    def forward(self, x):
        q, k, v = (t.reshape(BATCH, -1, self.heads, x.shape[2] // 3 // self.heads).transpose(1, 2) for t in x.chunk(3, 2))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return y.transpose(1, 2).reshape(BATCH, x.shape[1], -1)


ROWS = [
    ("groupnorm groups=3", (6, 2, 3), nn.GroupNorm(3, 6)),
    ("layernorm", (2, 7), nn.LayerNorm(7)),
    ("rmsnorm eps=1e-5", (2, 7), nn.RMSNorm(7, eps=1e-5)),
    ("batchnorm", (3, 2, 3), nn.BatchNorm2d(3)),
    ("batchnorm", (5,), nn.BatchNorm1d(5)),
    ("silu", (9,), nn.SiLU()),
    ("gelu", (9,), nn.GELU()),
    ("gelu tanh=1", (9,), nn.GELU(approximate="tanh")),
    ("softmax", (2, 5), nn.Softmax(-1)),
    ("avgpool2d kernel=3 stride=2 padding=1", (2, 5, 6), nn.AvgPool2d(3, 2, 1)),
    ("adaptiveavgpool2d out=3", (2, 5, 4), nn.AdaptiveAvgPool2d(3)),
    ("conv2d out=4 kernel=3 dilation=2 groups=2 padding=1", (2, 5, 6), nn.Conv2d(2, 4, 3, 1, 1, 2, 2)),
    ("attention heads=2 causal=1", (5, 12), Attend(2, True)),
    ("attention heads=1", (4, 6), Attend(1, False)),
    ("conv2d out=3 kernel=1 kernel_w=7 padding_w=3", (2, 4, 5), nn.Conv2d(2, 3, (1, 7), padding=(0, 3))),
    ("conv2d out=3 kernel=7 padding=3 kernel_w=1 padding_w=0", (2, 5, 4), nn.Conv2d(2, 3, (7, 1), padding=(3, 0))),
    ("conv2d out=4 kernel=3 kernel_w=2 padding=2 padding_w=1 stride=2 dilation=2 groups=2", (2, 6, 7), nn.Conv2d(2, 4, (3, 2), 2, (2, 1), 2, 2)),
    ("conv2d out=4 kernel=2 kernel_w=3 padding=1 padding_w=2 groups=2", (2, 5, 6), nn.Conv2d(2, 4, (2, 3), 1, (1, 2), 1, 2)),
]
out = ["/* Written by tests/data/make-golden-layers.py with PyTorch %s (float64). Do not edit. */\n" % torch.__version__.split("+")[0],
       "#ifndef TESTS_KERNELS_GOLDEN_LAYERS_H\n#define TESTS_KERNELS_GOLDEN_LAYERS_H\n\n"]
table = []
for n, (text, shape, m) in enumerate(ROWS):
    for k, p in enumerate(m.parameters()):
        p.data = wave(p.shape, 0.5 + k)
    x = wave((BATCH, *shape), 0.2).requires_grad_()
    y = m.train()(x)
    y.backward(wave(y.shape, 0.9))
    v = torch.cat([y.flatten(), x.grad.flatten()] + [p.grad.flatten() for p in m.parameters()]).tolist()
    rows = textwrap.wrap(", ".join("%.10g" % a for a in v), 108)
    out.append("static const double golden_layer_%d[] = {\n\t%s,\n};\n\n" % (n, "\n\t".join(rows)))
    table.append('\t{ "%s",\n\t\t{ %d, { %s } }, golden_layer_%d, %d },\n' % (text, len(shape), ", ".join(map(str, shape)), n, len(v)))
out.append("static const struct { const char *text; struct shape in; const double *want; size_t n; } golden_layers[] = {\n%s};\n\n#endif\n"
           % "".join(table))
sys.stdout.write("".join(out))
