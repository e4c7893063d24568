#!/usr/bin/env python3
"""Does a change cost processor time? User time of two builds of the daemon for the same work, in alternating pairs, OLD first in one and
NEW first in the next; JSON out: median of the ratio NEW / OLD and an upper bound of it.

usage: tests/bench/overhead.py OLD_BUILD NEW_BUILD [--pairs 21] [--only resnet18,digits] [--micro-batches 20] [--epochs 100] [--quick]
resnet18: one daemon, strategy single, so many micro-batches of 64 random images of 32x32, one an epoch. digits: three daemons,
strategy hivemind, tests/data/digits to a fixed number of epochs; all wait until all are members. Every daemon has one thread;
user time is that of all of them from their start to their orderly end. upper_95: the median of the ratio is at most that with a
confidence of 95 %: the order statistic of the sign test, which assumes nothing of how ratios are spread; null with fewer
than five pairs. per_sample: the same of user time divided by the samples of all commits; three peers have a few more than the target where
several were in the middle of a micro-batch.
The builds must have been configured alike: status 3 when their options differ."""
import argparse
import json
import math
import os
import random
import resource
import shutil
import statistics
import struct
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from swarm import Daemon, Failed, end_in_order, kill_all, machine, new_key, spread

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
PORT, BATCH = 27300, 64
WORK = ('resnet18', 'digits')
ALIKE = ('buildtype', 'optimization', 'debug', 'b_ndebug', 'b_lto', 'b_sanitize', 'c_args', 'failpoints')


def options_of(build):
	path = os.path.join(build, 'meson-info', 'intro-buildoptions.json')
	if not os.path.exists(path) or not os.path.exists(os.path.join(build, 'daemon', 'hivemindd')):
		raise SystemExit(f'{build}: no folder in which meson and ninja have built the daemon')
	with open(path, encoding='utf-8') as f:
		return {o['name']: o['value'] for o in json.load(f) if o['name'] in ALIKE}


def images(folder):
	"""Random ones, as IDX files: how long a step takes does not depend on them."""
	rng, count = random.Random(1), 4 * BATCH
	with open(f'{folder}/train-images-idx-ubyte', 'wb') as f:
		f.write(struct.pack('>BBBBIIII', 0, 0, 8, 4, count, 3, 32, 32) + rng.randbytes(count * 3 * 32 * 32))
	with open(f'{folder}/train-labels-idx1-ubyte', 'wb') as f:
		f.write(struct.pack('>BBBBI', 0, 0, 8, 1, count) + bytes(rng.randrange(10) for _ in range(count)))


def resnet18(data, o):
	return {'name': 'work', 'model': {'zoo': 'resnet18', 'pixels': 32, 'classes': 10}, 'input': [3, 32, 32], 'loss': 'cross_entropy', 'seed': 1,
		'optimizer': {'name': 'sgd', 'lr': 0.01, 'momentum': 0.9}, 'target_batch': BATCH, 'strategy': 'single', 'stop': {'epochs': o.micro_batches},
		'data': {'name': 'random', 'kind': 'idx', 'steps': [{'type': 'normalize', 'mean': 127.5, 'std': 64}]},
		'validation': {'split': 0.0, 'every': 0}, 'local': {'batch': BATCH, 'data': data}}


def digits(_, o):
	with open(f'{ROOT}/tests/data/digits.json', encoding='utf-8') as f:
		spec = json.load(f)
	spec['name'], spec['stop'] = 'work', {'epochs': o.epochs}
	spec['local']['data'] = f'{ROOT}/tests/data/digits'
	return spec


def once(build, spec, peers):
	"""User seconds of all peers from start to end, and the samples of the last commit."""
	folder = tempfile.mkdtemp(prefix='hivemind-bench.')
	key = new_key(folder) if peers > 1 else None
	all_ = [Daemon(os.path.join(build, 'daemon', 'hivemindd'), folder, f'p{i}', PORT + 3 * i, key) for i in range(peers)]
	local = dict(spec['local'], threads=1, checkpoint_every=0, hold=True)
	before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
	try:
		for d in all_:
			d.start([all_[0].address()] if d is not all_[0] else [])
		all_[0].must('run.start', spec=dict(spec, local=local))
		for d in all_[1:]:
			d.join_run('work', local['data'], local=local)
		if peers > 1:
			all_[0].wait(lambda: max(d.show('work', 'members', 0) for d in all_) == peers, 60, f'{peers} members', 0.1)
		for d in all_:
			d.must('run.hold', run='work', off=True)
		for d in all_:
			d.wait(lambda d=d: d.show('work', 'state') in ('done', 'failed', 'stopped'), 600, 'the end of the run', 0.25)
			if d.show('work', 'state') != 'done':
				raise Failed(f'{d.name}: the run is {d.show("work", "state")}: {d.show("work", "error")}')
		samples = all_[0].show('work', 'samples')
		for d in all_:
			d.end()
	finally:
		kill_all(all_)
		shutil.rmtree(folder)
	return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, samples


def upper_95(ratios):
	"""The smallest order statistic below which the median is with that confidence: so many may be below it by chance."""
	n, v = len(ratios), sorted(ratios)
	for k in range(n):
		if sum(math.comb(n, i) for i in range(k + 1, n + 1)) <= 0.05 * 2 ** n:
			return v[k]
	return None


def rounded(v):
	return None if v is None else round(v, 5)


def compare(o, spec, peers):
	of = {'old': [], 'new': []}
	builds = {'old': o.old, 'new': o.new}
	for pair in range(o.pairs):
		for which in ('old', 'new') if pair % 2 == 0 else ('new', 'old'):
			of[which].append(once(builds[which], spec, peers))
		print(json.dumps({'pair': pair, 'old': of['old'][-1], 'new': of['new'][-1]}), file=sys.stderr, flush=True)
	plain = [n[0] / a[0] for a, n in zip(of['old'], of['new'])]
	each = [n[0] / n[1] * a[1] / a[0] for a, n in zip(of['old'], of['new'])]
	return {'peers': peers, 'pairs': o.pairs, 'old_user_s': spread([x[0] for x in of['old']]), 'new_user_s': spread([x[0] for x in of['new']]),
		'ratio': rounded(statistics.median(plain)), 'upper_95': rounded(upper_95(plain)),
		'per_sample': {'ratio': rounded(statistics.median(each)), 'upper_95': rounded(upper_95(each))},
		'samples': {which: spread([x[1] for x in v], 0) for which, v in of.items()}, 'all_ratios': [rounded(r) for r in plain]}


def main():
	p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
	p.add_argument('old', metavar='OLD_BUILD')
	p.add_argument('new', metavar='NEW_BUILD')
	p.add_argument('--pairs', type=int, default=21)
	p.add_argument('--only', default=','.join(WORK))
	p.add_argument('--micro-batches', type=int, default=20)
	p.add_argument('--epochs', type=int, default=100)
	p.add_argument('--quick', action='store_true', help='everything once, with figures that say nothing')
	o = p.parse_args()
	only = o.only.split(',')
	if not set(only) <= set(WORK):
		p.error(f'--only: of {", ".join(WORK)}')
	if o.quick:
		o.pairs, o.micro_batches, o.epochs = 1, 1, 3
	if min(o.pairs, o.micro_batches, o.epochs) < 1:
		p.error('all numbers are at least 1')
	options = {'old': options_of(o.old), 'new': options_of(o.new)}
	if options['old'] != options['new']:
		print(f'the builds differ in more than their source: {json.dumps(options)}', file=sys.stderr)
		return 3
	end_in_order()
	folder = tempfile.mkdtemp(prefix='hivemind-bench.')
	out = {'bench': 'overhead', 'quick': o.quick, 'micro_batches': o.micro_batches, 'epochs': o.epochs, 'options': options['old'],
		'machine': machine()}
	try:
		images(folder)
		for name, spec, peers in (('resnet18', resnet18, 1), ('digits', digits, 3)):
			if name in only:
				out[name] = compare(o, spec(folder, o), peers)
	finally:
		shutil.rmtree(folder)
	out['load_after'] = machine()['load']
	print(json.dumps(out, indent=1))
	return 0


if __name__ == '__main__':
	sys.exit(main())
