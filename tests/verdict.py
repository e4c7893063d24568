"""What the failing and late seeds of the simulator mean (tests/run asks, tests/verdict-test proves it).

A scenario program says `SEED=n NAME: message` of each seed that failed, `LATE=n NAME: message` of each that missed a bound of
time, counts or luck, and ends every scenario with `ok NAME: n seeds, n failed, n late, ...` or `not ok NAME: ...`. Whether
so many may be late it says itself, `n late (too many)` (sim/scn.c), and that is red unless tests/known has it, as for what
fails; fewer are printed, and no more. Builds with sanitizers do not judge it: virtual time is the same there. A failing seed is
  known   when tests/known has its scenario and its message, numbers left out; a row covers 5 of 12 seeds, more is red;
  else the scenario is drawn again with DRAWN seeds more (as many as DRAW_SECONDS allow, DRAW_LEAST at least):
  broken  when RED or more of these fail: red;
  found   when fewer do: printed with its command, and not red, since a rare fault that was there before must not stop this
          change. Whoever sees it mends it or gives it a row in tests/known with the next change.
More than FIRST_MOST seeds that fail and are not known, before any are drawn: red, whatever the scenarios."""
import collections
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

DRAWN, DRAW_SECONDS, DRAW_LEAST, RED = 50, 60, 5, 3
FIRST_MOST = 4
KNOWN_OF, KNOWN_MOST = 12, 5
FAILED = re.compile(r'^SEED=(\d+) (\w+): (.*)$', re.M)
LATE = re.compile(r'^LATE=(\d+) (\w+): (.*)$', re.M)
NUMBER = re.compile(r'(?<!\w)-?\d+\.\d+(e[-+]?\d+)?|\b(?=[0-9a-f]*[0-9])[0-9a-f]{4,}\b|(?<!\w)-\d+|\d+')
ENDED = re.compile(r'^(ok|not ok) (\w+): (\d+) seeds, (\d+) failed, (\d+) late( \(too many\))?,', re.M)


def plain(message):
	"""A message with all numbers replaced by N (four hexadecimal digits and more are one), lists of N:STATE by N:..., and
	without paths of a build."""
	return re.sub(r'\bN:\S+( N:\S+)*', 'N:...', NUMBER.sub('N', re.sub(r'(\.\./)+', '', message))).strip()


class Known:
	"""tests/known: rows of scenario, seed, date and message, with bars between them; # begins a remark."""
	def __init__(self, path):
		self.rows, self.used = {}, set()
		if not os.path.exists(path):
			return
		with open(path, encoding='utf-8') as f:
			for number, line in enumerate(f, 1):
				if not line.strip() or line.startswith('#'):
					continue
				words = [w.strip() for w in line.split('|', 3)]
				if len(words) != 4 or not words[1].isdigit() or not re.fullmatch(r'\d{4}-\d\d-\d\d', words[2]) \
						or plain(words[3]) != words[3]:
					raise SystemExit(f'{path}:{number}: expected SCENARIO | SEED | YYYY-MM-DD | MESSAGE with N for every number')
				self.rows[words[0], words[3]] = words[1]

	def covers(self, scenario, message):
		key = (scenario, plain(message))
		if key in self.rows:
			self.used.add(key)
		return key in self.rows


class Failure:
	def __init__(self, program, scenario, seed, message):
		self.program, self.scenario, self.seed, self.message = program, scenario, seed, message

	def name(self):
		return os.path.basename(self.program) + ' ' + self.scenario

	def replay(self):
		return f'SEED={self.seed} {self.program} {self.scenario}'


class Said:
	"""What a scenario program has said. ran: seeds by scenario; failures, late: [Failure]; too_late: scenarios."""
	def __init__(self, ran, failures, late, too_late):
		self.ran, self.failures, self.late, self.too_late = ran, failures, late, too_late


def read(program, text):
	"""A program's Said, or None when that is not all that it should have said."""
	ended = {m[1]: m for m in ENDED.findall(text)}
	failures, late = ([Failure(program, m[1], int(m[0]), m[2]) for m in of.findall(text)] for of in (FAILED, LATE))
	for scenario, m in ended.items():
		if [int(m[3]), int(m[4])] != [sum(f.scenario == scenario for f in some) for some in (failures, late)]:
			return None
	if not ended or any(f.scenario not in ended for f in failures + late):
		return None
	return Said({s: int(m[2]) for s, m in ended.items()}, failures, late, {s for s, m in ended.items() if m[5]})


def scenarios(text):
	return [m[1] for m in ENDED.findall(text)]


def draw(program, scenario, first, seeds, seconds, env, prefix=()):
	"""More seeds of one scenario: (how many ran, [Failure]), or None when the program did not come to its end."""
	more = {**os.environ, **env, 'SEED': str(first), 'SEEDS': str(seeds), 'SEEDS_SECONDS': str(seconds),
		'SEEDS_LEAST': str(DRAW_LEAST), 'TWICE': '0', 'LATE_DRAWN': '1'}
	more.pop('SEEDS_MOST', None)
	p = subprocess.run([*prefix, program, scenario], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
		stderr=subprocess.DEVNULL, env=more, check=False)
	said = read(program, p.stdout.decode('utf-8', 'replace'))
	return (said.ran[scenario], said.failures) if said and scenario in said.ran else None


class Judge:
	"""Gathers what all scenario programs of a build have said, then says what it means. draw: as above."""
	def __init__(self, known, say=print, draw=draw, cores=1):
		self.known, self.say, self.draw, self.cores = known, say, draw, cores
		self.rates = collections.defaultdict(lambda: [0, 0, 0])         # of builds that judge who is late: [ran, failed, late]
		self.judges_late, self.ran, self.failures, self.late, self.too_late = True, {}, [], [], set()
		self.before = set()             # (scenario, seed) that failed or was late in a build before: judged there
		self.found, self.known_seeds, self.late_seeds, self.first = [], 0, 0, 0

	def add(self, program, text):
		said = read(program, text)
		if said is None:
			return False
		for scenario, n in said.ran.items():
			key = (program, scenario)
			self.ran[key] = self.ran.get(key, 0) + n
			if scenario in said.too_late:
				self.too_late.add(key)
		self.failures += said.failures
		self.late += said.late
		return True

	def verdicts(self, first, env):
		"""{(program, scenario): why} of what is red, among what was added since the last call. first: where new seeds are
		drawn from."""
		red, by = self.who_is_late(), {}
		if self.judges_late:
			self.count()
		for f in self.failures:
			if (f.name(), f.seed) not in self.before:
				by.setdefault((f.program, f.scenario), []).append(f)
			self.before.add((f.name(), f.seed))
		for key, failures in by.items():
			new = [f for f in failures if not self.known.covers(f.name(), f.message)]
			self.known_seeds += len(failures) - len(new)
			why = self.too_often(key, [f for f in failures if f not in new], first, env)
			if why:
				red.setdefault(key, why)
			by[key] = new
			self.first += len(new)
		by = {key: new for key, new in by.items() if new}
		for f in (f for new in by.values() for f in new):
			self.say(f'    | {f.name()}: {f.message}\n    | {f.replay()}')
		if self.first > FIRST_MOST:
			red.update((key, f'{self.first} seeds fail that are not known, {FIRST_MOST} may') for key in by)
			by = {}
		with ThreadPoolExecutor(self.cores) as pool:
			drawn = list(pool.map(lambda key: self.draw(*key, first + KNOWN_OF, DRAWN, DRAW_SECONDS, env), by))
		for (key, new), more in zip(by.items(), drawn):
			why = self.drawn(new, more)
			if why:
				red[key] = why
		self.ran, self.failures, self.late, self.too_late = {}, [], [], set()
		return red

	def count(self):
		"""Into rates."""
		for (program, scenario), n in self.ran.items():
			self.rates[f'{os.path.basename(program)} {scenario}'][0] += n
		for i, some in ((1, self.failures), (2, self.late)):
			for f in some:
				self.rates[f.name()][i] += 1

	def who_is_late(self):
		"""Says them, and returns what is red for it."""
		for f in self.late:
			if (f.name(), f.seed) not in self.before:
				self.late_seeds += 1
				self.say(f'    | late: {f.name()}: {f.message}\n    | {f.replay()}')
			self.before.add((f.name(), f.seed))
		return {key: 'more seeds are late than may be' for key in self.too_late if self.judges_late and not self.known_late(key)}

	def known_late(self, key):
		"""Are all of them late by what tests/known has, and no more than a row covers?"""
		late = [f for f in self.late if (f.program, f.scenario) == key]
		return all(self.known.covers(f.name(), f.message) for f in late) and len(late) * KNOWN_OF <= KNOWN_MOST * max(self.ran[key], KNOWN_OF)

	def too_often(self, key, failures, first, env):
		"""Does a row of known faults cover more than it may? Where few seeds ran, more are drawn to tell."""
		n, counts = self.ran[key], {}
		for f in failures:
			counts[plain(f.message)] = counts.get(plain(f.message), 0) + 1
		if not counts or max(counts.values()) * KNOWN_OF <= KNOWN_MOST * n:
			return None
		if n < KNOWN_OF:
			more = self.draw(*key, first + n, KNOWN_OF - n, DRAW_SECONDS, env)
			if more is None:
				return 'more seeds were to tell whether it fails oftener than is known: the program did not end as it should'
			n += more[0]
			for f in more[1]:
				if plain(f.message) in counts:
					counts[plain(f.message)] += 1
		for message, count in counts.items():
			if count > max(1, KNOWN_MOST * n // KNOWN_OF):
				return f'{count} of {n} seeds fail by what tests/known has, {KNOWN_MOST} of {KNOWN_OF} may: {message}'
		return None

	def drawn(self, new, more):
		"""Is a scenario broken whose seeds `new` have failed, after what more seeds have said? Else they are found."""
		if more is None:
			return 'the program did not end as it should with the seeds that were drawn after a failure'
		ran, failures = more
		failures = [f for f in failures if not self.known.covers(f.name(), f.message)]
		for f in failures:
			self.say(f'    | drawn: {f.name()}: {f.message}\n    | {f.replay()}')
		if len(failures) >= RED:
			return f'{len(failures)} of {ran} seeds drawn after the first failure fail, too ({RED} are red)'
		for f in new:
			self.found.append(f)
			self.say(f'FOUND    {f.name()}: {f.message}\n'
				f'         {len(failures)} of {ran} seeds drawn after it fail; replay: {f.replay()}\n'
				f'         mend it, or give it its row in tests/known: {f.name()} | {f.seed} | YYYY-MM-DD | {plain(f.message)}')
		return None
