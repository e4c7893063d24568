#!/bin/bash
# Stages of a pipeline are killed, one after the other, the leader and those who just came among them. Neighbours hold
# copies: a spare takes the place, the state comes out of their memory, and what is learned in the end has the bits of one
# daemon that nothing has disturbed. Without a spare the run waits for whoever comes back, with nothing in hand.
. "$(dirname "$0")/pipeline_lib.sh"
holds_none() { [ "$(json "$1" crew.rank run show $run)" = null ]; }
whole() { [ "$(seats "${1:-}" | wc -l)" = 3 ]; }
goes_on() {     # NAME...: who lives; past where they are now
	local at
	at=$(epoch "$1")
	for n in "$@"; do wait_for 60 past "$n" $((at + 20)); done
}

daemon_start a
for n in b c d; do daemon_start $n --join "$(address a)"; done
begins line 1000000 ', "stages": 3, "micro_batches": 4' b c d
wait_for 30 whole
goes_on a b c d
[ "$(json a crew.redundancy run show $run)" = 2 ] || fail "redundancy is $(json a crew.redundancy run show $run)"

# Each of those who hold a stage dies once; whoever was dead before comes back as the spare of the next.
for victim in $(seats); do
	daemon_kill "$victim"
	others=$(for n in a b c d; do [ "$n" = "$victim" ] || echo "$n"; done)
	wait_for 60 whole "$victim"
	goes_on $others
	[ "$(for n in $others; do json $n crew.moved.taken_bytes run show $run; done | sort -n | tail -n 1)" -gt 0 ] || fail "nobody has taken anything"
	join=$(set -- $others; address "$1")
	daemon_start "$victim" --join "$join"
	goes_on a b c d
	say "$victim died and came back, at epoch $(epoch a)"
done

# No spare: two are left, and the rest of the state waits with them.
spare=$(for n in a b c d; do seated $n || echo $n; done)
others=$(seats)
daemon_kill "$spare"
victim=$(set -- $others; echo "$1")
others=$(set -- $others; echo "$2 $3")
daemon_kill "$victim"
first=$(set -- $others; echo "$1")
wait_for 30 waits "$first" "3 stages need 3 members, and there are 2"
at=$(epoch "$first")
stands() { [ "$(epoch "$first")" = "$at" ]; }
hold 1 stands
daemon_start "$victim" --join "$(address "$first")"
goes_on $others "$victim"
daemon_start "$spare" --join "$(address "$first")"
wait_for 60 holds_none "$spare"
goes_on a b c d

# All stop where they are; one alone goes there, too.
for n in a b c d; do daemon_stop $n; done
alone_as_far a b c d
compare "$(state s)" "$(state a)" "$(state b)" "$(state c)" "$(state d)" <<'P' || fail "what was learned is not what one alone has learned"
import sys
from tensors import holders
count, name = holders(sys.argv[1], sys.argv[2:])
assert min(count.values()) >= 2, count
print(len(count), 'tensors of', name, 'in two places at least')
P
say done
