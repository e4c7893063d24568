#!/bin/bash
# What may be turned while a run goes beside numbers: the size of one peer's micro-batches, and the swarm's way of averaging,
# which all take at one epoch. One is killed before such a change and finds it when it is back.
. "$(dirname "$0")/lib.sh"
data=$root/tests/data
digits_spec 'd["local"], d["target_batch"] = {"batch": 16}, 256' \
	'd["model"].insert(0, {"type": "sleep", "fwd_ms": 3, "bwd_ms": 3})' >"$work/spec.json"
all_past() { for n in a b c; do wait_for 60 past $n "$1"; done; }
says() { [[ "$(show "$1" equality)" == "$2"* ]]; }

daemon_start a
for n in b c; do daemon_start $n --join "$(address a)"; done
hive a run start "$work/spec.json" --data "$data/digits" >/dev/null || fail "the run was refused"
for n in b c; do wait_for 20 joined $n; done
all_past 5

# Of this peer alone: whoever takes part may.
begun=$(now_ms)
hive b set digits batch=64 >/dev/null || fail "batch was refused"
batch_is() { [ "$(show b local.batch)" = 64 ] && [ "$(show b state)" = train ]; }
wait_for 30 batch_is
say "64 samples a micro-batch after $(($(now_ms) - begun)) ms"
all_past $(($(epoch a) + 3))
refuse 1 "whole number of samples" hive b set digits batch=0
refuse 1 "set it by itself" hive b set digits batch=8 lr=0.1
refuse 1 "batch: " hive b set digits batch=2000000

# The swarm's: refused where it does not go together or the run has no state for it.
refuse 1 "only the author" hive b set digits delay_grad=true
refuse 1 "must be true or false" hive a set digits delay_grad=yes
refuse 1 "are for gradients" hive a set digits delay_grad=true local_updates=true
refuse 1 "changes what peers send" hive a set digits average_optimizer=true local_updates=true
refuse 1 "every needs local_updates" hive a set digits every=3
daemon_kill c
begun=$(now_ms)
from=$(json a epoch set digits delay_grad=true delay_step=true) || fail "the change was refused"
for n in a b; do wait_for 60 says $n "the committed parameters"; done
for n in a b; do wait_for 60 past $n $((from + 2)); done
say "another way of averaging, two epochs later: $(($(now_ms) - begun)) ms"
daemon_start c --join "$(address a)"
wait_for 60 says c "the committed parameters"
all_past $(($(epoch a) + 3))

hive a set digits delay_grad=false delay_step=false local_updates=true every=2 >/dev/null || fail "the change was refused"
for n in a b c; do wait_for 60 says $n "equal right after"; done
all_past $(($(epoch a) + 3))
refuse 1 "state of each peer is its own" hive a set digits local_updates=false every=1
expect '"every":2' hive a --json get digits

# Who holds does so after a restart and after SIGKILL, until it is told to go on; and so is what the swarm holds to.
hive c run hold digits >/dev/null || fail "c cannot hold"
wait_for 10 json_is held c state run show digits
daemon_kill c
daemon_start c --join "$(address a)"
wait_for 30 json_is held c state run show digits
daemon_stop c
daemon_start c --join "$(address a)"
wait_for 30 json_is held c state run show digits
hive c run hold digits --off >/dev/null || fail "c cannot go on"
wait_for 30 json_is train c state run show digits
daemon_stop b
daemon_start b --join "$(address a)"
wait_for 60 says b "equal right after"
all_past $(($(epoch a) + 3))
one_history digits 10 a b c
hive a --json run show digits --data | python3 -c 'import json, sys; sys.exit(json.load(sys.stdin)["ledger"]["violations"])' ||
	fail "a sample was committed twice"
for n in a b c; do daemon_stop $n; done
say done
