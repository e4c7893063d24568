#!/usr/bin/env python3
"""The table with real daemons on one machine; JSON out. usage: tests/bench/dht.py HIVEMINDD [DAEMONS [REPLICAS]]

join_ms: from the start of the last daemon until its table has peers. storm_s: from the start of all but the first until
every table has peers. get_ms, store_ms: inside the daemon (dht trace) and over its socket. gets: keys that the asker
neither has nor asked before, all daemons asked at once, when all have met; gets_first: before that, with a HELLO and
connections for most; store_met: as store, when all have met; bulk: as gets, with 64 keys a call. Beside the
wall time stands what the daemons' processor time would allow on all cores of an idle machine (cpu_bound)."""
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from words import usage

KEYS = 6400
CORES = len(os.sched_getaffinity(0))
TICK = os.sysconf('SC_CLK_TCK')


class Daemon:
	"""One hivemindd and a connection to its control socket; requests may be sent ahead of their answers."""
	def __init__(self, program, work, number, join, key, config):
		self.path, self.buffer, self.next = f'{work}/{number}.sock', b'', 0
		self.begun = time.monotonic()
		args = [program, '--config', config, '--state-dir', f'{work}/{number}', '--socket', self.path,
			'--swarm-key-file', key, '--listen', f'127.0.0.1:{25000 + 3 * number}'] + (['--join', join] if join else [])
		self.process = subprocess.Popen(args, stderr=subprocess.DEVNULL)
		self.socket = None

	def connect(self):
		while not self.socket:
			s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
			try:
				s.connect(self.path)
				self.socket = s
			except OSError:
				s.close()
				if self.process.poll() is not None:
					raise SystemExit('a daemon ended')
				time.sleep(0.001)

	def send(self, method, **params):
		self.next += 1
		self.socket.sendall(json.dumps({'jsonrpc': '2.0', 'id': self.next, 'method': method, 'params': params}).encode() + b'\n')

	def receive(self):
		while b'\n' not in self.buffer:
			got = self.socket.recv(1 << 16)
			if not got:
				raise SystemExit('a daemon hung up')
			self.buffer += got
		line, self.buffer = self.buffer.split(b'\n', 1)
		answer = json.loads(line)
		return answer.get('result') or answer.get('error')

	def ask(self, method, **params):
		self.send(method, **params)
		return self.receive()

	def joined(self):
		self.connect()
		while not self.ask('status')['dht']['nodes']:
			time.sleep(0.002)
		return time.monotonic() - self.begun

	def cpu_s(self):
		with open(f'/proc/{self.process.pid}/stat', encoding='ascii') as f:
			fields = f.read().rsplit(')', 1)[1].split()
		return (int(fields[11]) + int(fields[12])) / TICK

	def memory_kb(self, what):
		"""Rss counts the libraries once for each daemon, Pss shares them."""
		with open(f'/proc/{self.process.pid}/smaps_rollup', encoding='ascii') as f:
			return next(int(line.split()[1]) for line in f if line.startswith(what + ':'))


def rate(daemons, work, count):
	"""Runs work(daemon, i) as requests, all sent before any answer is read; returns rates."""
	cpu, begun = sum(d.cpu_s() for d in daemons), time.monotonic()
	for d in daemons:
		work(d)
	found = sum(d.take() for d in daemons)
	took, cpu = time.monotonic() - begun, sum(d.cpu_s() for d in daemons) - cpu
	return {'count': count, 'found': found, 'per_s': round(count / took), 'cpu_us_each': round(1e6 * cpu / count, 1),
		'cpu_bound_per_s': round(count * CORES / cpu) if cpu else None}


def singles(daemons, each, name='key'):
	"""Keys of a slice of its own for each daemon, one call a key."""
	def work(d):
		at = daemons.index(d)
		for i in range(each):
			d.send('dht.get', key=f'{name}{(at * each + i) % KEYS}')
		d.take = lambda: sum('value' in d.receive() for _ in range(each))
	return rate(daemons, work, each * len(daemons))


def bulks(daemons, calls):
	def work(d):
		at = daemons.index(d)
		for c in range(calls):
			keys = [f'key{((at + 31) * calls * 64 + c * 64 + i) % KEYS}' for i in range(64)]
			d.send('dht.get', keys=keys)
		d.take = lambda: sum(d.receive()['found'] for _ in range(calls))
	return rate(daemons, work, calls * 64 * len(daemons))


def spread(values):
	values = sorted(values)
	return {'median': round(statistics.median(values), 3), 'min': round(values[0], 3), 'max': round(values[-1], 3), 'n': len(values)}


def timed_ms(d, method, **params):
	begun = time.monotonic()
	d.ask(method, **params)
	return (time.monotonic() - begun) * 1e3


def main():
	usage(__doc__, 1, 3, (1, 2))
	program, n = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 64
	work = tempfile.mkdtemp(prefix='hm-dht.')
	replicas = int(sys.argv[3]) if len(sys.argv) > 3 else 8
	key, config = f'{work}/key', f'{work}/conf'
	with open(config, 'w', encoding='ascii') as f:
		f.write(f'[dht]\nreplicas = {replicas}\n')
	with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT, 0o600), 'w') as f:
		f.write(os.urandom(32).hex() + '\n')
	out, daemons, first = {'bench': 'dht', 'daemons': n, 'replicas': replicas, 'cores': CORES, 'load': os.getloadavg()[0]}, [], '127.0.0.1:25000'
	try:
		daemons.append(Daemon(program, work, 0, None, key, config))
		daemons[0].connect()
		begun = time.monotonic()
		daemons += [Daemon(program, work, i, first, key, config) for i in range(1, n - 1)]
		for d in daemons[1:]:
			d.joined()
		out['storm_s'] = round(time.monotonic() - begun, 3)
		out['storm_cpu_s'] = round(sum(d.cpu_s() for d in daemons), 2)
		daemons.append(Daemon(program, work, n - 1, first, key, config))
		out['join_ms'] = round(daemons[-1].joined() * 1e3, 1)
		time.sleep(10)                          # tables are filled at leisure
		out['nodes_known'] = spread([d.ask('status')['dht']['nodes'] for d in daemons])
		for i in range(0, KEYS, 640):
			for name in ('key', 'first'):
				daemons[i // 640 % n].ask('dht.put', records={f'{name}{k}': k for k in range(i, i + 640)}, life_s=600)
		out['store_ms'] = spread([timed_ms(daemons[i % n], 'dht.put', key=f'own{i}', value=i) for i in range(101)])
		out['get_ms'] = spread([daemons[(i + 7) % n].ask('dht.trace', key=f'own{i}')['took_us'] / 1e3 for i in range(101)])
		out['get_over_socket_ms'] = spread([timed_ms(daemons[(i + 29) % n], 'dht.get', key=f'own{i}') for i in range(101)])
		out['gets_first'] = singles(daemons, 100, 'first')
		out['gets'] = singles(daemons, 100)
		out['bulk'] = bulks(daemons, 8)
		out['store_met_ms'] = spread([timed_ms(daemons[i % n], 'dht.put', key=f'met{i}', value=i) for i in range(101)])
		for what in ('Rss', 'Pss'):
			out[what.lower() + '_mb'] = spread([d.memory_kb(what) / 1024 for d in daemons])
		out['pss_total_mb'] = round(sum(d.memory_kb('Pss') for d in daemons) / 1024, 1)
		print(json.dumps(out))
	finally:
		for d in daemons:
			d.process.kill()
			d.process.wait()
		shutil.rmtree(work)


signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))     # so that no daemon is left behind
main()
