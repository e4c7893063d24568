"""Which tree is this, has it passed the gate before, and what did each test say? (tests/run, tests/rows, tests/all --passed)"""
import hashlib
import json
import os
import shutil
import subprocess
import tempfile

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), '..'))


def git(*words, **env):
	"""What git says, without its last newline; None when there is no repository, or no git."""
	try:
		p = subprocess.run(['git', '-C', ROOT, *words], capture_output=True, text=True, env={**os.environ, **env}, check=False)
	except OSError:
		return None
	return p.stdout.strip() if p.returncode == 0 else None


def now():
	"""The hash of the files as they lie here, committed or not; without git, that of their contents."""
	with tempfile.TemporaryDirectory() as d:
		index, real = os.path.join(d, 'index'), git('rev-parse', '--git-path', 'index')
		if real is not None and os.path.exists(os.path.join(ROOT, real)):
			shutil.copy(os.path.join(ROOT, real), index)
		if git('add', '-A', GIT_INDEX_FILE=index) is not None:
			return git('write-tree', GIT_INDEX_FILE=index)
	h = hashlib.sha1()
	for d, folders, files in os.walk(ROOT):
		folders[:] = sorted(f for f in folders if not f.startswith('build') and f not in ('.git', '__pycache__'))
		for f in sorted(files):
			path = os.path.join(d, f)
			if os.path.isfile(path) and not f.startswith('build-'):
				h.update(os.path.relpath(path, ROOT).encode())
				with open(path, 'rb') as content:
					h.update(content.read())
	return h.hexdigest()


def cache():
	return os.path.join(os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache'), 'hivemindd')


def gate_file():
	"""Where the last line of a green gate of this commit's tree is kept; None in a checkout that is not clean."""
	if git('status', '--porcelain') != '':
		return None
	return os.path.join(cache(), 'gate', git('rev-parse', 'HEAD^{tree}'))


def passed_before():
	path = gate_file()
	if path is None:
		print('no: the checkout has changes that are not committed, or is none')
		return 1
	if not os.path.exists(path):
		print(f'no: tree {os.path.basename(path)} has not passed here')
		return 1
	with open(path, encoding='utf-8') as f:
		print(f'yes: tree {os.path.basename(path)}: {f.read().strip()}')
	return 0


def remember(line):
	"""The gate has passed: its last line, for this tree; nothing when the checkout is not clean."""
	path = gate_file()
	if path is None:
		return
	os.makedirs(os.path.dirname(path), exist_ok=True)
	with open(path, 'w', encoding='utf-8') as f:
		f.write(line + '\n')


def outcomes_file(kind, tree):
	return os.path.join(cache(), kind, tree + '.json')


def record(kind, tree, said, whole):
	"""What each test said in a gate or nightly of this tree: {program: {case: ok, failed or skipped}}. A run of some steps
	adds to what is known. Nothing when files have changed since it began: then nobody knows of which tree it speaks."""
	if tree != now():
		return
	path = outcomes_file(kind, tree)
	before = {}
	if not whole and os.path.exists(path):
		with open(path, encoding='utf-8') as f:
			before = json.load(f)
	os.makedirs(os.path.dirname(path), exist_ok=True)
	with open(path + '.new', 'w', encoding='utf-8') as f:
		json.dump({**before, **said}, f, indent=1, sort_keys=True)
	os.replace(path + '.new', path)


def outcomes():
	"""What record() has kept of this tree: {'gate': ..., 'nightly': ...}, those that there are."""
	tree, kept = now(), {}
	for kind in ('gate', 'nightly'):
		path = outcomes_file(kind, tree)
		if os.path.exists(path):
			with open(path, encoding='utf-8') as f:
				kept[kind] = json.load(f)
	return kept
