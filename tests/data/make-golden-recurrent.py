#!/usr/bin/env python3
"""Writes tests/unit/recurrent_golden.h: LSTM and RNN through 64 steps and back by PyTorch, in double (row A08).

usage: make-golden-recurrent.py FILE.h

Element i of the k-th parameter is u / sqrt(hidden) times the row's factor with u = 2 frac(43758.5453 sin(12.9898 i + k)) - 1,
rounded to float32, as are inputs (k = 20.5) and the gradient of the output (k = 40.5); before a rectifier the absolute
value of all but weight_ih, since a unit that is off ends what flows back. Each row is the layer as text and one array
of y, dx and the gradients of all parameters, one after the other."""
import math
import sys
import torch
from torch import nn

STEPS, IN, HIDDEN, BATCH = 64, 2, 4, 2
torch.set_default_dtype(torch.float64)


def noise(shape, k, factor=1.0):
    n = math.prod(shape)
    u = torch.sin(12.9898 * torch.arange(n, dtype=torch.float64) + k) * 43758.5453
    return (factor * (2 * (u - torch.floor(u)) - 1)).float().double().reshape(shape)


ROWS = [("lstm", nn.LSTM(IN, HIDDEN, batch_first=True), 2.0),
        ("rnn", nn.RNN(IN, HIDDEN, batch_first=True), 1.5),
        ("rnn relu=1", nn.RNN(IN, HIDDEN, nonlinearity="relu", batch_first=True), 0.9),
        ("lstm bias=0 last=1", nn.LSTM(IN, HIDDEN, bias=False, batch_first=True), 2.5)]
out = ["/* Written by tests/data/make-golden-recurrent.py with PyTorch %s (float64). Do not edit. */" % torch.__version__.split("+")[0],
       "#ifndef TESTS_RECURRENT_GOLDEN_H", "#define TESTS_RECURRENT_GOLDEN_H", "",
       "enum { GOLDEN_STEPS = %d, GOLDEN_IN = %d, GOLDEN_HIDDEN = %d, GOLDEN_BATCH = %d };" % (STEPS, IN, HIDDEN, BATCH), ""]
table = []
for n, (text, m, factor) in enumerate(ROWS):
    for k, p in enumerate(m.parameters()):
        p.data = noise(p.shape, k, factor / math.sqrt(HIDDEN))
        p.data = p.data.abs() if k >= 1 and "relu" in text else p.data
    x = noise((BATCH, STEPS, IN), 20.5).requires_grad_()
    y = m(x)[0]
    y = y[:, -1] if "last" in text else y
    y.backward(noise(y.shape, 40.5))
    single = type(m)(IN, HIDDEN, batch_first=True, bias="bias" not in text,
                     **({"nonlinearity": "relu"} if "relu" in text else {})).float()
    single.load_state_dict({k: v.float() for k, v in m.state_dict().items()})
    z = single(x.detach().float())[0]
    z = z[:, -1] if "last" in text else z
    z.backward(noise(z.shape, 40.5).float())
    for (name, p), q in zip(m.named_parameters(), single.parameters()):
        print(text, name, "PyTorch's float32 is off by", float((q.grad.double() - p.grad).abs().max() / p.grad.abs().max()), file=sys.stderr)
    early = x.grad[:, 0].abs().max() / x.grad.abs().max()
    print(text, "gradient of the first step's input, of the largest:", float(early), file=sys.stderr)
    v = torch.cat([y.detach().flatten(), x.grad.flatten()] + [p.grad.flatten() for p in m.parameters()]).tolist()
    rows = [", ".join("%.12g" % a for a in v[i:i + 6]) for i in range(0, len(v), 6)]
    out += ["static const double recurrent_%d[] = {" % n, "\t" + ",\n\t".join(rows) + ",", "};"]
    table.append('\t{ "%s", %g, recurrent_%d, %d },' % (text, factor, n, len(v)))
out += ["static const struct { const char *text; double factor; const double *want; size_t n; } recurrent[] = {", *table, "};", "", "#endif"]
with open(sys.argv[1], "w") as f:
    f.write("\n".join(out) + "\n")
