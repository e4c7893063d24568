#!/usr/bin/env python3
"""Row B01 on real daemons: two peers behind a rate limit, strategy allreduce, one micro-batch each a step. What does an epoch take
when a gradient is given to the round as a whole (in_turns), in buckets while backward goes on (buckets), and when there is nobody
to average with (alone)? JSON out, medians with spread.

usage: tests/bench/buckets.py HIVEMINDD [--width 700] [--layers 8] [--rate 64MiB] [--bucket 1000000] [--epochs 25]
Layers that sleep compute, one before each linear one. hidden: of the time that averaging adds in turns, the part that is gone with
buckets (status 1 below the aim of 0.7)."""
import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from swarm import Daemon, kill_all, machine, new_key

BATCH, FORWARD, BACKWARD, AIM = 4, 20, 60, 0.7


def spec(name, o, averaging):
	model = [{'type': 'sleep', 'fwd_ms': FORWARD, 'bwd_ms': BACKWARD}, {'type': 'linear', 'out': o.width}] * o.layers
	return {'name': name, 'input': [o.width], 'model': model, 'loss': 'cross_entropy', 'optimizer': {'name': 'sgd', 'lr': 0.001},
		'target_batch': 2 * BATCH, 'strategy': 'allreduce', 'averaging': averaging, 'validation': {'every': 0},
		'data': {'name': 'x', 'kind': 'synthetic', 'count': 1000000}, 'stop': {'epochs': 1000000},
		'local': {'batch': BATCH, 'data': '/x', 'checkpoint_every': 0}}


def figures(v):
	return {'median': round(statistics.median(v), 1), 'min': round(min(v), 1), 'max': round(max(v), 1), 'n': len(v)}


def measure(swarm, name, o, averaging):
	"""An epoch in ms, of whole epochs in steady state."""
	swarm[0].must('run.start', spec=spec(name, o, averaging))
	for d in swarm[1:]:
		d.join_run(name, '/x', batch=BATCH)
	swarm[0].wait(lambda: swarm[0].show(name, 'members') == len(swarm), 60, 'all members')
	run, at = swarm[0].show(name, 'run'), swarm[0].show(name, 'epoch') + 3
	swarm[0].wait(lambda: swarm[0].show(name, 'epoch') >= at + o.epochs, 30 + 3 * o.epochs, f'{o.epochs} epochs')
	rows = swarm[0].rows(f"select epoch, wall_ms, outcome from rounds where run = '{run}' and epoch > {at} order by epoch")
	whole = [b[1] - a[1] for a, b in zip(rows, rows[1:]) if b[0] == a[0] + 1 and a[2] == b[2] == 'done']
	swarm[0].must('run.stop', run=name)
	for d in swarm:
		d.wait(lambda d=d: d.show(name, 'state') == 'stopped', 30, f'{name} to end')
	return figures(whole)


def main():
	parser = argparse.ArgumentParser(usage=__doc__)
	parser.add_argument('hivemindd')
	parser.add_argument('--width', type=int, default=700)
	parser.add_argument('--layers', type=int, default=8)
	parser.add_argument('--rate', default='64MiB')
	parser.add_argument('--bucket', type=int, default=1000000)
	parser.add_argument('--epochs', type=int, default=25)
	o = parser.parse_args()
	folder = tempfile.mkdtemp(prefix='hivemind-bench.')
	with open(f'{folder}/conf', 'w', encoding='utf-8') as f:
		f.write(f'[network]\nrate_limit_up = {o.rate}\n')
	swarm = [Daemon(o.hivemindd, folder, f'p{i}', 27100 + 3 * i, new_key(folder), ['--config', f'{folder}/conf']) for i in range(2)]
	try:
		swarm[0].start()
		alone = measure(swarm[:1], 'alone', o, {})
		swarm[1].start([swarm[0].address()])
		turns = measure(swarm, 'turns', o, {})
		buckets = measure(swarm, 'buckets', o, {'bucket_bytes': o.bucket})
	finally:
		kill_all(swarm)
		shutil.rmtree(folder)
	added = max(turns['median'] - alone['median'], 1e-9)
	out = {'bench': 'buckets', 'peers': 2, 'vector_mb': round(o.layers * o.width * (o.width + 1) * 4 / 1e6, 1), 'rate_limit_up': o.rate,
		'bucket_bytes': o.bucket, 'alone_ms': alone, 'in_turns_ms': turns, 'buckets_ms': buckets,
		'hidden': round((turns['median'] - buckets['median']) / added, 3), 'aim': AIM, 'machine': machine()}
	print(json.dumps(out, indent=1))
	return out['hidden'] < AIM


if __name__ == '__main__':
	sys.exit(main())
