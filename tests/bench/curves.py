#!/usr/bin/env python3
"""Do four peers learn as one does, or one in half precision as one in single? The same spec, seed and target batch on real
daemons, PEERS of them (or one in PRECISION) against one, on MNIST, CIFAR-10 and tiny Shakespeare; JSON out. The rival is the one
peer in single precision, the yardstick one such peer with other seeds.

usage: tests/bench/curves.py HIVEMINDD [--data FOLDER] [--sets mnist,cifar,text] [--peers 4 | --precision bf16|fp16] [--epochs 120]
                             [--window 10] [--seeds 3] [--ms 5]
train: mean loss of every WINDOW epochs, of all peers and seeds; held_out: loss of the same held-out samples at the same epochs.
same_seed: between the two of a seed: what working together, or rounding, changes. other_seed: between seeds of one peer: what chance
changes. Of both the largest difference, the root mean square and the mean, which is near 0 when nobody is behind. The ledger gives positions in the order in which peers come
for them, so an epoch of PEERS has almost, but not exactly, the samples of an epoch of one, and a few more where several are in
the middle of a micro-batch when the target is reached (samples_per_epoch); exactness for equal samples is test_b01_64's. Each
micro-batch sleeps MS first (but with --precision, and for text), so that epochs are longer than round trips and peers do not fight
for processors. One peer in PRECISION has the very samples of the other in the very order.
The curves coincide, status 0, when for train and held_out the first root mean square is at most BOUND times the second. FOLDER
(default: $HIVEMIND_DATA, or shared/data beside the source tree) has mnist/, cifar10-jpeg/cifar10-jpeg.tar.gz and
tinyshakespeare/input.txt; what is not there is skipped and named."""
import argparse
import contextlib
import gzip
import itertools
import json
import math
import os
import shutil
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from swarm import Daemon, Failed, kill_all, new_key

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
BATCH, TARGET, BOUND, HELD_OUT = 32, 512, 1.0, 0.05
SGD = {'name': 'sgd', 'lr': 0.02, 'momentum': 0.9}
LINEAR = [{'type': 'flatten'}, {'type': 'linear', 'out': 64}, {'type': 'relu'}, {'type': 'linear', 'out': 10}]
CONV = [{'type': 'conv2d', 'out': 16, 'kernel': 3, 'padding': 1}, {'type': 'relu'}, {'type': 'maxpool2d', 'kernel': 2}]
SETS = {
	'mnist': {'input': [1, 28, 28], 'model': LINEAR, 'kind': 'idx', 'path': 'mnist', 'look': 'mnist/train-images-idx3-ubyte.gz', 'optimizer': SGD,
		'steps': [{'type': 'normalize', 'mean': 33.3, 'std': 78.6}]},
	'cifar': {'input': [3, 32, 32], 'model': CONV * 2 + LINEAR, 'kind': 'tar', 'path': 'cifar10-jpeg/cifar10-jpeg.tar.gz',
		'look': 'cifar10-jpeg/cifar10-jpeg.tar.gz', 'optimizer': SGD,
		'steps': [{'type': 'normalize', 'mean': [125.3, 123.0, 113.9], 'std': [63.0, 62.1, 66.7]}]},
	'text': {'model': {'zoo': 'gpt2', 'layers': 4, 'width': 128, 'heads': 4, 'vocab': 256, 'positions': 64, 'context': 64, 'dropout': 0},
		'kind': 'text', 'path': 'tinyshakespeare/input.txt', 'look': 'tinyshakespeare/input.txt', 'target': 64, 'batch': 16,
		'optimizer': {'name': 'adamw', 'lr': 0.001, 'weight_decay': 0.1}, 'clip_norm': 1},
}


def default_data():
	return os.environ.get('HIVEMIND_DATA') or os.path.join(os.path.dirname(ROOT), 'shared', 'data')


def spec_of(name, what, seed, target, stop, **more):
	"""A run over a row of SETS; more: keys that replace or join the others."""
	data = {'name': name, 'kind': what['kind'], **({'steps': what['steps']} if 'steps' in what else {})}
	own = {k: what[k] for k in ('input', 'clip_norm') if k in what}
	return {'name': name, **own, 'model': what['model'], 'loss': 'cross_entropy',
		'target_batch': target, 'seed': seed, 'optimizer': what['optimizer'], 'strategy': 'hivemind', 'stop': stop, 'data': data,
		'validation': {'split': HELD_OUT, 'every': 10},
		'local': {'data': what['at'], 'batch': what.get('batch', BATCH), 'threads': 1, 'checkpoint_every': 0, 'hold': True}, **more}


@contextlib.contextmanager
def swarm_of(program, n, config=None):
	"""n daemons that know each other, in a folder of their own that goes with them."""
	folder = tempfile.mkdtemp(prefix='hivemind-bench.')
	options = []
	if config:
		with open(f'{folder}/conf', 'w', encoding='utf-8') as f:
			f.write(config)
		options = ['--config', f'{folder}/conf']
	all_ = [Daemon(program, folder, f'p{i}', 27000 + 3 * i, new_key(folder), options) for i in range(n)]
	try:
		all_[0].start()
		for d in all_[1:]:
			d.start([all_[0].address()])
		yield all_
	finally:
		kill_all(all_)
		shutil.rmtree(folder)


def begin(all_, spec):
	"""Nobody computes before all are members. Returns the run's id and the moment in ms of wall time."""
	name = spec['name']
	all_[0].must('run.start', spec=spec)
	for d in all_[1:]:
		d.join_run(name, spec['local']['data'], local=spec['local'])
	all_[0].wait(lambda: max(d.show(name, 'members', 0) for d in all_) == len(all_), 60, f'{len(all_)} members')  # the leader knows
	begun = time.time() * 1e3
	for d in all_:
		d.must('run.hold', run=name, off=True)
	return all_[0].show(name, 'run'), begun


def ended(all_, name, seconds):
	for d in all_:
		d.wait(lambda d=d: d.show(name, 'state') in ('done', 'failed', 'held', 'stopped'), seconds, f'the end of {name}', 0.2)
		state = d.show(name, 'state')
		if state != 'done':
			raise Failed(f'{d.name}: {name} is {state}: {d.show(name, "error")}')


def epochs_of(d, run, seconds=30):
	"""Rows (epoch, samples, members, loss, val_loss, val_accuracy, wall_ms) of a run that is done, once all are written."""
	last = d.show(run, 'epoch')
	sql = 'select epoch, samples, members, loss, val_loss, val_accuracy, wall_ms from epochs where discarded = 0 and ' \
		f"run = '{run}' and epoch > %d order by epoch limit 500"

	def all_of_them():
		got = []
		while len(more := d.rows(sql % (got[-1][0] if got else 0))):
			got += more
		return got if got and got[-1][0] >= last else None
	return d.wait(all_of_them, seconds, f'{last} epochs in the database')


def train(options, what, peers, seed, **more):
	with swarm_of(options.hivemindd, peers) as all_:
		if isinstance(what['model'], list) and not options.precision:
			what = dict(what, model=[{'type': 'sleep', 'fwd_ms': options.ms, 'bwd_ms': 0}] + what['model'])
		spec = spec_of('curves', what, seed, options.target or what.get('target', TARGET), {'epochs': options.epochs}, **more)
		run, begun = begin(all_, spec)
		ended(all_, 'curves', options.limit)
		rows = [epochs_of(d, run) for d in all_]
		own = [dict((r[0], r[3]) for r in of if r[3] is not None) for of in rows]
		loss = {e: statistics.mean(o[e] for o in own if e in o) for e in range(1, options.epochs + 1) if any(e in o for o in own)}
		held = {}
		for of in rows:                         # equal parameters: whoever looked at them has the loss of all
			held.update((r[0], r[4]) for r in of if r[4] is not None)
		last = max(rows[0])
		return {'train': windows(loss, options), 'held_out': {e: v for e, v in held.items() if e % 10 == 0},
			'members': min(r[2] for r in rows[0]), 'samples_per_epoch': last[1] / last[0], 'seconds': (last[6] - begun) / 1e3,
			'held_out_loss': held.get(last[0], math.nan), 'held_out_accuracy': max((r[5] for of in rows for r in of
			if r[0] == last[0] and r[5] is not None), default=math.nan)}


def windows(loss, options):
	"""Mean loss by the last epoch of each window."""
	out = {}
	for at in range(1, options.epochs - options.window + 2, options.window):
		here = [loss[e] for e in range(at, at + options.window) if e in loss]
		if here:
			out[at + options.window - 1] = statistics.mean(here)
	return out


def apart(pairs, key):
	"""Largest and root mean square difference of curves in pairs of runs."""
	off = [a[key][e] - b[key][e] for a, b in pairs for e in a[key] if e in b[key]]
	if not off:
		raise Failed(f'no two runs have points of {key} in common')
	return {'largest': round(max(map(abs, off)), 5), 'rms': round(math.sqrt(statistics.mean(d * d for d in off)), 5),
		'mean': round(statistics.mean(off), 5), 'n': len(off)}


def curve(runs, key):
	return {e: round(statistics.mean(r[key][e] for r in runs if e in r[key]), 4) for e in sorted(set().union(*(r[key] for r in runs)))}


def figures(runs, key, digits):
	v = [r[key] for r in runs]
	return {'mean': round(statistics.mean(v), digits), 'min': round(min(v), digits), 'max': round(max(v), digits)}


def unpacked(what, data, folder):
	"""Its place; an archive is decompressed once, not by every daemon."""
	path = os.path.join(data, what['path'])
	if not path.endswith('.gz'):
		return path
	out = os.path.join(folder, os.path.basename(path)[:-3])
	if not os.path.exists(out):
		with gzip.open(path) as f, open(out, 'wb') as to:
			shutil.copyfileobj(f, to)
	return out


def compare(options, name, folder):
	what = dict(SETS[name], at=unpacked(SETS[name], options.data, folder))
	one, many = [], []
	other_name = options.precision or 'many'
	peers, more = (1, {'precision': options.precision}) if options.precision else (options.peers, {})
	for seed in range(1, options.seeds + 1):        # in turns
		one.append(train(options, what, 1, seed))
		many.append(train(options, what, peers, seed, **more))
	out = {'set': name, 'target_batch': options.target or what.get('target', TARGET), 'batch': what.get('batch', BATCH),
		'epochs': options.epochs, 'seeds': options.seeds, 'coincide': True}
	for key in ('train', 'held_out'):
		same, other = apart(zip(many, one), key), apart(itertools.combinations(one, 2), key)
		ratio = same['rms'] / max(other['rms'], 1e-12)
		out[key] = {'one': curve(one, key), other_name: curve(many, key), 'same_seed': same, 'other_seed': other, 'ratio': round(ratio, 3)}
		out['coincide'] = out['coincide'] and ratio <= BOUND
	for who, runs in (('one', one), (other_name, many)):
		out[who] = {key: figures(runs, key, d) for key, d in (('held_out_loss', 5), ('held_out_accuracy', 4), ('samples_per_epoch', 1),
			('seconds', 1))}
		out[who]['members_min'] = min(r['members'] for r in runs)
	return out


def main():
	parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
	parser.add_argument('hivemindd')
	parser.add_argument('--data', default=default_data())
	parser.add_argument('--sets', default=','.join(SETS))
	parser.add_argument('--peers', type=int, default=4)
	parser.add_argument('--precision', choices=['bf16', 'fp16'], help='one peer in it against one in single precision')
	parser.add_argument('--target', type=int, help='target batch size (512; of text 64)')
	parser.add_argument('--epochs', type=int, default=120)
	parser.add_argument('--window', type=int, default=10)
	parser.add_argument('--seeds', type=int, default=3)
	parser.add_argument('--ms', type=float, default=5, help='what a micro-batch sleeps')
	parser.add_argument('--limit', type=float, default=600, help='seconds that one training may take')
	options = parser.parse_args()
	names = options.sets.split(',')
	if not set(names) <= set(SETS) or options.seeds < 2 or options.peers < 2 or not 0 < options.window <= options.epochs:
		parser.error(f'--sets is of {", ".join(SETS)}, --seeds and --peers are at least 2, --window is 1 to --epochs')
	out = {'bench': 'curves', **({'precision': options.precision} if options.precision else {'peers': options.peers}), 'bound': BOUND, 'sets': [], 'skipped': []}
	folder = tempfile.mkdtemp(prefix='hivemind-bench.')
	try:
		for name in names:
			if os.path.exists(os.path.join(options.data, SETS[name]['look'])):
				out['sets'].append(compare(options, name, folder))
			else:
				out['skipped'].append(f'{name}: no {SETS[name]["look"]} in {options.data} (--data or HIVEMIND_DATA)')
	finally:
		shutil.rmtree(folder)
	print(json.dumps(out, indent=1))
	return not all(s['coincide'] for s in out['sets'])


if __name__ == '__main__':
	sys.exit(main())
