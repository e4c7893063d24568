#!/bin/bash
# Validation of a pipeline of real daemons: what its members say of an epoch is what one daemon alone says of it, though
# stages are killed in the middle, one comes anew and the run is paused; and stop.accuracy ends all of them at one epoch.
. "$(dirname "$0")/pipeline_lib.sh"
looks() { sed "s/\"every\": 0/\"every\": $1/; s/\"stop\": {[^}]*}/\"stop\": {$2}/"; }
shows() { json "$1" val_accuracy run show "$run" 2>/dev/null | grep -q "^0\.[0-9]"; }
whole_line() { [ "$(seats "${1:-}" | wc -l)" = 3 ]; }
goes_on() {     # EPOCHS NAME...
	local at by=$1
	shift
	at=$(epoch "$1")
	for n in "$@"; do wait_for 60 past "$n" $((at + by)); done
}
results() { hive "$1" --json query "select epoch, val_loss, val_accuracy from epochs where run like '$2%' and val_loss is not null and not discarded" >"$work/$1.$3"; }
id() { json "$1" run run show "$2"; }

daemon_start a
for n in b c d; do daemon_start $n --join "$(address a)"; done

# What cannot be is said, and nothing begins.
plan=', "stages": 3, "micro_batches": 4, "replicas": 1'
spec pipeline bad 10 "$plan" | looks 0 '"accuracy": 0.9' >"$work/bad.json"
refuse 1 "stop.accuracy and validation.every 0" hive a run start "$work/bad.json"
spec pipeline bad 10 "$plan" | looks 2 '"accuracy": 0.9' | sed 's/"count": 4000/"count": 7/' >"$work/bad.json"
refuse 1 "the data hold nothing out" hive a run start "$work/bad.json"

run=line
spec pipeline line 1000000 "$plan" | looks 5 '"epochs": 1000000' >"$work/line.json"
hive a run start "$work/line.json" >/dev/null || fail "line was refused"
for n in b c d; do wait_for 20 joins $n; done
wait_for 30 whole_line
for n in a b c d; do wait_for 30 shows "$n"; done       # the one without a stage, too
for n in $(seats); do
	expect "a validation, of 63 held-out micro-batches (500 samples, 1 program):" hive "$n" run plan line
	[ "$(json "$n" validation.predicted.stuck run plan line)" = false ] || fail "a validation is predicted to be stuck"
	took=$(json "$n" trainer.held_out_bytes run show line)
	[ "$(json "$n" validation.held_out_bytes run plan line)" = "$took" ] || fail "$n: $took bytes hold what is held out"
	echo "$took" >>"$work/took"
done
# Two batches of eight samples, with twelve numbers, a label and a position each; the stage between reads none.
for k in 0 1 2; do json a members.$k.held_out_bytes run plan "$work/line.json" --members 3 >>"$work/said"; done
sort -no "$work/took" "$work/took"
[ "$(sort -n "$work/said" | tr '\n' ' ')" = "0 960 960 " ] || fail "run plan of the spec: $(cat "$work/said")"
[ "$(sort -n "$work/said")" = "$(cat "$work/took")" ] || fail "run plan of the spec: $(cat "$work/said"); they have $(cat "$work/took")"
refuse 1 "hivectl run plan FILE --members N says" hive a memory --spec "$work/line.json"
say "all say $(json "$(seats | head -n 1)" val_accuracy run show line)"

# Each of those who hold a stage dies once, wherever it is just then.
for victim in $(seats); do
	daemon_kill "$victim"
	others=$(for n in a b c d; do [ "$n" = "$victim" ] || echo "$n"; done)
	wait_for 60 whole_line "$victim"
	goes_on 12 $others
	daemon_start "$victim" --join "$(address "$(set -- $others; echo "$1")")"
	goes_on 12 a b c d
done
hive a run pause line >/dev/null || fail "no pause"
sleep 0.5
hive a run resume line >/dev/null || fail "no resume"
goes_on 12 a b c d
for n in a b c d; do results $n "$(id a line)" line; done
last=$(epoch a)
hive a run stop line --yes >/dev/null || fail "no stop"

# One alone, as far.
daemon_start s
run=alone
spec single alone $((last + 5)) '' | looks 5 "\"epochs\": $((last + 5))" >"$work/alone.json"
hive s run start "$work/alone.json" >/dev/null || fail "single was refused"
wait_for 120 ended s
results s "$(id s alone)" line
compare "$work"/?.line <<'P' || fail "members of the pipeline say something else than one alone"
import json
import sys
rows = {f[-6]: {r[0]: r[1:] for r in json.load(open(f))['rows']} for f in sys.argv[1:]}
alone, compared, epochs = rows.pop('s'), 0, set()
for name, said in rows.items():
    for epoch, (loss, accuracy) in said.items():
        if epoch not in alone:
            continue
        want = alone[epoch]
        assert round(accuracy * 500) == round(want[1] * 500), (name, epoch, accuracy, want)
        assert abs(loss - want[0]) <= 1e-6 * want[0], (name, epoch, loss, want)
        compared += 1
        epochs.add(epoch)
assert len(epochs) >= 5 and compared >= 2 * len(epochs), (compared, len(epochs))
print(compared, 'results of', len(epochs), 'epochs')
P

# All end at one epoch, which a COMMIT says; the spare, too. It learns next to nothing until all are there.
run=good
spec pipeline good 1000000 "$plan" | looks 2 '"accuracy": 0.7' | sed 's/"lr": 0.01/"lr": 1e-9/' >"$work/good.json"
hive a run start "$work/good.json" >/dev/null || fail "good was refused"
refuse 1 "is not set by hand" hive a set good reached=0.9
for n in b c d; do wait_for 20 joins $n; done
for n in a b c d; do wait_for 30 shows "$n"; done
hive a set good lr=0.01 >/dev/null || fail "no rate"
for n in a b c d; do wait_for 120 ended $n; done
at=$(epoch a)
for n in a b c d; do
	[ "$(epoch $n)" = "$at" ] || fail "$n ended at epoch $(epoch $n), a at $at"
	[ "$(json $n validation.epoch run show good) $(json $n val_accuracy run show good)" = "$at $(json a val_accuracy run show good)" ] ||
		fail "$n shows $(json $n val_accuracy run show good) of epoch $(json $n validation.epoch run show good)"
	[ "$(json $n rows.0.0 query "select count(*) from epochs where epoch = $at and val_accuracy is not null and run = '$(id $n good)'")" = 1 ] ||
		fail "$n has not written down what epoch $at is worth"
done
say done
