#!/bin/bash
# An operator's odd moments: words from the wrong peer, words to a run that is over, two runs on one daemon, SIGTERM and
# SIGHUP in the middle of a round, a folder that went away, all daemons restarted at once.
. "$(dirname "$0")/lib.sh"
data=$root/tests/data
python3 - "$data/digits.json" >"$work/spec.json" <<'END'
import json, sys
d = json.load(open(sys.argv[1]))
d["schedule"], d["stop"], d["local"] = {"name": "constant"}, {"epochs": 1000000}, {"batch": 32, "checkpoint_every": 5}
print(json.dumps(d))
END
state_is() { [ "$(show "$1" state "${3:-digits}")" = "$2" ]; }

cp -r "$data/digits" "$work/digits"             # b's own copy: it will go away
# Fixed ports: they are all that is remembered when everybody starts again at once.
declare -A at_port=([a]=24330 [b]=24333 [c]=24336)
start() { local n=$1; shift; daemon_start "$n" --listen "127.0.0.1:${at_port[$n]}" "$@"; }
start a
for n in b c; do start $n --join "$(address a)"; done
hive a run start "$work/spec.json" --data "$data/digits" >/dev/null || fail "the run was refused"
b_joined() { hive b run join digits --data "$work/digits" >/dev/null 2>&1; }
wait_for 20 b_joined
wait_for 20 joined c
for n in a b c; do wait_for 60 members $n 3; done

# What only the author may do, from another peer: refused, with the way out; nothing changes.
for verb in stop pause resume; do refuse 1 "only the author" hive b --yes run $verb digits; done
refuse 1 "run leave" hive c --yes run stop digits
refuse 1 "only the author" hive b set digits lr=0.5
refuse 1 "no run" hive b run show nothing
refuse 1 "run join nothing" hive b run leave nothing
refuse 1 "already" hive b run join digits --data "$work/digits"
# Nobody is asked to confirm what cannot be done.
refuse 1 'no run "nothing"' hive a run stop nothing
refuse 1 'no run "nothing"' hive a run rm nothing
refuse 1 "only the author" hive b run stop digits
refuse 1 "stop or leave it first" hive a run rm digits
refuse 3 "say --yes" hive a run stop digits
expect "train" hive a run stop digits --check
refuse 3 "usage" hive b run start
goes_on b

# Held here, the others go on; it can be held twice, and leave while it is held.
hive c run hold digits >/dev/null || fail "hold was refused"
hive c run hold digits >/dev/null || fail "hold again was refused"
wait_for 20 state_is c held
goes_on a
hive c run leave digits >/dev/null || fail "leave was refused while it was held"
wait_for 30 state_is c left
refuse 1 "left already" hive c run leave digits
refuse 1 "left already" hive c run hold digits
for n in a b; do wait_for 30 members $n 2; done
wait_for 20 joined c
for n in a b c; do wait_for 60 members $n 3; done

# Paused by the author: everybody stops; one that is killed meanwhile comes back paused; resumed: everybody goes on.
hive a run pause digits >/dev/null || fail "pause was refused"
for n in a b c; do wait_for 20 state_is $n paused; done
hive a run pause digits >/dev/null || fail "pause again was refused"
daemon_kill c
start c --join "$(address a)"
back() { case $(show c state) in train | paused) ;; *) return 1 ;; esac; }
wait_for 60 back
hive a run resume digits >/dev/null || fail "resume was refused"
for n in a b c; do wait_for 60 state_is $n train; done
for n in a b c; do wait_for 60 members $n 3; goes_on $n; done

# A second run beside it; both go on, and stopping one does not touch the other.
hive b run start "$work/spec.json" --name second --data "$data/digits" >/dev/null || fail "the second run was refused"
goes_on b second
goes_on b
refuse 1 "second" hive a --yes run stop second        # a is not in it
# On a terminal: no question about what is not there, and nothing happens when the answer is no.
at_terminal() {         # ANSWER WORDS...: what hivectl of b says there
	printf '%s\n' "$1" | python3 -c '
import os, pty, sys
pid, fd = pty.fork()
if not pid:
    os.execv(sys.argv[1], sys.argv[1:])
os.write(fd, sys.stdin.buffer.read())
said = b""
try:
    while piece := os.read(fd, 4096):
        said += piece
except OSError:
    pass
sys.stdout.write(said.decode())
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))' "$HIVECTL" -s "$(socket b)" "${@:2}"
}
refuse 3 "Go on? [y/N]" at_terminal n run stop second
said=$(at_terminal y run stop nothing) && fail "what is not there was stopped"
case $said in *"Go on?"*) fail "asked about what is not there: $said" ;;
	*'no run "nothing"'*) ;; *) fail "not said: $said" ;; esac
[ "$(show b state second)" = train ] || fail "it was stopped without a yes"
expect "Go on? [y/N]" at_terminal y run stop second
wait_for 30 state_is b stopped second
refuse 1 "stopped already" hive b run stop second
refuse 1 "stopped" hive b run pause second
refuse 3 "say --yes" hive b run rm second
hive b --yes run rm second >/dev/null || fail "rm was refused"
refuse 1 "no run" hive b run show second
refuse 1 "leave it first" hive b --yes run rm digits

# SIGHUP and SIGTERM in the middle of rounds: the first disturbs nobody, the second is an orderly end.
kill -HUP "${daemon_pid[b]}" "${daemon_pid[a]}"
goes_on a
daemon_stop c
for n in a b; do wait_for 30 members $n 2; done

# Its data went away while it was down: it says so and lives; the others go on; with the data it takes part again.
daemon_kill b
mv "$work/digits" "$work/elsewhere"
start b --join "$(address a)"
wait_for 30 state_is b failed
expect "$work/digits" hive b run show digits
goes_on a
mv "$work/elsewhere" "$work/digits"
wait_for 20 b_joined
for n in a b; do wait_for 60 members $n 2; done

# Everybody at once.
at=$(epoch a)
for n in a b; do daemon_kill $n; done
for n in a b c; do start $n; done
for n in a b c; do wait_for 90 members $n 3; done
[ "$(epoch a)" -ge $((at - 6)) ] || fail "epoch $at before the restart of all, $(epoch a) after it"
for n in a b c; do goes_on $n; done

# Stopped by the author at last; who comes back later hears that it is over.
hive a --yes run stop digits >/dev/null || fail "stop was refused"
for n in a b c; do wait_for 30 state_is $n stopped; done
[ "$(json a ledger.proof.exactly_once run show digits --data)" = true ] || fail "no proof after the end: $(hive a run show digits --data)"
refuse 1 "has ended: stopped" hive c run join digits --data "$data/digits"
state_is c stopped || fail "c: $(hive c run show digits)"
for n in a b c; do daemon_stop $n; done
say done
