#!/bin/bash
# What goes wrong around a daemon that trains: each gets a message with the place and the remedy, is an event, and costs
# nobody anything: other data, a run of the same name, a run that nobody has, another protocol version, something else
# that dials the ports, checkpoints damaged on the disk.
. "$(dirname "$0")/lib.sh"
data=$root/tests/data
keyless=yes                     # the frames below are made by hand

# spec FILE EXPRESSION: the demo's spec without an end, after a change in Python
spec() {
	python3 - "$data/digits.json" "$2" >"$work/$1" <<'END'
import json, sys
d = json.load(open(sys.argv[1]))
d["schedule"], d["stop"], d["local"] = {"name": "constant"}, {"epochs": 1000000}, {"batch": 32, "checkpoint_every": 5}
exec(sys.argv[2])
print(json.dumps(d))
END
}
happened() { [ "$(json "$1" rows.0.0 query "select count(*) from events where kind = '$2' and text like '%$3%'")" -ge 1 ]; }
was() { happened "$@" || fail "no event $2 with \"$3\": $(hive "$1" events)"; }

daemon_start a
daemon_start b --join "$(address a)"
spec run.json pass
hive a run start "$work/run.json" --data "$data/digits" >/dev/null || fail "the run was refused"
wait_for 60 past a 2

# A spec that is none, a run that nobody has, a run that is here already.
spec bad.json 'd["optimiser"] = d.pop("optimizer")'
refuse 1 'did you mean "optimizer"' hive a run start "$work/bad.json"
was a run.refused 'start digits: optimiser'
refuse 1 "no run nothing in the DHT" hive b run join nothing
was b run.refused 'join nothing'
refuse 1 "already" hive a run start "$work/run.json" --data "$data/digits"
was a run.refused 'start digits: run digits is here already'

# Other data under the same name: refused with the first difference, the run goes on without it.
cp -r "$data/digits" "$work/other"
printf '\x05' | dd of="$(echo "$work"/other/train-labels*)" bs=1 seek=100 conv=notrunc 2>/dev/null
joins() { hive b run join digits --data "$1" >"$work/out" 2>&1; }
refused_for() { joins "$1"; grep -qF "$2" "$work/out"; }
wait_for 20 refused_for "$work/other" "is not the run's"
was b run.failed "data $work/other: data.digest"
refuse 1 "nowhere" hive b run join digits --data "$work/nowhere"
was b run.failed nowhere
for i in 1 2 3; do refuse 1 "nowhere" hive b run join digits --data "$work/nowhere"; done
[ "$(hive b --json run list | grep -o '"state"' | wc -l)" = 1 ] || fail "refused joins: $(hive b run list)"
[ "$(json a members run show digits)" = 1 ] || fail "who has other data is a member"
goes_on a digits

# Another spec under the same name is another run: nobody averages with it, and joining by the name asks which is meant.
spec twin.json 'd["optimizer"]["lr"] = 0.0031'
hive b run start "$work/twin.json" --data "$data/digits" >/dev/null 2>"$work/out" || fail "a second run of that name was refused"
grep -qF "is offered by $(json a id status | cut -c1-8), too" "$work/out" || fail "its author is not told of the other: $(cat "$work/out")"
was b run.namesake "say --author=$(json b id status | cut -c1-8)"
daemon_start c --join "$(address a)"
both() { hive c run join digits --data "$data/digits" >"$work/out" 2>&1 || grep -qF "exists 2 times; choose with --author" "$work/out"; }
wait_for 20 both
grep -qF "$(json a id status | cut -c1-8)" "$work/out" || fail "c is not told whose runs there are: $(cat "$work/out")"
was c run.refused 'exists 2 times'
goes_on b digits
goes_on a digits
[ "$(json a members run show digits),$(json b members run show digits)" = 1,1 ] || fail "two specs averaged together"
# An offer that its author has not signed is none, whoever its subkey seems to name; and nobody signs for another.
a_id=$(json a id status)
offers() { hive c --json dht get run:digits --latest; }
offer=$(offers | python3 -c 'import json, sys; print(json.dumps(json.load(sys.stdin)["subkeys"][sys.argv[1]]["value"]))' "$a_id")
hive c dht put run:digits "$offer" --subkey="${a_id:0:8}-forged" --life-s=1h >"$work/out" 2>&1 || fail "it is nobody's name, and refused: $(cat "$work/out")"
refuse 1 "only that peer may store under it" hive c dht put run:digits "$offer" --subkey="$a_id" --life-s=1h
forged() { offers | grep -qF -- "-forged"; }
wait_for 20 forged
hive c run join digits --author "$(json a id status | cut -c1-8)" --data "$data/digits" >/dev/null || fail "c may not choose"
with_c() { json_is 2 a members run show digits; }
wait_for 60 with_c
daemon_stop c

# A frame of another protocol version, bytes that are no frame, something that speaks another protocol.
python3 - "$(address a)" <<'END' || fail "see above"
import socket, struct, sys
host, port = sys.argv[1].split(':')
def send(port, data):
	with socket.socket() as s:
		s.connect((host, port))
		try:
			s.sendall(data)
			s.settimeout(0.3)
			s.recv(1000)
		except OSError:
			pass
def message(body):
	return b'\0SP\0\0\x50\0\0' + struct.pack('>Q', len(body)) + body    # as a PUSH socket of nanomsg
# prelude: magic, version, kind, length, flags, the oldest version understood
send(int(port), message(b'HVMD' + struct.pack('<HHIHH', 9, 40, 80, 0, 9) + bytes(64)))
send(int(port), message(b'\x07no frame of this protocol'))
END
wait_for 20 happened a version_mismatch 'protocol version 9'
wait_for 20 happened a garbage 'no frame'
host=$(address a)
port=${host##*:}
dials() { (exec 3<>"/dev/tcp/127.0.0.1/$((port + 1))" && printf 'GET / HTTP/1.0\r\n\r\n' >&3) 2>/dev/null; happened a garbage "to port $((port + 1))"; }
wait_for 20 dials

# A learning rate with which nothing can be: the run holds and says why, the daemon and the other run go on.
spec boom.json 'd.update(name="boom", strategy="single", optimizer={"name": "sgd", "lr": 1e6}, stop={"epochs": 40})'
hive a run start "$work/boom.json" --data "$data/digits" >/dev/null || fail "the run was refused"
wait_for 60 json_is held a state run show boom
was a run.nonfinite finite
hive a run stop boom --yes >/dev/null || fail "what holds cannot be stopped"
goes_on a digits

# Damaged checkpoints: the newest is left out, and named; with none left the run begins again, and says so.
files() { ls "$(state a)/runs/$(json a run run show digits 2>/dev/null || echo none)"/*.safetensors; }
saved() { [ "$(files 2>/dev/null | wc -l)" -ge 2 ]; }
wait_for 30 saved
dir=$(dirname "$(files | head -n 1)")
daemon_stop b
daemon_stop a
newest=$(ls "$dir"/*.safetensors | tail -n 1)
python3 - "$newest" <<'END'
import sys
with open(sys.argv[1], 'r+b') as f:
	f.seek(-1000, 2)
	f.write(bytes(range(250)) * 4)
END
daemon_start a
wait_for 20 happened a ckpt.corrupt "$(basename "$newest")"
happened a ckpt.restored "" || fail "the older checkpoint was not taken"
goes_on a digits
daemon_kill a
renewed() { [ -n "$(find "$dir" -name '*.safetensors' -size +10k)" ]; }
for f in "$dir"/*.safetensors; do head -c 100 "$f" >"$work/x"; cat "$work/x" >"$f"; done
daemon_start a
wait_for 20 happened a ckpt.corrupt "starting anew"
wait_for 60 past a 12
wait_for 20 renewed
daemon_kill a
daemon_start a
wait_for 20 past a 5
[ "$(json a rows.0.0 query "select count(*) from events where kind = 'ckpt.restored'")" = 2 ] || fail "what was saved after the damage was not taken: $(hive a events)"

# A point that nobody can read in a file that is whole: set aside, too.
wait_for 30 saved
daemon_stop a
newest=$(ls "$dir"/*.safetensors | tail -n 1)
python3 - "$newest" <<'END' || fail "see above"
import sys
with open(sys.argv[1], 'r+b') as f:
	at = f.read(65536).index(b'"point":"') + 9
	f.seek(at)
	f.write(b'?')
END
daemon_start a
wait_for 20 happened a ckpt.corrupt "point"
goes_on a digits
[ -e "$newest.corrupt" ] || fail "$newest was not set aside"
happened a ckpt.restored "" || fail "nothing older was taken"

# One that cannot be read may be good: the run does not begin without it, sets nothing aside, and goes on when that is mended.
wait_for 30 saved
daemon_stop a
before=$(ls "$dir")
mkdir "$dir/epoch-9999999999.safetensors"
daemon_start a
wait_for 20 json_is failed a state run show digits
expect "does not begin without it" hive a run show digits
daemon_stop a
rmdir "$dir/epoch-9999999999.safetensors" || fail "it was moved"
[ "$(ls "$dir")" = "$before" ] || fail "files have gone: $before, now $(ls "$dir")"
last=$(ls "$dir"/*.safetensors | tail -n 1)
last=${last##*epoch-} last=$((10#${last%.safetensors}))
daemon_start a
wait_for 20 happened a ckpt.restored "epoch $last from"
goes_on a digits
daemon_stop a
say done
