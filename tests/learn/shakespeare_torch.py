#!/usr/bin/env python3
"""PyTorch's side of shakespeare.sh.

usage: shakespeare_torch.py init SPEC OUT                      random weights as a safetensors file with Hugging Face's names
       shakespeare_torch.py compare SPEC WEIGHTS TEXT LOSSES   trains with the same weights and windows, and compares"""
import json
import math
import struct
import sys
import torch
import torch.nn.functional as F

M64 = (1 << 64) - 1
GOLDEN = 0x9e3779b97f4a7c15


def finalize(z):
    z = ((z ^ (z >> 30)) * 0xbf58476d1ce4e5b9) & M64
    z = ((z ^ (z >> 27)) * 0x94d049bb133111eb) & M64
    return z ^ (z >> 31)


def mix(a, b):
    return finalize(finalize((a + GOLDEN) & M64) ^ ((b * 0xd1342543de82ef95 + GOLDEN) & M64))


def permute(key, n, i):
    """common/rng.c: the order of the samples."""
    half = 1
    while half < 32 and 1 << (2 * half) < n:
        half += 1
    mask = (1 << half) - 1
    while True:
        l, r = i >> half, i & mask
        for k in range(8):
            l, r = r, l ^ (finalize((mix((key + k * GOLDEN) & M64, r) + GOLDEN) & M64) & mask)
        i = l << half | r
        if i < n:
            return i


def names(m):
    w = m["width"]
    yield "transformer.wte.weight", (m["vocab"], w), 0.02
    yield "transformer.wpe.weight", (m["positions"], w), 0.02
    for i in range(m["layers"]):
        h = f"transformer.h.{i}."
        for name, shape, std in (("attn.c_attn", (w, 3 * w), 0.02), ("attn.c_proj", (w, w), 0.02 / math.sqrt(2 * m["layers"])),
                                 ("mlp.c_fc", (w, 4 * w), 0.02), ("mlp.c_proj", (4 * w, w), 0.02 / math.sqrt(2 * m["layers"]))):
            yield h + name + ".weight", shape, std
            yield h + name + ".bias", (shape[1],), 0
        for name in ("ln_1", "ln_2"):
            yield h + name + ".weight", (w,), None
            yield h + name + ".bias", (w,), 0
    yield "transformer.ln_f.weight", (w,), None
    yield "transformer.ln_f.bias", (w,), 0


def init(spec, out):
    torch.manual_seed(3)
    header, body, at = {}, b"", 0
    for name, shape, std in names(spec["model"]):
        t = torch.ones(shape) if std is None else torch.randn(shape) * std
        raw = t.float().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        body += raw
    head = json.dumps(header).encode()
    with open(out, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + body)


def load(path):
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    out = {}
    for name, t in json.loads(raw[8:8 + n]).items():
        lo, hi = t["data_offsets"]
        out[name] = torch.frombuffer(bytearray(raw[8 + n + lo:8 + n + hi]), dtype=torch.float32).reshape(t["shape"]).requires_grad_()
    return out


def forward(p, m, ids):
    w = m["width"]
    x = p["transformer.wte.weight"][ids] + p["transformer.wpe.weight"][:ids.shape[1]]
    norm = lambda x, name: F.layer_norm(x, (w,), p[name + ".weight"], p[name + ".bias"])
    line = lambda x, name: x @ p[name + ".weight"] + p[name + ".bias"]
    for i in range(m["layers"]):
        h = f"transformer.h.{i}."
        q, k, v = (t.reshape(*t.shape[:2], m["heads"], -1).transpose(1, 2) for t in line(norm(x, h + "ln_1"), h + "attn.c_attn").split(w, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + line(y, h + "attn.c_proj")
        x = x + line(F.gelu(line(norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh"), h + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ p["transformer.wte.weight"].T


class Torch:
    """The same training: the same windows in the same order, AdamW without decay of vectors, clipping."""

    def __init__(self, spec, weights, text):
        torch.set_num_threads(1)
        self.spec, self.m, self.t = spec, spec["model"], spec["model"]["context"]
        self.data = torch.tensor(list(open(text, "rb").read()))
        n = len(self.data)
        self.split = n - int(0.1 * n)
        self.windows = (self.split - 1) // self.t
        self.p = load(weights)
        o = spec["optimizer"]
        self.opt = torch.optim.AdamW([{"params": [x for x in self.p.values() if x.ndim > 1], "weight_decay": o["weight_decay"]},
                                      {"params": [x for x in self.p.values() if x.ndim == 1], "weight_decay": 0}], lr=o["lr"])
        self.key = mix(spec["seed"], 0x04de)

    def loss(self, at):
        x = torch.stack([self.data[a:a + self.t] for a in at])
        y = torch.stack([self.data[a + 1:a + self.t + 1] for a in at])
        return F.cross_entropy(forward(self.p, self.m, x).reshape(-1, self.m["vocab"]), y.reshape(-1))

    def step(self, step, scale=1):
        batch, t = self.spec["target_batch"], self.t
        loss = self.loss([permute(mix(self.key, q // self.windows), self.windows, q % self.windows) * t
                          for q in range(step * batch, (step + 1) * batch)])
        for group in self.opt.param_groups:
            group["lr"] = self.spec["optimizer"]["lr"] * scale
        self.opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.p.values(), self.spec["clip_norm"])
        self.opt.step()
        return loss.item()

    def validate(self, batch=32):
        """The held tenth, windows side by side; the last one that fits, too."""
        at = list(range(self.split, len(self.data) - self.t, self.t))
        with torch.no_grad():
            return sum(self.loss(at[i:i + batch]).item() * len(at[i:i + batch]) for i in range(0, len(at), batch)) / len(at)


def compare(spec, weights, text, ours):
    rival, worst = Torch(spec, weights, text), 0
    rows = [row[1] for row in json.load(open(ours))["rows"]]
    for step, loss_here in enumerate(rows):
        loss = rival.step(step)
        if step < 50:
            worst = max(worst, abs(loss - loss_here))
        if step < 3 or (step + 1) % 10 == 0 and (step < 50 or (step + 1) % 100 == 0):
            print(f"step {step + 1}: {loss_here:.5f} here, {loss:.5f} PyTorch")
    print(f"PyTorch {torch.__version__}: {len(rows)} steps, the first 50 differ by at most {worst:.2g}")
    return len(rows) >= 50 and worst < 1e-3 and rows[-1] < rows[0] - 1


if __name__ == "__main__":
    asked = json.load(open(sys.argv[2]))
    if sys.argv[1] == "init":
        init(asked, sys.argv[3])
    else:
        sys.exit(0 if compare(asked, *sys.argv[3:]) else 1)
