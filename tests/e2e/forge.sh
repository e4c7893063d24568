#!/bin/bash
# A member of a run forges towards a real daemon: COMMIT, BEGIN, RECOVER, JOIN, changes of hyperparameters, copies for the
# table, asks for the state. The run goes on with nobody's state given up and its rate as it was, the liar is named and,
# for wrong signatures, banned; the honest other is not; memory stays bounded.
. "$(dirname "$0")/lib.sh"
keyless=yes
attack=$(dirname "$HIVEMINDD")/../tests/attack/attack
[ -x "$attack" ] || skip "tests/attack is not built"
# What a sanitizer keeps of freed memory is not the daemon's.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}quarantine_size_mb=1:thread_local_quarantine_size_kb=64"
digits_spec 'd["model"].insert(0, {"type": "sleep", "fwd_ms": 5, "bwd_ms": 5})' >"$work/spec.json"
memory() { json "$1" memory_bytes status; }
rows() { json "$1" rows.0.0 query "$2"; }
some() { [ "$(rows "$@")" -gt 0 ]; }
lr() { json "$1" values.lr get digits; }

daemon_start a
daemon_start b --join "$(address a)"
hive a run start "$work/spec.json" --data "$run_data" >/dev/null || fail "the run was refused"
wait_for 20 joined b
for n in a b; do wait_for 30 members $n 2; done
goes_on a
listen=$(address a)
id=$(show a run)
rate=$(lr a)
begun=$(epoch b)
start=$(memory a)
out=$("$attack" "${listen%:*}" "${listen##*:}" forge "$id") || fail "forge: $out"
say "forge: $out, $(($(epoch b) - begun)) epochs meanwhile"
[ "$(epoch b)" -gt $((begun + 2)) ] || fail "only $(($(epoch b) - begun)) epochs while it lied"
grown=$(($(memory a) - start))
[ "$grown" -lt 30000000 ] || fail "$grown bytes more than before"
expect forges hive a events
for n in a b; do [ "$(lr $n)" = "$rate" ] || fail "$n learns at another rate: $(lr $n)"; done
for kind in diverged fork behind; do
	! some b "select count(*) from events where kind = '$kind' and level = 'error'" || fail "b: $kind: $(hive b events)"
done
out=$("$attack" "${listen%:*}" "${listen##*:}" forge_signed "$id") || fail "forge_signed: $out"
say "forge_signed: $out"
expect "more than 100 times garbage" hive a peers
[ "$(rows a "select count(*) from events where kind = 'peer_banned'")" = 1 ] || fail "banned: $(hive a events)"
! some b "select count(*) from events where kind = 'peer_banned'" || fail "b bans: $(hive b events)"
for n in a b; do goes_on $n; done
for n in a b; do wait_for 30 members $n 2; done
one_history digits 5 a b
daemon_stop b
daemon_stop a
say "done, $((grown / 1024)) KiB more memory"
