#!/usr/bin/env python3
"""Writes tests/data/models/*.safetensors: what PyTorch computes for models of the zoo.

usage: make-golden-models.py OUTDIR [resnets]

Run once with torch, torchvision, transformers and safetensors, and commit the result; the tests need no Python.
gpt2.safetensors is a small model with all its weights, as Hugging Face writes them, an input and the output (golden.*). The resnet files hold no weights: element i of the k-th parameter, of fan-in f, is u / sqrt(f) with
u = 2 frac(43758.5453 sin(12.9898 i + k)) - 1 (norms: 1 + 0.2 u and 0.2 u), which the test computes by itself; golden.* are the output, the gradient of some parameters and the running statistics after one
step in training mode, and the output in evaluation mode after it."""
import math
import sys
import torch
import torchvision
from safetensors.torch import save_file

out = sys.argv[1]
torch.manual_seed(1)


def wave(shape, phase):
    n = math.prod(shape)
    return torch.sin(0.37 * torch.arange(n, dtype=torch.float64) + phase).reshape(shape)


def noise(shape, k):
    n = math.prod(shape)
    u = torch.sin(12.9898 * torch.arange(n, dtype=torch.float64) + k) * 43758.5453
    return (2 * (u - torch.floor(u)) - 1).reshape(shape)


def gpt2():
    import transformers
    conf = transformers.GPT2Config(vocab_size=61, n_positions=32, n_embd=24, n_layer=2, n_head=3, resid_pdrop=0.0, embd_pdrop=0.0,
                                   attn_pdrop=0.0)
    m = transformers.GPT2LMHeadModel(conf).eval()
    for p in m.parameters():        # larger than the initial ones, so that every part counts
        p.data.add_(torch.randn_like(p) * 0.2)
    ids = torch.tensor([[(7 * i + 3 * b * b) % 61 for i in range(20)] for b in range(2)])
    logits = m(ids).logits
    state = {k: v.contiguous().clone() for k, v in m.state_dict().items() if k != "lm_head.weight" and not k.endswith((".attn.bias", "masked_bias"))}
    state["golden.input"] = ids.float()
    state["golden.output"] = logits.detach().contiguous()
    m.zero_grad()
    torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, 61), ids[:, 1:].reshape(-1)).backward()
    for k in ["transformer.wte.weight", "transformer.h.0.attn.c_attn.weight", "transformer.h.1.mlp.c_fc.bias", "transformer.ln_f.weight"]:
        state["golden.grad." + k] = dict(m.named_parameters())[k].grad.contiguous()
    save_file(state, out + "/gpt2.safetensors")


def resnet(name, make, stem, pixels, batch=4, phase=0.5):
    m = make(num_classes=10).double()
    if stem == "cifar":
        m.conv1 = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False).double()
        m.maxpool = torch.nn.Identity()
    params = dict(m.named_parameters())
    for k, (key, p) in enumerate(params.items()):
        fan = p[0].numel() if p.dim() > 1 else 1
        v = noise(p.shape, k) / math.sqrt(fan)
        norm = p.dim() == 1 and key != "fc.bias"
        p.data = 1 + 0.2 * v if norm and key.endswith("weight") else 0.2 * v if p.dim() == 1 else v
    x = noise((batch, 3, pixels, pixels), phase)
    y = m.train()(x)
    y.backward(wave((batch, 10), 0.9))
    state = {"golden.train": y}
    for k in ["conv1.weight", "bn1.weight", "layer2.0.downsample.0.weight", "layer1.0.bn1.bias", "layer4.1.bn2.weight", "fc.weight"]:
        if params[k].numel() <= 10000:
            state["golden.grad." + k] = params[k].grad
    stats = m.state_dict()
    for k in ["bn1.running_mean", "bn1.running_var", "layer3.0.bn1.running_var", "layer2.0.downsample.1.running_mean"]:
        state[k] = stats[k]
    state["golden.eval"] = m.eval()(x)
    save_file({k: v.detach().float().contiguous() for k, v in state.items()}, out + "/" + name + ".safetensors")


if len(sys.argv) < 3:
    gpt2()
# No ReLU is near 0 at these phases, so that float and double are on one side of each: make-golden-resnet.py.
resnet("resnet18", torchvision.models.resnet18, "imagenet", 64, 2, 96.5)
resnet("resnet18-cifar", torchvision.models.resnet18, "cifar", 16, 2, 92.5)
resnet("resnet50", torchvision.models.resnet50, "imagenet", 64)
