#!/bin/bash
# Who may talk to a daemon: bans by hand, which last over restarts, and the list of the only ones allowed; and what
# net check says when somebody cannot be reached.
. "$(dirname "$0")/lib.sh"
sees() { [ "$(hive "$1" --json peers | python3 -c '
import json, sys
print(sum(p["id"] == sys.argv[1] and p["state"] == sys.argv[2] for p in json.load(sys.stdin)["peers"]))' "$2" "$3")" = 1 ]; }
count() { [ "$(json "$1" rows.0.0 query "select count(*) from events where kind = '$2'")" -ge "$3" ]; }

# Alone: net check says so, and what a name is that nobody knows.
printf '[network]\njoin = no.such.host.invalid:4237\n' >"$work/lone.conf"
daemon_start lone
expect "there is nobody to talk to" hive lone net check
[ "$(json lone ok net check)" = false ] || fail "nobody is there, and net check says ok"
daemon_stop lone
daemon_start lone --config "$work/lone.conf"
expect "the name is not known here" hive lone net check
daemon_stop lone

printf '' >"$work/a.conf"
daemon_start a --config "$work/a.conf" --listen "$(host a):24320"
daemon_start b --join "$(host a):24320"
daemon_start c --join "$(host a):24320"
b=$(json b id status) c=$(json c id status) a=$(json a id status)
wait_for 15 sees a "$b" live
wait_for 15 sees a "$c" live
wait_for 15 sees b "$c" live
# Everybody has dialled everybody else, once asked to.
dialled() { hive "$1" net check | grep -q "^ok *reach.*dialled at $(host "$1"):[0-9]* by"; }
for n in a b c; do wait_for 15 dialled $n; done
[ "$(json a ok net check)" = true ] || fail "$(hive a net check)"
expect "agrees with the peers" hive b net check

# A ban, by the first digits of an id; the others do not care; a restart forgets nothing.
refuse 1 "at least its first 4" hive a peers ban "${b:0:3}"
refuse 1 "no peer begins with" hive a peers ban 0000000000000000000000000000
refuse 1 "is not banned" hive a peers unban "$b"
refuse 1 "that is this daemon itself" hive a peers ban "$a"
expect "lifted" hive a peers ban "${b:0:12}" --why="too loud"
sees a "$b" banned || fail "$(hive a peers)"
expect "banned: too loud" hive a peers
wait_for 10 count a peer_banned 1
hold 1 sees a "$b" banned
sees c "$b" live || fail "c has lost b"
wait_for 20 count b barred 1
expect "peers unban there" hive b events
barred() { hive b net check | grep -q 'error *join.*does not let this daemon in'; }
wait_for 30 barred
daemon_kill a
daemon_start a --config "$work/a.conf" --listen "$(host a):24320"
sees a "$b" banned || fail "the ban did not survive a restart: $(hive a peers)"
wait_for 20 sees a "$c" live
expect "banned peers: 1" hive a net check
hive a peers unban "$b" >/dev/null || fail "unban"
wait_for 30 sees a "$b" live
expect "seconds" hive a peers ban "$b" --time=1s
wait_for 30 sees a "$b" live

# Only who is on the list.
printf '[network]\nallow = %s\n' "$c" >"$work/a.conf"
expect network.allow hive a reload
gone_from() { ! sees "$1" "$2" live; }
wait_for 5 gone_from a "$b"
sees a "$c" live || fail "who is on the list was cut"
wait_for 30 count a not_allowed 1
hold 1 gone_from a "$b"
printf '[network]\nallow = %s, nobody\n' "$b" >"$work/a.conf"
hive a reload >/dev/null 2>&1
wait_for 5 count a config.refused 1
gone_from a "$b" || fail "half a list was taken over"
refuse 42 "nobody is no id" "$HIVEMINDD" --check-config --config "$work/a.conf"
printf '' >"$work/a.conf"
hive a reload >/dev/null || fail "reload"
wait_for 30 sees a "$b" live

# One that nobody can dial, because it tells a wrong address; one that only dials out.
daemon_start d --join "$(host a):24320" --advertise 127.9.9.9
wait_for 20 json_is joined d join.0.state status
cannot() { hive d net check | grep -q "^error *reach.*no peer can dial this daemon at 127.9.9.9"; }
wait_for 30 cannot
expect "client = yes" hive d net check
daemon_start e --join "$(host a):24320" --client
wait_for 20 json_is joined e join.0.state status
expect "only dials out" hive e net check
[ "$(json e ok net check)" = true ] || fail "$(hive e net check)"
for n in e d c b a; do daemon_stop $n; done
say done
