#!/bin/bash
# Three daemons behind a limited upload train with strategy allreduce, whose layers sleep: as a whole first, then, set while
# they train, in buckets that leave while backward goes on. A step is shorter then than computing and sending in turns. One
# is killed in the middle of it and comes back, or leaves; the others go on, and all have one history.
. "$(dirname "$0")/lib.sh"
printf '[network]\nrate_limit_up = 16MiB\n' >"$work/slow.conf"
cat >"$work/spec.json" <<'END'
{"name": "buckets", "input": [500], "model": [{"type": "sleep", "fwd_ms": 10, "bwd_ms": 30}, {"type": "linear", "out": 500},
 {"type": "sleep", "fwd_ms": 10, "bwd_ms": 30}, {"type": "linear", "out": 500}, {"type": "sleep", "fwd_ms": 10, "bwd_ms": 30},
 {"type": "linear", "out": 500}, {"type": "sleep", "fwd_ms": 10, "bwd_ms": 30}, {"type": "linear", "out": 500}],
 "loss": "cross_entropy", "optimizer": {"name": "sgd", "lr": 0.001, "momentum": 0.9}, "clip_norm": 1, "target_batch": 24,
 "seed": 3, "strategy": "allreduce", "validation": {"every": 0}, "stop": {"epochs": 1000000},
 "data": {"name": "x", "kind": "synthetic", "count": 1000000}, "local": {"batch": 8, "data": "/x"}}
END
run=buckets
all_past() { for n in a b c; do wait_for 60 past $n "$1"; done; }
in_force() { [[ "$(hive "$1" --json get buckets)" == *'"bucket_bytes":'"$2"* ]] && [ "$(show "$1" state)" = train ]; }

# Median of an epoch in ms, of those that all were in, over some that begin now.
epoch_ms() {
	local at
	at=$(($(epoch a) + 3))
	wait_for 60 past a $((at + 14))
	hive a --json query "select epoch, wall_ms from rounds where outcome = 'done' and members = 3 and epoch > $at
		order by epoch" | python3 -c '
import json, statistics, sys
rows = json.load(sys.stdin)["rows"]
print(round(statistics.median(b[1] - a[1] for a, b in zip(rows, rows[1:]) if b[0] == a[0] + 1)))'
}

daemon_start a --config "$work/slow.conf"
for n in b c; do daemon_start $n --config "$work/slow.conf" --join "$(address a)"; done
hive a run start "$work/spec.json" >/dev/null || fail "the run was refused"
for n in b c; do wait_for 20 joined $n --data /x; done
for n in a b c; do wait_for 30 members $n 3; done
turns=$(epoch_ms)

refuse 1 "bucket_bytes is for the gradient" hive a set buckets bucket_bytes=1000000 sync_every=2
refuse 1 "must be a whole number" hive a set buckets bucket_bytes=0.5
hive a set buckets bucket_bytes=600000 >/dev/null || fail "bucket_bytes was refused"
for n in a b c; do wait_for 30 in_force $n 600000; done
for n in a b c; do wait_for 30 members $n 3; done
expect "grad.5" hive a run plan buckets
buckets=$(epoch_ms)
say "an epoch in turns $turns ms, in buckets $buckets ms"
[ "$buckets" -lt "$turns" ] || late "buckets have hidden nothing: $buckets ms, $turns ms in turns"

daemon_kill c
at=$(epoch a)
for n in a b; do wait_for 30 past $n $((at + 4)); done
daemon_start c --config "$work/slow.conf" --join "$(address a)"
for n in a b c; do wait_for 60 members $n 3; done
all_past $(($(epoch a) + 3))

# One leaves in the middle of what it gives, and comes back; the others go on.
for k in 1 2 3; do
	hive c run leave buckets >/dev/null || fail "c cannot leave"
	wait_for 10 json_is left c state run show buckets
	at=$(epoch a)
	for n in a b; do wait_for 30 past $n $((at + 3)); done
	wait_for 20 joined c --data /x
	for n in a b c; do wait_for 60 members $n 3; done
done

# Who holds lets the others go on; and back to the whole.
hive b run hold buckets >/dev/null || fail "b cannot hold"
at=$(epoch a)
for n in a c; do wait_for 30 past $n $((at + 4)); done
hive b run hold buckets --off >/dev/null || fail "b cannot go on"
hive a set buckets bucket_bytes=0 >/dev/null || fail "bucket_bytes=0 was refused"
for n in a b c; do wait_for 30 in_force $n 0; done
for n in a b c; do wait_for 60 members $n 3; done
all_past $(($(epoch a) + 3))
one_history buckets 20 a b c
hive a --json run show buckets --data | python3 -c 'import json, sys; sys.exit(json.load(sys.stdin)["ledger"]["violations"])' ||
	fail "a sample was committed twice"
for n in a b c; do daemon_stop $n; done
say done
