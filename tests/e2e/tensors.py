# What a checkpoint holds, for the scripts that compare them bit for bit.
import glob
import json
import struct


def load(path):
    """The metadata, and of every tensor its bytes."""
    b = open(path, 'rb').read()
    n, = struct.unpack('<Q', b[:8])
    head = json.loads(b[8:8 + n])
    meta = head.pop('__metadata__')
    return meta, {k: b[8 + n:][v['data_offsets'][0]:v['data_offsets'][1]] for k, v in head.items()}


def newest(state):
    """Of a daemon with one run: the file's name, and its tensors."""
    path = sorted(glob.glob(state + '/runs/*/epoch-*.safetensors'))[-1]
    return path.split('/')[-1], load(path)[1]


def holders(alone, folders):
    """{tensor: how many hold it}, of all that the newest checkpoint of alone has; they must have its bits. Who holds no
    part, or is at another epoch, is passed over. And the checkpoint's name."""
    name, whole = newest(alone)
    count = {}
    for its, parts in map(newest, folders):
        for k, v in parts.items() if its == name and len(parts) > 1 else ():
            assert v == whole[k], k
            count[k] = count.get(k, 0) + 1
    assert set(count) == set(whole), set(whole) - set(count)
    return count, name
