#!/bin/bash
# Row A11: sixteen daemons on one machine are there within five seconds, know each other, and are gone in five.
. "$(dirname "$0")/lib.sh"
names=(a b c d e f g h i j k l m n o p)

begun=$(now_ms)
daemon_start a
for n in "${names[@]:1}"; do daemon_spawn $n --join "$(address a)"; done
for n in "${names[@]:1}"; do wait_for 10 answers $n; done
took=$(($(now_ms) - begun))
say "sixteen after $took ms"
[ "$took" -lt $((5000 * HIVE_SLOW)) ] || late "sixteen daemons took $took ms to start"
met() { [ "$(json "$1" peers peers | python3 -c 'import json, sys; print(len([p for p in json.load(sys.stdin) if p["state"] == "live"]))')" -ge 8 ]; }
for n in "${names[@]}"; do wait_for 20 met $n; done

begun=$(now_ms)
for n in "${names[@]}"; do kill -TERM "${daemon_pid[$n]}"; done
for n in "${names[@]}"; do
	status=0
	wait "${daemon_pid[$n]}" || status=$?
	unset "daemon_pid[$n]"
	[ "$status" = 0 ] || fail "daemon $n ended with status $status"
done
took=$(($(now_ms) - begun))
[ "$took" -lt $((5000 * HIVE_SLOW)) ] || late "sixteen daemons took $took ms to end"
say "and gone in $took ms"
