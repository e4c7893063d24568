#!/usr/bin/env python3
"""How soon eight peers average together: eight daemons know each other, one starts a run, seven join it by name at once; JSON
out, median of REPEATS with spread.

usage: tests/bench/rendezvous.py HIVEMINDD [--peers 8] [--repeats 7] [--verbose]
The first epoch takes one peer alone over a second, so that all are there before it ends and nobody has to fetch the state.
asked_ms: from `run start` answered to the last answer to `run join`; together_ms: from then until one of them, the leader, counts all
(aim: 50); begin_ms: until the first BEGIN with all of them, which their first micro-batches come before. The machine's load stands
beside: with other work on it the processes wait for each other."""
import argparse
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from swarm import Daemon, kill_all, new_key


def spec(name, peers):
	return {'name': name, 'input': [16], 'model': [{'type': 'sleep', 'fwd_ms': 50, 'bwd_ms': 50}, {'type': 'linear', 'out': 4}],
		'loss': 'cross_entropy', 'optimizer': {'name': 'sgd', 'lr': 0.001}, 'target_batch': 4 * peers, 'strategy': 'hivemind',
		'validation': {'every': 0}, 'data': {'name': 'x', 'kind': 'synthetic', 'count': 1000000}, 'stop': {'epochs': 1000000},
		'local': {'batch': 2, 'data': '/x', 'checkpoint_every': 0}}


def join(d, name, answered):
	d.wait(lambda: 'error' not in (d.ask('run.join', run=name, data='/x', batch=2) or {'error': 1}), 30, 'the run', 0.001)
	answered.append(time.time() * 1e3)


def once(swarm, turn, options):
	name, peers, answered = f'r{turn}', len(swarm), []
	swarm[0].must('run.start', spec=spec(name, peers))
	begun = time.time() * 1e3
	threads = [threading.Thread(target=join, args=(d, name, answered)) for d in swarm[1:]]
	for t in threads:
		t.start()
	for t in threads:
		t.join()
	last = max(answered)
	# Only the leader hears of everybody before the first BEGIN.
	swarm[0].wait(lambda: any(d.show(name, 'members') == peers for d in swarm), 30, 'all of them', 0.001)
	together = time.time() * 1e3
	run = swarm[0].show(name, 'run')
	sql = f"select min(wall_ms - took_us / 1000) from rounds where members >= {peers} and run = '{run}'"
	swarm[0].wait(lambda: swarm[0].rows(sql)[0][0], 30, 'a round of all', 0.01)
	first = swarm[0].rows(sql)[0][0]
	for d in swarm:
		d.must('run.leave', run=name)
	return {'asked_ms': last - begun, 'together_ms': together - last, 'begin_ms': first - last}


def main():
	p = argparse.ArgumentParser(add_help=True)
	p.add_argument('hivemindd')
	p.add_argument('--peers', type=int, default=8)
	p.add_argument('--repeats', type=int, default=7)
	p.add_argument('--verbose', action='store_true')
	options = p.parse_args()
	folder = tempfile.mkdtemp(prefix='rendezvous.')
	key = new_key(folder)
	swarm = [Daemon(options.hivemindd, folder, f'd{i}', 27300 + 3 * i, key) for i in range(options.peers)]
	try:
		for i, d in enumerate(swarm):
			d.start([swarm[0].address()] if i else [])
		for d in swarm:
			d.wait(lambda: len((d.ask('peers') or {}).get('peers', [])) >= options.peers - 1, 30, 'the others')
		runs = [once(swarm, i, options) for i in range(options.repeats)]
		out = {'bench': 'rendezvous', 'peers': options.peers, 'repeats': options.repeats, 'load': os.getloadavg()[0], 'aim_ms': 50}
		for k in runs[0]:
			v = sorted(r[k] for r in runs)
			out[k] = {'median': round(statistics.median(v), 1), 'min': round(v[0], 1), 'max': round(v[-1], 1)}
		print(json.dumps(out))
		sys.exit(0 if out['together_ms']['median'] <= 50 else 1)
	finally:
		kill_all(swarm)
		if not options.verbose:
			shutil.rmtree(folder)


if __name__ == '__main__':
	main()
