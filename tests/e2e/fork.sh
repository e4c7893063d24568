#!/bin/bash
# Two histories of one run: a bans b and c, each side goes on, and a's operator turns a knob. When they speak again the
# longer history wins; a's epochs and its change are recorded as discarded, its operator is told, and nothing is mixed.
. "$(dirname "$0")/lib.sh"
data=$root/tests/data
python3 - "$data/digits.json" >"$work/spec.json" <<'END'
import json, sys
d = json.load(open(sys.argv[1]))
d["schedule"], d["stop"], d["validation"] = {"name": "constant"}, {"epochs": 1000000}, {"every": 0}
print(json.dumps(d))
END
rows() { json "$1" rows.0.0 query "$2"; }
some() { [ "$(rows "$@")" -gt 0 ]; }
lr_is() { [ "$(json "$1" values.lr get digits 2>/dev/null)" = "$2" ]; }

daemon_start a
for n in b c; do daemon_start $n --join "$(address a)"; done
hive a run start "$work/spec.json" --data "$data/digits" >/dev/null || fail "the run was refused"
for n in b c; do wait_for 20 joined $n; done
for n in a b c; do wait_for 30 members $n 3; done
lr=$(json a values.lr get digits)
# A ban that strikes between a COMMIT and its mean leaves a with nothing to go on with: then once more.
words() { local w=$1 n; for n in b c; do hive a peers "$w" "$(json $n id status)" >/dev/null || fail "no $w"; done; }
alone() { members a 1 && past a $((at + 3)); }
for try in 1 2 3 4 5 6; do
	words ban
	at=$(show a epoch)
	end=$(($(now_ms) + 6000 * HIVE_SLOW))
	until alone || [ "$(now_ms)" -gt $end ]; do read -r -t 0.05 -u "$nothing"; done
	! alone || break
	words unban
	for n in a b c; do wait_for 60 members $n 3; done
done
alone || fail "a does not go on alone: $(hive a events --lines=5)"
wait_for 30 members b 2
hive a set digits lr=0.0123 >/dev/null || fail "the change was refused"
wait_for 20 lr_is a 0.0123
lr_is b "$lr" || fail "b has the change of a"
hive a run hold digits >/dev/null || fail "a cannot hold"       # alone it may be faster than two
wait_for 60 past b $(($(show a epoch) + $(fewer 200)))   # the longer history
before=$(rows b "select count(*) from epochs where discarded = 1")      # bans do not strike at one moment
words unban
hive a run hold digits --off >/dev/null || fail "a cannot go on"
for n in a b c; do wait_for 30 members $n 3; done
wait_for 10 lr_is a "$lr"
some a "select count(*) from epochs where discarded = 1" || fail "no epoch is discarded"
[ "$(rows b "select count(*) from epochs where discarded = 1")" = "$before" ] || fail "epochs of the winner are discarded"
some a "select count(*) from params where key = 'lr' and new_value = '0.0123' and state = 'discarded'" ||
	fail "the change is not discarded: $(hive a query 'select * from params')"
some a "select count(*) from events where kind = 'set.discarded' and level = 'warning'" || fail "nobody is told"
hive a log | grep -q "lr=0.0123 from epoch" || fail "not in the log: $(hive a log)"
one_history digits 5 a b
# Every sample once, at the winner and at who came back to it.
for n in a b; do
	[ "$(json $n ledger.proof.exactly_once run show digits --data)" = true ] ||
		fail "$n: $(json $n ledger.proof run show digits --data)"
	[ "$(json $n ledger.violations run show digits --data)" = 0 ] || fail "$n has seen a commit that breaks the ledger"
done
# What a had processed alone stands apart, and is of no proof.
[ "$(json a ledger.discarded.samples run show digits --data)" -gt 0 ] || fail "nothing is discarded: $(hive a run show digits --data)"
for n in c b a; do daemon_stop $n; done
say done
