#!/usr/bin/env python3
"""How long a newcomer takes into a run that is under way: three daemons train, a fourth that knows nothing is started, joins and
fetches parameters and optimizer state; JSON out, median of REPEATS with spread.

usage: tests/bench/join.py HIVEMINDD [--mb 46.8] [--epoch-ms 1000] [--repeats 7] [--verbose]
contributes_ms: from `run join` on the newcomer to the first commit that counts samples of its own; start_ms: from its start to
`run join`; state_ms: of contributes_ms, fetching the state; epoch_ms: between commits of the three before it came; over_ms:
contributes_ms less one epoch (aim: 1000). The status is 1 when the median misses it."""
import argparse
import json
import os
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from swarm import Daemon, kill_all, new_key

MICRO, BATCH, INPUT = 4, 16, 1000       # micro-batches of a peer an epoch, samples of each


def spec(mb, epoch_ms):
	width = int(mb * 1e6 / 12 / (INPUT + 9))        # Adam keeps three numbers of four bytes for each parameter
	return {'name': 'join', 'input': [INPUT], 'model': [{'type': 'sleep', 'fwd_ms': epoch_ms // MICRO, 'bwd_ms': 0},
		{'type': 'linear', 'out': width}, {'type': 'relu'}, {'type': 'linear', 'out': 8}], 'loss': 'cross_entropy',
		'optimizer': {'name': 'adam', 'lr': 0.001}, 'target_batch': 3 * MICRO * BATCH, 'strategy': 'hivemind', 'validation': {'every': 0},
		'data': {'name': 'x', 'kind': 'synthetic', 'count': 1000000}, 'stop': {'epochs': 1000000},
		'local': {'batch': BATCH, 'data': '/x', 'checkpoint_every': 0}}


def contributed(d, since_ms):
	"""The first commit on d to which it has sent a part of its own; nothing yet: None."""
	rows = d.ask('query', sql=f"select min(wall_ms) from rounds where wall_ms > {since_ms} and outcome = 'done' and bytes_sent > 0") or {}
	return rows.get('rows', [[None]])[0][0]


def once(swarm, folder, options, turn):
	before = [r[0] for r in swarm[0].rows('select wall_ms from epochs order by epoch desc limit 9')]
	epoch = statistics.median(a - b for a, b in zip(before, before[1:]))
	newcomer = Daemon(options.hivemindd, folder, f'n{turn}', 27100, new_key(folder))
	swarm.append(newcomer)
	begun = time.time() * 1e3
	newcomer.start([d.address() for d in swarm[:3]])
	newcomer.wait(lambda: 'error' not in (newcomer.ask('run.join', run='join', data='/x', batch=BATCH) or {'error': 1}), 30, 'the run', 0.005)
	asked = time.time() * 1e3
	ms = newcomer.wait(lambda: contributed(newcomer, int(asked)), 60, 'a commit with its samples', 0.01) - asked
	with open(f'{folder}/{newcomer.name}.log', encoding='utf-8') as log:
		told = log.read()
	if options.verbose:
		print(told, file=sys.stderr)
	fetched = re.findall(r'state of epoch \d+ after ([0-9.]+) s', told)
	newcomer.end(signal.SIGKILL)
	swarm.remove(newcomer)
	shutil.rmtree(f'{folder}/n{turn}')
	swarm[0].wait(lambda: swarm[0].show('join', 'members') == 3, 30, 'three members again')
	at = swarm[0].show('join', 'epoch')
	swarm[0].wait(lambda: swarm[0].show('join', 'epoch') > at + 3, 60, 'epochs of three')
	return {'start_ms': asked - begun, 'contributes_ms': ms, 'epoch_ms': epoch, 'over_ms': ms - epoch,
		'state_ms': sum(float(t) * 1e3 for t in fetched), 'fetches': len(fetched)}


def main():
	parser = argparse.ArgumentParser(usage=__doc__)
	parser.add_argument('hivemindd')
	parser.add_argument('--mb', type=float, default=46.8)
	parser.add_argument('--epoch-ms', type=int, default=1000)
	parser.add_argument('--repeats', type=int, default=7)
	parser.add_argument('--verbose', action='store_true', help="the newcomers' logs, too")
	options = parser.parse_args()
	folder = tempfile.mkdtemp(prefix='hivemind-bench.')
	swarm = [Daemon(options.hivemindd, folder, f'p{i}', 27000 + 3 * i, new_key(folder)) for i in range(3)]
	try:
		swarm[0].start()
		swarm[0].must('run.start', spec=spec(options.mb, options.epoch_ms))
		for d in swarm[1:]:
			d.start([swarm[0].address()])
			d.join_run('join', '/x', batch=BATCH)
		swarm[0].wait(lambda: swarm[0].show('join', 'members') == 3, 60, 'three members')
		at = swarm[0].show('join', 'epoch')
		swarm[0].wait(lambda: swarm[0].show('join', 'epoch') > at + 9, 60, 'ten epochs')
		runs = [once(swarm, folder, options, i) for i in range(options.repeats)]
	finally:
		kill_all(swarm)
		shutil.rmtree(folder)
	out = {'bench': 'join', 'peers': 3, 'state_mb': options.mb, 'n': len(runs), 'aim_over_ms': 1000}
	for key in ('start_ms', 'contributes_ms', 'state_ms', 'epoch_ms', 'over_ms'):
		v = sorted(r[key] for r in runs)
		out[key] = {'median': round(statistics.median(v), 1), 'min': round(v[0], 1), 'max': round(v[-1], 1)}
	out['fetches'] = [r['fetches'] for r in runs]
	print(json.dumps(out, indent=1))
	return out['over_ms']['median'] > 1000


if __name__ == '__main__':
	sys.exit(main())
