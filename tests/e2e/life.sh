#!/bin/bash
# One daemon's life: ready, one per state folder, reload, log, events, orderly end, kill -9 and restart.
. "$(dirname "$0")/lib.sh"

printf '[log]\nlevel = info\n[checkpoint]\nkeep = 3\n' >"$work/a.conf"
begun=$(now_ms)
daemon_start a --config "$work/a.conf"
say "first answer after $(($(now_ms) - begun)) ms"
[ "$(stat -c %a "$(socket a)")" = 660 ] || fail "the control socket has mode $(stat -c %a "$(socket a)")"
id=$(json a id status)
[ ${#id} = 64 ] || fail "status says no id: $id"
expect "$(basename "$(state a)")" hive a status
[ "$(json a loop.callbacks status)" -gt 0 ] && [ -n "$(json a loop.longest_in status)" ] || fail "status says nothing of the loop"

# A second daemon on the same state folder is refused and says who holds it.
pid=${daemon_pid[a]}
refuse 1 "is in use by another hivemindd, process $pid" \
	timeout 10 "$HIVEMINDD" --config /dev/null --state-dir "$(state a)" --socket "$work/other.sock"
alive a || fail "the first daemon did not survive the second"

# Reload: what may change does, what may not is refused and named, and an error keeps everything.
printf '[log]\nlevel = debug\n[checkpoint]\nkeep = 7\n' >"$work/a.conf"
expect "checkpoint.keep" hive a reload
printf '[log]\nlevel = debug\nlines = 77\n[checkpoint]\nkeep = 9\n' >"$work/a.conf"
refuse 1 "[log] lines: cannot change" hive a reload
printf '[checkpoint]\nkeep = lots\n' >"$work/a.conf"
kill -HUP "$pid"
wait_for 5 logged a 'not reloaded: '
wait_for 5 sh -c "'$HIVECTL' -s '$(socket a)' events | grep -q config.refused"
[ "$(json a config.checkpoint.keep.value config)" = 7 ] || fail "a refused reload changed checkpoint.keep"

# Commands that do not exist, in words that help; exit statuses of hivectl.
refuse 3 "status" hive a stauts
refuse 2 "nothing.sock" "$HIVECTL" -s "$work/nothing.sock" status
expect "1" hive a query "select 1 as one"
refuse 1 "only SELECT" hive a query "delete from events"
expect "ready" hive a log

# What the daemon's own table offers is in the page; --json is the daemon's answer, of help too.
page=$root/man/hivectl.1
hive a --json help | python3 -c '
import json, sys
for c in json.load(sys.stdin):
    print(c["name"])' >"$work/commands" || fail "help is no JSON with --json"
[ "$(wc -l <"$work/commands")" -ge 25 ] || fail "help names few commands: $(cat "$work/commands")"
while read -r command; do
	for option in $(hive a help "$command" | head -n 1 | grep -o -- '--[a-z-]*'); do
		grep -qF -- "Fl ${option#-}" "$page" || fail "man hivectl does not know $command $option"
	done
done <"$work/commands"
refuse 3 "usage: hivectl run start SPEC" hive a run start

# An orderly end; the same identity after a restart; and after kill -9.
daemon_stop a
[ ! -e "$(socket a)" ] || fail "the control socket was left behind"
printf '' >"$work/a.conf"
daemon_start a --config "$work/a.conf"
[ "$(json a id status)" = "$id" ] || fail "the identity changed with a restart"
daemon_kill a
daemon_start a --config "$work/a.conf"
[ "$(json a id status)" = "$id" ] || fail "the identity changed with kill -9"
expect "config.refused" hive a events
expect "stopping" hive a stop
daemon_ends 0 a 20
say done
