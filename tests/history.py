"""What nightlies have seen: one JSON line a run, and what a new one shows beside it (tests/run asks, tests/history-test proves it).

A run is {tree, begun, machine, steps, seconds: {TEST: s}, figures: {NAME: [value, unit, lower|higher, how many]}, rates: {SCENARIO:
[ran, failed, late]}, failed: [TEST...]}. Runs of other machines are not compared with.

A test says a figure by a line `figure: NAME VALUE UNIT lower|higher [LIMIT]`: which way is better, and what it may not pass. One
that is said several times in a run is pooled: its median counts."""
import json
import math
import os
import re
import statistics

FIGURE = re.compile(r'^figure: (\S+) (-?[\d.]+(?:e[-+]?\d+)?) (\S+) (lower|higher)(?: (-?[\d.]+(?:e[-+]?\d+)?))?\s*$', re.M)
FAILED = 'FAILED'               # the outcome of a test; others are passed or skipped
LEAST = 3                       # runs that there must have been
SLOWER, SLOWER_S = 1.25, 1.0    # a test, beside the median of before; and so many seconds
WORSE = 1.1                     # a figure
SURE = 0.95                     # that more seeds fail or are late than before


class Figures:
	"""Those of one run."""
	def __init__(self):
		self.said = {}

	def take(self, text):
		"""The figures in what a test has said; returns their lines."""
		for name, value, unit, better, limit in FIGURE.findall(text):
			f = self.said.setdefault(name, {'values': [], 'unit': unit, 'better': better, 'limit': limit})
			f['values'].append(float(value))
		return ''.join(m.group().strip() + '\n' for m in FIGURE.finditer(text))

	def pooled(self):
		return {name: [statistics.median(f['values']), f['unit'], f['better'], len(f['values'])] for name, f in self.said.items()}

	def beyond(self):
		"""{name: why} of those that have passed their limit."""
		wrong = {}
		for name, (value, unit, better, n) in self.pooled().items():
			limit = self.said[name]['limit']
			if limit and (value > float(limit) if better == 'lower' else value < float(limit)):
				word = 'at most' if better == 'lower' else 'at least'
				wrong[name] = f'{value:g} {unit}, the median of {n}: {word} {limit} were expected'
		return wrong


class Progress:
	"""How far a run of a tree has come, so that it can be stopped at any moment and gone on with: {tree, seeds} and, line by line,
	what each test has said, its figures, and which steps are over."""
	def __init__(self, path, tree, seeds):
		self.path, self.tests, self.steps = path, [], {}
		self.figures, self.seeds = '', seeds
		lines = load(path)
		if lines and lines[0].get('tree') == tree:
			self.seeds = lines[0]['seeds']
			self.tests = [x for x in lines[1:] if 'name' in x]
			self.figures = ''.join(x['figures'] for x in lines[1:] if 'figures' in x)
			self.steps = {x['step']: x for x in lines[1:] if 'step' in x}
		else:
			self.end()
			append(path, {'tree': tree, 'seeds': seeds})

	def put(self, x):
		append(self.path, x)

	def done(self, name, build):
		"""Has it passed, or been skipped for good reason, before this run was stopped?"""
		return any(x['name'] == name and x['build'] == build and x['outcome'] != FAILED for x in self.tests)

	def end(self):
		if os.path.exists(self.path):
			os.unlink(self.path)


def machine():
	"""What makes times comparable: the processor, how many, how much memory."""
	name, memory = '', ''
	with open('/proc/cpuinfo', encoding='utf-8') as f:
		for line in f:
			if line.startswith('model name'):
				name = line.split(':', 1)[1].strip()
				break
	with open('/proc/meminfo', encoding='utf-8') as f:
		memory = f'{int(f.readline().split()[1]) / 2**20:.0f} GiB'
	return f'{os.cpu_count()} x {name}, {memory}'


def load(path):
	"""The runs of a file, the oldest first. A line that was cut off by a kill is left out."""
	runs = []
	if os.path.exists(path):
		with open(path, encoding='utf-8') as f:
			for line in f:
				try:
					runs.append(json.loads(line))
				except ValueError:
					pass
	return runs


def append(path, run):
	"""A line of its own, also behind one that was cut off."""
	os.makedirs(os.path.dirname(path), exist_ok=True)
	whole = True
	if os.path.exists(path):
		with open(path, 'rb') as f:
			whole = f.read()[-1:] in (b'', b'\n')
	with open(path, 'a', encoding='utf-8') as f:
		f.write(('' if whole else '\n') + json.dumps(run, sort_keys=True) + '\n')
		f.flush()
		os.fsync(f.fileno())


def more_often(k, n, before_k, before_n):
	"""How sure one may be that k of n is more than before_k of before_n: 1 - p of Fisher's exact test, one-sided."""
	if not n or not before_n:
		return 0.0
	total, hits = n + before_n, k + before_k
	p = sum(math.comb(hits, i) * math.comb(total - hits, n - i) for i in range(k, min(hits, n) + 1)) / math.comb(total, n)
	return 1 - min(1.0, p)


def beside(value, before, better, ratio, least=0.0):
	"""(how much worse, how sure) when value is worse than all that was before, by ratio and by `least`; else None. Were nothing
	changed, the newest of N + 1 would be the worst with a chance of 1 in N + 1."""
	if len(before) < LEAST:
		return None
	middle, worst = statistics.median(before), max(before) if better == 'lower' else min(before)
	if better == 'lower':
		worse = value > worst and value > ratio * middle and value - middle > least
		return (value / middle if middle else math.inf, len(before) / (len(before) + 1)) if worse else None
	worse = value < worst and value * ratio < middle
	return (middle / value if value else math.inf, len(before) / (len(before) + 1)) if worse else None


def of(runs, kind, name):
	return [r[kind][name] for r in runs if name in r.get(kind, {})]


def compare(runs, now):
	"""What is slower, worse, later or failed oftener than `runs` say: [(how sure, sentence)], the surest first."""
	runs = [r for r in runs if r.get('machine') == now['machine']]
	found = []
	for name, s in now['seconds'].items():
		before = of(runs, 'seconds', name)
		what = beside(s, before, 'lower', SLOWER, SLOWER_S)
		if what:
			found.append((what[1], f'slower: {name}: {s:.1f} s, {statistics.median(before):.1f} s before: {what[0]:.2f} times, and longer '
				f'than in any of {len(before)} runs'))
	for name, (value, unit, better, _) in now['figures'].items():
		before = [f[0] for f in of(runs, 'figures', name) if f[1:3] == [unit, better]]
		what = beside(value, before, better, WORSE)
		if what:
			found.append((what[1], f'worse: {name}: {value:g} {unit}, {statistics.median(before):g} before: {what[0]:.2f} times, and worse than '
				f'in any of {len(before)} runs'))
	for name, (ran, *counts) in now['rates'].items():
		before = of(runs, 'rates', name)
		for i, word in enumerate(('failing', 'late')):
			ran_before, k = sum(b[0] for b in before), sum(b[1 + i] for b in before)
			sure = more_often(counts[i], ran, k, ran_before)
			if sure >= SURE:
				found.append((sure, f'{word} oftener: {name}: {counts[i]} of {ran} seeds, {k} of {ran_before} before'))
	return sorted(found, reverse=True)


def report(runs, now):
	"""The lines that a nightly ends with."""
	same = [r for r in runs if r.get('machine') == now['machine']]
	if len(same) < LEAST:
		lines = [f'{len(same)} runs of this machine are on record: slower and worse are judged from {LEAST} on, rates from one on']
	else:
		lines = [f'beside {len(same)} runs of this machine:']
	found = [f'  {text} ({100 * sure:.0f} % sure)' for sure, text in compare(runs, now)]
	return lines + (found or ['  nothing is slower, worse, later or failing oftener'] * (len(same) > 0))
