#!/bin/bash
# A disk that is full while a swarm trains: whoever has it goes on in every round, says that neither database nor checkpoints
# can be written, and loses nothing that counts; with space again both are written, and after SIGKILL it comes back.
. "$(dirname "$0")/lib.sh"
[ "$(id -u)" = 0 ] && mkdir "$work/small" && mount -t tmpfs -o size=6m,mode=700 none "$work/small" 2>/dev/null ||
	skip "mounting a small disk needs root"
trap 'ended=$?; umount -l "$work/small"; (exit $ended); cleanup' EXIT
data=$root/tests/data
digits_spec 'd["local"] = {"batch": 32, "checkpoint_every": 5}' 'd["model"].insert(0, {"type": "sleep", "fwd_ms": 10})' \
	>"$work/spec.json"
printf '[checkpoint]\nfree_min = 0\n' >"$work/conf"
value() { json "$1" rows.0.0 query "$2"; }
kept() { [ "$(value f "select ifnull(max(epoch), 0) from $1")" -gt "$2" ]; }
mkdir -m 700 "$work/small/f"
ln -s "$work/small/f" "$work/f"

daemon_start a
daemon_start b --join "$(address a)"
daemon_start f --join "$(address a)" --config "$work/conf"
hive a run start "$work/spec.json" --data "$data/digits" >/dev/null || fail "the run was refused"
for n in b f; do wait_for 20 joined $n; done
for n in a b f; do wait_for 30 members $n 3; done
wait_for 30 kept checkpoints 0

# Not a byte is left: its rounds go on with everybody's digests, and it says so.
dd if=/dev/zero of="$work/small/filler" bs=4k >/dev/null 2>&1
full=$(epoch f)
wait_for 30 logged f "a checkpoint needs"
wait_for 30 logged f "error   store: "
for n in a f; do wait_for 60 past $n $((full + 20)); done
alive f || fail "it died of a full disk"
[ "$(json f state run show digits)" = train ] || fail "$(hive f run show digits)"
lost=$(value a "select count(*) from rounds where epoch > $full and outcome not like 'done%'")
[ "$lost" = 0 ] || fail "$lost rounds were given up: $(hive a query "select * from rounds where outcome not like 'done%'")"
say "full at epoch $full, at $(epoch f) now"

# With space again epochs are recorded and checkpoints written, and what is written is whole.
rm "$work/small/filler"
free=$(epoch f)
wait_for 60 kept epochs "$free"
wait_for 60 kept checkpoints "$free"
daemon_kill f
daemon_start f --join "$(address a)" --config "$work/conf"
wait_for 30 members f 3
at=$(epoch a)
for n in a b f; do wait_for 30 past $n $((at + 5)); done
one_history digits 10 a b f
for n in f b a; do daemon_stop $n; done
say done
