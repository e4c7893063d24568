#!/bin/bash
# Strategy pipeline, laid over its members by the planner: real daemons choose, all the same, say so in their logs, and
# learn the bits of one daemon alone, with stages that go forward twice. Who comes later makes them choose again.
. "$(dirname "$0")/pipeline_lib.sh"
plan=', "schedule": "gpipe", "stages": "auto", "replicas": 1, "remat": "boundary", "micro_batches": 4'
chosen() { hive "$1" log 2>/dev/null | grep -o "chosen: [0-9]* pipelines* of [0-9]* stages*, .*samples/s" | tail -n 1; }
chose() { [ -n "$(chosen "$1")" ]; }

daemon_start a
for n in b c; do daemon_start $n --join "$(address a)"; done
begins auto 300 "$plan" b c
for n in a b c; do wait_for 120 ended $n; done
chose a || fail "a has not said what was chosen: $(hive a log | tail -n 20)"
say "$(chosen a)"
case $(chosen a) in *"with recomputing"*) ;; *) fail "without recomputing" ;; esac
for n in b c; do ! chose $n || [ "$(chosen $n)" = "$(chosen a)" ] || fail "$n has chosen $(chosen $n)"; done
in=()           # who has a part; the others are spares
for n in a b c; do case $(hive $n log | grep -o "this peer is number [0-9]*" | tail -n 1) in *[01]) in+=($n) ;; esac; done
alone_as_far "${in[@]}"
whole s "${in[@]}"

# What cannot be, in words.
refuse 1 "ways to lay a pipeline over 2 members none fits" hive a run plan "$work/auto.json" --members 2 --memory 2KiB
refuse 1 "remat must be one of: none boundary auto" hive a run plan "$work/auto.json" --members 2 --remat periodic
refuse 1 "micro_batch_size auto: it is one for the life of a run" hive a run start "$work/auto.json" --name size \
	--micro_batch_size auto
say "chosen alike, learned alike"
