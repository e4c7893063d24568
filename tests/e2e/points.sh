#!/bin/bash
# Row C06 on real daemons: at each named point of the code (hivemindd --list-failpoints) a peer is killed, or stopped for
# two seconds, in every role that passes it: member (whoever leads an epoch or owns a part is one), client, auxiliary (no
# data, but parts), held member (neither), joiner, donor. The three others finish the same round: none is given up,
# one history, its samples are theirs and each was counted once; the victim comes back and contributes.
# usage: tests/e2e/points.sh   a dozen cells by chance; SEED=N repeats them; CELLS=all: every one;
#                         CELLS="ROLE:POINT:FATE ..." these, as member:avg.ack.before:stop
. "$(dirname "$0")/lib.sh"
"$HIVEMINDD" --failpoint a=error --check-config --config /dev/null >/dev/null 2>&1 || skip "this build has no fail points"
data=$root/tests/data
RANDOM=$((${SEED:=$(od -An -N2 -tu2 /dev/urandom)} & 32767))

# Which points a role passes. What --list-failpoints has and this has not fails the test.
round="avg.ack avg.data avg.progress avg.ready"
lead="avg.attempt avg.begin avg.commit"
wire="net.answer net.chunk net.hello1 net.session"
both() { local p; for p in "$@"; do printf '%s.before %s.after ' $p $p; done; }
declare -A passes=(
	[member]="$(both $round $lead $wire avg.result avg.recover avg.recovered avg.leave avg.propose net.hello2 store.commit) run.commit.keep
		file.fsync file.open file.rename file.write ckpt.done.before mem.small mem.big"
	[client]="$(both $round $wire store.commit)"
	[held]="$(both avg.ack avg.progress avg.ready $lead net.answer net.hello1 net.hello2 net.session store.commit)"
	[auxiliary]="$(both avg.ack avg.progress avg.ready avg.result net.answer net.chunk net.hello1 net.session store.commit)"
	[joiner]="$(both avg.ack avg.progress $wire net.hello2 store.commit) run.state.ask"
	[donor]="$(both net.answer net.chunk) run.state.give")
# A client owns no part, never leads and never takes over, an auxiliary has nothing to send: these are armed all at once,
# and must not strike.
declare -A never=([client]="$(both $lead avg.result avg.recover)" [auxiliary]="$(both avg.data)")
# rotate.sh; pipeline_stop.sh; tests/sim: scn_node_life; tests/sim: scn_crew
elsewhere="key.rotate.after key.rotate.before run.shard.give avg.missing.after avg.missing.before
	$(both crew.answer crew.ask crew.begin crew.go crew.propose crew.show)"

listed=" ${passes[*]//$'\n'/ } ${elsewhere//$'\n'/ } "
listed=${listed//$'\t'/ }
for point in $("$HIVEMINDD" --list-failpoints); do
	case $listed in *" $point "*) ;; *) fail "$point is a new point: which roles pass it?" ;; esac
done

spec() {
	python3 - "$data/digits.json" <<'END'
import json, sys
d = json.load(open(sys.argv[1]))
d["schedule"], d["stop"], d["validation"] = {"name": "constant"}, {"epochs": 1000000}, {"every": 0}
d["local"] = {"batch": 32, "checkpoint_every": 10}
d["model"].insert(0, {"type": "sleep", "fwd_ms": 4})
json.dump(d, sys.stdout)
END
}
# The first value of a query's first row; empty when there is none (yet).
value() { hive "$1" query "$2" 2>/dev/null | awk 'NR == 2 && $1 != "-" { print $1 }'; }
epoch_of() { value "$1" "select max(epoch) from rounds where outcome like 'done%'"; }
past() { local e; e=$(epoch_of "$1") && [ -n "$e" ] && [ "$e" -ge "$2" ]; }
joined() {
	local how=(--data "$data/digits")
	[ "$1" != h ] || how=(--aux)
	hive "$1" run join digits "${how[@]}" >/dev/null 2>&1
}
known() { hive "$1" run show digits >/dev/null 2>&1; }
stopped() { grep -q '^[0-9]* (.*) T' "/proc/${daemon_pid[$1]}/stat" 2>/dev/null; }
struck() { ! alive "$1" || stopped "$1"; }
# It was in every commit since MS once: among the members, and none was left out.
back() { [ -n "$(value a "select 1 from rounds where wall_ms > $2 and outcome = 'done' and members = $3 limit 1")" ]; }
in_state() { [ "$(hive "$1" run show digits 2>/dev/null | awk '$1 == "state:" { print $2; exit }')" = "$2" ]; }
# One that will be struck; the shell is not to speak of it.
armed() { daemon_spawn "$@"; disown "${daemon_pid[$1]}"; }
commit_after() { value "$1" "select min(wall_ms) from rounds where wall_ms > $2 and outcome like 'done%'"; }
committed() { [ -n "$(commit_after "$1" "$2")" ]; }
others="a b c"

# Another one that dies in the middle of a round: as its leader, or owing parts to others.
accident() {
	local end=$(($(now_ms) + 5000 * HIVE_SLOW))
	armed w --join "$(address a)" --failpoint "$1=kill:$((1 + RANDOM % 3))"
	until accident_over w "$2" || [ "$(now_ms)" -gt $end ]; do read -r -t 0.03 -u "$nothing"; done
	daemon_kill w
}
accident_over() { ! alive "$1" || struck "$2" || { joined "$1"; false; }; }

# What makes a running victim come to a point: nothing where every round passes it.
drive() {
	case $2 in
	avg.recover.* | avg.recovered.*) accident avg.begin.after "$1" ;;
	avg.propose.*) hive "$1" set digits "lr=0.00$((RANDOM % 8 + 1))" >/dev/null 2>&1 ;;
	avg.leave.*) if in_state "$1" train; then hive "$1" run leave digits >/dev/null 2>&1; else joined "$1"; fi ;;
	esac
}

comes_to() {
	local end=$(($(now_ms) + patience * 1000 * HIVE_SLOW))
	until struck "$1"; do
		[ "$(now_ms)" -lt "$end" ] || return 1
		case $3 in
		joiner | auxiliary | client) joined "$1" ;;
		donor) if in_state "$1" train; then fresh d; asked "$1"; fi ;;
		held) hive "$1" run hold digits >/dev/null 2>&1 ;;
		*) drive "$1" "$2" ;;
		esac
		read -r -t 0.03 -u "$nothing"
	done
	[ -z "${daemon_pid[d]:-}" ] || daemon_kill d
}
patience=20

# The newcomer asks several for the state, so it takes a moment, and at times another try.
asked() { local end=$(($(now_ms) + 3000)); until struck "$1" || [ "$(now_ms)" -gt $end ]; do read -r -t 0.03 -u "$nothing"; done; }

# Somebody who knows nothing yet.
fresh() {
	[ -z "${daemon_pid[$1]:-}" ] || daemon_kill "$1"
	rm -rf "${work:?}/$1"
	daemon_spawn "$1" --join "$(address a)"
	wait_for 10 joined "$1"
}

# cell ROLE POINT FATE
cell() {
	local role=$1 point=$2 fate=$3 name=v words=() n count at gap most=0 from begun
	begun=$(now_ms)
	count=$((1 + RANDOM % 4))
	[ "$role" != held ] || count=$((count * 20))          # by then it is held
	case $point in
	mem.small) count=$((1 + RANDOM * 4)) ;;
	net.hello* | net.session.* | ckpt.* | store.* | run.* | avg.leave.* | avg.propose.* | avg.recover* | mem.big) count=1 ;;
	esac
	case $role in
	client) name=k words=(--client) ;;
	auxiliary) name=h ;;
	joiner) name=j && rm -rf "$work/j" ;;
	esac
	armed $name --join "$(address a)" ${words[@]+"${words[@]}"} --failpoint "$point=$fate:$count"
	if ! comes_to $name "$point" "$role"; then
		fail "SEED=$SEED: $role never came to $point"
	fi
	at=$(now_ms)
	for n in $others; do
		wait_for 10 committed $n "$at"
		gap=$(($(commit_after $n "$at") - at))
		[ $gap -le $most ] || most=$gap
	done
	if [ "$fate" = stop ]; then
		read -r -t 2 -u "$nothing"
		kill -CONT "${daemon_pid[$name]}"
	else
		daemon_ended $name
		daemon_start $name --join "$(address a)" ${words[@]+"${words[@]}"}
	fi
	from=$(now_ms)
	wait_for 20 contributes $name "$role"
	printf '%-24s %-8s %-5s next commit after %4d ms, back after %4d ms, %5d ms in all\n' "$point" "$role" "$fate" $most $(($(now_ms) - from)) \
		$(($(now_ms) - begun))
	printf '%s %s %s %s %s %s\n' "$point" "$role" "$fate" "$begun" "$at" "$most" >>"$work/cells"
	daemon_kill $name
}

# Once its run trains: the others have counted its samples. One that is held is a member.
contributes() {
	local since
	if [ "$2" = held ]; then
		in_state "$1" held || { hive "$1" run hold digits >/dev/null 2>&1; return 1; }
	else
		in_state "$1" train || { joined "$1"; return 1; }
	fi
	since=$(now_ms)
	wait_for 20 back a "$since" 4
}

daemon_start v
spec >"$work/spec.json"
hive v run start "$work/spec.json" --data "$data/digits" >/dev/null || fail "the run was refused"
for n in $others; do daemon_start $n --join "$(address v)"; done
for n in $others; do wait_for 20 joined $n; done
since=$(now_ms)
wait_for 20 back a "$since" 4
daemon_kill v
never_strike() {         # ROLE NAME [OPTION...]
	local at point arms=
	for point in ${never[$1]}; do arms+=",$point=kill"; done
	armed "$2" --join "$(address a)" --failpoint "${arms#,}" "${@:3}"
	wait_for 20 contributes "$2" "$1"
	at=$(epoch_of a)
	wait_for 20 past a $((at + 10))
	alive "$2" || fail "$1: came to one of ${never[$1]}"
	daemon_kill "$2"
	say "$1 never passed $(echo ${never[$1]})"
}
never_strike client k --client
never_strike auxiliary h

if [ "${CELLS:-all}" != all ]; then
	read -r -a cells <<<"${CELLS//:/\/}"
else
	cells=()
	for role in member client auxiliary held joiner donor; do
		for point in ${passes[$role]}; do
			cells+=("$role/$point/kill")
			case $role:$point in member:avg.leave.* | member:avg.propose.*) ;; member:avg.* | client:avg.*) cells+=("$role/$point/stop") ;; esac
		done
	done
	[ -n "${CELLS:-}" ] || mapfile -t cells < <(shuf -n 12 --random-source=<(yes $RANDOM) -e "${cells[@]}" | sort)
fi
say "SEED=$SEED, ${#cells[@]} cells"
for c in "${cells[@]}"; do
	IFS=/ read -r role point fate <<<"$c"
	cell "$role" "$point" "$fate"
done

# What the survivors hold: one history, whose samples are the weights of its epochs, each counted once; and no round was
# given up between a SIGKILL and the commit that followed it.
at=$(epoch_of a)
for n in $others; do wait_for 20 past $n $((at + 1)); done
hive a --yes run stop digits >/dev/null 2>&1 || { daemon_start v --join "$(address a)"; wait_for 20 known v; hive v --yes run stop digits >/dev/null; }
over() { in_state "$1" stopped; }
for n in $others; do wait_for 30 over $n; done
for n in $others; do
	hive $n --json query 'select epoch, digest, prev, samples, weight from epochs where not discarded order by epoch' >"$work/$n.epochs" || fail "$n: epochs"
	hive $n --json query "select epoch, wall_ms, reason from rounds where outcome = 'failed'" >"$work/$n.failed" || fail "$n: rounds"
	hive $n --json run show digits --data >"$work/$n.show" || fail "$n: its data"
done
python3 - "$work" <<'END' || fail "SEED=$SEED: see above"
import json, sys
work, wrong, by_epoch, given_up = sys.argv[1], [], {}, 0
for n in "abc":
	rows = json.load(open(f"{work}/{n}.epochs"))["rows"]
	for epoch, digest, prev, samples, weight in rows:
		by_epoch.setdefault(epoch, {}).setdefault((digest, samples), []).append(n)
	wrong += [f"{n}: epoch {b[0]} has {b[3] - a[3]} samples of weight {b[4]}" for a, b in zip(rows, rows[1:])
		if b[0] == a[0] + 1 and b[2] == a[1] and b[4] is not None and b[3] - a[3] != b[4]]
	show = json.load(open(f"{work}/{n}.show"))
	if not show["ledger"]["proof"]["exactly_once"] or sum(b - a for a, b in show["ledger"]["committed"]) != show["samples"]:
		wrong.append(f"{n}: samples are not counted once: {show['ledger']['proof']}")
wrong += [f"epoch {e}: {len(h)} histories: {sorted(h.values())}" for e, h in sorted(by_epoch.items()) if len(h) > 1]
for line in open(f"{work}/cells"):
	point, role, fate, begun, at, gap = line.split()
	for n in "abc":
		for epoch, ms, why in json.load(open(f"{work}/{n}.failed"))["rows"]:
			if fate == "kill" and int(at) <= ms <= int(at) + int(gap):
				wrong.append(f"{point} {role}: {n} gave up epoch {epoch}: {why}")
print(f"{len(by_epoch)} epochs compared")
print("\n".join(wrong[:10]))
sys.exit(bool(wrong))
END
for n in $others; do daemon_stop $n; done
say done
