#!/bin/bash
# A run that is over can be told from SQLite alone: by a daemon that was started again, by one that has nothing but the
# other's database, and by whoever reads the tables: its specification starts the same run, every epoch is there and led
# to by the one before, and its samples add up. It can be exported and removed as if the daemon had never ended.
. "$(dirname "$0")/lib.sh"
epochs=$(fewer 40)
digits_spec "d['stop'] = {'epochs': $epochs}" "d['validation'] = {'every': 5}" "d['local'] = {'batch': 32, 'checkpoint_every': 5}" \
	>"$work/spec.json"
done_at() { json_is done "$1" state run show $run; }
# NAME FILE: what it says of the run, but for what no table has: the last accuracy in training, how long a validation took.
told() {
	hive "$1" --json run show $run >"$work/$2.show" || fail "$1 does not know $run"
	hive "$1" --json get $run >"$work/$2.get" || fail "$1 has no values of $run"
	python3 - "$work/$2.show" <<'END'
import json, sys
d = json.load(open(sys.argv[1]))
d.pop('accuracy', None)
d['validation'].pop('took_us', None)
json.dump(d, open(sys.argv[1], 'w'), indent=1, sort_keys=True)
END
}
same() { diff -u "$work/$1.show" "$work/$2.show" && diff -u "$work/$1.get" "$work/$2.get" || fail "$3"; }
exports() { hive "$1" model export $run "$work/$2" >/dev/null || fail "$1 exports nothing"; }

daemon_start a
# An older run of that name: it is found by its id, and looking at it does not make it the one that the name means.
python3 -c 'import json, sys
d = json.load(sys.stdin); d["seed"], d["stop"] = 2, {"epochs": 3}
print(json.dumps(d))' <"$work/spec.json" >"$work/older.json"
hive a run start "$work/older.json" --data "$run_data" >/dev/null || fail "the older run was refused"
wait_for 30 done_at a
older=$(show a run)
means() { [ "$(show "$1" run)" = "$2" ] || fail "$run is $(show "$1" run) on $1, not $2"; }
daemon_start b --join "$(address a)"
hive a run start "$work/spec.json" --data "$run_data" >/dev/null || fail "the run was refused"
wait_for 20 joined b
wait_for 30 past b 3
hive a set $run lr=0.002 >/dev/null || fail "lr cannot be set"
wait_for 60 done_at a
wait_for 20 done_at b
id=$(show a run)
told a before
expect "$older" hive a run show "${older:0:8}"
means a "$id"
exports a early
daemon_stop a
daemon_stop b
mkdir -m 700 "$work/c"
cp "$(state a)/state.db" "$work/c/" || fail "no database"

daemon_start a
[ "$(hive a run list)" = none ] || fail "run list without --all shows what was over before"
expect done hive a run list --all
expect "$older" hive a run show "${older:0:8}"
means a "$id"
told a after
same before after "a says something else since it was started again"
[ "$(hive a run list)" = none ] || fail "run list shows what somebody has asked for"
exports a late
cmp "$work/early/model.safetensors" "$work/late/model.safetensors" || fail "a exports something else since it was started again"
refuse 1 "run $run is done already" hive a run pause $run
refuse 1 "did you mean $run" hive a run show digts
daemon_start c
told c alone
same before alone "the database alone tells something else"
expect "$run" hive c run show "${id:0:8}"
refuse 1 "no part of run $run is saved yet" hive c model export $run "$work/nothing"
daemon_stop c

python3 - "$work/c/state.db" "$work" "$id" "$epochs" <<'END' || fail "the tables do not tell it"
import json, sqlite3, sys
db, work, run, last = sqlite3.connect(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
one = lambda sql: db.execute(sql, (run,)).fetchall()
name, spec, local, state, samples = one('select name, spec, local, state, samples from runs where run = ?')[0]
assert state == 'done'
json.dump({**json.loads(spec), 'name': name, 'local': json.loads(local)}, open(work + '/again.json', 'w'))
rows = one('select epoch, digest, prev, samples, weight, positions, params_version from epochs where run = ? and discarded = 0 order by epoch')
assert [r[0] for r in rows] == list(range(1, last + 1)), [r[0] for r in rows]
taken, had, link = set(), 0, '0' * 64
for epoch, digest, prev, now, weight, positions, version in rows:
    assert prev == link, (epoch, prev, link)
    own = {p for lo, hi in json.loads(positions) for p in range(lo, hi)}
    assert now == had + weight == had + len(own), (epoch, now, had, weight, len(own))
    assert not own & taken, (epoch, own & taken)
    taken, had, link = taken | own, now, digest
assert had == samples, (had, samples)
lr = one("select epoch, new_value from params where run = ? and key = 'lr' and state = 'applied'")
assert len(lr) == 1 and float(lr[0][1]) == 0.002, lr
assert all((r[-1] > 0) == (r[0] >= lr[0][0]) for r in rows), (lr, [(r[0], r[-1]) for r in rows])
assert {r[0] for r in one("select epoch from rounds where run = ? and outcome like 'done%'")} >= set(range(1, last + 1))
END

hive a --yes run rm $run >/dev/null || fail "it cannot be removed"
[ -z "$(find "$(state a)/runs/$id" -name '*.safetensors')" ] || fail "its checkpoints are still there"
means a "$older"
hive a --yes run rm $run >/dev/null || fail "the older one cannot be removed"
[ -z "$(find "$(state a)" -name '*.safetensors')" ] || fail "checkpoints of the older one are still there"
refuse 1 "no run \"$run\"" hive a run show $run
hive a run start "$work/again.json" >/dev/null || fail "its specification starts nothing"
[ "$(show a run)" = "$id" ] || fail "its specification starts another run"
wait_for 60 done_at a
hive a run start "$work/again.json" >/dev/null || fail "its specification starts nothing once it is over"
[ "$(hive a run list | grep -c "^${id:0:8}")" = 1 ] || fail "it is there twice: $(hive a run list)"
daemon_stop a

# What another version wrote, or a bad disk: said, and nothing else suffers.
python3 - "$work/c/state.db" "$id" <<'END'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("""update runs set spec = '{"model":[{"type":"cloud"}]}' where run = ?""", (sys.argv[2],))
db.commit()
END
daemon_start c
refuse 1 "run $run, as it was left: " hive c run show "$id"
means c "$older"
expect "$run" hive c run list --all
daemon_stop c
say "$epochs epochs, told three times"
