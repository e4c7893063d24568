#!/bin/bash
# What a model does, while it trains: texts continued (bytes, a vocabulary, two peers), pictures named; nothing that asks
# stops the training, and what cannot be answered is said.
. "$(dirname "$0")/lib.sh"
python3 - "$work" <<'END'
import os, random, struct, sys, zlib
top, r = sys.argv[1], random.Random(7)

def png(w, h, of):      # dark ants, bright bees
    rows = b"".join(b"\0" + bytes(of * 150 + r.randrange(90) for x in range(w) for _ in range(3)) for y in range(h))
    part = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return (b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0)) +
            part(b"IDAT", zlib.compress(rows, 1)) + part(b"IEND", b""))

for i in range(60):
    path = f"{top}/pics/{('ant', 'bee')[i % 2]}"
    os.makedirs(path, exist_ok=True)
    open(f"{path}/{i}.png", "wb").write(png(8, 8, i % 2))
open(f"{top}/ant.png", "wb").write(png(8, 8, 0))
open(f"{top}/a bee.png", "wb").write(png(8, 8, 1))
open(f"{top}/small.png", "wb").write(png(4, 5, 1))
open(f"{top}/cut.png", "wb").write(png(8, 8, 1)[:60])
# a text that is learned in seconds: the same sentence again and again
open(f"{top}/text.txt", "w").write("the quick brown fox jumps over the lazy dog. " * 400)
END
fluent() { python3 -c "import sys; sys.exit(not float(sys.argv[1]) < 1.3)" "$(json "$1" perplexity run show fox 2>/dev/null || echo 9e9)"; }

daemon_start a
daemon_start b --join "$(address a)"
gpt="gpt2 layers=1 width=64 heads=2 context=48 dropout=0"
hive a run start fox --model $gpt --data "text:$work/text.txt" --tbs 32 --batch 8 --lr 0.005 >/dev/null || fail "refused"
expect '"name":"text"' hive a query "select json_extract(spec, '\$.data') from runs where name = 'fox'"
wait_for 30 hive b run join fox --data "$work/text.txt" --batch 8 >/dev/null
wait_for 90 fluent b
wait_for 30 fluent a
for peer in a b; do
	text=$(hive $peer generate fox --prompt "the quick" --tokens 60 --temperature 0) || fail "no text from $peer: $text"
	case $text in "the quick brown fox"*) ;; *) fail "$peer has learned something else: $text" ;; esac
done
once=$(hive a generate fox --prompt "dog" --tokens 3 --seed 9 --json | tail -n 1)
case $once in *'"tokens":3'*'"final":true'*) ;; *) fail "the last message: $once" ;; esac
expect "perplexity:" hive a run show fox

# Who stops reading stops the writing; training goes on all the while.
before=$(json a epoch run show fox)
timeout 0.5 "$HIVECTL" -s "$(socket a)" generate fox --tokens 100000 >/dev/null
readers=()
for i in 1 2 3 4 5 6 7 8 9; do
	"$HIVECTL" -s "$(socket a)" generate fox --tokens 100000 >/dev/null 2>&1 &
	readers+=($!)
done
reading() { local n=0 pid; for pid in "${readers[@]}"; do gone "$pid" || n=$((n + 1)); done; echo $n; }
eight() { [ "$(reading)" = 8 ]; }                       # the ninth is told that eight are enough
wait_for 10 eight
kill "${readers[@]}" 2>/dev/null
wait "${readers[@]}" 2>/dev/null
again() { hive a generate fox --tokens 1 >/dev/null 2>&1; }
wait_for 10 again
wait_for 30 past a $((before + 3)) fox

# Holding still, it still speaks.
hive a run hold fox >/dev/null || fail "it cannot be held"
expect "the quick brown" hive a generate fox --prompt "the quick" --tokens 10 --temperature 0
hive a run hold fox --off >/dev/null || fail "it cannot go on"

refuse 1 'no run "foxx" on this peer; did you mean fox?' hive a generate foxx
refuse 1 "temperature must be 0 to 100" hive a generate fox --temperature=-1
refuse 1 "tokens must be 1 to" hive a generate fox --tokens 0
refuse 1 "names no pictures" hive a predict fox "$work/ant.png"
hive a run stop fox --yes >/dev/null
over() { json_is stopped a state run show fox; }
wait_for 20 over
# What is over is read from its last checkpoint.
expect "the quick brown" hive a generate fox --prompt "the quick" --tokens 10 --temperature 0
refuse 1 "temperature must be" hive a generate fox --temperature 1000

# More than this machine has: refused, with a batch that would fit.
refuse 1 "this machine has" hive a run start huge --model gpt2 --data "text:$work/text.txt" --batch 100000 --tbs 100000
refuse 1 " would fit" hive a run start huge --model gpt2 --data "text:$work/text.txt" --batch 100000 --tbs 100000

# A vocabulary of its own: the other peer needs the same one.
hive a run start bpe --model $gpt --data "text:$work/text.txt" --vocab "$root/tests/data/bpe/tokenizer.json" --tbs 8 --batch 8 \
	--lr 0.01 >/dev/null || fail "refused"
wait_for 60 past a 15 bpe
expect "the quick" hive a generate bpe --prompt "the quick" --tokens 9 --top-k 3
refuse 1 "data.digest" hive b run join bpe --data "$work/text.txt"
refuse 1 "must be an absolute path" hive a run start c --model $gpt --data "text:$work/text.txt" --vocab tokenizer.json
refuse 1 "no such file" hive a run start c --model $gpt --data "text:$work/text.txt" --vocab /tokenizer.json
refuse 1 "vocabulary" hive a run start c --model $gpt --data "text:$work/text.txt" --vocab "$work/text.txt"
hive a run stop bpe --yes >/dev/null

# Pictures.
hive a run start pics --model resnet18 stem=cifar width=4 "blocks=[1,1]" --data "folder:$work/pics" --tbs 16 --batch 8 >/dev/null || fail "refused"
wait_for 60 past a 20 pics
cd "$work" || exit 1
expect "ant.png" hive a predict pics ant.png
[ "$(json a predictions.0.name predict pics ant.png)" = ant ] || fail "an ant is $(hive a predict pics ant.png)"
[ "$(json a predictions.1.name predict pics ant.png 'a bee.png')" = bee ] || fail "a bee is $(hive a predict pics 'a bee.png')"
expect "4x5" hive a predict pics ant.png small.png
refuse 1 "4x5 pixels" hive a predict pics small.png
refuse 1 "cut.png" hive a predict pics cut.png
refuse 1 "No such file" hive a predict pics nothing.png
refuse 1 "continues no text" hive a generate pics
refuse 3 "files is missing" hive a predict pics
hive a run stop pics --yes >/dev/null
ended() { json_is stopped a state run show pics; }
wait_for 20 ended
[ "$(json a predictions.0.name predict pics ant.png)" = ant ] || fail "an ant is $(hive a predict pics ant.png)"
rm "$(state a)"/runs/*/*.safetensors
refuse 1 "the run is over: there is no checkpoint" hive a predict pics ant.png
daemon_stop b
daemon_stop a
say done
