#!/usr/bin/env python3
"""What a flood does to a daemon's loop: its longest callback while a member or a stranger sends it as much as goes through, beside
the same daemon's when nobody does; JSON out.

usage: tests/bench/flood.py HIVEMINDD ATTACK [--kinds torrent,flood,halves,garbage,braces] [--quiet 5] [--repeats 3]
ATTACK is tests/attack/attack of the build: torrent: a member's sealed frames without a pause, flood: ten thousand of them a second,
halves: HELLOs without an end, garbage: bytes at random, braces: JSON that is costly to read. Two daemons train digits together, one of
them is attacked; each attack has fresh ones. longest_us: of the callbacks since its start (quiet: up to the attack, attacked: to
its end, behind which a larger one is the attack's), in: its name; p999_under_us: of all; status_ms: the slowest answer to `status`;
epochs_per_s: commits of both meanwhile; sent: what the attack says. Aim: a longest callback of 50 ms; status 1 beyond it."""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from swarm import Daemon, Failed, kill_all

KINDS, AIM_US = ('torrent', 'flood', 'halves', 'garbage', 'braces'), 50000
DIGITS = os.path.join(os.path.dirname(os.path.realpath(__file__)), '..', 'data', 'digits')


def spec():
	with open(DIGITS + '.json', encoding='utf-8') as f:
		out = json.load(f)
	out['stop'], out['schedule'], out['validation'] = {'epochs': 1 << 30}, {'name': 'constant'}, {'every': 0}
	out['local'] = {'data': os.path.realpath(DIGITS), 'batch': 32, 'threads': 1, 'checkpoint_every': 0}
	return out


def watch(d, ends):
	"""Until ends(): what the loop has done by then, the slowest answer and the rate of commits."""
	slowest, at, begun = 0, d.show('digits', 'epoch'), time.monotonic()
	while True:
		last = ends()
		asked = time.monotonic()
		loop = d.must('status')['loop']
		slowest = max(slowest, time.monotonic() - asked)
		if last:
			break
		time.sleep(0.01)                # a question now and then, beside what is measured
	took = time.monotonic() - begun
	return {'longest_us': loop['longest_us'], 'in': loop['longest_in'], 'p999_under_us': loop['p999_under_us'], 'slow': loop['slow'],
		'status_ms': round(slowest * 1e3, 2), 'epochs_per_s': round((d.show('digits', 'epoch') - at) / took, 2), 'seconds': round(took, 2)}


def once(options, kind):
	folder = tempfile.mkdtemp(prefix='hivemind-bench.')
	both = [Daemon(options.hivemindd, folder, name, port, None) for name, port in (('attacked', 27000), ('other', 27003))]
	try:
		both[0].start()
		both[0].must('run.start', spec=spec())
		both[1].start([both[0].address()])
		both[1].join_run('digits', os.path.realpath(DIGITS), batch=32, threads=1)
		for d in both:
			d.wait(lambda d=d: d.show('digits', 'members') == 2, 60, 'two members')
		until = time.monotonic() + options.quiet
		quiet = watch(both[0], lambda: time.monotonic() > until)
		attack = subprocess.Popen([options.attack, '127.0.0.1', str(both[0].port), kind], stdout=subprocess.PIPE, text=True)
		attacked = watch(both[0], lambda: attack.poll() is not None)
		told = attack.stdout.read().strip()
		if attack.returncode:
			raise Failed(f'{kind}: {told or "no word"} (status {attack.returncode})')
		at = both[0].show('digits', 'epoch')
		both[0].wait(lambda: both[0].show('digits', 'epoch') > at + 2, 60, 'epochs behind the attack')
		return {'quiet': quiet, 'attacked': attacked, 'sent': told}
	finally:
		kill_all(both)
		shutil.rmtree(folder)


def row(runs):
	out = {'n': len(runs), 'sent': [r['sent'] for r in runs]}
	for phase in ('quiet', 'attacked'):
		out[phase] = {'in': [r[phase]['in'] for r in runs]}
		for key in ('longest_us', 'p999_under_us', 'slow', 'status_ms', 'epochs_per_s', 'seconds'):
			v = sorted(r[phase][key] for r in runs)
			out[phase][key] = {'median': statistics.median(v), 'min': v[0], 'max': v[-1]}
	return out


def main():
	parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
	parser.add_argument('hivemindd')
	parser.add_argument('attack')
	parser.add_argument('--kinds', default=','.join(KINDS))
	parser.add_argument('--quiet', type=float, default=5, help='seconds before the attack')
	parser.add_argument('--repeats', type=int, default=3)
	options = parser.parse_args()
	kinds = options.kinds.split(',')
	if not set(kinds) <= set(KINDS) or options.repeats < 1:
		parser.error(f'--kinds is of {", ".join(KINDS)}, --repeats at least 1')
	runs = {kind: [] for kind in kinds}
	for _ in range(options.repeats):
		for kind in kinds:
			runs[kind].append(once(options, kind))
	out = {'bench': 'flood', 'aim_us': AIM_US, 'kinds': {kind: row(r) for kind, r in runs.items()}}
	out['longest_us'] = max(o['attacked']['longest_us']['median'] for o in out['kinds'].values())
	print(json.dumps(out, indent=1))
	return out['longest_us'] > AIM_US


if __name__ == '__main__':
	sys.exit(main())
