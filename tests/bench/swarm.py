"""Daemons in a folder and a connection to each, for the benches and soaks that are written in Python."""
import json
import os
import platform
import signal
import socket
import statistics
import subprocess
import sys
import time


class Failed(Exception):
	"""A daemon did not do in time what it should have."""


class Daemon:
	"""NAME lives in FOLDER/NAME on PORT to PORT + 2 of 127.0.0.1; key: of the swarm, or None; log: FOLDER/NAME.log, appended."""
	def __init__(self, program, folder, name, port, key, options=()):
		self.program, self.folder, self.name, self.port = os.path.abspath(program), folder, name, port
		self.options, self.key, self.process, self.socket = list(options), key, None, None

	def address(self):
		return f'127.0.0.1:{self.port}'

	def spawn(self, join=()):
		os.makedirs(f'{self.folder}/{self.name}', mode=0o700, exist_ok=True)
		args = [self.program, '--config', '/dev/null', '--state-dir', f'{self.folder}/{self.name}', '--listen', self.address()] + (
			['--swarm-key-file', self.key] if self.key else []) + [w for j in join for w in ('--join', j)] + self.options
		with open(f'{self.folder}/{self.name}.log', 'a', encoding='utf-8') as log:
			self.process = subprocess.Popen(args, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

	def start(self, join=()):
		self.spawn(join)
		self.wait(lambda: self.ask('status'), 30, 'an answer')

	def end(self, how=signal.SIGTERM):
		"""SIGTERM must end it with status 0."""
		if not self.process:
			return
		if self.socket:
			self.socket.close()
			self.socket = None
		self.process.send_signal(how)
		status = self.process.wait(60)
		self.process = None
		if how == signal.SIGTERM and status:
			raise Failed(f'{self.name} ended with status {status}')

	def ask(self, method, **params):
		"""The result; {'error': ...} when it was refused; None when nobody answers."""
		try:
			if not self.socket:
				self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
				self.socket.settimeout(20)
				self.socket.connect(f'{self.folder}/{self.name}/control.sock')
			self.socket.sendall(json.dumps({'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': params}).encode() + b'\n')
			line = b''
			while not line.endswith(b'\n'):
				got = self.socket.recv(1 << 16)
				if not got:
					raise OSError('hung up')
				line += got
			answer = json.loads(line)
			return answer.get('result', {'error': answer.get('error')})
		except OSError:
			self.socket.close()
			self.socket = None
			return None

	def must(self, method, **params):
		answer = self.ask(method, **params)
		if not isinstance(answer, (dict, list)) or 'error' in answer:
			raise Failed(f'{self.name}: {method}: {answer}')
		return answer

	def wait(self, true, seconds, what, pause=0.02):
		end = time.monotonic() + seconds
		while True:
			got = true()
			if got:
				return got
			if self.process and self.process.poll() is not None:
				raise Failed(f'{self.name} ended by itself with status {self.process.returncode}')
			if time.monotonic() > end:
				raise Failed(f'{self.name}: waited {seconds} s for {what}')
			time.sleep(pause)

	def rows(self, sql):
		return self.must('query', sql=sql)['rows']

	def show(self, run, key, otherwise=None):
		answer = self.ask('run.show', run=run)
		return answer.get(key, otherwise) if answer else otherwise

	def join_run(self, run, data, seconds=60, **local):
		"""Once it has heard of the run; one that was in it before a restart is in it again by itself."""
		self.wait(lambda: self.show(run, 'epoch') is not None or 'error' not in (self.ask('run.join', run=run, data=data, **local) or {'error': 1}),
			seconds, f'run {run}')


def new_key(folder):
	path = f'{folder}/swarm.key'
	if not os.path.exists(path):
		with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), 'w', encoding='utf-8') as f:
			f.write(os.urandom(32).hex() + '\n')
	return path


def machine():
	"""What figures are worth nothing without."""
	with open('/proc/cpuinfo', encoding='utf-8') as f:
		names = [line.split(':', 1)[1].strip() for line in f if line.startswith('model name')]
	return {'processors': len(os.sched_getaffinity(0)), 'processor': names[0] if names else platform.machine(),
		'kernel': platform.release(), 'load': round(os.getloadavg()[0], 2)}


def spread(values, digits=3):
	return {'median': round(statistics.median(values), digits), 'min': round(min(values), digits), 'max': round(max(values), digits),
		'n': len(values)}


def end_in_order():
	"""SIGTERM ends a bench like an exception, so that its daemons end with it."""
	signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def tell_logs(folder, daemons):
	"""What each said last, when something has failed."""
	for d in daemons:
		with open(f'{folder}/{d.name}.log', encoding='utf-8') as log:
			print(f'--- {d.name}\n' + ''.join(log.readlines()[-15:]), file=sys.stderr)


def kill_all(daemons):
	for d in daemons:
		if d.process:
			d.process.kill()
			d.process.wait()
