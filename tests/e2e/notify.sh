#!/bin/bash
# What systemd hears: READY with the address, WATCHDOG while it lives, RELOADING and READY, STOPPING with more time.
. "$(dirname "$0")/lib.sh"

printf '[log]\nlevel = info\n' >"$work/n.conf"
python3 -c '
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
open(sys.argv[1] + ".bound", "w").close()
out = open(sys.argv[2], "a", buffering=1)
while True:
    out.write(s.recv(4096).decode().replace("\n", " | ") + "\n")' "$work/notify" "$work/heard" &
daemon_pid[listener]=$!         # so that it ends with the others
wait_for 5 test -e "$work/notify.bound"
heard() { grep -q -- "$1" "$work/heard"; }

export NOTIFY_SOCKET=$work/notify WATCHDOG_USEC=300000
unset WATCHDOG_PID
daemon_start a --config "$work/n.conf"
unset NOTIFY_SOCKET WATCHDOG_USEC
wait_for 5 heard "^READY=1 | STATUS=listening on $(address a)"
wait_for 5 heard '^WATCHDOG=1'
n=$(grep -c WATCHDOG "$work/heard")
more() { [ "$(grep -c WATCHDOG "$work/heard")" -gt $((n + 3)) ]; }
wait_for 5 more

kill -HUP "${daemon_pid[a]}"
wait_for 5 heard '^RELOADING=1 | MONOTONIC_USEC=[0-9]'
wait_for 5 heard '^READY=1$'
daemon_stop a
wait_for 5 heard '^STOPPING=1 | EXTEND_TIMEOUT_USEC=32000000'
say done
