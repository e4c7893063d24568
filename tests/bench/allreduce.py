#!/usr/bin/env python3
"""An all-reduce on loopback against gloo and a bare TCP ring, in turns; JSON out, medians, ratios to each rival.

usage: tests/bench/allreduce.py BUILD [--python PYTHON-WITH-TORCH] [--peers 2,4,8] [--bytes 4096,100000000] [--turns 3]
Each turn runs every contender once, 7 rounds and more each; cpu_ms is processor time of one peer for one all-reduce, which
says more than the clock on a busy machine. round, coll: sealed; *_open: long messages go as they are;
clip: rounds with averaging.robust, signed and audited (clip_to_round: over round).
digest_part: all peers hash, from memory, the part that each reduces, as a round does on a lane of its own; digest_all: the whole
vector. digest_of_round: the first over round_open (aim: at most 0.08), in processor time; digest_of_gigabit: its clock over what
the bytes that a peer sends and gets, 2 (N - 1) / N of the vector, take at 1 Gbit/s (aim: at most 0.02)."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

GLOO = r'''
import os, sys, time, resource, statistics, json, tempfile
import torch, torch.distributed as dist
rank, n, size, times, store = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
torch.set_num_threads(1)
dist.init_process_group('gloo', init_method='file://' + store, rank=rank, world_size=n)
x = torch.ones(size // 4)
def cpu():
    u = resource.getrusage(resource.RUSAGE_SELF)
    return (u.ru_utime + u.ru_stime) * 1e3
for _ in range(3):
    dist.all_reduce(x)
ms, busy = [], cpu()
for _ in range(times):
    t = time.perf_counter()
    dist.all_reduce(x)
    ms.append((time.perf_counter() - t) * 1e3)
if rank == 0:
    print(json.dumps({'ms_median': statistics.median(ms), 'cpu_ms_per_peer': (cpu() - busy) / times}))
dist.destroy_process_group()
'''


def gloo(python, n, size, times):
	with tempfile.TemporaryDirectory(prefix='hivemind-bench.') as d:
		code = os.path.join(d, 'gloo.py')
		with open(code, 'w', encoding='utf-8') as f:
			f.write(GLOO)
		words = [str(n), str(size), str(times), os.path.join(d, 'store')]
		all_ = [subprocess.Popen([python, code, str(i)] + words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
			for i in range(n)]
		out = [p.communicate(timeout=120)[0] for p in all_]
	return json.loads(out[0]) if out[0].strip() else None


def ours(build, what, n, size, times):
	mode, _, wire = what.partition('_')
	r = subprocess.run([os.path.join(build, 'tests', 'bench', 'bench_allreduce' + ('_open' if wire else '')), mode, str(n),
		str(size), str(times)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=120, check=False)
	return json.loads(r.stdout) if r.returncode == 0 else None


def row(a, n, size):
	contenders = ['ring_open', 'round', 'round_open', 'clip', 'coll', 'coll_open', 'digest_part', 'digest_all'] + (['gloo'] if a.python else [])
	seen = {c: [] for c in contenders}
	times = 7 if size > 1 << 20 else 200
	for _ in range(a.turns):
		for c in contenders:
			got = gloo(a.python, n, size, times) if c == 'gloo' else ours(a.build, c, n, size // n if c == 'digest_part' else size, times)
			if got:
				seen[c].append(got)
	out = {'peers': n, 'bytes': size}
	for c, v in seen.items():
		out[c] = {k: round(statistics.median(r[k] for r in v), 4) for k in ('ms_median', 'cpu_ms_per_peer')} if v else None
	for rival in ('ring_open', 'gloo'):
		for c in contenders:
			if c != rival and not c.startswith('digest') and out[c] and out.get(rival):
				for k in ('ms_median', 'cpu_ms_per_peer'):
					out[c][f'{k}_to_{rival}'] = round(out[c][k] / max(out[rival][k], 1e-9), 3)
	if out['clip'] and out['round']:
		out['clip_to_round'] = {k: round(out['clip'][k] / max(out['round'][k], 1e-9), 3) for k in ('ms_median', 'cpu_ms_per_peer')}
	if out['digest_part']:
		out['digest_of_gigabit'] = round(out['digest_part']['ms_median'] / (2 * (n - 1) / n * size * 8 / 1e6), 4)
	if out['digest_part'] and out['round_open']:
		out['digest_of_round'] = round(out['digest_part']['cpu_ms_per_peer'] / max(out['round_open']['cpu_ms_per_peer'], 1e-9), 4)
	return out


def main():
	p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
	p.add_argument('build')
	p.add_argument('--python', help='a Python with torch; without it gloo is left out')
	p.add_argument('--peers', default='2,4,8')
	p.add_argument('--bytes', default='4096,100000000')
	p.add_argument('--turns', type=int, default=3)
	a = p.parse_args()
	for n in a.peers.split(','):
		for size in a.bytes.split(','):
			print(json.dumps(row(a, int(n), int(size))), flush=True)
	if not a.python:
		print('gloo was left out: --python names no Python with torch', file=sys.stderr)


if __name__ == '__main__':
	main()
