#!/usr/bin/env python3
"""The reference of tests/soak/cifar: PyTorch trains torchvision's ResNet-18 with the CIFAR stem on the same pictures with the
same schedule. One JSON line: the loss of every step.

usage: cifar_torch.py TAR STEPS SEED     pictures by class, train/CLASS/N.jpg, in a tar archive"""
import io
import json
import sys
import tarfile

import numpy
import torch
import torchvision
from PIL import Image
from torch import nn
from torch.nn import functional as F

BATCH, PAD = 64, 4
MEAN, STD = (125.3, 123.0, 113.9), (63.0, 62.1, 66.7)           # of CIFAR-10's training pictures, 0 to 255


def pictures(path):
	x, y, classes = [], [], {}
	with tarfile.open(path) as tar:
		for member in tar:
			part = member.name.split('/')
			if len(part) != 3 or part[0] != 'train' or not member.isfile():
				continue
			image = Image.open(io.BytesIO(tar.extractfile(member).read())).convert('RGB')
			x.append(numpy.asarray(image).transpose(2, 0, 1))
			y.append(classes.setdefault(part[1], len(classes)))
	return torch.from_numpy(numpy.stack(x)), torch.tensor(y)


def prepare(x):
	"""Random crop of the padded picture, flip, normalize: as hivemindd's steps crop, flip and normalize do."""
	mean, std = (torch.tensor(v).view(3, 1, 1) for v in (MEAN, STD))
	out = torch.empty(len(x), 3, 32, 32)
	for i, image in enumerate(x):
		padded = F.pad(image, (PAD,) * 4)
		top, left = (int(v) for v in torch.randint(2 * PAD + 1, (2,)))
		cut = padded[:, top:top + 32, left:left + 32]
		out[i] = cut.flip(2) if torch.rand(()) < 0.5 else cut
	return (out - mean) / std


def main():
	path, steps, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
	torch.set_num_threads(1)
	torch.manual_seed(seed)
	x, y = pictures(path)
	model = torchvision.models.resnet18(num_classes=10)
	model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
	nn.init.kaiming_normal_(model.conv1.weight, mode='fan_out', nonlinearity='relu')
	decayed = [p for p in model.parameters() if p.dim() > 1]
	rest = [p for p in model.parameters() if p.dim() == 1]
	opt = torch.optim.SGD([{'params': decayed, 'weight_decay': 5e-4}, {'params': rest, 'weight_decay': 0}], lr=0.01, momentum=0.9)
	order, losses = torch.randperm(len(x)), []
	for step in range(steps):
		index = order[torch.arange(step * BATCH, (step + 1) * BATCH) % len(x)]
		opt.zero_grad(set_to_none=True)
		loss = F.cross_entropy(model(prepare(x[index])), y[index])
		loss.backward()
		opt.step()
		losses.append(round(float(loss.detach()), 5))
	print(json.dumps({'seed': seed, 'loss': losses}))


main()
