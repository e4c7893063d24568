"""What the failing seeds of the simulator mean: known, found or broken (tests/run asks, tests/verdict-test proves it).

A scenario program says `SEED=n NAME: message` of each seed that failed and ends every scenario with
`ok NAME: n seeds, n failed, ...` or `not ok NAME: ...`. A failing seed is
  known   when tests/known has its scenario and its message, numbers left out; a row covers 5 of 12 seeds, more is red;
  else the scenario is drawn again with DRAWN seeds more (as many as DRAW_SECONDS allow, DRAW_LEAST at least):
  broken  when RED or more of these fail: red;
  found   when fewer do: printed with its command, and not red, since a rare fault that was there before must not stop this
          change. Whoever sees it mends it or gives it a row in tests/known with the next change.
More than FIRST_MOST seeds that fail and are not known, before any are drawn: red, whatever the scenarios."""
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

DRAWN, DRAW_SECONDS, DRAW_LEAST, RED = 50, 60, 5, 3
FIRST_MOST = 4
KNOWN_OF, KNOWN_MOST = 12, 5
FAILED = re.compile(r'^SEED=(\d+) (\w+): (.*)$', re.M)
NUMBER = re.compile(r'(?<!\w)-?\d+\.\d+(e[-+]?\d+)?|\b(?=[0-9a-f]*[0-9])[0-9a-f]{4,}\b|(?<!\w)-\d+|\d+')
ENDED = re.compile(r'^(ok|not ok) (\w+): (\d+) seeds, (\d+) failed', re.M)


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


def read(program, text):
	"""What a scenario program has said: ({scenario: seeds that ran}, [Failure]), or None when that is not all that it should
	have said."""
	ran = {m[1]: (int(m[2]), int(m[3])) for m in ENDED.findall(text)}
	failures = [Failure(program, m[1], int(m[0]), m[2]) for m in FAILED.findall(text)]
	for scenario, (_, failed) in ran.items():
		if failed != sum(f.scenario == scenario for f in failures):
			return None
	if not ran or any(f.scenario not in ran for f in failures):
		return None
	return {s: n for s, (n, _) in ran.items()}, failures


def scenarios(text):
	return [m[1] for m in ENDED.findall(text)]


def draw(program, scenario, first, seeds, seconds, env, prefix=()):
	"""More seeds of one scenario: (how many ran, [Failure]), or None when the program did not come to its end."""
	more = {**os.environ, **env, 'SEED': str(first), 'SEEDS': str(seeds), 'SEEDS_SECONDS': str(seconds),
		'SEEDS_LEAST': str(DRAW_LEAST), 'TWICE': '0'}
	more.pop('SEEDS_MOST', None)
	p = subprocess.run([*prefix, program, scenario], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
		stderr=subprocess.DEVNULL, env=more, check=False)
	said = read(program, p.stdout.decode('utf-8', 'replace'))
	return (said[0][scenario], said[1]) if said and scenario in said[0] else None


class Judge:
	"""Gathers what all scenario programs of a build have said, then says what it means. draw: as above."""
	def __init__(self, known, say=print, draw=draw, cores=1):
		self.known, self.say, self.draw, self.cores = known, say, draw, cores
		self.ran, self.failures = {}, []
		self.before = set()             # (scenario, seed) that failed in a build before: judged there
		self.found, self.known_seeds, self.first = [], 0, 0

	def add(self, program, text):
		said = read(program, text)
		if said is None:
			return False
		for scenario, n in said[0].items():
			key = (program, scenario)
			self.ran[key] = self.ran.get(key, 0) + n
		self.failures += said[1]
		return True

	def verdicts(self, first, env):
		"""{(program, scenario): why} of what is red, among what was added since the last call. first: where new seeds are
		drawn from."""
		red, by = {}, {}
		for f in self.failures:
			if (f.name(), f.seed) not in self.before:
				by.setdefault((f.program, f.scenario), []).append(f)
			self.before.add((f.name(), f.seed))
		for key, failures in by.items():
			new = [f for f in failures if not self.known.covers(f.name(), f.message)]
			self.known_seeds += len(failures) - len(new)
			why = self.too_often(key, [f for f in failures if f not in new], first, env)
			if why:
				red[key] = why
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
		self.ran, self.failures = {}, []
		return red

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
