#!/usr/bin/env python3
"""Sixteen peers average 9.4 MB in groups of four, against hivemind's own averagers in the setting of its benchmark_averaging, in
turns; JSON out, medians over the turns, ratio to the rival.

usage: tests/bench/averaging.py HIVEMINDD [--python PYTHON-WITH-HIVEMIND] [--peers 16] [--group 4] [--rounds 5] [--turns 7] [--windows 5,1]
hivemind (1.1.12 from PyPI, as benchmarks/benchmark_averaging.py sets it): a DHT and a DecentralizedAverager per peer, 16-bit floats,
min_matchmaking_time 5 s, request_timeout 1 s, averaging timeout 15 s; a round is one step(), after which a group of four holds one
mean; only the rounds that succeeded count, their share stands beside. hivemind_1: min_matchmaking_time 1 s.
rows, moshpit, one_group: daemons that train a layer of as many parameters, 16-bit floats; a round is the time from one commit of all
to the next (moshpit: 32-bit floats, which it wants), one sample's gradients, the optimizer's step and the digest included, and all hold the mean of all after it."""
import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from swarm import Daemon, kill_all, new_key

WIDTH, OUT = 2304, 1024
RIVAL = r'''
import json, math, sys, threading, time
import torch, hivemind
from hivemind.compression import Float16Compression
peers, group, rounds, window = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
torch.set_num_threads(1)
nbits = int(round(math.log2(peers / group)))
def tensors():
    return [torch.randn(*s) for _ in range(3) for s in ((256, 768), (768,), (256, 256), (256,), (256, 1024), (1024,), (1024, 256), (256,))]
root = hivemind.DHT(start=True)
took, lost, averagers = [], [], []
for i in range(peers):
    dht = hivemind.DHT(initial_peers=root.get_visible_maddrs(), start=True)
    averagers.append(hivemind.averaging.DecentralizedAverager(tensors(), dht, prefix='t', start=True, target_group_size=group,
        initial_group_bits=bin(i % 2 ** nbits)[2:].rjust(nbits, '0') if nbits else '', min_matchmaking_time=window, request_timeout=1.0,
        compression=Float16Compression()))
def run(a):
    for _ in range(rounds):
        begun = time.perf_counter()
        try:
            good = a.step(timeout=15) is not None
        except Exception:
            good = False
        (took if good else lost).append((time.perf_counter() - begun) * 1e3)
threads = [threading.Thread(target=run, args=(a,), daemon=True) for a in averagers]
for t in threads:
    t.start()
for t in threads:
    t.join()
print(json.dumps({'took': took, 'lost': len(lost), 'version': hivemind.__version__}), flush=True)
import os; os._exit(0)
'''


def hivemind_round(python, o, window):
	folder = tempfile.mkdtemp(prefix='hivemind-rival.')
	script, out, err = (f'{folder}/{name}' for name in ('rival.py', 'out', 'err'))
	with open(script, 'w', encoding='utf-8') as f:
		f.write(RIVAL)
	with open(out, 'w', encoding='utf-8') as o1, open(err, 'w', encoding='utf-8') as e1:
		p = subprocess.Popen([python, script, str(o.peers), str(o.group), str(o.rounds), str(window)], stdout=o1, stderr=e1,
			stdin=subprocess.DEVNULL, start_new_session=True)
	end, lines = time.monotonic() + 600, []
	while not lines and p.poll() is None and time.monotonic() < end:      # its helpers outlive it, so that it may never end
		time.sleep(0.5)
		with open(out, encoding='utf-8') as f:
			lines = [line for line in f if line.startswith('{') and line.endswith('}\n')]
	os.killpg(p.pid, signal.SIGKILL)
	p.wait()
	if not lines:
		with open(err, encoding='utf-8') as f:
			raise SystemExit(f'hivemind: {f.read()[-2000:]}')
	shutil.rmtree(folder, ignore_errors=True)
	got = json.loads(lines[-1])
	return {'ms': statistics.median(got['took']) if got['took'] else None, 'success': len(got['took']) / (len(got['took']) + got['lost']),
		'version': got['version']}


def spec(name, peers, averaging):
	return {'name': name, 'input': [WIDTH], 'model': [{'type': 'linear', 'out': OUT}], 'loss': 'cross_entropy',
		'optimizer': {'name': 'sgd', 'lr': 0.0001}, 'target_batch': peers, 'strategy': 'hivemind', 'averaging': averaging,
		'validation': {'every': 0}, 'data': {'name': 'x', 'kind': 'synthetic', 'count': 100000}, 'stop': {'epochs': 1000000},
		'local': {'batch': 1, 'data': '/x', 'checkpoint_every': 0}}


def our_round(swarm, name, o, averaging):
	swarm[0].must('run.start', spec=spec(name, o.peers, averaging))
	for d in swarm[1:]:
		d.join_run(name, '/x', batch=1)
	run = swarm[0].show(name, 'run')
	of_all = f"select wall_ms from rounds where run = '{run}' and outcome = 'done' and members = {o.peers} order by wall_ms desc limit {o.rounds + 1}"
	count = f"select count(*) from rounds where run = '{run}' and outcome = 'done' and members = {o.peers}"
	swarm[0].wait(lambda: swarm[0].rows(count)[0][0] >= 3 * o.rounds, 120, f'{3 * o.rounds} rounds of {o.peers}', 0.2)
	at = [r[0] for r in swarm[0].rows(of_all)]
	for d in swarm:
		d.must('run.leave', run=name)
	return statistics.median(a - b for a, b in zip(at, at[1:]))


def main():
	p = argparse.ArgumentParser(add_help=True)
	p.add_argument('daemon')
	p.add_argument('--python')
	p.add_argument('--peers', type=int, default=16)
	p.add_argument('--group', type=int, default=4)
	p.add_argument('--rounds', type=int, default=5)
	p.add_argument('--turns', type=int, default=7)
	p.add_argument('--windows', default='5,1')
	p.add_argument('--port', type=int, default=24300)
	o = p.parse_args()
	codec = {'default': 'fp16'}
	ours = {'rows': {'codec': codec, 'group_size': o.group}, 'one_group': {'codec': codec, 'group_size': o.peers},
		'moshpit': {'group_size': o.group, 'topology': 'moshpit', 'local_updates': True}}
	rivals = {'hivemind' if w == '5' else f'hivemind_{w}': float(w) for w in o.windows.split(',')} if o.python else {}
	ms = {k: [] for k in (*ours, *rivals)}
	share = {k: [] for k in rivals}
	version, load = None, []
	for turn in range(o.turns):
		for k, window in rivals.items():
			got = hivemind_round(o.python, o, window)
			ms[k].append(got['ms'])
			share[k].append(got['success'])
			version = got['version']
		folder = tempfile.mkdtemp(prefix='hivemind-bench.')
		key = new_key(folder)
		swarm = [Daemon(o.daemon, folder, f'd{i}', o.port + 3 * i, key) for i in range(o.peers)]
		try:
			for d in swarm:
				d.start([swarm[0].address()] if d is not swarm[0] else [])
			for k, averaging in ours.items():
				ms[k].append(our_round(swarm, f'{k}{turn}', o, averaging))
			for d in swarm:
				d.end()
		finally:
			kill_all(swarm)
			shutil.rmtree(folder, ignore_errors=True)
		load.append(os.getloadavg()[0])
		print(json.dumps({'turn': turn, **{k: v[-1] for k, v in ms.items()}}), file=sys.stderr, flush=True)
	median = {k: statistics.median(x for x in v if x is not None) if any(x is not None for x in v) else None for k, v in ms.items()}
	out = {'peers': o.peers, 'group': o.group, 'bytes': 4 * (WIDTH * OUT + OUT), 'codec': 'fp16', 'turns': o.turns, 'round_ms': median, 'all_ms': ms,
		'load': load}
	if rivals:
		out |= {'hivemind': version, 'success': {k: statistics.fmean(v) for k, v in share.items()},
			'times_faster': {f'{k} than {r}': median[r] / median[k] for k in ours for r in rivals if median[r]}}
	print(json.dumps(out))


if __name__ == '__main__':
	main()
