#!/bin/bash
# Nine daemons in rows of three: every epoch has one digest for all, one dies in between, and run show says who bridges.
. "$(dirname "$0")/lib.sh"
data=$root/tests/data
digits_spec 'd["local"], d["target_batch"], d["averaging"] = {"batch": 8}, 288, {"group_size": 3, "codec": "fp16"}' \
	'd["model"].insert(0, {"type": "sleep", "fwd_ms": 20, "bwd_ms": 20})' >"$work/spec.json"
shape() {       # PEER MEMBERS: rows of at most three, everybody once, bridges in every row, the vector summed once in each
	hive "$1" --json run show digits | python3 -c '
import json, sys
s, n = json.load(sys.stdin)["rounds_shape"], int(sys.argv[1])
rows = s["rows"] if s else []
peers = [p for r in rows for p in r["peers"]]
ok = s and s["topology"] == "two_level" and s["group_size"] == 3 and len(peers) == len(set(peers)) == n
ok = ok and all(len(r["peers"]) <= 3 and abs(sum(b["sums"] for b in r["bridges"]) - 1) < 1e-6 for r in rows)
ok = ok and abs(sum(b["owns"] for r in rows for b in r["bridges"]) - 1) < 1e-6
sys.exit(0 if ok else "rounds_shape: " + json.dumps(s))' "$2"
}

daemon_start a
for n in b c d e f g h i; do daemon_start $n --join "$(address a)"; done
hive a run start "$work/spec.json" --data "$data/digits" >/dev/null || fail "the run was refused"
for n in b c d e f g h i; do wait_for 20 joined $n; done
wait_for 40 members a 9
wait_for 30 shape a 9
wait_for 60 past i $(($(epoch a) + 6))
for n in b c d e f g h i; do one_history digits 4 a $n; done

# One is killed; the others finish its round and go on in their rows.
daemon_kill e
wait_for 20 members a 8
wait_for 60 past a $(($(epoch a) + 6))
wait_for 20 shape i 8
for n in b c d f g h i; do one_history digits 4 a $n; done
[ "$(json a rows.0.0 query "select count(*) from rounds where outcome like 'failed%'")" = 0 ] ||
	fail "rounds have failed: $(hive a query "select * from rounds where outcome like 'failed%'")"
say done
