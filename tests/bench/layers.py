#!/usr/bin/env python3
"""What it costs to know where the time goes (hivectl run layers), and whether it is all of it. JSON out.
cost: the trainer of a daemon with the clock that every layer reads, and with one that is read twice for each, in alternating slices:
what that takes more is what the clock takes. Medians of the pairs' ratios of processor time a sample. off: what the parts say of the train
lane's time, against the processor time that the kernel has counted for that thread.

usage: tests/bench/layers.py TRAIN_ENGINE [PAIRS [figures]]
TRAIN_ENGINE: the program tests/bench/train_engine of a build; PAIRS: 21. The digits, in micro-batches of 8 and of 512: nine layers, some of
a few microseconds each; off is judged of the latter (a thread that goes to sleep and wakes has some microseconds of its own). figures: as tests/nightly reads them, instead of JSON."""
import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from words import usage

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
SECONDS = 0.5


class Engine:
	def __init__(self, program, spec, *more):
		self.p = subprocess.Popen([program, spec, f'{ROOT}/tests/data/digits', '1', *more], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
			text=True)
		if not self.say().get('ready'):
			raise SystemExit('it is not ready')

	def say(self):
		line = self.p.stdout.readline()
		if not line:
			raise SystemExit('train_engine has ended')
		return json.loads(line)

	def steps(self, n):
		print(n, file=self.p.stdin, flush=True)
		return self.say()

	def lane_us(self):
		"""What the kernel has counted for the train lane's thread."""
		for task in os.listdir(f'/proc/{self.p.pid}/task'):
			with open(f'/proc/{self.p.pid}/task/{task}/comm', encoding='utf-8') as name, \
					open(f'/proc/{self.p.pid}/task/{task}/schedstat', encoding='utf-8') as stat:
				if name.read().strip() == 'train':
					return int(stat.read().split()[0]) / 1e3
		raise SystemExit('there is no train lane')

	def end(self):
		self.p.stdin.close()
		return self.say()


def one(program, batch, pairs):
	with open(f'{ROOT}/tests/data/digits.json', encoding='utf-8') as f:
		spec = json.load(f)
	spec.update(strategy='single', target_batch=batch, validation={'every': 0}, schedule={'name': 'constant'}, stop={'epochs': 10 ** 7})
	spec['local'] = {'batch': batch}
	with tempfile.NamedTemporaryFile('w', suffix='.json') as f:
		json.dump(spec, f)
		f.flush()
		plain, timed = Engine(program, f.name), Engine(program, f.name, 'twice')
		n = max(1, int(SECONDS * 1e6 / timed.steps(100)['us'] * 100))
		plain.steps(100)
		ratios = []
		for k in range(pairs):
			took = {}
			for e in (timed, plain) if k % 2 else (plain, timed):
				said = e.steps(n)
				took[e] = said['cpu_us'] / said['samples']
			ratios.append(took[timed] / took[plain])
		wall = [plain.steps(n)['us'] for _ in range(3)]
		kernel = plain.lane_us()
		t = plain.end()['layers']
		timed.end()
	parts = t['layers_us'] + sum(t['micro_batch_us'].values()) + sum(v for k, v in t['step_us'].items() if k != 'digest')
	said = sum(t['time'][k] for k in ('layers_us', 'micro_batch_us', 'step_us', 'validation_us', 'other_us'))
	return {'batch': batch, 'pairs': pairs, 'micro_batches': n, 'cost': round(statistics.median(ratios) - 1, 4), 'ratios': [round(r, 4) for r in ratios],
		'micro_batch_us': round(statistics.median(wall) / n, 1), 'parts_us': round(parts, 1), 'lane_us': round(kernel), 'said_us': round(said),
		'off': round(abs(said / kernel - 1), 4)}


def main():
	usage(__doc__, 1, 3, (1,))
	program, pairs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 21
	if len(sys.argv) > 3 and sys.argv[3] != 'figures':
		raise SystemExit(f'"{sys.argv[3]}"? figures')
	results = [one(program, batch, pairs) for batch in (8, 512)]
	if len(sys.argv) < 4:
		print(json.dumps({'bench': 'layers', 'results': results}, indent=1))
		return
	for r in results:
		print(f'figure: layers/cost_of_{r["batch"]} {max(0.0001, r["cost"])} share lower 0.03')
	print(f'figure: layers/off {max(0.0001, results[-1]["off"])} share lower 0.02')


main()
