#!/bin/bash
# Calls that fail in a real daemon. A small allocation that fails ends it, by design: whatever was acknowledged before is
# there after the next start. A big one, or a write, a sync, a rename of a checkpoint, is an error that is said: the run
# goes on or holds, and after a start without faults it goes on from a whole checkpoint.
. "$(dirname "$0")/lib.sh"
"$HIVEMINDD" --failpoint a=error --check-config --config /dev/null >/dev/null 2>&1 || skip "this build has no fail points"
data=$root/tests/data
declare -A acknowledged=()
ready() { hive a status >/dev/null 2>&1 || ! alive a; }

# Every value that was acknowledged is there, or a later one that was on its way when the daemon died.
all_there() {
	local key got
	for key in "${!acknowledged[@]}"; do
		got=$(json a value dht get "$key") || fail "$1: $key is gone, ${acknowledged[$key]} was acknowledged"
		[ "$got" -ge "${acknowledged[$key]}" ] || fail "$1: $key is $got, ${acknowledged[$key]} was acknowledged"
	done
}

died=0
n=1
value=0
while [ "$died" -lt 40 ]; do
	daemon_spawn a --failpoint mem.small=error:"$n"
	wait_for 10 ready
	lived=yes
	for key in one two three four; do
		value=$((value + 1))
		if hive a dht put "$key" "$value" --life_s 3600 >"$work/said" 2>&1; then
			acknowledged[$key]=$value
		else
			grep -q "cannot reach\|closed\|hung up\|lost" "$work/said" || fail "allocation $n: $(cat "$work/said")"
			break
		fi
	done
	[ "$key" = four ] && [ "${acknowledged[four]:-0}" = "$value" ] && alive a || lived=
	if [ -z "$lived" ]; then
		wait_for 10 gone "${daemon_pid[a]}"
		wait "${daemon_pid[a]}" 2>/dev/null
		unset "daemon_pid[a]"
		logged a "out of memory" || fail "allocation $n: it ended without saying why"
		died=$((died + 1))
	else
		daemon_kill a
	fi
	daemon_start a
	all_there "allocation $n"
	daemon_kill a
	[ -n "$lived" ] && break
	n=$((n + 1 + n / 3))
done
[ "$died" -ge 10 ] || fail "only $died deaths: the loop is too short"
say "small allocations: $died deaths up to the ${n}th, ${#acknowledged[@]} keys kept"

# One epoch and more of a run, with checkpoints.
python3 - "$data/digits.json" "$work/spec.json" <<'END'
import json, sys
d = json.load(open(sys.argv[1]))
d["strategy"], d["stop"], d["local"] = "single", {"epochs": 4}, {"batch": 32, "checkpoint_every": 1}
json.dump(d, open(sys.argv[2], "w"))
END
rest() { ! alive a || case $(json a state run show digits 2>/dev/null) in done | held | failed) true ;; *) false ;; esac; }
for point in mem.big file.write file.fsync file.rename file.open; do
	places="1 2 5"
	[ "$point" = mem.big ] && places="1 2 3 4 6 9"
	for n in $places; do
		rm -rf "$(state a)"
		: >"$(log_of a)"
		daemon_spawn a --failpoint "$point=error:$n"
		wait_for 10 ready
		if ! alive a; then
			logged a "fail point $point" || logged a "no memory" || fail "$point $n: it did not start and does not say why"
		elif ! hive a run start "$work/spec.json" --data "$data/digits" >"$work/said" 2>&1; then
			grep -q "no memory\|fail point" "$work/said" || fail "$point $n: refused, and not because of it: $(cat "$work/said")"
		else
			wait_for 30 rest
			alive a || fail "$point $n: the daemon died"
			[ "$(json a state run show digits)" = done ] || hive a --json run show digits | grep -q "no memory\|fail point" ||
				fail "$point $n: $(hive a --json run show digits)"
		fi
		if alive a; then daemon_kill a; else unset "daemon_pid[a]"; fi
		daemon_start a
		case $(json a state run show digits 2>/dev/null) in      # what has failed before is known, and over
		'' | failed) hive a run start "$work/spec.json" --data "$data/digits" >/dev/null ;;
		esac
		hive a run hold digits --off >/dev/null 2>&1
		hive a run resume digits >/dev/null 2>&1
		wait_for 30 json_is done a state run show digits
		find "$(state a)" -name '*.tmp' | grep -q . && fail "$point $n: half a checkpoint is left"
		daemon_kill a
	done
	say "$point: call $places, the run was finished after each"
done

# What an operator says is on the disk before it is answered: an answer whose commit has failed says so. One of the first
# commits of a daemon is that of the answer.
warned=
for n in 1 2 3 4 5 6 7 8 9 10 11 12; do
	rm -rf "$(state a)"
	daemon_start a --failpoint "store.commit.before=error:$n"
	hive a run start "$work/spec.json" --data "$data/digits" >"$work/said" 2>&1 || fail "commit $n: run start: $(cat "$work/said")"
	hive a run hold digits >>"$work/said" 2>&1 || fail "commit $n: run hold: $(cat "$work/said")"
	grep -q "could not be written down" "$work/said" && warned=yes
	daemon_kill a
	[ -z "$warned" ] || break
done
[ -n "$warned" ] || fail "a commit that fails is not told: $(cat "$work/said")"
say "commit $n of a daemon was that of an answer, and the answer said that it had failed"

# The same of a process that ends: what was answered is with the system before the answer is sent.
told=0 untold=0
for n in 1 2 3 4 5 6 7 8 9 10 11 12; do
	rm -rf "$(state a)"
	acknowledged=()
	daemon_spawn a --failpoint "store.commit.before=kill:$n"
	wait_for 10 ready
	for key in one two; do
		hive a dht put "$key" "$n" --life_s 3600 >"$work/said" 2>&1 && acknowledged[$key]=$n || untold=$((untold + 1))
	done
	if alive a; then daemon_kill a; else wait "${daemon_pid[a]}" 2>/dev/null; unset "daemon_pid[a]"; fi
	daemon_start a
	all_there "killed before commit $n"
	daemon_kill a
	told=$((told + ${#acknowledged[@]}))
	[ "${#acknowledged[@]}" -lt 2 ] || break
done
[ "${#acknowledged[@]}" = 2 ] && [ "$told" -gt 2 ] && [ "$untold" -gt 0 ] ||
	fail "$told puts were answered and $untold were not: no commit between two puts was struck"
say "killed before each of $n commits, $told puts were answered and kept"
