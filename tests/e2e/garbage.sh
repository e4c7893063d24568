#!/bin/bash
# Garbage on the control socket and on the three TCP ports: refused, bounded, and the daemon goes on.
. "$(dirname "$0")/lib.sh"
daemon_start a
listen=$(address a)

python3 - "$(socket a)" "${listen%:*}" "${listen##*:}" <<'END' || fail "see above"
import os, random, socket, sys, json
path, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
rng = random.Random(1)

def ask(data, seconds=10):
	"""Sends data and reads until a whole line came or the daemon closed."""
	with socket.socket(socket.AF_UNIX) as s:
		s.settimeout(seconds)
		s.connect(path)
		try:
			s.sendall(data)
			s.shutdown(socket.SHUT_WR)
		except (BrokenPipeError, ConnectionResetError):
			pass
		got = b''
		try:
			while piece := s.recv(65536):
				got += piece
		except ConnectionResetError:
			pass
		return got.decode().strip().split('\n') if got else []

def code(data):
	lines = ask(data)
	assert lines, f'no answer to {data[:60]!r}'
	return json.loads(lines[0])['error']['code']

assert code(b'{"jsonrpc":"2.0","id":1,"method":"no such"}\n') == -32601
assert code(b'not json\n') == -32700
assert code(b'\xff\xfe\x00\n') == -32700
assert code(b'[' * 5000 + b'\n') in (-32012, -32700)
assert code(b'{"jsonrpc":"2.0","id":1,"method":"status","params":[1]}\n') == -32602
assert code(b'{"jsonrpc":"2.0","id":1,"method":"query","params":{"sql":5}}\n') == -32602
assert code(b'x' * 300000 + b'\n') in (-32012, -32700)
# a line that is too long does not spoil the next one
lines = ask(b'y' * 300000 + b'\n{"jsonrpc":"2.0","id":7,"method":"status"}\n')
assert any('"id":7' in l and '"result"' in l for l in lines), lines
# half a request, then gone
for n in range(50):
	with socket.socket(socket.AF_UNIX) as s:
		s.connect(path)
		s.sendall(b'{"jsonrpc":"2.0","id":1,"method":"sta'[:1 + n % 38])
# random bytes and broken nanomsg greetings on each port
greetings = [b'\x00SP\x00\x00' + bytes([what]) + b'\x00\x00' for what in (0x50, 0x50, 0x30)]     # PUSH, PUSH, REQ
for n in range(60):
	for k in range(3):
		with socket.socket() as s:
			s.settimeout(5)
			s.connect((host, port + k))
			try:
				if n % 3:
					s.sendall(greetings[k])
				if n % 3 == 2:
					s.sendall((1 << 62).to_bytes(8, 'big'))
				body = rng.randbytes(rng.randrange(1, 3000))
				s.sendall(body if n % 3 != 1 else len(body).to_bytes(8, 'big') + body)
				if n % 3:
					s.recv(8)               # what is left unread would reset the connection and take our words with it
			except (BrokenPipeError, ConnectionResetError):
				pass
END

alive a || fail "the daemon died of garbage"
expect "$(basename "$(state a)")" hive a status
met() { json a network.counters.bad_magic status | awk '{exit !($1 >= 20)}'; }
wait_for 10 met                 # what nanomsg let through was counted, and is an event
expect "no frame of this protocol" hive a query "select text from events where kind = 'garbage'"
daemon_start b --join "$listen"
known() { [ "$(hive a --json peers | python3 -c 'import json,sys; print(len(json.load(sys.stdin)["peers"]))')" = 1 ]; }
wait_for 10 known
daemon_stop b
daemon_stop a
say done
