#!/bin/bash
# A running daemon has its keys in memory: no core file gets them, and no other process of its user.
. "$(dirname "$0")/lib.sh"

grep -qaE '__tsan_init|__asan_init' "$HIVEMINDD" && skip "sanitizers look into the process"
unprivileged=()
if [ "$(id -u)" = 0 ]; then
	command -v setpriv >/dev/null || skip "no setpriv"
	unprivileged=(setpriv --reuid=65534 --regid=65534 --clear-groups)
	chmod 711 "$work"
	install -d -m 700 -o 65534 -g 65534 "$work/n"
	install -m 755 "$HIVEMINDD" "$work/hivemindd"           # the build may lie where only root may go
	HIVEMINDD=$work/hivemindd
fi
dumpable() { [ "$(stat -c %u "/proc/$1/environ")" != 0 ]; }     # root's, once a process is not

"${unprivileged[@]}" sleep 60 &
other=$!
daemon_pid[sleep]=$other
wait_for 5 dumpable "$other"
"${unprivileged[@]}" "$HIVEMINDD" --state-dir "$work/n" --listen 127.0.0.1:auto --socket "$work/n/control.sock" 2>"$(log_of n)" &
daemon_pid[n]=$!
up() { hive n status >/dev/null 2>&1; }
wait_for 20 up
dumpable "${daemon_pid[n]}" && fail "a core file of the daemon would have its keys"
kill "$other"
daemon_stop n
say done
