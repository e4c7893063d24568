#!/bin/bash
# Specs that cannot run: each refused with the place and the remedy, and the daemon goes on.
. "$(dirname "$0")/lib.sh"
data=$root/tests/data
daemon_start a

# spec EXPRESSION: the demo's spec after a change in Python, as d["key"] = value.
spec() {
	python3 - "$1" "$data/digits.json" >"$work/spec.json" <<'END'
import json, sys
d = json.load(open(sys.argv[2]))
d["strategy"] = "single"
exec(sys.argv[1])
print(json.dumps(d))
END
}
refused() { spec "$1"; refuse 1 "$2" hive a run start "$work/spec.json" --data "$data/digits"; }

refused 'd["optimiser"] = d.pop("optimizer")' 'did you mean "optimizer"'
refused 'd["optimizer"]["lr"] = "fast"' 'optimizer.lr'
refused 'd["optimizer"]["lr"] = -1' 'optimizer.lr'
refused 'd["loss"] = "cross_entropi"' 'cross_entropy'
refused 'del d["model"]' 'model'
refused 'd["model"][0]["type"] = "conv3d"' 'conv3d'
refused 'd["model"].pop(7)' 'flatten'
refused 'd["model"][-1]["out"] = 7' '7'
refused 'd["input"] = [1, 9, 9]' '9'
refused 'd["strategy"] = "telepathy"' 'telepathy'
refused 'd["target_batch"] = 0' 'target_batch'
refused 'd["local"] = {"batch": 0}' 'batch'
refused 'd["local"] = {"bacth": 8}' 'did you mean "batch"'
refused 'd["model"][0]["out"] = 65536; d["local"] = {"memory": "1MiB"}' 'memory'

printf '{"name": "x",\n' >"$work/spec.json"
out=$(hive a run start "$work/spec.json" 2>&1) && fail "a cut file was accepted"
case $out in *"line "*) ;; *) fail "a cut file: the refusal does not say where: $out" ;; esac
out=$(hive a run start "$work/none.json" 2>&1) && fail "a missing file was accepted"
case $out in *none.json*) ;; *) fail "a missing file: $out" ;; esac

# --data KIND:PATH
bad_data() { spec ""; refuse 1 "$2" hive a run start "$work/spec.json" --data "$1"; }
bad_data "foldr:$data/digits" 'did you mean "folder:'
bad_data "folder:$data/digits" 'no images'
bad_data "csv:$data/digits" 'no train.csv'
bad_data "text:relative/file.txt" 'absolute path'
spec ""
hive a run start "$work/spec.json" --name placed --data "idx:$data/digits" --dry-run >/dev/null || fail "--data idx:PATH was refused"

# Data: missing, truncated, no IDX at all, labels that do not fit.
spec 'pass'
refuse 1 "nowhere" hive a run start "$work/spec.json" --data /nowhere
cp -r "$data/digits" "$work/cut"
find "$work/cut" -name '*images*' -not -name README | while read -r f; do head -c 5000 "$f" >"$work/x" && cp "$work/x" "$f"; done
refuse 1 "truncated" hive a run start "$work/spec.json" --data "$work/cut"
cp -r "$data/digits" "$work/other"
find "$work/other" -name '*images*' | while read -r f; do printf 'this is no picture' >"$f"; done
refuse 1 "IDX" hive a run start "$work/spec.json" --data "$work/other"

alive a || fail "the daemon died of a bad spec"
# What could be read but not started stays visible as failed, with its reason; nothing runs.
hive a --json run list | python3 -c '
import json, sys
runs = json.load(sys.stdin)["runs"]
sys.exit(any(r["state"] != "failed" or not r["error"] for r in runs))' || fail "run list: $(hive a --json run list)"
daemon_stop a
say done
