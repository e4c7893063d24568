#!/bin/bash
# Daemons find each other: records of the DHT, addresses that nobody answers, another swarm key, a death.
. "$(dirname "$0")/lib.sh"

peers_are() { [ "$(hive "$1" --json peers | python3 -c 'import json,sys; print(len(json.load(sys.stdin)["peers"]))')" = "$2" ]; }
key() { (umask 077; random_hex >"$work/$1.key"); }
key mine
key other

daemon_start a --swarm-key-file "$work/mine.key"
first=$(address a)
# An address that nobody answers does not hold up the start, and status says so; the other one is found.
begun=$(now_ms)
daemon_start b --swarm-key-file "$work/mine.key" --join 127.0.0.1:9 --join "$first"
[ $(($(now_ms) - begun)) -lt 5000 ] || fail "an unreachable address held up the start"
daemon_start c --swarm-key-file "$work/mine.key" --join "$first"
for n in a b c; do wait_for 15 peers_are $n 2; done

# One that finds nobody says so, goes on trying, and is in as soon as somebody is there.
daemon_start e --swarm-key-file "$work/mine.key" --join 127.0.0.1:9 --listen "$(host e):24300"
wait_for 20 json_is unreachable e join.0.state status
case $(json e join.0.error status) in *"no answer from 127.0.0.1:9 "*) ;; *) fail "$(hive e status)" ;; esac
retried() { [ -n "$(json e join.0.next_s status 2>/dev/null)" ]; }
wait_for 20 retried
daemon_start g --swarm-key-file "$work/mine.key" --listen "$(host g):24303" --join "$(host h):24306" --join "$(host h):24309" \
	--join "$(host g):24303" --join no.such.host.invalid:4237
wait_for 20 json_is unreachable g join.0.state status
daemon_start h --swarm-key-file "$work/mine.key" --listen "$(host h):24306"
wait_for 30 json_is joined g join.0.state status
# Each address tells its own state: one that is joined says nothing about the others; and its death shows.
[ "$(json g join.0.peer status)" = "$(json h id status)" ] || fail "g does not say whom it joined"
[ "$(json g join.1.state status)" = unreachable ] || fail "an address that nobody answers: $(hive g status)"
[ "$(json g join.2.state status)" = "this peer" ] || fail "its own address: $(hive g status)"
[ "$(json g join.3.state status)" = unresolved ] || fail "a name that nobody knows: $(hive g status)"
daemon_kill h
wait_for 30 json_is unreachable g join.0.state status
daemon_start h --swarm-key-file "$work/mine.key" --listen "$(host h):24306"
wait_for 30 json_is joined g join.0.state status
happened() { [ "$(json g rows.0.0 query "select count(*) from events where kind = '$1' and text like '%$2%'")" = "$3" ]; }
happened join.joined "$(host h):24306" 2 || fail "joined twice: $(hive g events)"
happened join.unreachable "$(host h):24306" 2 || fail "unreachable twice: $(hive g events)"
happened join.unreachable "$(host h):24309" 1 || fail "an outage is one event: $(hive g events)"
happened join.unresolved no.such.host.invalid 1 || fail "no event for a name that nobody knows: $(hive g events)"
for n in e g h; do daemon_stop $n; done

# A record put through one is found through the others.
hive a dht put colour '"green"' >/dev/null || fail "dht put was refused"
for n in b c; do expect green hive $n dht get colour; done
refuse 1 "nobody has a record" hive c dht get no.such.key

# Another swarm key is kept out, and both sides keep running.
daemon_start d --swarm-key-file "$work/other.key" --join "$first"
hold 2 peers_are d 0
for n in a b c; do peers_are $n 2 || fail "$n lost a peer to a stranger"; done
! grep -qFf "$work/mine.key" "$work"/*.log || fail "the swarm key is in a log"
! grep -rqaFf "$work/mine.key" -D skip "$(state a)" || fail "the swarm key is in the state folder"
daemon_stop d

# One dies without a word, a moment after it came; the others notice, and it comes back with the same identity.
id=$(json c id status)
daemon_kill c
for n in a b; do wait_for 30 peers_are $n 1; done
expect green hive b dht get colour
daemon_start c --swarm-key-file "$work/mine.key" --listen "$(host c):24312"         # no --join: it remembers
for n in a b c; do wait_for 30 peers_are $n 2; done
[ "$(json c id status)" = "$id" ] || fail "c came back as somebody else"
for n in c b a; do daemon_stop $n; done
say done
