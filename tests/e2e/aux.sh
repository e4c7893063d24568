#!/bin/bash
# A machine without data helps a run: it reduces and brings no samples, has every epoch with the others' digest, comes back
# after SIGKILL, and gives the state to a newcomer when it is the only one that has it.
. "$(dirname "$0")/lib.sh"
data=$root/tests/data
run_data=                               # who brings data says so
digits_spec 'd["local"], d["target_batch"] = {"batch": 32}, 256' \
	'd["model"].insert(0, {"type": "sleep", "fwd_ms": 3, "bwd_ms": 3})' >"$work/spec.json"
state_is() { [ "$(hive "$1" --json run show digits | python3 -c '
import json, sys
print(next((p["state"] for p in json.load(sys.stdin)["peers"] if p["id"] == sys.argv[1]), "nobody"))' "$2")" = "$3" ]; }

daemon_start a
for n in b h; do daemon_start $n --join "$(address a)"; done
h=$(json h id status)
hive a run start "$work/spec.json" --data "$data/digits" >/dev/null || fail "the run was refused"
wait_for 20 joined b --data "$data/digits"
wait_for 20 joined h --aux
wait_for 20 state_is a "$h" helping
wait_for 30 past h $(($(epoch h) + 10))
one_history digits 4 a h
[ "$(json h rows.0.0 query "select sum(bytes_sent) > 100000 from rounds where outcome like 'done%'")" = 1 ] ||
	fail "who helps has reduced nothing: $(hive h query "select * from rounds order by id desc limit 3")"
hive a --json run show digits --data | python3 -c '
import json, sys
l = json.load(sys.stdin)["ledger"]
assert sys.argv[1] not in l["granted"] and not l["violations"], l' "$h" || fail "who helps was given samples"
refuse 1 "without its data" hive h predict digits "$data/digits/t10k-images-idx3-ubyte"

# It dies, the others go on, and it comes back as what it was.
daemon_kill h
wait_for 30 past a $(($(epoch a) + 5))
daemon_start h --join "$(address a)"
wait_for 30 state_is a "$h" helping
wait_for 30 past h $(($(epoch a) + 3))

# Those who computed die; the one that only helped has everything that a newcomer needs.
at=$(epoch h)
daemon_kill a
daemon_kill b
daemon_start c --join "$(address h)"
wait_for 20 joined c --data "$data/digits"
wait_for 30 past c $((at + 1))
at=$(epoch c)                           # it knows those from here on
wait_for 30 past c $((at + 5))
wait_for 30 past h $((at + 5))
one_history digits 4 c h

# Nobody helps where there is nobody; and its author counts the samples, so it has them.
sed 's/"hivemind"/"single"/' "$work/spec.json" >"$work/single.json"
refuse 1 "local.aux" hive c run start "$work/single.json" --name alone --data "$data/digits" --aux
refuse 1 "--data" hive c run start "$work/spec.json" --name other --aux
for n in c h; do daemon_stop $n; done
say done
