#!/usr/bin/env python3
"""The rival of tests/bench/train: PyTorch runs the same workload in eager mode, one process for each memory layout.

usage: train_torch.py WORKLOAD nchw|nhwc THREADS [fp32|bf16]     numbers of steps come on standard input, a JSON line goes out for each
Workloads are the rows of tests/bench/train; data lie in memory as tensors. Optimizers are PyTorch's fused ones where it has
them on processors, attention is scaled_dot_product_attention: the faster choices."""
import json
import sys
import time
from words import usage

if __name__ == '__main__':
	usage(__doc__, 3, 4, (2,))

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
	def __init__(self, width, heads):
		super().__init__()
		self.heads = heads
		self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
		self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
		self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

	def forward(self, x):
		b, t, c = x.shape
		q, k, v = (s.view(b, t, self.heads, c // self.heads).transpose(1, 2) for s in self.qkv(self.ln_1(x)).split(c, dim=2))
		y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
		x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
		return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate='tanh'))


class Gpt(nn.Module):
	def __init__(self, layers, width, heads, vocab, context):
		super().__init__()
		self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
		self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
		self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
		self.head.weight = self.wte.weight
		for e in self.wte, self.wpe:            # as GPT-2 begins: with N(0, 1) logits of 28 make gradients denormal, which takes seconds
			nn.init.normal_(e.weight, std=0.02)

	def forward(self, x):
		x = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
		return self.head(self.ln_f(self.blocks(x)))


class Basic(nn.Module):
	"""Two 3x3 convolutions beside the input (He et al., arXiv:1512.03385, figure 2)."""
	def __init__(self, inputs, width, stride):
		super().__init__()
		self.conv1, self.bn1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
		self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
		self.relu = nn.ReLU(inplace=True)
		self.downsample = None
		if stride != 1 or inputs != width:
			self.downsample = nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))

	def forward(self, x):
		y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
		return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class Resnet18(nn.Module):
	"""Where torchvision does not load: the same operations, with the same initial weights (kaiming_normal_, fan_out)."""
	def __init__(self, num_classes):
		super().__init__()
		self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
		self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
		widths = (64, 64, 128, 256, 512)
		self.blocks = nn.Sequential(*(nn.Sequential(Basic(a, b, 1 if a == b else 2), Basic(b, b, 1))
			for a, b in zip(widths, widths[1:])))
		self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(512, num_classes)
		for m in self.modules():
			if isinstance(m, nn.Conv2d):
				nn.init.kaiming_normal_(m.weight, mode='fan_out', nonlinearity='relu')

	def forward(self, x):
		x = self.blocks(self.maxpool(self.relu(self.bn1(self.conv1(x)))))
		return self.fc(torch.flatten(self.avgpool(x), 1))


def resnet(pixels, cifar):
	classes = 10 if pixels == 32 else 1000
	try:
		import torchvision
		model = torchvision.models.resnet18(num_classes=classes)
	except Exception as why:                # built for another PyTorch it raises RuntimeError as it is imported
		print(f'torchvision does not load ({why}): a ResNet-18 of the bench\'s own', file=sys.stderr)
		model = Resnet18(classes)
	if cifar:
		model.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
		model.maxpool = nn.Identity()
	return model


def make(workload):
	"""model, x, y, optimizer"""
	if workload == 'mlp':
		model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
		return model, torch.rand(64, 784), torch.randint(10, (64,)), 'sgd'
	if workload == 'lenet':
		model = nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(),
			nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10))
		return model, torch.rand(64, 1, 28, 28), torch.randint(10, (64,)), 'sgd'
	if workload.startswith('resnet18'):
		pixels = 224 if '224' in workload else 32
		batch = 32 if pixels == 224 else 64
		return resnet(pixels, 'cifar' in workload), torch.rand(batch, 3, pixels, pixels), torch.randint(10, (batch,)), 'sgd'
	size = (6, 384, 6, 256, 128) if workload == 'gpt' else (12, 768, 12, 50257, 1024)
	batch, context = (8, 128) if workload == 'gpt' else (4, 64)
	text = torch.randint(256, (batch, context + 1))
	return Gpt(*size), text[:, :-1].contiguous(), text[:, 1:].contiguous(), 'adamw'


def main():
	workload, layout, threads, half = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:] == ['bf16']
	torch.set_num_threads(threads)
	torch.manual_seed(1)
	model, x, y, optimizer = make(workload)
	if layout == 'nhwc':
		model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
	make_optimizer = {'sgd': lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, fused=True),
		'adamw': lambda p: torch.optim.AdamW(p, lr=3e-4, fused=True)}[optimizer]
	opt = make_optimizer(model.parameters())
	print(json.dumps({'ready': True, 'torch': torch.__version__, 'params': sum(p.numel() for p in model.parameters()),
		'capability': torch.backends.cpu.get_cpu_capability(), 'threads': torch.get_num_threads()}), flush=True)
	for line in sys.stdin:
		from_, cpu, loss = time.perf_counter(), time.process_time(), None
		for _ in range(int(line)):
			opt.zero_grad(set_to_none=True)
			with torch.autocast('cpu', torch.bfloat16, enabled=half):
				out = model(x)
				loss = F.cross_entropy(out.flatten(0, -2) if out.dim() == 3 else out, y.flatten())
			loss.backward()
			opt.step()
		value = float(loss.detach())
		print(json.dumps({'samples': int(line) * len(x), 'us': round((time.perf_counter() - from_) * 1e6),
			'cpu_us': round((time.process_time() - cpu) * 1e6), 'loss': value}), flush=True)
	# Of this program alone: getrusage's figure begins with that of whoever started it.
	with open('/proc/self/status') as f:
		peak = next(int(line.split()[1]) for line in f if line.startswith('VmHWM:'))
	print(json.dumps({'resident_peak_bytes': peak * 1024}), flush=True)


main()
