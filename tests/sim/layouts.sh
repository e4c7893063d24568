#!/bin/sh
# The same seeds give the same traces whatever the addresses (with and without ASLR) and the locale.
set -eu
run() { HASHES=1 SEEDS=3 "$@" | grep '^hash' | sort; }
want=$(run "$@")
[ -n "$want" ] || { echo "no hashes from $*"; exit 1; }
check() { if [ "$2" = "$want" ]; then echo "ok $1"; else echo "not ok $1"; echo "$want"; echo "-- $1"; echo "$2"; exit 1; fi; }
check "another layout" "$(run "$@")"
if setarch -R true 2>/dev/null; then check "no address randomisation" "$(run setarch -R "$@")"
else echo "skipped: setarch -R is not allowed here"; fi
other=$(locale -a 2>/dev/null | grep -E '^(de|fr|tr)_' | head -n 1 || true)
check "locale ${other:-C.UTF-8}" "$(LC_ALL=${other:-C.UTF-8} run "$@")"
