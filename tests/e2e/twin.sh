#!/bin/bash
# A state directory is copied and both daemons run, each with its peers, none with the other: both are told, leave the run
# and take no new one; who gets a key of its own is let in again.
. "$(dirname "$0")/lib.sh"

happened() { hive "$1" --json query "select count(*) from events where kind = '$2'" | grep -Eq '\[ *[1-9]'; }
state_is() { [ "$(show "$1" state 2>/dev/null)" = "$2" ]; }
twin() { [ "$(json "$1" network.duplicate_identity status)" = true ]; }

cat >"$work/spec.json" <<E
{"name":"twins","input":[16],"model":[{"type":"linear","out":4,"name":"x"}],"loss":"cross_entropy","target_batch":256,
"optimizer":{"name":"sgd","lr":0.01},"data":{"name":"d","kind":"synthetic","count":4000},"local":{"batch":8}}
E
daemon_start a
daemon_start b --join "$(address a)"
run=$(json a run run start "$work/spec.json") || fail "run start"
run_data=
wait_for 20 past a 2
joined b >/dev/null || fail "run join"
wait_for 20 past b 4
daemon_stop b                           # a resting one is copied whole
mkdir -m 700 "$work/c"
cp -a "$(state b)/." "$work/c/"
rm -f "$work/c/control.sock" "$work/c/status.sock"
daemon_start b --join "$(address a)"
wait_for 20 state_is b train
daemon_start c --join "$(address a)"
wait_for 60 twin b
wait_for 60 twin c
for n in b c; do
	wait_for 20 state_is $n left
	wait_for 10 happened $n run.twin
	refuse 1 "another daemon runs with this daemon's key" hive $n run join "$run"
done
twin a && fail "a has a key of its own"
wait_for 20 goes_on a
daemon_stop c
rm "$(state c)"/identity.key || fail "no key file in $(ls "$(state c)")"
daemon_stop b
daemon_start b --join "$(address a)"
daemon_start c --join "$(address a)"
joined b >/dev/null || fail "b may not join again"
joined c >/dev/null || fail "c may not join again"
for n in b c; do wait_for 30 state_is $n train; done
sleep 1
for n in a b c; do twin $n && fail "$n thinks that its key is another's"; done
for n in c b a; do daemon_stop $n; done
say done
