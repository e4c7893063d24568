#!/bin/bash
# Daemons of a pipeline end at once when they are asked to, in the middle of a move of the state, too: whoever waits for
# a part that nobody gives (a fail point) waits no longer. What they have held before is in their checkpoints, with the
# bits of one daemon, and from there the run goes on.
. "$(dirname "$0")/pipeline_lib.sh"
"$HIVEMINDD" --failpoint a=error --check-config --config /dev/null >/dev/null 2>&1 || skip "this build has no fail points"
mean=$(for k in $(seq 300); do printf run.shard.give=error,; done)
whole() { [ "$(seats "${1:-}" | wc -l)" = 3 ]; }
begun() { grep -q "generation [2-9] of 3 members" "$work/$1.log"; }
# Nobody gives it anything, but it does not wait for the end of its time, which is 30 s.
stops() {
	local at
	at=$(now_ms)
	daemon_stop "$1"
	! grep "draining takes too long" "$work/$1.log" || fail "$1 has given up on what it holds"
	say "$1 has stopped after $(($(now_ms) - at)) ms"
}

# Three of four have stages, and their neighbours copies of them. One dies: all others move.
daemon_start a --failpoint "$mean"
for n in b c d; do daemon_start $n --join "$(address a)" --failpoint "$mean"; done
begins line 1000000 ', "stages": 3, "micro_batches": 4' b c d
wait_for 30 whole
wait_for 60 past a 25
victim=$(set -- $(seats); echo "$2")
others=$(for n in a b c d; do [ "$n" = "$victim" ] || echo "$n"; done)
daemon_kill "$victim"
say "$victim is dead, there are" $others
for n in $others; do wait_for 30 begun "$n"; done
for n in $others; do stops "$n"; done

# All that the living held is on their disks, of the epoch that was the last.
alone_as_far $others
folders=()
for n in $others; do folders+=("$(state "$n")"); done
compare "$(state s)" "${folders[@]}" <<'P' || fail "what they held is not what one alone has learned"
import sys
from tensors import holders
count, name = holders(sys.argv[1], sys.argv[2:])
print(len(count), 'tensors of', name, 'held by', sorted(count.values()))
P
at=$(for n in $others; do saved "$n"; done | sort | tail -n 1 | tr -dc 0-9 | sed 's/^0*//')
set -- $others
run=line
daemon_start "$1"
for n in $2 $3; do daemon_start "$n" --join "$(address "$1")"; done
for n in $others; do wait_for 60 past "$n" $((at + 5)); done
say done
