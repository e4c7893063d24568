#!/usr/bin/env python3
"""Strategy pipeline with real daemons on loopback, each with one thread: how long an epoch takes against what the schedule and the
predictor say, how long a run stands still when a stage is killed, and what a second pipeline brings. JSON out: medians with spread.

usage: tests/bench/pipeline.py HIVEMINDD [--only epoch,gpt,late,kill,side] [--windows 7] [--epochs 4] [--kills 7] [--mb 100] [--quick]
epoch: two stages of layers that sleep (FWD ms forward, BWD backward), schedule 1f1b, M micro-batches an epoch, one flush. formula_ms:
(M + stages - 1) * (FWD + BWD); predicted_ms: `run plan` of that spec for two members; epoch_ms: means of windows of EPOCHS epochs
between commits, by the daemon's own table; over_formula, over_predicted: epoch_ms by them. round_ms: what of it is the round at
the end, which neither has in it.
gpt: the same with a small gpt2, whose kernels run; predicted_ms then comes from the daemon's measured speed of matrix products.
late: the layers of epoch again with schedule 2bw, against 1f1b in the same run: ratio of the medians; formula_ms: M * (FWD + BWD).
kill: three stages, four daemons, MB of parameters and optimizer state in all, redundancy 2. A member is killed, rank 0, 1, 2, 0 ... in
turn; resumed_s: until the first commit of the generation without it; whole_s: until that generation was there. Then it comes back
as the spare.
side: samples/s of two pipelines of two stages, twice the target batch, by those of one; layers sleep, so that all have processors.
--quick: every part, with figures that say nothing."""
import argparse
import contextlib
import json
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from swarm import Daemon, Failed, end_in_order, kill_all, machine, new_key, spread

BATCH, WIDTH, PORT = 4, 64, 27200
PARTS = ('epoch', 'gpt', 'late', 'kill', 'side')


def spec_of(model, stages, micro, **more):
	return {'name': 'line', 'model': model, 'loss': 'cross_entropy', 'optimizer': {'name': 'sgd', 'lr': 0.001}, 'strategy': 'pipeline',
		'schedule': '1f1b', 'stages': stages, 'micro_batches': micro, 'replicas': 1, 'redundancy': 1, 'target_batch': micro * BATCH,
		'validation': {'every': 0}, 'data': {'name': 'x', 'kind': 'synthetic', 'count': 1000000}, 'stop': {'epochs': 1000000},
		'local': {'batch': BATCH, 'data': '/x', 'threads': 1, 'checkpoint_every': 0}, **more}


def sleeping(o, micro, **more):
	"""Two stages. Behind a linear layer, because nobody wants the gradient of the input: a sleep there would have no backward pass."""
	sleep, linear = {'type': 'sleep', 'fwd_ms': o.fwd, 'bwd_ms': o.bwd}, {'type': 'linear', 'out': WIDTH}
	return spec_of([linear, sleep, linear, sleep, {'type': 'linear', 'out': 8}], [{'layers': 3}, {'layers': 2}], micro, input=[WIDTH], **more)


def gpt(o, micro, text):
	model = {'zoo': 'gpt2', 'layers': 2 if o.quick else 6, 'width': 128, 'heads': 4, 'vocab': 256, 'positions': 128, 'context': 128, 'dropout': 0,
		'tied': 0}
	spec = spec_of(model, 2, micro, optimizer={'name': 'adamw', 'lr': 3e-4}, data={'name': 'text', 'kind': 'text'})
	spec['local']['data'] = text
	return spec


def wide(o):
	"""Three stages of equal size; Adam keeps three numbers of four bytes for each parameter."""
	width = max(8, round(math.sqrt(o.mb * 1e6 / 12 / 6)))
	layers = [{'type': 'linear', 'out': width}, {'type': 'tanh'}] * 6
	return spec_of(layers[:-1], [{'layers': 4}, {'layers': 4}, {'layers': 3}], 4, input=[width], optimizer={'name': 'adam', 'lr': 1e-4}, redundancy=2)


@contextlib.contextmanager
def line_of(o, spec, n):
	"""n daemons that are in the run; the first has started it."""
	folder = tempfile.mkdtemp(prefix='hivemind-bench.')
	all_ = [Daemon(o.hivemindd, folder, f'p{i}', PORT + 3 * i, new_key(folder)) for i in range(n)]
	try:
		all_[0].start()
		all_[0].must('run.start', spec=spec)
		for d in all_[1:]:
			d.start([all_[0].address()])
			d.join_run('line', spec['local']['data'], local=spec['local'])
		yield all_
	finally:
		kill_all(all_)
		shutil.rmtree(folder)


def crew(d, key):
	return (d.show('line', 'crew') or {}).get(key)


def seats(all_):
	"""Rank: daemon, of those who live."""
	return {rank: d for d in all_ if d.process and (rank := crew(d, 'rank')) is not None}


def go_on(d, epochs, seconds=120):
	at = d.show('line', 'epoch', 0)
	d.wait(lambda: d.show('line', 'epoch', 0) >= at + epochs, seconds, f'{epochs} epochs after {at}')


def windows(d, o):
	"""(ms of an epoch, samples/s) of windows between commits, and the rounds' ms."""
	need = o.windows * o.epochs
	at = d.show('line', 'epoch')
	go_on(d, need + 1, 600)
	sql = f'select wall_ms, samples from epochs where epoch > {at} and epoch <= {at + need + 1} order by epoch limit 500'
	rows = d.wait(lambda: len(r := d.rows(sql)) == need + 1 and r, 20, 'all epochs in the table')
	edges = rows[::o.epochs]
	rounds = [r[0] / 1e3 for r in d.rows(f"select took_us from rounds where epoch > {at} and outcome = 'done' order by id limit {need}")]
	return ([(b[0] - a[0]) / o.epochs for a, b in zip(edges, edges[1:])],
		[(b[1] - a[1]) * 1e3 / (b[0] - a[0]) for a, b in zip(edges, edges[1:])], rounds)


def against(o, spec, formula_ms=None):
	"""An epoch of two stages, measured and predicted."""
	with line_of(o, spec, 2) as all_:
		all_[0].wait(lambda: len(seats(all_)) == 2 and all_[0].show('line', 'epoch', 0) >= 1, 120, 'two stages')
		go_on(all_[0], 2)
		plan = all_[0].must('run.plan', run=spec, members=2)['predicted']
		if plan['stuck']:
			raise Failed('the predicted plan is stuck')
		ms, _, rounds = windows(all_[0], o)
	out = {'micro_batches': spec['micro_batches'], 'epoch_ms': spread(ms), 'predicted_ms': plan['us'] / 1e3, 'round_ms': spread(rounds)}
	out['over_predicted'] = round(out['epoch_ms']['median'] / out['predicted_ms'], 4)
	if formula_ms:
		out |= {'formula_ms': formula_ms, 'over_formula': round(out['epoch_ms']['median'] / formula_ms, 4)}
	return out


def epoch(o):
	return {'stages': 2, 'fwd_ms': o.fwd, 'bwd_ms': o.bwd, 'of': [against(o, sleeping(o, m), (m + 1) * (o.fwd + o.bwd)) for m in o.micro]}


def gpt_epoch(o):
	with tempfile.NamedTemporaryFile(prefix='hivemind-bench.', suffix='.txt') as f:
		f.write(random.Random(1).randbytes(1 << 20))
		f.flush()
		return {'stages': 2, 'model': gpt(o, 1, '')['model'], 'batch': BATCH, 'of': [against(o, gpt(o, m, f.name)) for m in o.micro]}


def late(o):
	of = []
	for m in o.micro:
		flush = against(o, sleeping(o, m), (m + 1) * (o.fwd + o.bwd))
		on = against(o, sleeping(o, m, schedule='2bw'), m * (o.fwd + o.bwd))
		of.append({'micro_batches': m, '1f1b': flush, '2bw': on, 'ratio': round(on['epoch_ms']['median'] / flush['epoch_ms']['median'], 4),
			'ratio_of_formulas': round(m / (m + 1), 4)})
	return {'stages': 2, 'fwd_ms': o.fwd, 'bwd_ms': o.bwd, 'of': of}


def one_kill(all_, rank):
	victim = seats(all_)[rank]
	others = [d for d in all_ if d is not victim]
	old = max(crew(d, 'generation') or 0 for d in all_)
	taken = {d: crew(d, 'moved')['taken_bytes'] for d in others}
	killed = time.time() * 1e3
	victim.end(signal.SIGKILL)

	def renewed():
		"""What a member of a later generation says, all in one answer."""
		for d in others:
			answer = d.ask('run.show', run='line') or {}
			if ((answer.get('crew') or {}).get('generation') or 0) > old and answer['crew']['rank'] is not None:
				return d, answer['epoch']
		return None
	d, at = others[0].wait(renewed, 120, f'a generation without rank {rank}', 0.005)
	whole = time.time() * 1e3
	row = d.wait(lambda: d.rows(f'select wall_ms from epochs where epoch > {at} order by epoch limit 1'), 120, 'a commit without it', 0.005)
	moved = sum(crew(x, 'moved')['taken_bytes'] - taken[x] for x in others)
	victim.start([others[0].address()])
	victim.wait(lambda: len(seats(all_)) == 3 and victim.show('line', 'epoch') is not None and any(crew(x, 'spares') == 1 for x in all_),
		120, 'three stages and a spare')
	for x in all_:
		go_on(x, 5)
	return {'rank': rank, 'resumed_s': (row[0][0] - killed) / 1e3, 'whole_s': (whole - killed) / 1e3, 'moved_mb': moved / 1e6}


def kill(o):
	spec = wide(o)
	with line_of(o, spec, 4) as all_:
		all_[0].wait(lambda: len(seats(all_)) == 3 and any(crew(d, 'spares') == 1 for d in all_), 120, 'three stages and a spare')
		go_on(all_[0], 5)
		state = 12 * all_[0].show('line', 'parameters')
		before, _, _ = windows(all_[0], o)
		runs = [one_kill(all_, k % 3) for k in range(o.kills)]
		for d in all_:
			d.end()
	return {'stages': 3, 'daemons': 4, 'redundancy': 2, 'state_mb': round(state / 1e6, 1), 'epoch_ms': spread(before)} | {
		key: spread([r[key] for r in runs]) for key in ('resumed_s', 'whole_s', 'moved_mb')} | {'all': runs}


def side(o):
	rates = {}
	for replicas in (1, 2):
		micro = 8
		with line_of(o, sleeping(o, micro, replicas=replicas, target_batch=replicas * micro * BATCH), 2 * replicas) as all_:
			all_[0].wait(lambda: len(seats(all_)) == 2 * replicas, 120, f'{2 * replicas} seats')
			go_on(all_[0], 3)
			if len(seats(all_)) != 2 * replicas:
				raise Failed('somebody has no seat any more')
			_, rates[replicas], _ = windows(all_[0], o)
	out = {'stages': 2, 'micro_batches': micro, 'fwd_ms': o.fwd, 'bwd_ms': o.bwd, 'one_samples_per_s': spread(rates[1]),
		'two_samples_per_s': spread(rates[2])}
	out['ratio'] = round(out['two_samples_per_s']['median'] / out['one_samples_per_s']['median'], 4)
	return out


def main():
	p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
	p.add_argument('hivemindd')
	p.add_argument('--only', default=','.join(PARTS))
	p.add_argument('--micro', default='4,8,16')
	p.add_argument('--fwd', type=int, default=20)
	p.add_argument('--bwd', type=int, default=40)
	p.add_argument('--windows', type=int, default=7)
	p.add_argument('--epochs', type=int, default=4, help='of a window')
	p.add_argument('--kills', type=int, default=7)
	p.add_argument('--mb', type=float, default=100)
	p.add_argument('--quick', action='store_true')
	o = p.parse_args()
	only = o.only.split(',')
	if not set(only) <= set(PARTS):
		p.error(f'--only: of {", ".join(PARTS)}')
	o.micro = [int(m) for m in o.micro.split(',')]
	if o.quick:
		o.micro, o.fwd, o.bwd, o.windows, o.epochs, o.kills, o.mb = [2], 5, 10, 2, 2, 2, 4
	if min(o.micro + [o.fwd, o.bwd, o.windows, o.epochs, o.kills]) < 1:
		p.error('all numbers are at least 1')
	if o.windows * o.epochs > 400:
		p.error('at most 400 epochs in all windows')
	end_in_order()
	out = {'bench': 'pipeline', 'quick': o.quick, 'windows': o.windows, 'epochs_of_a_window': o.epochs, 'machine': machine()}
	for name, part in zip(PARTS, (epoch, gpt_epoch, late, kill, side)):
		if name in only:
			out[name] = part(o)
			print(f'{name} done', file=sys.stderr, flush=True)
	out['load_after'] = machine()['load']
	print(json.dumps(out, indent=1))
	return 0


if __name__ == '__main__':
	sys.exit(main())
