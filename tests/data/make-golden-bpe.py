#!/usr/bin/env python3
"""Writes what the byte-pair encoder is held against, with Hugging Face's tokenizers (0.23.3 when it was committed):

usage: make-golden-bpe.py TEXT       TEXT: a corpus for the vocabulary, such as tiny Shakespeare

  tests/data/bpe/tokenizer.json     a byte-level vocabulary in GPT-2's form, of 1000 tokens, with special tokens
  tests/data/bpe/golden.json        nasty strings, their ids and what these decode to
  daemon/train/data/classes.h       letters, numbers and blanks as that library's pattern sees them

Run once and commit the results; neither the program nor its tests need Python."""
import json
import random
import sys
from pathlib import Path
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = Path(__file__).resolve().parents[2]


def classes():
    pre = pre_tokenizers.ByteLevel(add_prefix_space=False)
    one = lambda s: len(pre.pre_tokenize_str(s)) == 1
    kind = []
    for c in range(0x110000):
        ch = chr(c)
        if 0xd800 <= c < 0xe000:
            kind.append("o")
        else:
            kind.append("L" if one("a" + ch) else "N" if one("1" + ch) else "o" if one("!" + ch) else "S")
    out = ["/* Written by tests/data/make-golden-bpe.py: the code points that \\p{L}, \\p{N} and \\s mean to Hugging Face's",
           " * tokenizers, as first and last of each range. Do not edit. */", "#ifndef TRAIN_DATA_CLASSES_H", "#define TRAIN_DATA_CLASSES_H",
           "#include <stdint.h>", ""]
    for letter, name in (("L", "letters"), ("N", "numbers"), ("S", "blanks")):
        ranges, c = [], 0
        while c < 0x110000:
            if kind[c] != letter:
                c += 1
                continue
            first = c
            while c < 0x110000 and kind[c] == letter:
                c += 1
            ranges.append("{0x%x, 0x%x}" % (first, c - 1))
        out.append("static const uint32_t class_%s[][2] = {" % name)
        line = "\t"
        for r in ranges:
            if len(line) + len(r) + 2 > 110:
                out.append(line.rstrip())
                line = "\t"
            line += r + ", "
        out += [line.rstrip(), "};", ""]
    (ROOT / "daemon/train/data/classes.h").write_text("\n".join(out) + "#endif\n")


def vocabulary(path):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    more = ["Der Übergang wäre schön für Größen. ", "Привет, мир! ", "日本語のテキスト。", "naïve café ", "0123456789 ", "def f(x):\n    return x\n"] * 60
    t.train_from_iterator([open(path, encoding="utf-8").read()] + more,
                          trainers.BpeTrainer(vocab_size=990, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_special_tokens([AddedToken("<|endoftext|>", normalized=False), AddedToken("<|end|>", normalized=False),
                          AddedToken("<mask>", lstrip=True, normalized=False), AddedToken("[R]", rstrip=True, normalized=False)])
    t.add_tokens([AddedToken("Shakespeare's", normalized=True), AddedToken("oft", normalized=True)])
    return t


def strings():
    s = ["", " ", "  ", "\n", "\n\n", " \n", "\n ", "a", " a", "  a", "   a  ", "a\n\nb", "a \n b", "\t\ta", "a\t", "Hello, world!", "don't can't we'll I'm you've he'd it's they're",
         "'s't're", "DON'T", "''s", " 's", "x's's", "12345", " 12345 67", "1a2b3c", "3.14e-10", "a1 b2", "--->", " --->", "!!!???", " ! ! !", "___init___", "a_b", "http://x.y/z?a=b&c#d",
         "é", "e\u0301", "naïve café", "Größe", "ß", "ſ", "İi", "Привет, мир!", "日本語のテキスト。", "中文 字符", "한국어", "עברית", "العربية ١٢٣", "हिन्दी ४५६", "ไทย", "Ⅷ ½ ² ①", "𝟙𝟚𝟛", "𝓗𝓮𝓵𝓵𝓸",
         "😀", " 😀😀", "👩‍👩‍👧‍👦", "🇩🇪🇫🇷", "❤️", "\u200b", "a\u200bb", "\ufeffx", "\u00a0x", "x\u00a0", "\u3000日", "\u2028", "\u2029x", "\u0085", "a\u0085b", "\x1c\x1d\x1e\x1f", "\x0b\x0c", "\x00", "a\x00b",
         "\x7f\x80\x9f", "\r\n", "a\r\nb\r\n", "\ufffd", "\U0010ffff", "\ue000", "\ufdd0", "\u0300", "\u0300\u0301", "a\u0300 b", "ᏣᎳᎩ", "ꙮ", "𒀀", "\u0378", "\U0001fbf0", "\u180e", "\u2003\u2003x", "  \u2003x",
         "<|endoftext|>", "a<|endoftext|>b", " <|endoftext|> ", "<|endoftext|><|endoftext|>", "<|endoftext|", "<|end|>", "<|end|>oftext|>", "<|endof<|end|>", "a <mask> b", "a  \n<mask>b", "<mask> <mask>", "  <mask>",
         "x<mask>", "[R]   x", "[R]\n\n", "a [R] [R] b", "[R] <mask> [R]", "[R]  <mask>", "Shakespeare's", "of Shakespeare's plays", "oft", "soft", "often oft", "aoftoft", "<mask>oft", "oft<|end|>oft",
         "a" * 300, "ab" * 200, " " * 300, "\n" * 257, "the " * 100, "0" * 123, "!" * 130, "é" * 130, "日" * 130, "😀" * 70, "x" + " " * 77 + "y", "\t \t \t x",
         "def f(x):\n    if x:\n        return 'it''s'\n\n\nclass A: pass", "{\"a\": [1, 2.5, null], \"b\": \"\\u00e9\"}", "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\nSpeak, speak.",
         "MENENIUS:\nWhat work's, my countrymen, in hand? where go you\nWith bats and clubs? The matter? speak, I pray you."]
    r = random.Random(7)
    pools = ["abcdeXYZ'stmdlre ", " \n\t\r\u00a0a1!", "'strevldmSTRE ", "aé日1😀 \u0301!\n", "<|endoftext|> mask[R]", "0١²½a "]
    for i in range(240):
        pool = pools[i % len(pools)]
        s.append("".join(r.choice(pool) for _ in range(r.randrange(1, 40))))
    for i in range(120):
        s.append("".join(chr(c) for c in (r.choice([r.randrange(0x80), r.randrange(0x800), r.randrange(0xd800), r.randrange(0xe000, 0x110000)]) for _ in range(r.randrange(1, 16)))))
    return s


def main():
    classes()
    t = vocabulary(sys.argv[1])
    t.save(str(ROOT / "tests/data/bpe/tokenizer.json"), pretty=False)
    plain = []
    for s in strings():
        ids = t.encode(s, add_special_tokens=False).ids
        plain.append({"text": s.encode().hex(), "ids": ids, "back": t.decode(ids, skip_special_tokens=False).encode().hex()})
    (ROOT / "tests/data/bpe/golden.json").write_text(json.dumps({"size": t.get_vocab_size(), "cases": plain}, separators=(",", ":")) + "\n")


main()
