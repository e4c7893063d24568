#!/usr/bin/env python3
"""How much faster is a swarm of sleeping peers than one? Layers that sleep stand for computing, so that many daemons may share
one machine and what is measured is what working together costs; JSON out.

usage: tests/bench/scaling.py HIVEMINDD [--peers 16] [--seconds 20] [--epoch 2] [--params 65536]
One daemon alone, then PEERS of them, on the same target batch for each peer (EPOCH seconds of work); samples_per_s: in
commits between two moments SECONDS apart, from the second epoch on; ratio: of both; efficiency: ratio / PEERS."""
import argparse
import json
import os
import shutil
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from swarm import Daemon, kill_all, new_key

BATCH, MS = 16, 100                     # samples of a micro-batch, and how long it takes


def spec(peers, epoch, params):
	return {'name': 'scaling', 'input': [8], 'model': [{'type': 'sleep', 'fwd_ms': MS, 'bwd_ms': 0}, {'type': 'linear', 'out': max(2, params // 9)}],
		'loss': 'cross_entropy', 'optimizer': {'name': 'sgd', 'lr': 0.001}, 'target_batch': int(peers * epoch * 1000 / MS) * BATCH,
		'strategy': 'hivemind', 'data': {'name': 'x', 'kind': 'synthetic', 'count': 1000000}, 'validation': {'every': 0}, 'stop': {'epochs': 100000000},
		'local': {'batch': BATCH, 'data': '/x'}}


def measure(program, peers, options):
	folder = tempfile.mkdtemp(prefix='hivemind-bench.')
	daemons = [Daemon(program, folder, f'p{i}', 27000 + 3 * i, new_key(folder)) for i in range(peers)]
	try:
		daemons[0].start()
		daemons[0].must('run.start', spec=spec(peers, options.epoch, options.params))
		for d in daemons[1:]:
			d.start([daemons[0].address()])
		for d in daemons[1:]:
			d.join_run('scaling', '/x', batch=BATCH)
		first = daemons[0]
		first.wait(lambda: first.show('scaling', 'members') == peers, 60, f'{peers} members')
		at = first.show('scaling', 'epoch')
		first.wait(lambda: first.show('scaling', 'epoch') > at + 1, 60, 'two epochs')

		def edge():
			"""Samples and the moment of the newest commit."""
			return first.rows('select samples, wall_ms from epochs order by epoch desc limit 1')[0]
		before = edge()
		time.sleep(options.seconds)
		after = edge()
		cpu = sum(sum(map(int, open(f'/proc/{d.process.pid}/stat').read().rsplit(')', 1)[1].split()[11:13])) for d in daemons)
		return {'peers': peers, 'samples_per_s': round((after[0] - before[0]) / ((after[1] - before[1]) / 1e3), 1), 'cpu_ticks': cpu}
	finally:
		kill_all(daemons)
		shutil.rmtree(folder)


def main():
	parser = argparse.ArgumentParser(usage=__doc__)
	parser.add_argument('hivemindd')
	parser.add_argument('--peers', type=int, default=16)
	parser.add_argument('--seconds', type=float, default=20)
	parser.add_argument('--epoch', type=float, default=2)
	parser.add_argument('--params', type=int, default=65536)
	options = parser.parse_args()
	one, many = measure(options.hivemindd, 1, options), measure(options.hivemindd, options.peers, options)
	ratio = many['samples_per_s'] / one['samples_per_s']
	print(json.dumps({'one': one, 'many': many, 'ideal_of_one': BATCH * 1000 / MS, 'ratio': round(ratio, 2),
		'efficiency': round(ratio / options.peers, 4), 'epoch_s': options.epoch, 'params': options.params}, indent=1))


if __name__ == '__main__':
	main()
