#!/usr/bin/env python3
"""A member of a pipeline is killed: how long until the next step is committed. STAGES daemons of one thread each on loopback have a stage
each, every part of the state is in two places, and one more daemon waits as a spare. Again and again the one with the next stage is killed
(SIGKILL), and started again when the others go on, as the next spare. JSON out: milliseconds from the kill to the first COMMIT of the
generation without it, beside those of an epoch before (medians with spread), bytes of the state and what was taken from others.

usage: tests/bench/death.py HIVEMINDD [--stages 4] [--layers 9] [--width 1024] [--deaths 8] [--quick]
The model is LAYERS - 1 linear layers of WIDTH x WIDTH and a small one, with AdamW: by default 8.4 M parameters, whose weights and moments
are 101 MB.
--quick: a small one, with figures that say nothing."""
import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from swarm import Daemon, Failed, end_in_order, kill_all, machine, new_key, spread, tell_logs

PORT = 27700
RUN = 'death'


def spec_of(o):
	return {'name': RUN, 'input': [o.width], 'model': [{'type': 'linear', 'out': o.width}] * (o.layers - 1) + [{'type': 'linear', 'out': 4}],
		'loss': 'cross_entropy', 'optimizer': {'name': 'adamw', 'lr': 1e-4}, 'target_batch': 64, 'strategy': 'pipeline', 'stages': o.stages,
		'micro_batches': 8, 'replicas': 1, 'redundancy': 2, 'validation': {'every': 0}, 'stop': {'epochs': 1000000},
		'data': {'name': 'x', 'kind': 'synthetic', 'count': 4000}, 'local': local()}


def local():
	return {'batch': 8, 'data': '/x', 'threads': 1, 'checkpoint_every': 1000000}


def told(d):
	"""Generation and epoch, as one answer says."""
	all_ = d.ask('run.show', run=RUN) or {}
	crew = all_.get('crew') or {}
	return crew.get('generation') or 0, all_.get('epoch') or 0, crew


def seated(daemons):
	"""Who has which stage, when all say the same of one generation; {} until then."""
	say = [told(d) for d in daemons]
	if len({s[0] for s in say}) != 1 or not say[0][0] or any(s[2].get('waits') for s in say):
		return {}
	return {s[2]['rank']: d for s, d in zip(say, daemons) if s[2].get('rank') is not None}


def go_on(daemons, o, epochs):
	def seats():
		got = seated(daemons)
		return got if len(got) == o.stages else None
	first = daemons[0]
	first.wait(seats, 120, 'all seats', 0.05)
	at = told(first)[1]
	first.wait(lambda: told(first)[1] >= at + epochs, 120, f'{epochs} epochs', 0.05)
	return first.wait(seats, 120, 'all seats', 0.05)


def one_death(daemons, o, number):
	"""Milliseconds to the first COMMIT without it, of an epoch before, and what the one who took most has taken."""
	seats = go_on(daemons, o, 8)
	victim = seats[number % o.stages]
	others = [d for d in daemons if d is not victim]
	last = others[0].rows('select wall_ms from epochs order by epoch desc limit 9')
	usual = (last[0][0] - last[-1][0]) / (len(last) - 1)
	generation = told(others[0])[0]
	begun = time.monotonic()
	victim.end(signal.SIGKILL)
	watcher = others[0]
	epoch = watcher.wait(lambda: (s := told(watcher))[0] > generation and (s[1] or 1), 120, 'the next generation', 0.002)
	watcher.wait(lambda: told(watcher)[1] > epoch, 120, 'its first COMMIT', 0.002)
	ms = (time.monotonic() - begun) * 1e3
	taken = max((told(d)[2].get('moved') or {}).get('taken_bytes') or 0 for d in others)
	victim.start([others[0].address()])
	victim.join_run(RUN, '/x', local=local())
	return ms, usual, taken


def main():
	p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
	p.add_argument('hivemindd')
	for name, value in (('stages', 4), ('layers', 9), ('width', 1024), ('deaths', 8)):
		p.add_argument(f'--{name}', type=int, default=value)
	p.add_argument('--quick', action='store_true')
	o = p.parse_args()
	if o.quick:
		o.stages, o.layers, o.width, o.deaths = 2, 4, 32, 2
	if o.layers < o.stages or min(o.layers, o.width, o.deaths) < 1 or o.stages < 2:
		p.error('2 stages at least, and no more than layers; all numbers are at least 1')
	end_in_order()
	folder = tempfile.mkdtemp(prefix='hivemind-bench.')
	daemons = [Daemon(o.hivemindd, folder, f'p{i}', PORT + 3 * i, new_key(folder)) for i in range(o.stages + 1)]
	try:
		daemons[0].start()
		daemons[0].must('run.start', spec=spec_of(o))
		for d in daemons[1:]:
			d.start([daemons[0].address()])
			d.join_run(RUN, '/x', local=local())
		all_ = [one_death(daemons, o, n) for n in range(o.deaths)]
		parameters = daemons[0].show(RUN, 'parameters')
	except Failed:
		tell_logs(folder, daemons)
		raise
	finally:
		kill_all(daemons)
		shutil.rmtree(folder)
	print(json.dumps({'bench': 'death', 'quick': o.quick, 'stages': o.stages, 'layers': o.layers, 'width': o.width, 'parameters': parameters,
		'state_mb': round(parameters * 12 / 1e6, 1), 'next_commit_ms': spread([a[0] for a in all_]), 'epoch_ms': spread([a[1] for a in all_]),
		'taken_mb': spread([a[2] / 1e6 for a in all_]), 'machine': machine()}, indent=1))
	return 0


if __name__ == '__main__':
	sys.exit(main())
