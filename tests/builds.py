"""The folders of builds, and what runs in them: meson, ninja, programs and scripts, each in a process group of its own and with a
limit of time. What the host keeps from this machine's processors meanwhile does not count."""
import json
import os
import shutil
import signal
import subprocess
import time

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), '..'))
CORES = max(1, len(os.sched_getaffinity(0)))
BEGUN = time.monotonic()
MINUTES = float('inf')          # tests/run --minutes
LINES = '-Dc_args=-g1'          # what a stack trace needs: a fifth less to compile
SANITIZED = ['-Dfailpoints=true', '-Dbuildtype=debug', '-Doptimization=1', '-Db_lundef=false', LINES]
BUILDS = {
	'plain': ['-Dfailpoints=true', '-Dwerror=true', LINES],
	'asan': ['-Db_sanitize=address,undefined'] + SANITIZED,
	'release': ['-Dbuildtype=release', '-Dwerror=true'],
	'tsan': ['-Db_sanitize=thread'] + SANITIZED,
}
SANITIZED_BUILDS = ('asan', 'tsan')
SANITIZER_ENV = {
	'ASAN_OPTIONS': 'detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1',
	'UBSAN_OPTIONS': 'halt_on_error=1:print_stacktrace=1',
	'TSAN_OPTIONS': 'halt_on_error=1:second_deadlock_stack=1',
}


def stolen():
	"""Seconds that the host has kept from each of this machine's processors, in the mean; limits of time do not count them
	(e2e/lib.sh, too)."""
	with open('/proc/stat') as f:
		return int(f.readline().split()[8]) / os.sysconf('SC_CLK_TCK') / os.cpu_count()


class Over(Exception):
	"""--minutes are over, and 8 more."""


def wait(p, seconds):
	end, before = time.monotonic() + seconds, stolen()
	while True:
		now = time.monotonic()
		left, all_left = end + stolen() - before - now, BEGUN + 60 * (MINUTES + 8) - now
		try:
			return p.wait(max(0.1, min(left, all_left, 5)))
		except subprocess.TimeoutExpired:
			if all_left <= 0:
				raise Over from None
			if left <= 0:
				raise


def call(args, log, env=None, seconds=None, cwd=ROOT):
	"""Runs args in their own process group with the output in log; returns the exit status, or None after the time."""
	with open(log, 'wb') as out:
		p = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=cwd,
			env={**os.environ, **(env or {})}, start_new_session=True)
		try:
			return wait(p, seconds or float('inf'))
		except subprocess.TimeoutExpired:
			return None
		finally:
			try:
				os.killpg(p.pid, signal.SIGKILL)
			except ProcessLookupError:
				pass
			p.wait()


def tail_of(log, lines=40):
	with open(log, 'rb') as f:
		return '\n'.join(f.read().decode('utf-8', 'replace').rstrip('\n').split('\n')[-lines:])


def folder(build):
	return os.path.join(ROOT, 'build-' + build)


def configure(build, options, env=None):
	"""meson setup, again from nothing when the options are not those of last time."""
	d, log = folder(build), folder(build) + '.log'
	stamp = os.path.join(d, 'options')
	if os.path.exists(stamp) and open(stamp).read() == repr(options) and os.path.exists(os.path.join(d, 'build.ninja')):
		if call(['ninja', '-C', d, 'build.ninja'], log) == 0:   # meson.build may have changed: before anybody introspects
			return True
	shutil.rmtree(d, ignore_errors=True)
	if shutil.which('ld.gold'):                             # some 350 programs: a third of the time
		env = {'CC_LD': 'gold', **(env or {})}
	if call(['meson', 'setup', d, ROOT] + options, log, env) != 0:
		print(tail_of(log))
		return False
	with open(stamp, 'w') as f:
		f.write(repr(options))
	return True


def records(build):
	path = os.path.join(folder(build), 'meson-logs', 'testlog.json')
	if not os.path.exists(path):
		return
	with open(path, encoding='utf-8') as f:
		for line in f:
			yield json.loads(line)


def fixed_addresses():
	"""setarch -R where it is allowed: gcc 12's sanitizers do not know the wide address randomisation of newer kernels."""
	try:
		ok = subprocess.run(['setarch', '-R', 'true'], stderr=subprocess.DEVNULL).returncode == 0
	except OSError:
		ok = False
	return ['setarch', '-R'] if ok else []


def tests_of(build, wanted):
	"""{SUITE/NAME: program} of those tests of a build whose suites `wanted` likes."""
	out = subprocess.run(['meson', 'introspect', '--tests', folder(build)], capture_output=True, text=True, check=True).stdout
	of = [([s.split(':')[-1] for s in t['suite']], t) for t in json.loads(out)]
	return {f"{suites[0]}/{t['name']}": t['cmd'][0] for suites, t in of if wanted(set(suites))}


def targets_of(build, wanted):
	"""Their programs, as ninja calls them."""
	programs = set(tests_of(build, wanted).values())
	return sorted(os.path.relpath(p, folder(build)) for p in programs if p.startswith(folder(build)))


def meson_test(build, extra, seeds_from, jobs=CORES):
	log = folder(build) + '.log'
	path = os.path.join(folder(build), 'meson-logs', 'testlog.json')
	if os.path.exists(path):
		os.unlink(path)
	prefix = fixed_addresses() if build in SANITIZED_BUILDS else []
	env = {**SANITIZER_ENV, 'CMOCKA_MESSAGE_OUTPUT': 'STDOUT'}
	sanitized = build in SANITIZED_BUILDS                   # one seed, once: the plain build runs all of them, the first one twice
	env.update(SEED=str(seeds_from), SEEDS='1' if sanitized else '12', TWICE='0' if sanitized else '1')
	call(prefix + ['meson', 'test', '-C', folder(build), '--no-rebuild', '--num-processes', str(jobs), '--timeout-multiplier', '4']
		+ extra, log, env)
