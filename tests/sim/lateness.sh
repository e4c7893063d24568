#!/bin/bash
# What a scenario program says and returns when seeds are late (scn.c). usage: lateness.sh PROGRAM
set -u
unset SEED SEEDS SEEDS_MOST SEEDS_SECONDS SEEDS_LEAST LATE_DRAWN PLANTED WANTED TWICE
program=$1 failed=0
# check WHAT STATUS PATTERN [NAME=VALUE...] SCENARIO: PATTERN is of the whole of what is said, replay lines left out.
check() {
	local what=$1 status=$2 pattern=$3 out got
	shift 3
	out=$(env "${@:1:$#-1}" "$program" "${@: -1}" 2>/dev/null)
	got=$?
	out=$(grep -v '^replay' <<<"$out" | tr '\n' '|')
	if [ $got -eq "$status" ] && grep -Eqx -- "$pattern" <<<"$out"; then echo "ok $what"; return; fi
	echo "not ok $what: status $got, expected $status; $out"
	failed=1
}
at='tests/sim/lateness\.c:[0-9]+'
check 'in time' 0 'ok in_time: 12 seeds, 0 failed, 0 late, [0-9]+ events\|' SEEDS=12 in_time
check 'what never comes has failed' 1 "SEED=1 never: .*$at: not is_set\|not ok never: 1 seeds, 1 failed, 0 late, .*" \
	SEEDS=1 never
lines="(LATE=1[23] seldom: [^|]*$at: not is_set, for 1000 ms too long\|){2}"
check 'two of twelve may be late' 0 "${lines}ok seldom: 12 seeds, 0 failed, 2 late, .*" \
	SEED=10 SEEDS=12 seldom
check 'three may not' 1 '(LATE=1[234] often: [^|]*\|){3}not ok often: 12 seeds, 0 failed, 3 late \(too many\), .*' \
	SEED=10 SEEDS=12 often
check 'of twenty-four, four' 0 '(LATE=[^|]*\|){4}ok seldom: 24 seeds, 0 failed, 4 late, .*' SEED=12 SEEDS=24 seldom
check 'of twenty-four, not six' 1 '(LATE=[^|]*\|){6}not ok often: 24 seeds, 0 failed, 6 late \(too many\), .*' \
	SEED=12 SEEDS=24 often
check 'of twelve seeds a row of seven is late once or twice' 0 '(LATE=[^|]*\|){2}ok row: 12 seeds, 0 failed, 2 late, .*' \
	SEED=1 SEEDS=12 row
check 'which is too often when the row is drawn again' 1 \
	'LATE=5 table: .*\|LATE=12 table: .*\|LATE=19 table: .*\|LATE=12 .*\|not ok table: 14 seeds, 0 failed, 4 late \(too many\), .*' \
	SEED=1 SEEDS=12 table
check 'a row that is late now and then may be' 0 \
	'LATE=5 row_seldom: [^|]*\|LATE=33 row_seldom: [^|]*\|ok row_seldom: 23 seeds, 0 failed, 2 late, .*' SEED=1 SEEDS=12 row_seldom
check 'after a late one, a dozen are drawn' 0 '(LATE=1[23] seldom: [^|]*\|){2}ok seldom: 12 seeds, 0 failed, 2 late, .*' \
	SEED=12 SEEDS=2 seldom
check 'however few may run otherwise' 1 '(LATE=[^|]*\|){3}not ok often: 12 seeds, 0 failed, 3 late \(too many\), .*' \
	SEED=12 SEEDS=12 SEEDS_MOST=1 often
check 'and none after one in time' 0 'ok seldom: 2 seeds, 0 failed, 0 late, .*' SEED=2 SEEDS=2 seldom
check 'unless one alone was asked for' 1 'LATE=12 seldom: [^|]*\|not ok seldom: 1 seeds, 0 failed, 1 late \(too many\), .*' \
	SEED=12 SEEDS=1 seldom
check 'one seed alone says it' 1 'LATE=12 seldom: [^|]*\|not ok seldom: 1 seeds, 0 failed, 1 late \(too many\), .*' SEED=12 seldom
lines='LATE=2 late_then_failed: .*sim_seed\(s\) == 0\|SEED=3 late_then_failed: .*sim_seed\(s\) != 3\|'
check 'the world goes on, and a failure counts' 1 "${lines}not ok late_then_failed: 2 seeds, 1 failed, 1 late, .*" \
	SEED=2 SEEDS=2 LATE_DRAWN=2 late_then_failed
lines='SEED=4 inner: world 0: [^|]*not is_set\|LATE=5 inner: world 0: [^|]*10000 ms too long\|'
check 'worlds in a world' 1 "${lines}not ok inner: 2 seeds, 1 failed, 1 late, .*" \
	SEED=4 SEEDS=2 LATE_DRAWN=2 inner
check 'a planted bug is seen by who is late' 1 'LATE=12 seldom: [^|]*\|not ok seldom: 11 seeds, 0 failed, 1 late, .*' \
	PLANTED=NO_TIMER WANTED="1000 ms too long" SEED=2 SEEDS=500 seldom
check 'what does not end' 1 'SEED=1 endless: it does not end: 1000 events\|not ok endless: 1 seeds, 1 failed, 0 late, 1000 events\|' \
	SEEDS=1 endless
exit $failed
