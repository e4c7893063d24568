#!/bin/bash
# Runs that begin with weights from a safetensors file: one that was trained here, one as PyTorch's users have them (another type,
# a prefix, counters); a member without the file gets them from the others; wrong files are refused with what is wrong.
. "$(dirname "$0")/lib.sh"
data=$root/tests/data

# spec NAME EPOCHS
spec() {
	python3 - "$data/digits.json" "$@" >"$work/$1.json" <<'END'
import json, sys
d = json.load(open(sys.argv[1]))
d['name'], d['stop'], d['schedule'] = sys.argv[2], {'epochs': int(sys.argv[3])}, {'name': 'constant'}
d['local'] = {'batch': 32}
print(json.dumps(d))
END
}
start() { hive a run start "$work/$1.json" --data "$data/digits" "${@:2}"; }
over() { [ "$(json "$1" state run show "$2" 2>/dev/null)" = done ]; }
loss_of() { json a rows.0.0 query "select e.loss from epochs e join runs r on e.run = r.run where r.name = '$1' and e.epoch = 1"; }
below() { python3 -c 'import sys; sys.exit(not float(sys.argv[1]) < float(sys.argv[2]))' "$1" "$2"; }

daemon_start a
spec first 60
start first >/dev/null || fail "the first run was refused"
wait_for 60 over a first
trained=$(json a rows.0.0 query "select path from checkpoints order by epoch desc limit 1")
[ -s "$trained" ] || fail "there is no checkpoint: $trained"
below 1.5 "$(loss_of first)" || fail "the first run began with a loss of $(loss_of first)"

# The same weights in a new run; then as other programs write them.
spec second 2
start second --weights "$trained" >/dev/null || fail "the second run was refused"
wait_for 30 over a second
below "$(loss_of second)" 0.5 || fail "with trained weights the first loss is $(loss_of second)"
python3 - "$trained" "$work" <<'END'
import json, math, struct, sys
raw = open(sys.argv[1], 'rb').read()
n = struct.unpack('<Q', raw[:8])[0]
head, data = json.loads(raw[8:8 + n]), raw[8 + n:]
mine = {k: v for k, v in head.items() if k != '__metadata__' and not k.startswith('optimizer.')}
values = lambda v: struct.unpack(f'<{(v["data_offsets"][1] - v["data_offsets"][0]) // 4}f', data[slice(*v['data_offsets'])])


def write(name, tensors):
    """tensors: name: (dtype, shape, bytes)"""
    at, h, body = 0, {}, b''
    for k, (dtype, shape, p) in tensors.items():
        h[k] = {'dtype': dtype, 'shape': shape, 'data_offsets': [at, at + len(p)]}
        at, body = at + len(p), body + p
    text = json.dumps(h).encode()
    open(f'{sys.argv[2]}/{name}.safetensors', 'wb').write(struct.pack('<Q', len(text)) + text + body)


def bf16(v):
    return b''.join(struct.pack('<H', (struct.unpack('<I', struct.pack('<f', x))[0] + 0x8000) >> 16 & 0xffff) for x in v)


half = {'module.' + k: ('F16', v['shape'], struct.pack(f'<{len(values(v))}e', *values(v))) for k, v in mine.items()}
write('half', {**half, 'module.bn1.num_batches_tracked': ('I64', [], struct.pack('<q', 7))})
write('brain', {'model.' + k: ('BF16', v['shape'], bf16(values(v))) for k, v in mine.items()})
plain = {k: ('F32', v['shape'], struct.pack(f'<{len(values(v))}f', *values(v))) for k, v in mine.items()}
write('short', {k: v for k, v in plain.items() if k != 'conv2.bias'})
write('wide', {**plain, 'fc.bias': ('F32', [11], b'\0' * 44)})
write('whole', {**plain, 'fc.bias': ('I32', [10], b'\0' * 40)})
write('nan', {**plain, 'fc.bias': ('F32', [10], struct.pack('<10f', *[math.nan] * 10))})
good = open(sys.argv[1], 'rb').read()
open(f'{sys.argv[2]}/torn.safetensors', 'wb').write(good[:-100])
open(f'{sys.argv[2]}/junk.safetensors', 'wb').write(b'not a file of weights at all')
END
for kind in half brain; do
	spec $kind 2
	start $kind --weights "$work/$kind.safetensors" >/dev/null || fail "weights as $kind were refused"
	wait_for 30 over a $kind
	below "$(loss_of $kind)" 0.5 || fail "$kind: the first loss is $(loss_of $kind)"
done

# A member without the file.
spec together 150
start together --weights "$work/half.safetensors" >/dev/null || fail "the common run was refused"
daemon_start b --join "$(address a)"
run=together
wait_for 20 joined b
wait_for 20 logged b "come from another member"
for n in a b; do wait_for 100 over $n together; done
last() { json "$1" rows.0.0 query "select e.digest from epochs e join runs r on e.run = r.run where r.name = 'together' and e.epoch = 150"; }
[ "$(last a)" = "$(last b)" ] || fail "the members end with different weights: $(last a) and $(last b)"

# What is wrong is said, and nothing is started.
spec bad 2
bad() { refuse 1 "$1" start bad --weights "$2"; }
bad "No such file" "$work/none.safetensors"
bad "the path must be absolute" half.safetensors
bad "tensor conv2.bias is not in the file" "$work/short.safetensors"
bad "tensor fc.bias is 11 in the file and 10 in the model" "$work/wide.safetensors"
bad "tensor fc.bias is I32; weights are F32, F64, F16 or BF16" "$work/whole.safetensors"
bad "is not finite" "$work/nan.safetensors"
bad "truncated" "$work/torn.safetensors"
bad "not a safetensors file" "$work/junk.safetensors"
# What was read for a run that cannot start is given back (the sanitized daemon would say so when it ends).
echo '{"memory": "1KiB"}' >"$work/small.json"
refuse 1 "local.memory" start bad --weights "$work/half.safetensors" --local "$work/small.json"
for n in a b; do daemon_stop $n; done
