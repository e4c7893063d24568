#!/bin/bash
# One peer trains alone on the digits: to the end; through kill -9 in the middle; and a learning rate that explodes.
. "$(dirname "$0")/lib.sh"
data=$root/tests/data
sed 's/"strategy": "hivemind"/"strategy": "single"/' "$data/digits.json" >"$work/spec.json"
python3 - "$work/spec.json" "$(fewer 300)" <<'END'
import json, sys
d = json.load(open(sys.argv[1]))
d["schedule"] = {"name": "constant"}
d["stop"] = {"epochs": int(sys.argv[2])}
d["local"] = {"batch": 32, "checkpoint_every": 5}
json.dump(d, open(sys.argv[1], "w"))
d["name"], d["optimizer"], d["stop"] = "boom", {"name": "sgd", "lr": 1e6}, {"epochs": 50}
json.dump(d, open(sys.argv[1] + ".boom", "w"))
END
saved() { hive a --json run show digits | grep -q '"checkpoints":\[{'; }

daemon_start a
hive a run start "$work/spec.json" --data "$data/digits" >/dev/null || fail "the run was refused"
# The swarm's word on a run cannot be replaced by anything else.
refuse 1 "run: the subkey must be the id of the peer" hive a dht put run:digits 5
wait_for 60 past a 20
wait_for 20 saved
before=$(epoch a)
daemon_kill a
last=$(python3 -c 'import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute("select max(rowid) from epochs").fetchone()[0])' \
	"$(state a)/state.db")
ls "$(state a)"/*/*/*.safetensors "$(state a)"/*/*.safetensors >/dev/null 2>&1 ||
	[ -n "$(find "$(state a)" -name '*.safetensors')" ] || fail "no checkpoint on the disk"
daemon_start a
first() { json a rows.0.0 query "select min(epoch) from epochs where rowid > $last" 2>/dev/null | grep -q '^[0-9]'; }
wait_for 20 first
resumed=$(json a rows.0.0 query "select min(epoch) from epochs where rowid > $last")
[ "$resumed" -gt $((before - 25)) ] || fail "resumed at epoch $resumed, and $before had been before the kill"
wait_for 120 json_is done a state run show digits
accuracy=$(json a val_accuracy run show digits)
python3 -c "import sys; sys.exit(not float(sys.argv[1]) >= 0.95)" "$accuracy" || fail "held-out accuracy $accuracy, at least 0.95"
say "kill -9 at epoch $before, resumed; accuracy $accuracy"

# A loss that is no number: the run holds and says where it began, which is recorded; it goes on when it is told to.
hive a run start "$work/spec.json.boom" --data "$data/digits" >/dev/null || fail "the run was refused"
wait_for 60 json_is held a state run show boom
expect "finite" hive a run show boom
expect "run hold boom --off" hive a query "select text from events where kind = 'run.nonfinite'"
stuck=$(json a epoch run show boom)
hive a set boom lr=0.0001 >/dev/null || fail "lr cannot be set while the run holds"
hive a run hold boom --off >/dev/null || fail "it cannot go on"
again() { [ "$(hive a query "select count(*) from events where kind = 'run.nonfinite'" | tail -n 1)" -ge 2 ] || [ "$(json a epoch run show boom)" -gt "$stuck" ]; }
wait_for 30 again
alive a || fail "the daemon died"
daemon_stop a
say done
