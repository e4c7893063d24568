#!/bin/bash
# Damaged state: a corrupted database, a cut identity, a folder that cannot be written, a full disk.
. "$(dirname "$0")/lib.sh"

daemon_start a
id=$(json a id status)
daemon_stop a

# A database that is none: refused with the way out, untouched; moved aside only when told.
cp "$(state a)/state.db" "$work/good.db"
printf 'this is no database, %04096d' 0 >"$(state a)/state.db"
rm -f "$(state a)"/state.db-*
sum=$(md5sum <"$(state a)/state.db")
daemon_spawn a
daemon_ends 1 a 20
logged a "--move-corrupt-aside" || fail "the refusal does not say what to do"
[ "$(md5sum <"$(state a)/state.db")" = "$sum" ] || fail "a damaged database was changed"
daemon_start a --move-corrupt-aside
[ "$(json a id status)" = "$id" ] || fail "the identity went with the database"
expect "store.moved" hive a events
daemon_stop a

# A database of a newer program.
cp "$work/good.db" "$(state a)/state.db"
python3 -c 'import sqlite3, sys; d = sqlite3.connect(sys.argv[1]); d.execute("pragma user_version = 9999"); d.commit()' \
	"$(state a)/state.db"
daemon_spawn a
daemon_ends 1 a 20
cp "$work/good.db" "$(state a)/state.db"
rm -f "$(state a)"/state.db-*

# A cut identity is refused, not replaced by another one.
cp "$(state a)/identity.key" "$work/identity"
head -c 10 "$work/identity" >"$(state a)/identity.key"
daemon_spawn a
wait_for 20 gone "${daemon_pid[a]}"
unset "daemon_pid[a]"
logged a "identity.key" || fail "the refusal does not name identity.key"
cp "$work/identity" "$(state a)/identity.key"
daemon_start a
[ "$(json a id status)" = "$id" ] || fail "the identity changed"
daemon_stop a

# A full disk (root may mount one): the daemon goes on and says so. More of it: full.sh.
if [ "$(id -u)" = 0 ] && mkdir "$work/small" && mount -t tmpfs -o size=1m,mode=700 none "$work/small" 2>/dev/null; then
	trap 'ended=$?; umount -l "$work/small"; (exit $ended); cleanup' EXIT
	mkdir -m 700 "$work/small/f"
	ln -s "$work/small/f" "$work/f"
	daemon_start f
	hive f dht put colour '"green"' >/dev/null || fail "dht put"
	dd if=/dev/zero of="$work/small/filler" bs=4k >/dev/null 2>&1 || true
	for i in 1 2 3; do hive f dht put "k$i" '"v"' >/dev/null 2>&1 || true; done
	kill -HUP "${daemon_pid[f]}"
	hold 1 alive f
	wait_for 10 logged f "error   store: "
	expect green hive f dht get colour      # it answers, and from what it knows
	expect "$(json f id status)" hive f --json status
	rm "$work/small/filler"
	daemon_stop f
	say "full disk: survived"
else
	untried "mounting a small disk needs root"
fi
say done
