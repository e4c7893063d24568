#!/bin/bash
# The swarm's key is replaced on three daemons, one after the other, while they train together: no round is lost and
# nobody is cut off; a machine that has the old key only gets in during the window, and not after it; restarts keep
# what was decided.
. "$(dirname "$0")/lib.sh"
key() { (umask 077; random_hex >"$work/$1.key"); }
key first
key second
# Layers that sleep: what is looked at here is who averages with whom, and processors have better things to do.
cat >"$work/run.json" <<'END'
{"name": "naps", "input": [8], "model": [{"type": "sleep", "fwd_ms": 20, "bwd_ms": 20}, {"type": "linear", "out": 4}],
 "loss": "cross_entropy", "optimizer": {"name": "sgd", "lr": 0.1}, "target_batch": 192, "strategy": "hivemind",
 "data": {"name": "x", "kind": "synthetic", "count": 100000}, "stop": {"epochs": 1000000},
 "local": {"batch": 16, "data": "/x"}}
END
for n in a b c; do cp -p "$work/first.key" "$work/$n.key"; done
run=naps run_data=
daemon_start a --swarm-key-file "$work/a.key"
listen=$(address a)
for n in b c; do daemon_start $n --swarm-key-file "$work/$n.key" --join "$listen"; done
hive a run start "$work/run.json" >/dev/null || fail "the run was refused"
for n in b c; do wait_for 30 joined $n; done
wait_for 30 members a 3
wait_for 30 past a $(($(epoch a) + 2))

# A wrong file changes nothing.
refuse 1 "no swarm key there" hive a key rotate "$work/nothing.key"
cp "$work/second.key" "$work/open.key"; chmod 644 "$work/open.key"
refuse 1 "chmod 600" hive a key rotate "$work/open.key"
[ "$(json a swarm_key key show)" = true ] || fail "key show: $(hive a key show)"
old=$(json a fingerprint key show)
[ "$(json b fingerprint key show)" = "$old" ] || fail "two fingerprints of one key"
[ "$(hive a key new-swarm-key | grep -cE '^[0-9a-f]{64}$')" = 1 ] || fail "key new-swarm-key: $(hive a key new-swarm-key)"

begun=$(epoch a)
for n in a b c; do
	expect "$old is good for" hive $n key rotate "$work/second.key" --window=600
	new=$(json $n fingerprint key show)
	[ "$new" != "$old" ] || fail "$n has the old key still"
	wait_for 30 past $n $(($(epoch $n) + 2))
done
# All sessions move to the new key by themselves.
moved() { [ "$(json "$1" peers_with_old_key key show)" = "[]" ]; }
for n in a b c; do wait_for 20 moved $n; done
expect "being replaced" hive a net check
lost=$(json a rows.0.0 query "select count(*) from epochs where epoch > $begun and members < 3")
[ "$lost" = 0 ] || fail "$lost epochs without everybody: $(hive a query 'select epoch, members from epochs')"
# A late one that has the old key only is let in now, and one that restarts with the old file knows the new key.
daemon_start d --swarm-key-file "$work/first.key" --join "$listen"
wait_for 20 json_is joined d join.0.state status
daemon_stop d
daemon_kill c
daemon_start c --swarm-key-file "$work/c.key" --join "$listen"
logged c "was replaced" || fail "c does not say that its file is old"
[ "$(json c fingerprint key show)" = "$new" ] || fail "c forgot the new key"
[ "$(json c old_fingerprint key show)" = "$old" ] || fail "c forgot the old key"
wait_for 30 members a 3

# The window is closed.
for n in a b c; do expect "no other one is good" hive $n key rotate "$work/second.key" --window=0; done
wait_for 30 past a $(($(epoch a) + 2))
daemon_start d --swarm-key-file "$work/first.key" --join "$listen"
wait_for 20 json_is unreachable d join.0.state status
case $(json d join.0.error status) in *"another swarm key"*) ;; *) fail "$(hive d status)" ;; esac
expect "hivectl key rotate" hive d net check
[ "$(json a network.counters.wrong_swarm_key status)" -ge 1 ] || fail "a has not counted the stranger"
members a 3 || fail "a lost members"
# Rounds were whole, but for those around the kill; nobody resynchronised because of keys.
whole=$(json a rows.0.0 query "select count(*) from epochs where members = 3 and epoch > $begun")
[ "$whole" -ge 8 ] || fail "$whole whole epochs after $begun: $(hive a query 'select epoch, members, state from epochs')"
# With the new key in its file a restart needs no memory of the old one.
daemon_stop c
cp -p "$work/second.key" "$work/c.key"
daemon_start c --swarm-key-file "$work/c.key" --join "$listen"
[ ! -e "$(state c)/swarm-key.rotation" ] || fail "c keeps a rotation that is over"
[ "$(json c fingerprint key show)" = "$new" ] || fail "c has another key"
# One that dies between keeping the new key and telling of it knows it at the next start.
daemon_start x --swarm-key-file "$work/first.key" --failpoint key.rotate.before=error,key.rotate.after=kill
refuse 1 "key.rotate.before" hive x key rotate "$work/second.key"
hive x key rotate "$work/second.key" >/dev/null 2>&1
daemon_ends 137 x 10
daemon_start x --swarm-key-file "$work/first.key"
[ "$(json x fingerprint key show)" = "$new" ] || fail "x forgot what it had kept"
[ "$(json x old_fingerprint key show)" = "$old" ] || fail "x forgot its old key"
for k in first second; do ! grep -qFf "$work/$k.key" "$work"/*.log || fail "a swarm key is in a log"; done
for n in x d c b a; do daemon_stop $n; done
say done
