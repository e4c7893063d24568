# Sourced by every script of tests/e2e: real daemons in a temporary folder, waiting for conditions, and a trap that leaves
# no process and no file behind. HIVEMINDD and HIVECTL name the programs; HIVE_SLOW stretches the time limits.
#
#   daemon_start NAME [OPTION...]   starts one and waits until it answers      hive NAME ARGUMENT...   hivectl to it
#   daemon_spawn NAME [OPTION...]   starts one and does not wait               state NAME              its state folder
#   daemon_kill NAME [SIGNAL]       SIGKILL unless said, and waits             log_of NAME             its standard error
#   daemon_stop NAME                SIGTERM; fails unless it exits with 0      address NAME            HOST:PORT to join
#   daemon_ends STATUS NAME SECONDS it ends by itself with STATUS              socket NAME             its control socket
#   wait_for SECONDS COMMAND...     until it succeeds, else leaves with 75     hold SECONDS COMMAND... must never fail
#   expect TEXT COMMAND...          the output must contain TEXT               refuse STATUS TEXT COMMAND...
#   skip REASON...                  it ends here, skipped                      untried REASON...  at its end, if nothing fails
#   json NAME PATH ARGUMENT...      one value of hivectl --json, as peers.0.id
#   host NAME                       the address it listens on
#   digits_spec STATEMENT...        the digits' spec, endless, at one rate, without validation; STATEMENTs of Python change d
#   show NAME FIELD [RUN]           of run show; RUN is $run      epoch NAME [RUN]        0 when it does not know the run
#   past NAME EPOCH [RUN]           it has come so far            members NAME N [RUN]    in the last epoch
#   joined NAME [OPTION...]         run join of $run with the data of $run_data
#   goes_on NAME [RUN]              two more epochs               learned NAME            0.8 of held-out digits
#   one_history RUN LEAST NAME...   these know at least LEAST epochs of the run in common, all with one digest
#   fewer N                         N epochs, or a quarter of them with sanitizers (HIVE_FEWER)
#   figure NAME VALUE UNIT lower|higher [LIMIT]     for tests/nightly, which judges medians (tests/README); not for who does not
#
# HM_LINK=wan, or words such as HM_LINK="rate=10mbit delay=50ms loss=1%", puts every daemon into a network namespace behind
# a link of its own (tests/link/README); tests/nightly runs some scripts that way, too. Then:
#   link_say COMMAND...             to the emulator: cut, heal, set, stats   wan_client=NAME  that one only dials out
set -u
# A word that is no command would only be a line on standard error, and what it was to prove not proved.
command_not_found_handle() { printf '%s: no command %s\n' "$test_name" "$1" >&2; kill -TERM $$; return 127; }
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
HIVEMINDD=${HIVEMINDD:-$root/build/daemon/hivemindd}
HIVECTL=${HIVECTL:-$root/build/ctl/hivectl}
HIVE_SLOW=${HIVE_SLOW:-1}
test_name=$(basename "$0" .sh)
[ -x "$HIVEMINDD" ] && [ -x "$HIVECTL" ] || { echo "build first: $HIVEMINDD and $HIVECTL are not there"; exit 1; }

# Short on purpose: the path of a Unix socket holds 107 bytes.
work=$(mktemp -d "${TMPDIR:-/tmp}/hive.XXXXXX")
declare -A daemon_pid=()
exec {nothing}<> <(:)           # reading from it takes as long as one likes
HM_LINK=${HM_LINK:-}
wan_client=
link_pid=
not_tried=
declare -A link_ns=()

# Other daemons of this machine may know ports that were theirs yesterday: a swarm key keeps them out. keyless=yes before
# the first start goes without.
keyless=

# Has a daemon that should still be there died by a signal of its own, or has a sanitizer spoken?
crashed() {
	local name status
	for name in "${!daemon_pid[@]}"; do
		kill -0 "${daemon_pid[$name]}" 2>/dev/null && continue
		status=0
		wait "${daemon_pid[$name]}" 2>/dev/null || status=$?
		case $status in 132|134|135|136|139) printf '%s: daemon %s crashed, status %s\n' "$test_name" "$name" "$status"; return 0 ;; esac
	done
	grep -lE 'ERROR: [A-Za-z]+Sanitizer|WARNING: ThreadSanitizer|runtime error: |Assertion .* failed' "$work"/*.log 2>/dev/null
}

# Status 75 says that time ran out and nothing worse is known: tests/run runs the script again.
cleanup() {
	local status=$? name
	trap - EXIT INT TERM
	[ "$status" != 75 ] || ! crashed || status=1
	for name in "${!daemon_pid[@]}"; do kill -KILL "${daemon_pid[$name]}" 2>/dev/null; done
	for name in "${!daemon_pid[@]}"; do wait "${daemon_pid[$name]}" 2>/dev/null; done
	[ -z "$link_pid" ] || { kill -KILL "$link_pid" && wait "$link_pid"; } 2>/dev/null
	[ "$status" != 0 ] || [ -z "$not_tried" ] || { printf '%s\n' "$not_tried"; status=77; }
	if [ "$status" != 0 ] && [ "$status" != 77 ]; then
		for name in "$work"/*.log; do
			[ -s "$name" ] && printf -- '--- %s\n' "${name##*/}" && tail -n 25 "$name"
		done
	fi
	rm -rf "$work"
	exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

fail() { printf '%s: %s\n' "$test_name" "$*"; exit 1; }
late() { printf '%s: %s\n' "$test_name" "$*"; exit 75; }
skip() { printf '%s\n' "$*"; exit 77; }
untried() { not_tried=${not_tried:+$not_tried; }$*; }
say() { printf '%s: %s\n' "$test_name" "$*"; }
figure() { printf 'figure: %s/%s\n' "$test_name" "$*"; }
fewer() { printf '%s' $(($1 / ${HIVE_FEWER:-1})); }
now_ms() { date +%s%3N; }
random_hex() { od -An -tx1 -N32 /dev/urandom | tr -d ' \n'; echo; }

state() { printf '%s/%s' "$work" "$1"; }
log_of() { printf '%s/%s.log' "$work" "$1"; }
socket() { printf '%s/%s/control.sock' "$work" "$1"; }
hive() { local name=$1; shift; timeout $((20 * HIVE_SLOW)) "$HIVECTL" -s "$(socket "$name")" "$@"; }
alive() { kill -0 "${daemon_pid[$1]}" 2>/dev/null; }

# Behind the emulator everybody has an address of its own; it follows from the name.
host() {
	local n
	[ -n "$HM_LINK" ] || { printf 127.0.0.1; return; }
	n=$(printf '%s' "$1" | cksum)
	printf '10.77.%s.%s' "${#1}" $((${n%% *} % 250 + 1))
}

# A wide area: 20 ms each way, and one that has a third of the speed.
link_words() {
	case $HM_LINK in
	wan) printf 'rate=100mbit delay=20ms jitter=5ms loss=0.5%%'; [ "$1" != c ] || printf ' rate=33mbit' ;;
	*) printf '%s' "$HM_LINK" ;;
	esac
}

link_open() {
	local program
	program=$(dirname "$HIVEMINDD")/../tests/link/link
	[ -x "$program" ] || fail "build first: $program is not there"
	"$program" --check >"$work/link.out" || skip "no link emulator here: $(cat "$work/link.out")"
	mkfifo "$work/link.in"
	: >"$work/link.out"
	exec {link_in}<>"$work/link.in"
	"$program" <"$work/link.in" >>"$work/link.out" 2>"$work/link.err.log" &
	link_pid=$!
}

link_said() { [ "$(wc -l <"$work/link.out")" -gt "$1" ]; }
link_say() {
	local before reply
	before=$(wc -l <"$work/link.out")
	printf '%s\n' "$*" >&"$link_in"
	wait_for 5 link_said "$before"
	reply=$(tail -n 1 "$work/link.out")
	case $reply in error:*) fail "link $*: $reply" ;; esac
	printf '%s\n' "$reply"
}

link_enter() {
	local reply
	[ -n "$link_pid" ] || link_open
	[ -z "${link_ns[$1]:-}" ] || return
	reply=$(link_say "node $1 $(host "$1") $(link_words "$1")") || fail "$reply"
	link_ns[$1]=${reply##* }
}

# The log of each start is appended, so that a restart keeps what came before.
daemon_spawn() {
	local name=$1 inside=()
	shift
	[ -d "$work/$name" ] || mkdir -m 700 "$work/$name"
	[ -n "$keyless" ] || set -- --swarm-key-file "$(own_key)" "$@"          # the last of an option counts
	if [ -n "$HM_LINK" ]; then
		link_enter "$name"
		inside=(nsenter --net="${link_ns[$name]}")
		[ "$wan_client" != "$name" ] || set -- --client "$@"
	fi
	"${inside[@]}" "$HIVEMINDD" --config /dev/null --state-dir "$work/$name" --listen "$(host "$name"):auto" "$@" \
		>>"$work/$name.log" 2>&1 </dev/null &
	daemon_pid[$name]=$!
}

answers() { alive "$1" || fail "daemon $1 ended: $(tail -n 3 "$work/$1.log")"; hive "$1" status >/dev/null 2>&1; }
daemon_start() { daemon_spawn "$@"; wait_for 10 answers "$1"; }

daemon_kill() {
	kill -"${2:-KILL}" "${daemon_pid[$1]}" 2>/dev/null
	daemon_ended "$1"
}
# Until it holds nothing any more; a shell does not wait for a child that it has disowned.
daemon_ended() {
	wait "${daemon_pid[$1]}" 2>/dev/null
	wait_for 35 gone "${daemon_pid[$1]}"
	unset "daemon_pid[$1]"
}

own_key() {
	[ -e "$work/swarm.key" ] || (umask 077; random_hex >"$work/swarm.key")
	printf '%s' "$work/swarm.key"
}

gone() { ! kill -0 "$1" 2>/dev/null; }
daemon_stop() {
	local pid=${daemon_pid[$1]} status=0
	kill -TERM "$pid" || fail "daemon $1 is not running"
	wait_for 35 gone "$pid"
	wait "$pid" || status=$?
	unset "daemon_pid[$1]"
	[ "$status" = 0 ] || fail "daemon $1 ended with status $status after SIGTERM"
}

daemon_ends() {
	local want=$1 name=$2 pid=${daemon_pid[$2]} status=0
	wait_for "$3" gone "$pid"
	wait "$pid" || status=$?
	unset "daemon_pid[$name]"
	[ "$status" = "$want" ] || fail "daemon $name ended with status $status, expected $want"
}

# The log of a daemon contains TEXT.
logged() { grep -qF -- "$2" "$work/$1.log"; }

# What the host has kept from each of this machine's processors so far, in the mean: limits of time do not count it.
processors=$(getconf _NPROCESSORS_ONLN)
stolen_ms() { local v; read -r -a v </proc/stat; printf '%s' $((v[8] * 10 / processors)); }

wait_for() {
	local seconds=$1 end
	shift
	end=$(($(now_ms) + seconds * 1000 * HIVE_SLOW - $(stolen_ms)))
	until "$@"; do
		[ $(($(now_ms) - $(stolen_ms))) -lt "$end" ] || late "waited $((seconds * HIVE_SLOW)) s for: $*"
		read -r -t 0.03 -u "$nothing"   # a pause without a process
	done
}

hold() {
	local end=$(($(now_ms) + $1 * 1000))
	shift
	while [ "$(now_ms)" -lt "$end" ]; do
		"$@" || fail "no longer true: $*"
		read -r -t 0.05 -u "$nothing"
	done
}

# STATE_FOLDER...: a program for Python on the standard input, which may use tensors.py.
compare() { PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$root/tests/e2e" python3 - "$@"; }

expect() {
	local text=$1 out status=0
	shift
	out=$("$@" 2>&1) || status=$?
	[ "$status" != 124 ] || late "no answer in time from: $*"
	[ "$status" = 0 ] || fail "status $status from: $*: $out"
	case $out in *"$text"*) ;; *) fail "expected \"$text\" from: $*, got: $out" ;; esac
}

refuse() {
	local want=$1 text=$2 out status=0
	shift 2
	out=$("$@" 2>&1) || status=$?
	[ "$status" != 124 ] || late "no answer in time from: $*"
	[ "$status" = "$want" ] || fail "expected status $want, got $status from: $*: $out"
	case $out in *"$text"*) ;; *) fail "expected \"$text\" from: $*, got: $out" ;; esac
}

json() {
	local name=$1 path=$2
	shift 2
	hive "$name" --json "$@" | python3 -c '
import json, sys
v = json.load(sys.stdin)
for k in sys.argv[1].split("."):
    v = v[int(k)] if isinstance(v, list) else v[k]
print(v if isinstance(v, str) else json.dumps(v))' "$path"
}
json_is() { local want=$1; shift; [ "$(json "$@" 2>/dev/null)" = "$want" ]; }
address() { json "$1" listen.0 status; }

digits_spec() {
	python3 - "$root/tests/data/digits.json" "$@" <<'END'
import json, sys
d = json.load(open(sys.argv[1]))
d["schedule"], d["stop"], d["validation"] = {"name": "constant"}, {"epochs": 1000000}, {"every": 0}
for statement in sys.argv[2:]:
    exec(statement)
print(json.dumps(d))
END
}

# The run that a script is about, and the data of those who join it; another one says so.
run=digits
run_data=$root/tests/data/digits
show() { json "$1" "$2" run show "${3:-$run}" 2>/dev/null; }
epoch() { local e; e=$(show "$1" epoch "${2:-}") && echo "$e" || echo 0; }
past() { local e; e=$(show "$1" epoch "${3:-}") && [ "$e" -ge "$2" ]; }
members() { [ "$(show "$1" members "${3:-}")" = "$2" ]; }
joined() { hive "$1" run join "$run" ${run_data:+--data "$run_data"} "${@:2}" >/dev/null 2>&1; }
goes_on() { wait_for 60 past "$1" $(($(epoch "$1" "${2:-}") + 2)) "${2:-}"; }
learned() { local v; v=$(show "$1" best_accuracy) && python3 -c "import sys; sys.exit(not float(sys.argv[1]) >= 0.8)" "$v"; }

one_history() {
	local run=$1 least=$2 number n chains=()
	shift 2
	for n; do
		number=$(json "$n" run run show "$run") || fail "$n does not know $run"
		hive "$n" --json query "select epoch, digest from epochs where discarded = 0 and run = '$number'" >"$work/$n.chain" ||
			fail "$n cannot be asked"
		chains+=("$work/$n.chain")
	done
	python3 - "$least" "${chains[@]}" <<'END' || fail "$run has two histories, or little in common"
import json, sys
chains = [dict(json.load(open(f))["rows"]) for f in sys.argv[2:]]
common = [e for e in set().union(*chains) if sum(e in c for c in chains) > 1]
wrong = [e for e in common if len({c[e] for c in chains if e in c}) > 1]
if len(common) < int(sys.argv[1]) or wrong:
    sys.exit(f"{len(common)} epochs are known to more than one, digests differ at {wrong}")
END
}
