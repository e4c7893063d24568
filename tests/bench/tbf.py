#!/usr/bin/env python3
"""An all-reduce of two peers through a token bucket (tc tbf) in each direction, against one raw TCP stream through the
same buckets in the same run, in turns; JSON out, one line a rate. Two network namespaces and a veth are made for it and
taken away again: run it as root.

usage: tests/bench/tbf.py BUILD [--rates 100mbit,1gbit] [--turns 3]
carried: what of the raw stream's rate the round's payload reaches, both directions loaded (aim: 0.99). A peer sends and
receives as many bytes in an all-reduce of two as the stream does; the round's time includes BEGIN, ACK and COMMIT."""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys

BURST = {'100mbit': '32kb', '1gbit': '256kb'}
SECONDS = 2.0                           # one all-reduce, about
RATES = {'kbit': 1e3, 'mbit': 1e6, 'gbit': 1e9}


def bits(rate):
	return next(float(rate[:-len(u)]) * f for u, f in RATES.items() if rate.endswith(u))


def run(*words):
	subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


class Path:
	"""Two namespaces joined by a veth, a bucket at both ends."""

	def __init__(self, rate):
		self.ns = [f'hvm{os.getpid()}{x}' for x in 'ab']
		self.places = [f'{n}=10.77.0.{i + 1}' for i, n in enumerate(self.ns)]
		self.tc = ['tbf', 'rate', rate, 'burst', BURST.get(rate, '64kb'), 'latency', '50ms']

	def __enter__(self):
		for n in self.ns:
			run('ip', 'netns', 'add', n)
		run('ip', 'link', 'add', 'eth0', 'netns', self.ns[0], 'type', 'veth', 'peer', 'name', 'eth0', 'netns', self.ns[1])
		for i, n in enumerate(self.ns):
			run('ip', '-n', n, 'addr', 'add', f'10.77.0.{i + 1}/24', 'dev', 'eth0')
			for dev in ('lo', 'eth0'):
				run('ip', '-n', n, 'link', 'set', dev, 'up')
			# frames as a wire has them: without offloading a bucket would see 64 KiB at once
			subprocess.run(['ip', 'netns', 'exec', n, 'ethtool', '-K', 'eth0', 'tso', 'off', 'gso', 'off', 'gro', 'off'],
				stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
			run('ip', '-n', n, 'link', 'set', 'eth0', 'gso_max_segs', '1')
			run('tc', '-n', n, 'qdisc', 'add', 'dev', 'eth0', 'root', *self.tc)
		return self

	def __exit__(self, *why):
		for n in self.ns:
			subprocess.run(['ip', 'netns', 'del', n], check=False)


def one(build, mode, size, places):
	name, _, wire = mode.partition('_')
	r = subprocess.run([os.path.join(build, 'tests', 'bench', 'bench_allreduce' + ('_open' if wire else '')), name, '2',
		str(size), '3', 'none', *places], stdout=subprocess.PIPE, text=True, timeout=300, check=True)
	return json.loads(r.stdout)['ms_median']


def row(a, rate):
	size = int(bits(rate) / 8 * SECONDS) // 4 * 4
	ms = {m: [] for m in ('stream', 'round', 'coll')}
	with Path(rate) as path:
		for turn in range(a.turns):
			for m in (ms if turn % 2 else reversed(ms)):
				ms[m].append(one(a.build, m, size, path.places))
	out = {'rate': rate, 'bytes': size, 'turns': a.turns}
	for m, v in ms.items():
		s = statistics.median(v)
		out[m] = {'ms_median': round(s, 1), 'mbit_s': round(size * 8e-3 / s, 2)}
		if m != 'stream':
			out[m]['carried'] = round(statistics.median(ms['stream']) / s, 4)
	return out


def main():
	p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
	p.add_argument('build')
	p.add_argument('--rates', default='100mbit,1gbit')
	p.add_argument('--turns', type=int, default=3)
	a = p.parse_args()
	if os.geteuid():
		sys.exit('tests/bench/tbf.py makes network namespaces: run it as root')
	signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))    # so that the namespaces go, too
	for rate in a.rates.split(','):
		print(json.dumps(row(a, rate)), flush=True)


if __name__ == '__main__':
	main()
