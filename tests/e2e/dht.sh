#!/bin/bash
# hivectl dht: one record and many, put through one daemon and found through another; a trace; records outlive a restart.
. "$(dirname "$0")/lib.sh"

known() { [ "$(json "$1" dht.nodes status)" = "$2" ]; }
key() { (umask 077; random_hex >"$work/$1.key"); }
key mine

daemon_start a --swarm-key-file "$work/mine.key"
first=$(address a)
for n in b c; do daemon_start $n --swarm-key-file "$work/mine.key" --join "$first"; done
for n in a b c; do wait_for 15 known $n 2; done

# Many at once.
hive a dht put '--records={"one":1,"two":[2],"three":{"x":3}}' --life-s=1h >/dev/null || fail "dht put --records was refused"
[ "$(json a accepted_at_least dht put '--records={"one":11,"four":4}')" = 3 ] || fail "not on all three"
[ "$(json b found dht get '--keys=["one","two","three","four","five"]')" = 4 ] || fail "bulk get: not four of five"
[ "$(json c keys.0.value dht get '--keys=["one","nobody"]' --latest)" = 11 ] || fail "an old value"
refuse 1 "one KEY, or --keys" hive b dht get
refuse 1 "one KEY, or --keys" hive b dht get one '--keys=["two"]'
refuse 1 "keys[1] is not a text" hive b dht get '--keys=["two",2]'
refuse 1 "between 1 and 1024" hive b dht get '--keys=[]'
refuse 1 "KEY and VALUE, or --records" hive b dht put one
refuse 1 "an object of keys and values" hive b dht put '--records=[1]'
refuse 1 "at most 7 days" hive b dht put one 1 --life-s=8d

# Each question with its time.
expect "took ms" hive c dht trace one
expect "1 record found 1 hop away in " hive c dht trace one --latest
expect "0 records found in " hive c dht trace nobody
[ "$(json c steps.0.state dht trace one --latest)" = answered ] || fail "$(hive c dht trace one)"
[ "$(json c steps.1.took_us dht trace one --latest)" -gt 0 ] || fail "no time"

# Whoever is silent may have it: said as long as anybody names it. Whoever dies is left out as soon as somebody has asked
# it in vain.
kill -STOP "${daemon_pid[c]}"
[ "$(json a keys.1.silent dht get '--keys=["one","nobody"]' --latest)" = 1 ] || fail "who is silent may have it: not said"
daemon_kill c
left_out() { hive a dht get one --latest >/dev/null; known a 1; }
wait_for 20 left_out
[ "$(json b found dht get '--keys=["one","two","three","four"]' --latest)" = 4 ] || fail "lost with one peer"

# Everybody stops; what lives long is there again, and so are the addresses.
daemon_stop a
daemon_stop b
daemon_start a --swarm-key-file "$work/mine.key"
[ "$(json a found dht get '--keys=["one","two","three","four"]')" = 4 ] || fail "records did not outlive a restart"
[ "$(json a value dht get one)" = 11 ] || fail "an old value came back"
daemon_start b --swarm-key-file "$work/mine.key"
wait_for 20 known b 1
say "ok"
