#!/usr/bin/env python3
"""Milliseconds from `run start` to the first trained micro-batch, and the daemon's memory then: a fresh daemon each time,
real data. usage: first_step.py HIVEMINDD HIVECTL KIND:PATH ...      JSON; medians of 7

KIND:PATH is idx or tar; the model is a small convolutional network. The request goes over the control socket; then run.show
is asked until samples have been counted. "cpu_ms" is the daemon's processor time meanwhile, which other load of the
machine leaves alone. "rss_kb" is resident memory at that moment, "opened_kb" what it was before the
run. Page cache is warm: the files have been read once."""
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from words import usage

ROUNDS = 7


class Control:
    def __init__(self, path):
        self.s, self.buf, self.id = socket.socket(socket.AF_UNIX), b"", 0
        self.s.connect(path)

    def call(self, method, **params):
        self.id += 1
        self.s.sendall(json.dumps({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params}).encode() + b"\n")
        while True:
            while b"\n" not in self.buf:
                self.buf += self.s.recv(1 << 20) or sys.exit("the daemon is gone")
            line, self.buf = self.buf.split(b"\n", 1)
            answer = json.loads(line)
            if answer.get("id") == self.id:
                if "error" in answer:
                    sys.exit(answer["error"]["message"])
                return answer["result"]


def rss_kb(pid):
    with open("/proc/%d/status" % pid) as f:
        return int(next(line for line in f if line.startswith("VmRSS")).split()[1])


def cpu_ms(pid):
    with open("/proc/%d/stat" % pid) as f:
        v = f.read().rsplit(")", 1)[1].split()
    return (int(v[11]) + int(v[12])) * 1e3 / os.sysconf("SC_CLK_TCK")


def spec(kind, shape):
    steps = [{"type": "normalize", "mean": 128, "std": 64}]
    if kind == "tar":
        steps = [{"type": "crop", "size": shape[1:], "padding": 4}, {"type": "flip"}] + steps
    return {"name": "first", "input": shape, "loss": "cross_entropy", "optimizer": {"name": "sgd", "lr": 0.01}, "seed": 1,
            "model": [{"type": "conv2d", "out": 16, "kernel": 3, "padding": 1}, {"type": "relu"},
                      {"type": "maxpool2d", "kernel": 4}, {"type": "flatten"}, {"type": "linear", "out": 10}],
            "target_batch": 256, "strategy": "single", "validation": {"every": 0}, "data": {"name": "d", "kind": kind, "steps": steps},
            "local": {"batch": 64, "prefetch": 4}}


def once(hivemindd, hivectl, kind, path, shape):
    with tempfile.TemporaryDirectory(prefix="fs.") as state:
        d = subprocess.Popen([hivemindd, "--config", "/dev/null", "--state-dir", state, "--listen", "127.0.0.1:auto"],
                             stderr=subprocess.DEVNULL)
        sock = os.path.join(state, "control.sock")
        while subprocess.run([hivectl, "-s", sock, "status"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
            time.sleep(0.01)
        c = Control(sock)
        before, worked = rss_kb(d.pid), cpu_ms(d.pid)
        begun = time.perf_counter()
        c.call("run.start", spec=spec(kind, shape), data=path)
        opened = time.perf_counter()
        while True:
            r = c.call("run.show", run="first")
            if r.get("samples_epoch") or r.get("epoch"):
                break
        took = time.perf_counter()
        out = {"open_ms": (opened - begun) * 1e3, "first_step_ms": (took - begun) * 1e3,
               "cpu_ms": cpu_ms(d.pid) - worked, "opened_kb": before, "rss_kb": rss_kb(d.pid)}
        d.terminate()
        d.wait()
        return out


def main():
    usage(__doc__, 3, 99)
    for word in sys.argv[3:]:
        if word.split(":", 1)[0] not in ("idx", "tar") or ":" not in word:
            sys.exit('"%s" is no KIND:PATH; KIND is idx or tar' % word)
    out = {"bench": "first_step", "rounds": ROUNDS, "sources": {}}
    for word in sys.argv[3:]:
        kind, path = word.split(":", 1)
        shape = [1, 28, 28] if kind == "idx" else [3, 32, 32]
        runs = [once(sys.argv[1], sys.argv[2], kind, path, shape) for _ in range(ROUNDS + 1)][1:]
        out["sources"][word] = {k: round(statistics.median(r[k] for r in runs), 1) for k in runs[0]}
    print(json.dumps(out, indent=1))


main()
