#!/usr/bin/env python3
"""Row C08 on real daemons: two peers behind a rate limit at which averaging takes as long as computing. What does an epoch take
when both happen in turns, and when gradients and steps are delayed by one epoch? JSON out, medians with spread.

usage: tests/bench/delayed.py HIVEMINDD [--params 1000000] [--rate 8MiB] [--epochs 15]
Layers that sleep compute, sixteen micro-batches an epoch: who is in the middle of one ends it first. First in turns:
communication_ms is what a round takes there. Then with layers that sleep as long, delayed: ratio is an epoch's time over the larger
of computation and communication (aim: 1.15; status 1 beyond it); overlapped_ms is what a round takes beside micro-batches."""
import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from swarm import Daemon, kill_all, new_key

BATCH, MICRO, AIM = 16, 16, 1.15       # samples of a micro-batch; of them a peer and epoch


def spec(name, params, compute_ms, averaging):
	return {'name': name, 'input': [8], 'model': [{'type': 'sleep', 'fwd_ms': compute_ms / MICRO, 'bwd_ms': 0}, {'type': 'linear', 'out': params // 9}],
		'loss': 'cross_entropy', 'optimizer': {'name': 'sgd', 'lr': 0.001}, 'target_batch': 2 * MICRO * BATCH, 'strategy': 'hivemind',
		'averaging': averaging, 'validation': {'every': 0}, 'data': {'name': 'x', 'kind': 'synthetic', 'count': 1000000},
		'stop': {'epochs': 1000000}, 'local': {'batch': BATCH, 'data': '/x', 'checkpoint_every': 0}}


def figures(v):
	return {'median': round(statistics.median(v), 1), 'min': round(min(v), 1), 'max': round(max(v), 1), 'n': len(v)}


def measure(swarm, name, options, compute_ms, averaging):
	"""Epoch, round and what the two micro-batches take, in ms, of whole epochs in steady state."""
	swarm[0].must('run.start', spec=spec(name, options.params, compute_ms, averaging))
	swarm[1].join_run(name, '/x', batch=BATCH)
	swarm[0].wait(lambda: swarm[0].show(name, 'members') == 2, 60, 'two members')
	run, at = swarm[0].show(name, 'run'), swarm[0].show(name, 'epoch') + 3
	swarm[0].wait(lambda: swarm[0].show(name, 'epoch') >= at + options.epochs, 120, f'{options.epochs} epochs')
	rows = swarm[0].rows(f"select epoch, wall_ms, took_us, outcome from rounds where run = '{run}' and epoch > {at} order by epoch")
	whole = [(b[1] - a[1], b[2] / 1e3) for a, b in zip(rows, rows[1:]) if b[0] == a[0] + 1 and a[3] == b[3] == 'done']
	micro = swarm[0].show(name, 'times')['micro_batch_us'] / 1e3
	swarm[0].must('run.stop', run=name)
	for d in swarm:
		d.wait(lambda d=d: d.show(name, 'state') == 'stopped', 30, f'{name} to end')
	return {'epoch_ms': figures([e for e, _ in whole]), 'round_ms': figures([r for _, r in whole]), 'micro_batch_ms': micro}


def main():
	parser = argparse.ArgumentParser(usage=__doc__)
	parser.add_argument('hivemindd')
	parser.add_argument('--params', type=int, default=1000000)
	parser.add_argument('--rate', default='8MiB')
	parser.add_argument('--epochs', type=int, default=15)
	options = parser.parse_args()
	folder = tempfile.mkdtemp(prefix='hivemind-bench.')
	with open(f'{folder}/conf', 'w', encoding='utf-8') as f:
		f.write(f'[network]\nrate_limit_up = {options.rate}\n')
	swarm = [Daemon(options.hivemindd, folder, f'p{i}', 27000 + 3 * i, new_key(folder), ['--config', f'{folder}/conf']) for i in range(2)]
	try:
		swarm[0].start()
		swarm[1].start([swarm[0].address()])
		turns = measure(swarm, 'turns', options, 400, {})
		both = round(turns['round_ms']['median'])
		turns = measure(swarm, 'turns-equal', options, both, {})
		delayed = measure(swarm, 'delayed', options, both, {'delay_grad': True, 'delay_step': True})
	finally:
		kill_all(swarm)
		shutil.rmtree(folder)
	larger = max(MICRO * delayed['micro_batch_ms'], turns['round_ms']['median'])
	out = {'bench': 'delayed', 'peers': 2, 'vector_mb': round(options.params * 4 / 1e6, 1), 'rate_limit_up': options.rate,
		'communication_ms': turns['round_ms'], 'asleep_ms': both,
		'computation_ms': round(MICRO * delayed['micro_batch_ms'], 1), 'in_turns_ms': turns['epoch_ms'],
		'delayed_ms': delayed['epoch_ms'], 'overlapped_ms': delayed['round_ms'],
		'in_turns_ratio': round(turns['epoch_ms']['median'] / larger, 3), 'ratio': round(delayed['epoch_ms']['median'] / larger, 3), 'aim': AIM}
	print(json.dumps(out, indent=1))
	return out['ratio'] > AIM


if __name__ == '__main__':
	sys.exit(main())
