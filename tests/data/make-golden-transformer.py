#!/usr/bin/env python3
"""Writes transformer.safetensors and transformer-pre.safetensors: the zoo's Transformer by torch.nn's own layers (row A07).

usage: make-golden-transformer.py OUTDIR

Run once with torch, and commit the result; the tests need no Python. A small model in double, each with all its weights, an
input whose sources have places without a token, a gradient of the output, the output and the gradient of every parameter."""
import json
import math
import struct
import sys
import torch
from torch import nn

LAYERS, WIDTH, HEADS, INNER, VOCAB, T, BATCH = 2, 16, 2, 24, 30, 9, 3


class Model(nn.Module):
    def __init__(self, pre):
        super().__init__()
        how = dict(d_model=WIDTH, nhead=HEADS, dim_feedforward=INNER, dropout=0.0, batch_first=True, norm_first=pre)
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.encoder_position, self.decoder_position = nn.Parameter(torch.randn(T, WIDTH)), nn.Parameter(torch.randn(T, WIDTH))
        norm = (lambda: nn.LayerNorm(WIDTH)) if pre else lambda: None
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**how), LAYERS, norm(), enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**how), LAYERS, norm())

    def forward(self, x):
        source, answer, hidden = x[:, 0].long(), x[:, 1].long(), x[:, 2] == 0
        later = torch.triu(torch.ones(T, T, dtype=torch.bool), 1)
        memory = self.encoder(self.embedding(source) + self.encoder_position, src_key_padding_mask=hidden)
        y = self.decoder(self.embedding(answer) + self.decoder_position, memory, tgt_mask=later, memory_key_padding_mask=hidden)
        return y @ self.embedding.weight.T


def named(m, values):
    """torch's names as the zoo has them: queries, keys and values of the decoder's second attention apart."""
    out = {}
    for name, p in m.named_parameters():
        v = values(p)
        name = name.replace("encoder_position", "encoder.position.weight").replace("decoder_position", "decoder.position.weight")
        if "multihead_attn.in_proj_" in name:
            for k, part in enumerate("qkv"):
                out[name.replace("in_proj_", part + "_proj.")] = v[k * WIDTH:(k + 1) * WIDTH]
        else:
            out[name.replace("in_proj_", "in_proj.")] = v
    return out


def save(path, tensors):
    head, at = {}, 0
    for name, v in tensors.items():
        head[name] = {"dtype": "F32", "shape": list(v.shape), "data_offsets": [at, at + 4 * v.numel()]}
        at += 4 * v.numel()
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for v in tensors.values():
            f.write(v.float().contiguous().numpy().tobytes())


def wave(shape, phase):
    return torch.sin(0.37 * torch.arange(math.prod(shape), dtype=torch.float64) + phase).reshape(shape)


for pre in (False, True):
    torch.manual_seed(7)
    m = Model(pre).double().train()
    for p in m.parameters():            # off their initial zeros and ones, so that every part counts; and what a float holds
        p.data = (p.data + 0.2 * torch.randn_like(p)).float().double()
    x = torch.zeros(BATCH, 3, T, dtype=torch.float64)
    for b, n in enumerate((T, 5, 1)):
        x[b, 0] = torch.tensor([(7 * i + 11 * b) % VOCAB if i < n else 29 for i in range(T)])
        x[b, 1] = torch.tensor([(5 * i * i + 3 * b + 1) % VOCAB for i in range(T)])
        x[b, 2, :n] = 1
    dy = wave((BATCH, T, VOCAB), 0.9).float().double()
    y = m(x)
    y.backward(dy)
    out = named(m, lambda p: p.detach())
    out |= {"golden.grad." + k: v for k, v in named(m, lambda p: p.grad).items()}
    out |= {"golden.input": x, "golden.dy": dy, "golden.output": y.detach()}
    save("%s/transformer%s.safetensors" % (sys.argv[1], "-pre" if pre else ""), out)
