#!/bin/bash
# Strategy pipeline with real daemons: three of them hold a stage each, and what they learn together has the bits of one
# daemon that has the whole model. A fourth one is a spare. Stopped in order and started again they go on where they
# were. With one copy of the state (redundancy 1), when one is killed the others say how many bytes of the state have no
# holder, wait, and lose nothing.
. "$(dirname "$0")/pipeline_lib.sh"
layers='{"type": "linear", "out": 48}, {"type": "tanh"}, {"type": "linear", "out": 48}, {"type": "layernorm"},
 {"type": "dropout", "p": 0.1}, {"type": "linear", "out": 48}, {"type": "relu"}, {"type": "linear", "out": 4}'
local_more=', "checkpoint_every": 5'
plan=', "schedule": "1f1b", "stages": 3, "micro_batches": 4, "redundancy": 1'
four() { hive "$1" run join $run --data=/x --batch=4 2>&1 | grep -q "all members have micro-batches of one size"; }
ranks() {       # NAME...: of all of them, in order
	for n in "$@"; do crew "$n" rank; done | sort | tr '\n' ' '
}
refused() {     # TEXT STATEMENT: the pipeline's spec, changed
	spec pipeline bad 10 "$plan" | python3 -c "import json, sys; d = json.load(sys.stdin); $2; json.dump(d, sys.stdout)" >"$work/bad.json"
	refuse 1 "$1" hive a run start "$work/bad.json"
}

# One daemon alone, with all of it.
daemon_start s
alone s alone 400 60

daemon_start a
refused "clip_norm: nobody has the whole gradient" 'd["clip_norm"] = 1'
refused "a robust mean" 'd["averaging"] = {"robust": "median"}'
refused "stop.accuracy" 'd["stop"] = {"accuracy": 0.9}'
run=line
spec pipeline $run 400 "$plan" >"$work/line.json"
hive a run start "$work/line.json" >/dev/null || fail "pipeline was refused"
wait_for 20 waits a "3 stages need 3 members, and there are 1"
refuse 1 "3 stages need 3 members, and there are 1" hive a run plan $run
refuse 1 "3 stages need 3 members, and there are 1" hive a run start "$work/line.json" --name dry --dry-run

for n in b c; do
	daemon_start $n --join "$(address a)"
	wait_for 20 four $n
	wait_for 20 joins $n
done
for n in a b c; do wait_for 30 past $n 3; done
[ "$(ranks a b c)" = "0 1 2 " ] || fail "ranks are $(ranks a b c)"
for n in a b c; do      # both at one moment
	hive $n run show $run --json | python3 -c 'import json, sys; d = json.load(sys.stdin)
sys.exit(("accuracy" in json.dumps(d)) != (d["crew"]["rank"] == 2))' || fail "$n: who knows which guesses are right is the last stage"
done
refuse 1 "clip_norm: nobody has the whole gradient" hive a set $run clip_norm=1
refuse 1 "hold parts of its model" hive b predict $run 0
for n in a b c; do wait_for 60 ended $n; done

# Each has saved its own part; together these are the bits of the one that was alone.
compare "$(state s)" "$(state a)" "$(state b)" "$(state c)" <<'P' || fail "parts of the pipeline are not the whole"
import sys
from tensors import newest
name, whole = newest(sys.argv[1])
seen = set()
for folder in sys.argv[2:]:
    its, parts = newest(folder)
    assert its == name, (its, name)
    for k, v in parts.items():
        assert v == whole[k], k
        assert k == 'optimizer.clock' or k not in seen, k
        seen.add(k)
    print(len(parts), 'tensors of', its)
assert seen == set(whole), set(whole) - seen
P
say "the bits of one"

# A model that is longer, written out, than what a record of the DHT holds: others join by its name all the same.
printf 'to be or not to be %.0s' {1..200} >"$work/text"
printf '{"name": "deep", "model": {"zoo": "gpt2", "layers": 24, "width": 32, "heads": 2, "vocab": 256, "positions": 32,
 "context": 32, "tied": 0}, "loss": "cross_entropy", "optimizer": {"name": "adamw", "lr": 0.001}, "target_batch": 8,
 "strategy": "pipeline", "stages": 4, "validation": {"every": 0}, "stop": {"epochs": 100}, "data": {"name": "text",
 "kind": "text"}, "local": {"batch": 1, "data": "%s"}}\n' "$work/text" >"$work/deep.json"
hive a run start "$work/deep.json" >/dev/null || fail "a deep model was refused"
deep() { hive b run join deep --data="$work/text" >/dev/null 2>&1; }
wait_for 20 deep
run=deep
wait_for 20 waits a "4 stages need 4 members, and there are 2"
for n in a b; do hive $n run leave deep >/dev/null || fail "$n does not leave"; done

# Without an end: a spare comes, everybody is stopped and started again, one is killed.
begins long 1000000 "$plan" b c
for n in a b c; do wait_for 30 past $n 5; done
daemon_start d --join "$(address a)"
wait_for 20 joins d
spare() { [ "$(crew d spares)" = 1 ] && [ "$(crew d rank)" = null ]; }
wait_for 30 spare
wait_for 60 past d $(($(epoch a) + 100))
[ "$(ranks a b c)" = "0 1 2 " ] || fail "a spare has taken somebody's place: ranks are $(ranks a b c)"
for n in d c b a; do daemon_stop $n; done
saved() { basename "$(find "$(state "$1")"/runs -name 'epoch-*.safetensors' -newer "$work/long.json" | sort | tail -n 1)"; }
[ "$(saved a)" = "$(saved b)" ] && [ "$(saved b)" = "$(saved c)" ] || fail "saved: $(saved a) $(saved b) $(saved c)"
was=$(saved a | tr -dc 0-9 | sed 's/^0*//')
daemon_start a
for n in b c d; do daemon_start $n --join "$(address a)"; done
for n in a b c; do wait_for 30 past $n $((was + 5)); done
# who came last may be the spare now
for dies in b c d; do [ "$(crew $dies rank)" = null ] || break; done
daemon_kill $dies
others=$(echo a b c d | tr -d $dies)
somebody_waits() { for n in $others; do waits $n "bytes of the state have no holder among the" && return; done; return 1; }
wait_for 30 somebody_waits
at=
where() { for n in $others; do epoch "$n"; done; }
stands() { [ "$(where)" = "$at" ]; }
settled() { stands || { at=$(where); return 1; }; }     # who says so may have heard of a COMMIT before another
wait_for 20 settled
hold 1 stands
expect "stopped" hive a run stop $run --yes
say done
