#!/usr/bin/env python3
"""A model that no member could hold alone trains over several: gpt2 with AdamW over MEMBERS daemons of one thread each on loopback, strategy
pipeline, every part of the state in two places. JSON out: tokens/s, milliseconds of an epoch and of its round (medians with spread over
windows of one epoch), what a daemon alone says, and what each daemon has taken at most (VmHWM) beside what its run may take (local.memory).

usage: tests/bench/big.py HIVEMINDD [--memory 4GB] [--within 3.5GiB] [--members 4] [--layers 24] [--width 1024] [--heads 16] [--context 128] [--micro 8]
	[--windows 7] [--tied 0] [--quick]
The model is gpt2 medium by default, of 355 M parameters: its last layer uses the tensor of its first one, which the first member and the
last one hold. --tied 0: a last layer of its own, 406 M. --within: each daemon is in a memory cgroup (root) that is no larger; JSON has what
that has charged at most, file pages included. --quick: a small one, with figures that say nothing."""
import argparse
import json
import os
import random
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from swarm import Daemon, Failed, end_in_order, kill_all, machine, new_key, spread, tell_logs

PORT = 27600


def spec_of(o, text, **more):
	return {'name': 'big', 'model': {'zoo': 'gpt2', 'layers': o.layers, 'width': o.width, 'heads': o.heads, 'context': o.context,
		'dropout': 0, 'tied': o.tied}, 'loss': 'cross_entropy', 'optimizer': {'name': 'adamw', 'lr': 1e-4}, 'strategy': 'pipeline',
		'schedule': '1f1b', 'stages': o.members, 'micro_batches': o.micro, 'replicas': 1, 'redundancy': 2, 'target_batch': o.micro,
		'validation': {'every': 0}, 'data': {'name': 'text', 'kind': 'text'}, 'stop': {'epochs': 1000000},
		'local': {'batch': 1, 'data': text, 'threads': 1, 'checkpoint_every': 1000000, 'memory': o.memory}, **more}


class Group:
	"""A memory cgroup of either version, of so many bytes, for one daemon."""
	def __init__(self, name, limit):
		old = '/sys/fs/cgroup/memory'
		self.v1 = os.path.isdir(old)
		self.path = f'{old if self.v1 else "/sys/fs/cgroup"}/hivemind-bench-{os.getpid()}-{name}'
		os.mkdir(self.path)
		self.say('memory.limit_in_bytes' if self.v1 else 'memory.max', limit)

	def say(self, file, value):
		with open(f'{self.path}/{file}', 'w', encoding='ascii') as f:
			f.write(str(value))

	def most(self):
		with open(f'{self.path}/{"memory.max_usage_in_bytes" if self.v1 else "memory.peak"}', encoding='ascii') as f:
			return int(f.read())

	def end(self):
		try:
			os.rmdir(self.path)
		except OSError as e:
			print(f'{self.path}: {e.strerror}', file=sys.stderr)


def size(text):
	units = {'GiB': 1 << 30, 'GB': 10 ** 9, 'MiB': 1 << 20, 'MB': 10 ** 6}
	unit = next((u for u in units if text.endswith(u)), None)
	if not unit:
		raise argparse.ArgumentTypeError(f'{text}: a number and one of {" ".join(units)}')
	return int(float(text[:-len(unit)]) * units[unit])


def alone(o, folder, text):
	"""Why one daemon by itself does not train it, in its own words."""
	d = Daemon(o.hivemindd, folder, 'alone', PORT, new_key(folder))
	try:
		d.start()
		d.ask('run.start', spec=spec_of(o, text, stages=1, redundancy=1))

		def said():
			with open(f'{folder}/alone.log', encoding='utf-8') as log:
				return next((line.split(' ', 1)[1].strip() for line in log if 'are missing' in line), None)
		return d.wait(said, 300, 'a refusal')
	finally:
		kill_all([d])


def most_taken(d):
	with open(f'/proc/{d.process.pid}/status', encoding='ascii') as f:
		return next(int(line.split()[1]) * 1024 for line in f if line.startswith('VmHWM'))


def epoch_of(d):
	return d.show('big', 'epoch', 0) or 0


def together(o, folder, text):
	spec = spec_of(o, text)
	all_ = [Daemon(o.hivemindd, folder, f'p{i}', PORT + 3 * i, new_key(folder)) for i in range(o.members)]
	groups = []

	def begin(d, join=()):
		d.start(join)
		if o.within:
			groups.append(Group(d.name, o.within))
			groups[-1].say('cgroup.procs', d.process.pid)
	try:
		begin(all_[0])
		all_[0].must('run.start', spec=spec)
		for d in all_[1:]:
			begin(d, [all_[0].address()])
			d.join_run('big', text, local=spec['local'])
		all_[0].wait(lambda: epoch_of(all_[0]) >= 2, 1800, 'two epochs', 0.2)
		crew = all_[0].show('big', 'crew')
		at = epoch_of(all_[0])
		all_[0].wait(lambda: epoch_of(all_[0]) >= at + o.windows + 1, 600 * (o.windows + 1), f'{o.windows} epochs', 0.2)
		sql = f'select wall_ms, samples from epochs where epoch > {at} and epoch <= {at + o.windows + 1} order by epoch'
		rows = all_[0].wait(lambda: len(r := all_[0].rows(sql)) == o.windows + 1 and r, 20, 'all epochs in the table')
		ms = [b[0] - a[0] for a, b in zip(rows, rows[1:])]
		rounds = [r[0] / 1e3 for r in all_[0].rows(f"select took_us from rounds where epoch > {at} and outcome = 'done' order by id "
			f'limit {o.windows}')]
		return {'parameters': all_[0].show('big', 'parameters'), 'seats': crew['seats'] if 'seats' in crew else o.members,
			'redundancy': crew.get('redundancy'), 'tokens_per_s': spread([o.micro * o.context * 1e3 / m for m in ms]), 'epoch_ms': spread(ms),
			'round_ms': spread(rounds) if rounds else None, 'taken_mb': [round(most_taken(d) / 1e6) for d in all_],
			**({'charged_mb': [round(g.most() / 1e6) for g in groups]} if groups else {})}
	except Failed:
		tell_logs(folder, all_)
		raise
	finally:
		kill_all(all_)
		for g in groups:
			g.end()


def main():
	p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
	p.add_argument('hivemindd')
	for name, value in (('members', 4), ('layers', 24), ('width', 1024), ('heads', 16), ('context', 128), ('micro', 8), ('windows', 7)):
		p.add_argument(f'--{name}', type=int, default=value)
	p.add_argument('--memory', default='4GB')
	p.add_argument('--within', type=size)
	p.add_argument('--tied', type=int, default=1, choices=(0, 1))
	p.add_argument('--quick', action='store_true')
	o = p.parse_args()
	if o.quick:
		o.members, o.layers, o.width, o.heads, o.context, o.micro, o.windows = 2, 2, 64, 2, 16, 4, 2
		o.memory = '96MB' if o.tied else '100MB'
	if min(o.members, o.layers, o.width, o.heads, o.context, o.micro, o.windows) < 1:
		p.error('all numbers are at least 1')
	end_in_order()
	folder = tempfile.mkdtemp(prefix='hivemind-bench.')
	try:
		text = f'{folder}/text.txt'
		with open(text, 'wb') as f:
			f.write(random.Random(1).randbytes(1 << 20))
		out = {'bench': 'big', 'quick': o.quick, 'layers': o.layers, 'width': o.width, 'context': o.context, 'tied': o.tied, 'micro_batches': o.micro,
			'members': o.members, 'memory': o.memory, 'within_mb': o.within and round(o.within / 1e6),
			'alone': alone(o, folder, text), **together(o, folder, text), 'machine': machine()}
	finally:
		shutil.rmtree(folder)
	print(json.dumps(out, indent=1))
	return 0


if __name__ == '__main__':
	sys.exit(main())
