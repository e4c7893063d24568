#!/bin/bash
# The run log of a real daemon, run again in one process, gives the same parameters after every epoch, bit for bit; one
# position changed in it is found. A log that has reached its size ends with an event, and the run goes on. What an
# operator may give instead of logs is refused with a word that helps.
. "$(dirname "$0")/lib.sh"
data=$root/tests/data
spec() {        # NAME STRATEGY LOG
	python3 - "$data/digits.json" "$@" <<'END'
import json, sys
d = json.load(open(sys.argv[1]))
d["name"], d["strategy"], d["schedule"], d["stop"] = sys.argv[2], sys.argv[3], {"name": "constant"}, {"epochs": 12}
d["model"] = [{"type": "conv2d", "out": 8, "kernel": 3}, {"type": "batchnorm"}, {"type": "relu"}, {"type": "flatten"}, {"type": "linear", "out": 10}]
d["local"] = {"batch": 32, "deterministic": True, "log": sys.argv[4]}
print(json.dumps(d))
END
}
one() {         # NAME STRATEGY LOG
	spec "$@" >"$work/$1.json"
	hive a run start "$work/$1.json" --data "$data/digits" >/dev/null || fail "the run was refused"
}
folder() { printf '%s/a/runs/%s' "$work" "$(json a run run show "$1")"; }
log_file() { json a log.path run show "$1"; }
again() { "$HIVEMINDD" --replay "$@"; }

daemon_start a
one alone single 64MiB
one swarm hivemind 64MiB
one short single 20kB
for n in alone swarm short; do wait_for 60 json_is done a state run show $n; done
for n in alone swarm; do
	log=$(folder $n)/run.log
	[ "$(log_file $n) $(json a log.ended run show $n)" = "$log false" ] || fail "its log is shown at $(log_file $n)"
	expect "$log" hive a run show $n        # to people, too
	[ "$(json a members run show $n)" = 1 ] || fail "$n was alone"
	wait_for 5 grep -q '"ev":"applied","epoch":12,' "$log"
	out=$(again "$(folder $n)" 2>"$work/said") || fail "$n: $(cat "$work/said")"
	[ ! -s "$work/said" ] || fail "$n: standard error is no terminal: $(cat "$work/said")"
	[[ $out =~ ^$n:\ 12\ epochs\ are\ equal,\ every\ bit:\ ([0-9]+)\ samples ]] || fail "$n: $out"
	# a swarm's epoch may end with more than its target: a micro-batch that was under way
	if [ $n = alone ]; then [ "${BASH_REMATCH[1]}" = 3072 ]; else [ "${BASH_REMATCH[1]}" -ge 3072 ]; fi || fail "$n: $out"
	python3 - "$log" "$work/$n.lie" <<'END'
import re, sys
lines = open(sys.argv[1]).read().split('\n')
at = max(i for i, l in enumerate(lines) if '"positions":[[' in l)
lines[at] = re.sub(r'"positions":\[\[(\d+),(\d+)\]', lambda m: '"positions":[[%d,%d]' % (int(m[1]) + 1, int(m[2]) + 1), lines[at], count=1)
open(sys.argv[2], 'w').write('\n'.join(lines))
END
	refuse 1 ": its loss is " again "$work/$n.lie"
	refuse 1 "(equal before it: " again "$work/$n.lie"
done
[ "$(json a rows.0.0 query 'select count(*) from rounds where leader = (select author from runs limit 1)')" -ge 12 ] ||
	fail "the rounds do not say who led them"
log=$(folder short)/run.log
[ "$(stat -c %s "$log")" -le 20000 ] || fail "the log is larger than allowed"
[ "$(log_file short) $(json a log.ended run show short)" = "$log true" ] || fail "it does not say that the log has ended"
expect "the run log ends here" hive a query "select text from events where kind = 'run.log'"
expect "short: " again "$(folder short)"        # as far as it goes

# For programs: one object, and the place of what is wrong.
again --json "$(folder alone)" >"$work/out" || fail "--json: $(cat "$work/out")"
python3 - "$work/out" <<'END' || fail "--json: $(cat "$work/out")"
import json, sys
d = json.load(open(sys.argv[1]))
want = dict(result='equal', run='alone', logs=1, peers=1, epochs=12, samples=3072, contributions=12, stale=0, stale_most=0)
sys.exit(any(d[k] != v for k, v in want.items()) or d['took_s'] <= 0 or 'error' in d)
END
again --json "$work/swarm.lie" >"$work/out" 2>"$work/said" && fail "the lie is not seen"
[ ! -s "$work/said" ] || fail "--json says something else, too: $(cat "$work/said")"
python3 - "$work/out" "$work/swarm.lie" <<'END' || fail "--json: $(cat "$work/out")"
import json, sys
d = json.load(open(sys.argv[1]))
e = d['error']
line = open(sys.argv[2]).read().split('\n')[e['line'] - 1]
sys.exit(d['result'] != 'differs' or d['epochs'] < 8 or e['code'] != 'mismatch' or e['log'] != sys.argv[2] or
	e['epoch'] != d['epochs'] + 1 or '"ev":"end"' not in line or 'its loss is' not in e['text'])
END

# A terminal sees how far it is.
out=$(python3 -c 'import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)' "$HIVEMINDD" --replay "$(folder alone)" </dev/null) ||
	fail "on a terminal: $out"
[[ $out == *"alone: epoch 1 of 12"*"12 epochs are equal"* ]] || fail "on a terminal: $out"

# What an operator does wrong.
refuse 3 "which logs?" again
refuse 3 "usage: hivemindd --replay" again --threads 2 "$log"
expect "usage: hivemindd --replay" again --help
refuse 42 "--replay comes first" "$HIVEMINDD" --client --replay "$log"
refuse 1 "No such file" again "$work/none.log"
refuse 1 "no run log in this folder: the run was started without --log" again "$work"
refuse 1 "it is no file" again /dev/null
mkfifo "$work/fifo" && refuse 1 "it is no file" again "$work/fifo"
refuse 1 "is the same file" again "$(folder alone)" "$work/a/../a/runs/$(basename "$(folder alone)")/run.log"
no_log() { refuse 1 "does not say in its first lines of which run it is" again "$1"; }
: >"$work/empty.run"
refuse 1 "it is empty" again "$work/empty.run"
head -c 300000 /dev/urandom >"$work/binary.run"
head -c 9000000 /dev/zero | tr '\0' x >"$work/wide.run"
for n in binary.run wide.run swarm.json; do no_log "$work/$n"; done
log=$(folder swarm)/run.log
tail -n +20 "$log" >"$work/tail.run"
refuse 1 "whose beginning is missing" again "$work/tail.run"
refuse 1 "all logs have to be of one run" again "$log" "$(folder alone)"
head -n 2 "$log" >"$work/head.run"
refuse 1 "nothing was compared" again "$work/head.run"
(cat "$work/head.run" "$work/wide.run" && printf '\n') >"$work/garbage.run"
refuse 1 "garbage.run:3, epoch 1: " again "$work/garbage.run"
(head -n 40 "$log" && head -c 3000 "$work/binary.run" && printf '\n') >"$work/broken.run"
refuse 1 "broken.run:41, epoch " again "$work/broken.run"
again --json "$work/broken.run" | python3 -c 'import json, sys; json.load(sys.stdin)' || fail "no JSON of a log that is none"
lie() { sed "2s/$1/$2/" "$log" >"$work/lie.run" && ! cmp -s "$log" "$work/lie.run" || fail "no $1 in the log"; }
strategy='"strategy":"hivemind"'
while read -r instead words; do
	lie "$strategy" "$instead"
	refuse 1 "$words" again "$work/lie.run"
done <<END
"strategy":"pipeline","plan":{"stages":2} strategy pipeline
$strategy,"averaging":{"codec":"fp16"} averaging.codec
$strategy,"averaging":{"robust":"median"} averaging.robust
$strategy,"weights":{} file of weights
"strategy":"best" lie.run: strategy: 
END
lie '"deterministic":true' '"deterministic":false'
refuse 1 'did not have "deterministic": true in its local part' again "$work/lie.run"
lie '"seed":[0-9]*' '"seed":77'
refuse 1 "the state that it begins with at epoch 0 is in no log" again "$work/lie.run"
# The data: others, none, elsewhere.
refuse 1 "data $work: " again --data "$work" "$log"
refuse 1 "data $work/none: " again --data "$work/none" "$log"
lie '"data":"[^"]*"' '"data":"digits"'
refuse 1 "where the data digits is here: --data PATH" again "$work/lie.run"
again --data "$data/digits" "$work/lie.run" >/dev/null || fail "--data is not taken"
lie '"data":"[^"]*"' '"data":"\/nowhere\/digits"'
refuse 1 "/nowhere/digits (--data PATH says where it is here): " again "$work/lie.run"
# Who was counted and has no log is named before anything is computed.
sed '/"ev":"round","epoch":[789],/s/"shares":\[\["/"shares":[["00112233445566ff",64],["/' "$log" >"$work/lie.run"
refuse 1 "no log of theirs is here: 00112233445566ff from epoch 7 on" again "$work/lie.run"
again --json "$work/lie.run" | grep -q '"epochs":0,.*"code":"not_found"' || fail "it was computed first"
refuse 1 "Not a directory" again "$work/lie.run/log"

# A result that nobody can take.
again "$(folder alone)" >/dev/full 2>"$work/said" && fail "a result that is not written is a success"
grep -q "the result cannot be written" "$work/said" || fail "it does not say that the result is not written"

# Every life of a daemon has a log, of which ten are kept; one that has more to give than these cannot be run again.
run=lives
digits_spec "d['name'], d['strategy'] = 'lives', 'hivemind'" 'd["model"].insert(0, {"type": "sleep", "fwd_ms": 5})' \
	'd["local"] = {"batch": 32, "deterministic": True, "log": "64MiB", "checkpoint_every": 5}' >"$work/lives.json"
hive a run start "$work/lives.json" --data "$data/digits" >/dev/null || fail "the run was refused"
for n in 1 2 3; do
	wait_for 30 past a $(($(epoch a) + 3))
	daemon_stop a
	[ "$n" = 2 ] && dir=$(echo "$work"/a/runs/*/run.log.1) && dir=${dir%/*} && echo old >"$dir/run.log.9" && echo newer >"$dir/run.log.8"
	daemon_start a
done
[ "$(cat "$dir/run.log.9")" = newer ] || fail "the oldest log is not the one that goes"
rm "$dir/run.log.9"
wait_for 30 past a $(($(epoch a) + 3))
hive a run stop lives --yes >/dev/null || fail "lives cannot be stopped"
daemon_stop a
expect "of 1 peer (4 logs)" again "$dir"
rm "$dir/run.log.2"
refuse 1 "the state that it begins with at epoch" again "$dir"
say "logs run again, bit for bit"
