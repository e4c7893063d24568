#!/usr/bin/env python3
"""How fast three real daemons come together and how little a SIGKILL costs the survivors; JSON out, medians with spread.

usage: tests/bench/rounds.py HIVEMINDD HIVECTL [REPEATS]
cold_ms: from starting the first daemon to the first committed epoch of three members, hivectl calls included.
gap_ms: longest time between two commits of a survivor around the SIGKILL of a third peer; epoch_ms: the same before it."""
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from words import usage

DIGITS = os.path.join(os.path.dirname(os.path.realpath(__file__)), '..', 'data', 'digits')


class Swarm:
	def __init__(self, daemon, ctl):
		self.daemon, self.ctl, self.running = daemon, ctl, {}
		self.work = tempfile.mkdtemp(prefix='hivemind-bench.')
		with open(DIGITS + '.json', encoding='utf-8') as f:
			spec = json.load(f)
		spec['stop'], spec['schedule']['total'] = {'epochs': 100000}, 100000
		self.spec = os.path.join(self.work, 'spec.json')
		with open(self.spec, 'w', encoding='utf-8') as f:
			json.dump(spec, f)

	def ask(self, name, *words):
		r = subprocess.run([self.ctl, '-s', f'{self.work}/{name}.sock', '--json', *words], capture_output=True, text=True)
		return json.loads(r.stdout) if r.returncode == 0 else None

	def wait(self, what, seconds=30):
		end = time.time() + seconds
		while time.time() < end:
			got = what()
			if got:
				return got
			time.sleep(0.005)
		raise TimeoutError('a daemon did not get there in time')

	def start(self, name, join):
		args = [self.daemon, '--state-dir', f'{self.work}/{name}', '--socket', f'{self.work}/{name}.sock',
			'--listen', '127.0.0.1:auto'] + (['--join', join] if join else [])
		with open(f'{self.work}/{name}.log', 'w', encoding='utf-8') as log:
			self.running[name] = subprocess.Popen(args, stderr=log)
		return self.wait(lambda: self.ask(name, 'status'))['listen'][0]

	def rows(self, sql):
		return self.ask('a', 'query', sql)['rows']

	def end(self):
		for p in self.running.values():
			p.kill()
			p.wait()
		shutil.rmtree(self.work)


def once(daemon, ctl):
	s = Swarm(daemon, ctl)
	try:
		begun = time.time() * 1000
		first = s.start('a', None)
		for name in 'bc':
			s.start(name, first)
		s.ask('a', 'run', 'start', s.spec, '--data', os.path.realpath(DIGITS))
		for name in 'bc':
			s.wait(lambda n=name: s.ask(n, 'run', 'join', 'digits', '--data', os.path.realpath(DIGITS)))
		whole = s.wait(lambda: s.rows('select min(wall_ms) from epochs where members = 3')[0][0])
		time.sleep(1.5)                 # steady state: this is a measurement, not a condition
		killed = time.time() * 1000
		s.running['c'].send_signal(signal.SIGKILL)
		time.sleep(1.5)
		at = [r[0] for r in s.rows(f'select wall_ms from epochs where wall_ms > {killed - 500:.0f} order by epoch limit 500')]
		before, after = [t for t in at if t <= killed], [t for t in at if t > killed][:20]
		around = before[-1:] + after
		return (whole - begun, max(b - a for a, b in zip(around, around[1:])),
			statistics.median(b - a for a, b in zip(before, before[1:])))
	finally:
		s.end()


def main(args):
	usage(__doc__, 2, 3, (2,))
	runs = [once(os.path.realpath(args[0]), os.path.realpath(args[1])) for _ in range(int(args[2]) if len(args) > 2 else 7)]
	out = {'bench': 'rounds', 'peers': 3, 'n': len(runs)}
	for i, name in enumerate(('cold_ms', 'gap_ms', 'epoch_ms')):
		v = sorted(r[i] for r in runs)
		out[name] = {'median': round(statistics.median(v), 1), 'min': round(v[0], 1), 'max': round(v[-1], 1)}
	print(json.dumps(out, indent=1))
	return 0


if __name__ == '__main__':
	sys.exit(main(sys.argv[1:]))
