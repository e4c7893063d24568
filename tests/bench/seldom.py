#!/usr/bin/env python3
"""Row B03 on real daemons: what do peers lose in samples, and gain in time and bytes, that average every k steps or wait for nobody?
The same data, model, batch and rate, strategy allreduce; the rival is sync_every 1, of the same run; JSON out.

usage: tests/bench/seldom.py HIVEMINDD [--data FOLDER] [--peers 4] [--every 4,16] [--rate 8MiB] [--ms 5] [--loss 0.5] [--seeds 5]
Every step sleeps MS, so that peers do not fight for processors, and every peer sends at most RATE a second: a round takes several
steps, which is the delay that async has to live with. For each way: samples of all peers, steps and seconds until the
training loss, of WINDOW samples, is at most LOSS for the first time (median over seeds, all of them beside it), the last held-out
loss, bytes that a peer sends for a step, samples a second. ratio: to sync_every 1; bytes_ratio of every k should be 1/k, and async
should not need fewer samples (status 1 when either is otherwise). idle: share of the time that was no step's sleep but rounds,
computing and waiting; it and the other times say something on a quiet machine only.
FOLDER has mnist/ (default: $HIVEMIND_DATA, or shared/data beside the source tree); without it: skipped, and said so."""
import argparse
import json
import os
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from curves import BATCH, SETS, begin, default_data, ended, epochs_of, spec_of, swarm_of


def spent(all_, run):
	"""Bytes that a peer sent in rounds, mean of all."""
	return statistics.mean(d.rows(f"select coalesce(sum(bytes_sent), 0) from rounds where run = '{run}' and outcome like 'done%'")[0][0] for d in all_)


def reached(rows, window, loss):
	"""(samples, wall_ms) when the loss of a window of that many samples was low enough; rows: of one peer each, by epoch."""
	begun, took, sums, counted = 0, 0.0, 0, 0
	for epoch, samples, wall_ms in rows[0]['points']:
		here = [of['loss'][epoch] for of in rows if epoch in of['loss']]
		if here:
			n = samples - begun
			took, sums, counted = took + n, sums + n * statistics.mean(here), counted + 1
		begun = samples
		if took >= window:
			if sums / took <= loss:
				return samples, wall_ms
			took, sums = 0.0, 0
	return None, None


def train(options, averaging, seed):
	"""One swarm until options.samples."""
	with swarm_of(options.hivemindd, options.peers, f'[network]\nrate_limit_up = {options.rate}\n') as all_:
		what = dict(SETS['mnist'], at=os.path.join(options.data, 'mnist'), lr=options.lr)
		what['model'] = [{'type': 'sleep', 'fwd_ms': options.ms, 'bwd_ms': 0}] + what['model']
		target = options.peers * BATCH
		spec = spec_of('seldom', what, seed, target, {'samples': options.samples}, strategy='allreduce', averaging=averaging,
			validation={'split': 0.05, 'every': 0})
		spec['optimizer']['momentum'] = 0
		run, begun = begin(all_, spec)
		ended(all_, 'seldom', options.limit)
		rows = [epochs_of(d, run) for d in all_]
		of = [{'points': [(r[0], r[1], r[6]) for r in x], 'loss': {r[0]: r[3] for r in x if r[3] is not None}} for x in rows]
		samples, at = reached(of, options.window, options.loss)
		first, last = rows[0][0], rows[0][-1]
		seconds = (last[6] - first[6]) / 1e3
		held = [r[4] for x in rows for r in x if r[4] is not None]
		made = (last[1] - first[1]) / BATCH / options.peers
		return {'samples': samples, 'steps': samples and samples / target, 'seconds': at and (at - begun) / 1e3,
			'held_out_loss': held[-1] if held else None, 'bytes_per_step': spent(all_, run) / (last[1] / target),
			'samples_per_s': (last[1] - first[1]) / seconds, 'idle': max(0, 1 - made * options.ms / 1e3 / seconds),
			'epochs': last[0], 'members_min': min(r[2] for r in rows[0])}


def median(runs, key):
	"""Of what was reached; None unless most runs did."""
	v = [r[key] for r in runs if r[key] is not None]
	return statistics.median(v) if 2 * len(v) > len(runs) else None


def rounded(v):
	return None if v is None else float(f'{v:.5g}')


def told(runs, rival):
	out = {key: rounded(median(runs, key)) for key in runs[0]}
	out['all_samples'] = [r['samples'] for r in runs]
	for key in ('samples', 'seconds', 'bytes_per_step', 'samples_per_s'):
		mine, other = median(runs, key), median(rival, key)
		out['bytes_ratio' if key == 'bytes_per_step' else f'{key}_ratio'] = rounded(mine / other if mine and other else None)
	return out


def main():
	parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
	parser.add_argument('hivemindd')
	parser.add_argument('--data', default=default_data())
	parser.add_argument('--peers', type=int, default=4)
	parser.add_argument('--every', default='4,16', help='values of sync_every beside 1')
	parser.add_argument('--rate', default='8MiB')
	parser.add_argument('--ms', type=float, default=5)
	parser.add_argument('--lr', type=float, default=0.05)
	parser.add_argument('--loss', type=float, default=0.5)
	parser.add_argument('--window', type=int, default=2048)
	parser.add_argument('--samples', type=int, default=40960, help='of all peers together, then a run ends')
	parser.add_argument('--seeds', type=int, default=5)
	parser.add_argument('--limit', type=float, default=600, help='seconds that one training may take')
	options = parser.parse_args()
	if options.peers < 2 or options.seeds < 1:
		parser.error('--peers is at least 2, --seeds at least 1')
	if not os.path.exists(os.path.join(options.data, SETS['mnist']['look'])):
		print(json.dumps({'bench': 'seldom', 'skipped': f'no MNIST in {options.data} (--data or HIVEMIND_DATA)'}))
		return 0
	every = [1] + [int(k) for k in options.every.split(',')]
	ways = {f'every_{k}': {'sync_every': k} for k in every} | {'async': {'async': True}}
	runs = {way: [] for way in ways}
	for seed in range(1, options.seeds + 1):        # in turns
		for way, averaging in ways.items():
			runs[way].append(train(options, averaging, seed))
	out = {'bench': 'seldom', 'peers': options.peers, 'batch': BATCH, 'rate_limit_up': options.rate, 'step_ms': options.ms,
		'loss': options.loss, 'seeds': options.seeds} | {way: told(r, runs['every_1']) for way, r in runs.items()}
	out['as_expected'] = all(abs(out[f'every_{k}']['bytes_ratio'] * k - 1) < 0.05 for k in every) and \
		(out['async']['samples_ratio'] or 1) >= 0.98
	print(json.dumps(out, indent=1))
	return not out['as_expected']


if __name__ == '__main__':
	sys.exit(main())
