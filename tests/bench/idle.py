#!/usr/bin/env python3
"""How much of the machine do daemons leave idle that train LeNet-5 on MNIST together? JSON out, medians over windows with spread.

usage: tests/bench/idle.py HIVEMINDD [--data FOLDER] [--peers 3] [--targets 256,4096] [--batch 32] [--windows 9] [--seconds 5]
idle: share of the cores' time that nobody used (of /proc/stat, the cores that this program may use); nothing: the same before
any daemon runs, which says how quiet the machine is. daemons: share that the daemons used. Aim: idle at most 0.1 with a
target batch of 256. samples_per_s: of all peers; left_out: rounds that somebody was left out of. ratio: samples_per_s to that of
the greatest target in the same run, where rounds cost least. FOLDER has mnist/ (default: $HIVEMIND_DATA, or shared/data beside
the source tree); without it: skipped, and said so."""
import argparse
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from curves import SETS, SGD, begin, default_data, spec_of, swarm_of
from swarm import end_in_order, machine, spread

TICKS = os.sysconf('SC_CLK_TCK')
WARM = 3


def cores():
	"""(idle, all) ticks of the cores that this program may use."""
	mine, idle, all_ = {f'cpu{i}' for i in os.sched_getaffinity(0)}, 0, 0
	with open('/proc/stat', encoding='utf-8') as f:
		for line in f:
			words = line.split()
			if words[0] in mine:
				ticks = [int(w) for w in words[1:9]]
				idle, all_ = idle + ticks[3] + ticks[4], all_ + sum(ticks)
	return idle, all_


def used(daemons):
	"""Ticks that they have used."""
	total = 0
	for d in daemons:
		with open(f'/proc/{d.process.pid}/stat', encoding='utf-8') as f:
			total += sum(int(w) for w in f.read().rsplit(')', 1)[1].split()[11:13])
	return total


def window(seconds, daemons=()):
	"""(share that was idle, share that the daemons used, seconds)"""
	begun, (idle, all_), own = time.monotonic(), cores(), used(daemons)
	time.sleep(seconds)
	later, total = cores()
	whole = max(1, total - all_)
	return (later - idle) / whole, (used(daemons) - own) / whole, time.monotonic() - begun


def train(options, target):
	with swarm_of(options.hivemindd, options.peers) as all_:
		what = dict(SETS['mnist'], at=os.path.join(options.data, 'mnist'), model={'zoo': 'lenet5'}, optimizer=dict(SGD, lr=0.01))
		spec = spec_of('idle', what, 1, target, {'epochs': 10**9}, validation={'split': 0, 'every': 0})
		spec['local']['batch'] = options.batch
		begin(all_, spec)
		time.sleep(WARM)
		idle, daemons, rates = [], [], []
		first = all_[0].show('idle', 'epoch')
		for _ in range(options.windows):
			samples = all_[0].show('idle', 'samples')
			free, own, seconds = window(options.seconds, all_)
			idle, daemons = idle + [free], daemons + [own]
			rates.append((all_[0].show('idle', 'samples') - samples) / seconds)
		epochs = all_[0].show('idle', 'epoch') - first
		left = max(d.show('idle', 'rounds_without', 0) for d in all_)
		return {'target_batch': target, 'idle': spread(idle), 'daemons': spread(daemons), 'samples_per_s': spread(rates, 1),
			'epochs_per_s': round(epochs / options.windows / options.seconds, 1), 'epochs': epochs, 'left_out': left}


def main():
	parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
	parser.add_argument('hivemindd')
	parser.add_argument('--data', default=default_data())
	parser.add_argument('--peers', type=int, default=3)
	parser.add_argument('--targets', default='256,4096')
	parser.add_argument('--batch', type=int, default=32)
	parser.add_argument('--windows', type=int, default=9)
	parser.add_argument('--seconds', type=float, default=5)
	options = parser.parse_args()
	if options.peers < 1 or options.windows < 1:
		parser.error('--peers and --windows are at least 1')
	if not os.path.exists(os.path.join(options.data, SETS['mnist']['look'])):
		print(json.dumps({'bench': 'idle', 'skipped': f'no MNIST in {options.data} (--data or HIVEMIND_DATA)'}))
		return
	end_in_order()
	out = {'bench': 'idle', 'peers': options.peers, 'batch': options.batch, 'seconds': options.seconds} | machine()
	out['nothing'] = spread([window(1)[0] for _ in range(3)])
	rows = [train(options, int(t)) for t in options.targets.split(',')]
	best = max(rows, key=lambda r: r['target_batch'])['samples_per_s']['median']
	for r in rows:
		r['ratio'] = round(r['samples_per_s']['median'] / best, 3)
	print(json.dumps(out | {'targets': rows}, indent=1))


if __name__ == '__main__':
	sys.exit(main())
