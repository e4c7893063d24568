#!/bin/bash
# Ways to be reached: several addresses, of both versions, a port that is announced, and peers that listen on nothing:
# two of them train with a third, download its state, use the DHT and ask their peers, and one of them may die.
. "$(dirname "$0")/lib.sh"
cat >"$work/run.json" <<'END'
{"name": "naps", "input": [8], "model": [{"type": "sleep", "fwd_ms": 10, "bwd_ms": 10}, {"type": "linear", "out": 4}],
 "loss": "cross_entropy", "optimizer": {"name": "sgd", "lr": 0.1}, "target_batch": 192, "strategy": "hivemind",
 "data": {"name": "x", "kind": "synthetic", "count": 100000}, "stop": {"epochs": 1000000},
 "local": {"batch": 16, "data": "/x"}}
END
peer() { hive "$1" --json peers | python3 -c '
import json, sys
print(next((json.dumps(p.get(sys.argv[2])) for p in json.load(sys.stdin)["peers"] if p["id"] == sys.argv[1]), "nobody"))' "$2" "$3"; }
peer_is() { [ "$(peer "$1" "$2" "$3")" = "$4" ]; }

# One daemon, two addresses; whoever dials either is in.
second=127.0.0.2
python3 -c 'import socket; socket.socket(socket.AF_INET6).bind(("::1", 0))' 2>/dev/null && second='[::1]'
refuse 42 "ports of the first" "$HIVEMINDD" --config /dev/null --state-dir "$work/x" --listen "127.0.0.1:24400 $second:24500"
printf '[network]\nrate_limit_up = 1000\n' >"$work/slow.conf"
refuse 42 "at least 1MiB a second" "$HIVEMINDD" --check-config --config "$work/slow.conf"
printf '[network]\nrate_limit_up = 100MiB\n' >"$work/a.conf"
daemon_start a --config "$work/a.conf" --listen "127.0.0.1:24400 $second:24400"
a=$(json a id status)
daemon_start b --join "$second:24400" --listen "$second:auto" --advertise localhost:24410
wait_for 15 json_is joined b join.0.state status
# What b announces is not where it listens, so nobody can dial it there.
[ "$(json b network.address status)" = "$(json b network.address status | sed 's/:[0-9]*$/:24410/')" ] || fail "$(hive b status)"
refused() { hive b net check | grep -q "no peer can dial this daemon at .*:24410"; }
wait_for 20 refused
daemon_stop b

# Two addresses on both sides: each shows the other's two, the one in use and the other; on a busy machine an answer may
# come too late, and the next one is in use.
daemon_start b --join 127.0.0.1:24400 --listen "127.0.0.1:24430 $second:24430"
wait_for 15 json_is joined b join.0.state status
b=$(json b id status)
both() {        # NAME PEER PORT
	[ "$({ peer "$1" "$2" address; peer "$1" "$2" other_addresses; } | grep -o '"[^"]*"' | sort)" = \
		"$(printf '"%s"\n' "127.0.0.1:$3" "$second:$3" | sort)" ]
}
wait_for 10 both a "$b" 24430
wait_for 10 both b "$a" 24400
daemon_stop b

# Several are announced, of which the first leads nowhere: b, which names that one in its HELLO, is heard.
daemon_start b --join 127.0.0.1:24400 --listen 127.0.0.1:24430 --advertise 127.9.9.9:24430,127.0.0.1
expect 127.9.9.9:24430 json b network.address status
b=$(json b id status)
wait_for 15 json_is joined b join.0.state status
wait_for 15 peer_is a "$b" state '"live"'
daemon_stop b

# Of the sockets that a daemon holds, those that listen.
listening() {
	python3 - "${daemon_pid[$1]}" <<'END'
import os, sys
pid, mine = sys.argv[1], set()
for fd in os.listdir(f"/proc/{pid}/fd"):
    try:
        mine.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    except OSError:
        pass
rows = [line.split() for v in ("tcp", "tcp6") if os.path.exists(f"/proc/{pid}/net/{v}") for line in open(f"/proc/{pid}/net/{v}").readlines()[1:]]
print(sum(r[3] == "0A" and f"socket:[{r[9]}]" in mine for r in rows))
END
}

# Clients.
run=naps run_data=
hive a run start "$work/run.json" >/dev/null || fail "the run was refused"
for n in c d; do daemon_start $n --client --join 127.0.0.1:24400; done
c=$(json c id status) d=$(json d id status)
for n in c d; do wait_for 30 joined $n; done
for n in a c d; do wait_for 30 members $n 3; done
for n in c d; do wait_for 30 past $n $(($(epoch a) + 3)); done
[ "$(listening a)" -ge 2 ] || fail "a listens at $(listening a) sockets"
for n in c d; do [ "$(listening $n)" = 0 ] || fail "$n is a client and listens"; done
peer_is a "$c" client true || fail "a does not know that c is a client: $(hive a peers)"
peer_is a "$c" reachable false || fail "a says that c can be dialled: $(hive a peers)"
[ "$(json c mode status)" = client ] || fail "$(hive c status)"
hive c dht put from.c '"there"' >/dev/null || fail "a client cannot store"
expect there hive d dht get from.c
grows() { [ "$(peer a "$c" received_bytes)" -gt "$1" ]; }
wait_for 10 grows "$(peer a "$c" received_bytes)"
[ "$(peer c "$a" rtt_us)" -gt 0 ] || fail "c has not measured its round trip: $(hive c peers)"

# One dies and comes back: it downloads the state that it missed.
daemon_kill d
wait_for 30 members a 2
wait_for 30 past a $(($(epoch a) + 2))
daemon_start d --client --join 127.0.0.1:24400
wait_for 60 members a 3
wait_for 30 past d $(($(epoch a) + 2))
printf '[network]\nrate_limit_up = 0\nrate_limit_down = 50MiB\n' >"$work/a.conf"
expect network.rate_limit_down hive a reload
wait_for 30 past c $(($(epoch a) + 2))
for n in d c a; do daemon_stop $n; done
say done
