"""tests/expected: the tests of the gate, by name, so that none vanishes (tests/run asks, tests/wanted-test proves it).

A line is `PROGRAM` or `PROGRAM CASE`, and may go on with ` | REASON`: why it may be skipped, words that what it says then
must have; several reasons have bars between them. # begins a remark. Every test of the list has to run; one that is skipped
without such a reason has not; one that runs and is not in the list has to be written there."""
import glob
import os
import re

CASE = r'\b(?:cmocka_unit_test\w*%s)\(\s*(\w+)'
SHORT = re.compile(r'^#define (\w+)\((\w+)[^)]*\)\s.*cmocka_unit_test', re.M)      # a file's own word for it


class Wanted:
	def __init__(self, path):
		self.reasons = {}
		with open(path, encoding='utf-8') as f:
			for number, line in enumerate(f, 1):
				words = [w.strip() for w in line.split('|')]
				name = words[0].split()
				if not line.strip() or line.startswith('#'):
					continue
				if len(name) not in (1, 2) or not all(words):
					raise SystemExit(f'{path}:{number}: expected PROGRAM [CASE] [| REASON...]')
				key = (name[0], name[1] if len(name) == 2 else '')
				if key in self.reasons:
					raise SystemExit(f'{path}:{number}: {line.strip()} is there twice')
				self.reasons[key] = words[1:]

	def judge(self, said, skipped, partial=False):
		"""What is wrong with a run, a sentence each. said: {(program, case): why}, skipped: which of them did not run.
		partial: not all of them were to run."""
		wrong = []
		for key, reasons in self.reasons.items():
			if key not in said:
				if not partial:
					wrong.append(f'{line(key)}: has gone: it did not run (tests/expected)')
			elif key in skipped and not any(r in said[key] for r in reasons):
				wrong.append(f'{line(key)}: skipped, and tests/expected does not say that it may be: {said[key]}')
		return wrong

	def unlisted(self, names):
		return sorted(key for key in names if key not in self.reasons)

	def programs(self):
		return {program for program, _ in self.reasons}


def line(key):
	return ' '.join(k for k in key if k)


def always(text):
	"""Without what is compiled on a condition only."""
	depth, lines = 0, []
	for x in text.split('\n'):
		depth += bool(re.match(r'#\s*if', x))
		if not depth:
			lines.append(x)
		depth -= bool(re.match(r'#\s*endif', x))
	return '\n'.join(lines)


def cases_in(folder):
	"""{(unit/PROGRAM, case)} that the sources of cmocka programs name; what they put together from pieces is not seen."""
	found = set()
	for path in glob.glob(os.path.join(folder, 'test_*.c')):
		with open(path, encoding='utf-8') as f:
			text = always(f.read())
		short = SHORT.findall(text)
		words = ''.join('|' + word for word, _ in short)
		cases = set(re.findall(CASE % words, SHORT.sub('', text)))
		found |= {('unit/' + os.path.basename(path)[:-2], case) for case in cases - {name for _, name in short}}
	return found
