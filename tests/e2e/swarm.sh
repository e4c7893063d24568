#!/bin/bash
# Daemons find each other: records of the DHT, an address that nobody answers, another swarm key, a death. More of addresses:
# joins.sh.
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
