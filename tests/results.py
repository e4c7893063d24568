"""What every test has come to, over all builds (tests/run fills it in), and what is to be read in what they print."""
import os
import re
import history
import verdict
import wanted
from builds import BUILDS, CORES, ROOT, tail_of

PASS, SKIP, FAIL = 0, 1, 2
WORDS = {PASS: 'ok', SKIP: 'skipped', FAIL: history.FAILED}
UNBEGUN = ('not begun: ', 'stopped: ')  # why a test was skipped for want of time


class Results:
	"""The outcome of each (program, case) over all builds: failed in one, else passed in one, else skipped."""
	def __init__(self, seeds_from=1):
		self.worst, self.why, self.flaky, self.steps = {}, {}, [], []
		self.seeds_from, self.progress, self.step = seeds_from, None, ''       # progress: of a nightly (history.py)
		self.seconds, self.figures = {}, history.Figures()
		self.wanted = wanted.Wanted(os.path.join(ROOT, 'tests', 'expected'))
		self.judge = verdict.Judge(verdict.Known(os.path.join(ROOT, 'tests', 'known')), cores=CORES)

	def add(self, program, case, outcome, why=''):
		key = (program, case)
		if outcome == SKIP and key in self.worst or outcome == PASS and self.worst.get(key) == FAIL:
			return                                  # it ran elsewhere; or it failed elsewhere
		if key not in self.worst or self.worst[key] == SKIP or outcome == FAIL:
			self.worst[key] = outcome
			self.why[key] = why

	def program(self, name, build, seconds, outcome, cases, why='', reasons=None):
		"""Prints one line for a program and adds its cases: a dictionary of name to outcome, or {} for one case. reasons: why
		some of them were skipped."""
		tail = f'  {why}' if outcome != PASS and why else ''
		count = f', {len(cases)} cases' if len(cases) > 1 else ''
		print(f'{WORDS[outcome]:8}{seconds:7.2f} s  {name} ({build}{count}){tail}\n', end='', flush=True)  # one write
		if self.progress and not why.startswith(UNBEGUN):
			self.progress.put({'of': self.step, 'name': name, 'build': build, 'seconds': seconds, 'outcome': WORDS[outcome], 'why': why,
				'cases': {c: WORDS[o] for c, o in cases.items()}, 'reasons': reasons or {}})
		self.take(name, build, seconds, outcome, cases, why, reasons)

	def take(self, name, build, seconds, outcome, cases, why, reasons):
		if outcome == PASS and seconds:
			self.seconds[f'{name} ({build})'] = round(seconds, 2)
		for case, what in cases.items():
			self.add(name, case, what, f'{build}: {(reasons or {}).get(case, why)}')
		if not cases or (outcome == FAIL and FAIL not in cases.values()):
			self.add(name, '', outcome, f'{build}: {why}')

	def hear(self, text):
		"""The figures in what a test has said."""
		lines = self.figures.take(text)
		if lines and self.progress:
			self.progress.put({'figures': lines})

	def go_on(self, progress):
		"""With what was done before this run was stopped."""
		of = {word: outcome for outcome, word in WORDS.items()}
		self.progress = progress
		self.figures.take(progress.figures)
		for x in progress.steps.values():
			self.judge.rates.update(x['rates'])
		for x in progress.tests:
			if x['outcome'] != history.FAILED or x['of'] in progress.steps:       # else it runs again
				self.take(x['name'], x['build'], x['seconds'], of[x['outcome']], {c: of[o] for c, o in x['cases'].items()}, x['why'],
					x['reasons'])

	def late(self, name, outcomes):
		self.flaky.append(name)
		print(f'FLAKY    {name}: {", ".join(outcomes)}', flush=True)

	def count(self, outcome):
		return sum(1 for v in self.worst.values() if v == outcome)


def cases_of(text):
	"""cmocka's cases: {name: outcome}."""
	cases = {}
	for word, name in re.findall(r'^\[\s+(OK|FAILED|SKIPPED)\s+\] (\w+)\s*$', text, re.M):
		cases[name] = max(cases.get(name, PASS), {'OK': PASS, 'SKIPPED': SKIP, 'FAILED': FAIL}[word])
	return cases


def reasons_of(text):
	"""Why cmocka's cases were skipped: {name: reason} (tests/unit/skip.h)."""
	return {name: (re.findall(r'^skipped: (.*)$', said, re.M) or [''])[-1]
		for name, said in re.findall(r'^\[ RUN\s+\] (\w+)\s*\n(.*?)^\[\s+SKIPPED \] \1\s*$', text, re.M | re.S)}


def said_by(log):
	"""What a script said itself, before the logs of its daemons, and how those ended."""
	whole = tail_of(log, 100000)
	said, mark, _ = whole.partition('\n--- ')
	return '\n'.join(said.split('\n')[-20:]) + ('\n...\n' + tail_of(log, 60) if mark else '')


def last_line(text):
	lines = [l for l in text.strip().split('\n') if l.strip()]
	return lines[-1][:200] if lines else ''


def replay(key, why):
	"""The command that runs a test again; why begins with the build."""
	program, build = key[0], why.split(':')[0].split(',')[0]
	path = re.sub(r'^pooled/(\w+)/\d+$', r'e2e/\1', program.split(' ')[0])
	if path.startswith('e2e/') and os.path.exists(os.path.join(ROOT, 'tests', path + '.sh')):
		d = f'build-{build}'
		return f'HIVEMINDD={d}/daemon/hivemindd HIVECTL={d}/ctl/hivectl bash tests/{path}.sh'
	if build in BUILDS and '/' in program and not program.startswith(('figure/', 'figures/', 'soak/', 'pooled/')):
		return f'meson test -C build-{build} --no-rebuild {program.split("/", 1)[1]}'
	return None
