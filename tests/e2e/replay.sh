#!/bin/bash
# The run log of a real daemon, run again in one process, gives the same parameters after every epoch, bit for bit; one
# position changed in it is found. A log that has reached its size ends with an event, and the run goes on.
. "$(dirname "$0")/lib.sh"
data=$root/tests/data
again=$(dirname "$HIVEMINDD")/../tests/bench/replay_log
[ -x "$again" ] || fail "build first: $again is not there"
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
log_file() { json a log.path run show "$1"; }
one() {         # NAME STRATEGY LOG
	spec "$@" >"$work/$1.json"
	hive a run start "$work/$1.json" --data "$data/digits" >/dev/null || fail "the run was refused"
}

daemon_start a
one alone single 64MiB
one swarm hivemind 64MiB
one short single 20kB
for n in alone swarm short; do wait_for 60 json_is done a state run show $n; done
id() { json a run run show "$1"; }
for n in alone swarm; do
	log=$work/a/runs/$(id $n)/run.log
	wait_for 5 grep -q '"ev":"applied","epoch":12,' "$log"
	out=$("$again" "$work/$n.json" "$data/digits" "$log") || fail "$n: $out"
	[[ $out =~ ^12\ epochs,\ ([0-9]+)\ samples:\ every\ digest\ is\ the\ same ]] || fail "$n: $out"
	# a swarm's epoch may end with more than its target: a micro-batch that was under way
	if [ $n = alone ]; then [ "${BASH_REMATCH[1]}" = 3072 ]; else [ "${BASH_REMATCH[1]}" -ge 3072 ]; fi || fail "$n: $out"
	python3 - "$log" "$work/$n.lie" <<'END'
import re, sys
lines = open(sys.argv[1]).read().split('\n')
at = max(i for i, l in enumerate(lines) if '"positions":[[' in l)
lines[at] = re.sub(r'"positions":\[\[(\d+),(\d+)\]', lambda m: '"positions":[[%d,%d]' % (int(m[1]) + 1, int(m[2]) + 1), lines[at], count=1)
open(sys.argv[2], 'w').write('\n'.join(lines))
END
	refuse 1 ": its loss is " "$again" "$work/$n.json" "$data/digits" "$work/$n.lie"
done
[ "$(json a rows.0.0 query 'select count(*) from rounds where leader = (select author from runs limit 1)')" -ge 12 ] ||
	fail "the rounds do not say who led them"
log=$work/a/runs/$(id short)/run.log
[ "$(stat -c %s "$log")" -le 20000 ] || fail "the log is larger than allowed"
expect "the run log ends here" hive a query "select text from events where kind = 'run.log'"
daemon_stop a
say "two logs run again, bit for bit"
