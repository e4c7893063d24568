#!/bin/bash
# A model that reads one text and writes another: two peers learn to turn words round, and do it when they are asked.
. "$(dirname "$0")/lib.sh"
python3 - "$work/words" <<'END'
import os, random, sys
r = random.Random(3)
words = ["".join(r.choice("abcdef") for _ in range(r.randint(1, 4))) for _ in range(1200)]
os.mkdir(sys.argv[1])
for part, some in ("train", words[:1100]), ("test", words[1100:]):
    open(f"{sys.argv[1]}/{part}.tsv", "w").write("".join(f"{w}\t{w[::-1]}\n" for w in some))
END
printf 'one line\nno tab\n' >"$work/none.tsv"

daemon_start a
daemon_start b --join "$(address a)"
model="transformer layers=1 width=48 heads=4 inner=96 context=6 dropout=0 norm=pre"
refuse 1 "line 1: a source, one TAB and an answer are wanted" hive a run start none --model $model --data "pairs:$work/none.tsv"
hive a run start words --model $model --data "pairs:$work/words" --tbs 64 --batch 16 --optimizer adam --lr 0.004 >/dev/null || fail "refused"
wait_for 30 hive b run join words --data "$work/words" --batch 16 >/dev/null
answers() { [ "$(hive "$1" generate words --prompt "$2" --temperature 0)" = "$3" ]; }
for peer in a b; do
	for word in abcd face bed; do wait_for 60 answers $peer $word "$(echo $word | rev)"; done
done
fluent() { python3 -c "import sys; sys.exit(not float(sys.argv[1]) < 1.2)" "$(json "$1" val_perplexity run show words 2>/dev/null || echo 9e9)"; }
wait_for 60 fluent a                            # of words that nobody has learned
refuse 1 "without a TAB, and not empty" hive b generate words
refuse 1 "the prompt has 7 tokens, and the model reads 6" hive a generate words --prompt abcdefg
for n in a b; do daemon_stop $n; done
say done
