#!/bin/bash
# A client that speaks the wire lets itself loose on a real daemon: every attempt has its counter, none has an effect,
# memory stays bounded, and afterwards an honest daemon joins as if nothing had been.
. "$(dirname "$0")/lib.sh"
keyless=yes
attack=$(dirname "$HIVEMINDD")/../tests/attack/attack
[ -x "$attack" ] || skip "tests/attack is not built"
# What a sanitizer keeps of freed memory is not the daemon's.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}quarantine_size_mb=1:thread_local_quarantine_size_kb=64"
daemon_start a
listen=$(address a)
host=${listen%:*} port=${listen##*:}

counter() { json a "network.counters.$1" status; }
memory() { json a memory_bytes status; }
# WHAT COUNTER LEAST TEXT: the attack prints TEXT and the counter grows by at least LEAST.
try() {
	local before out
	before=$(counter "$2")
	out=$("$attack" "$host" "$port" "$1") || fail "$1: $out"
	case $out in *"$4"*) ;; *) fail "$1: expected \"$4\", got \"$out\"" ;; esac
	grown() { [ "$(counter "$1")" -ge "$2" ]; }
	wait_for 5 grown "$2" $((before + $3))
	say "$1: $2"
}

start=$(memory)
try forged bad_seal 1 "answers 0"
try replayed replayed 10 "answers 0"
try reflected bad_seal 1 "answers 0"
try flipped bad_seal 50 "answers 0"
try truncated bad_frame 50 "answers 0"
try reordered replayed 19 "answers 1"
try other_key bad_seal 20 "answers 0"
try oversized oversized 20 "answers 1"
try stale unknown_session 200 "resets 1"
try braces bad_json 50 "refusals 1"
try wrong_key wrong_swarm_key 1 "answers 0"
try garbage bad_magic 2000 "sent 5000"
try halves hello_limited 5000 "sent 10000"
expect wrong_swarm_key hive a query "SELECT * FROM events"
written() { hive a query "select text from events where kind = 'net_refused'" | grep -q "$1"; }
for what in 'with a wrong seal' 'too large' replayed 'with bad JSON' 'HELLOs too many'; do wait_for 25 written "$what"; done
grown=$(($(memory) - start))
[ "$grown" -lt 20000000 ] || fail "$grown bytes more than before the attacks"
# A member that floods is slowed, then banned for a while; nobody else notices.
printf '[network]\npeer_frames_max = 1000\n' >"$work/f.conf"
daemon_start f --config "$work/f.conf"
flooded=$(address f)
out=$("$attack" "$host" "${flooded##*:}" flood) || fail "flood: $out"
[ "$out" = "sent 65000, then answers 0" ] || fail "flood: $out"
dropped() { echo $(($(json f network.counters.over_quota status) + $(json f network.counters.unknown_session status))); }
[ "$(dropped)" -ge 30000 ] || fail "little of the flood was dropped: $(hive f status)"
expect "more than 1000 frames a second, for 5 s" hive f peers
expect peer_slowed hive f events
expect peer_banned hive f events
say "callbacks during the flood: longest $(json f loop.longest_us status) us in $(json f loop.longest_in status), 99.9 % under $(json f loop.p999_under_us status) us"
worst=$(json f rows.0.0 query "select count(*) from events where kind = 'garbage'")
[ "$worst" = 0 ] || fail "a member's flood was taken for garbage"
daemon_stop f
out=$("$attack" "$host" "$port" idle) || fail "idle: $out"
expect "$(json a id status)" hive a --json status
# Honest newcomers are let in.
daemon_start b --join "$listen"
wait_for 20 json_is true b dht.joined status
say "done, $((grown / 1024)) KiB more memory"
