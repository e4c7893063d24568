#!/usr/bin/env python3
"""Makes a C file of the zoo's JSON files: usage embed.py OUT FILE..."""
import json
import os
import sys

with open(sys.argv[1], 'w', encoding='utf-8') as out:
    out.write('/* Made from train/zoo/ by embed.py. */\n#include "train/zoo.h"\n\nconst struct zoo_entry zoo_entries[] = {\n')
    for path in sorted(sys.argv[2:]):
        with open(path, encoding='utf-8') as f:
            text = json.dumps(json.load(f), separators=(',', ':'))
        name = os.path.splitext(os.path.basename(path))[0]
        rows = [text[i:i + 100] for i in range(0, len(text), 100)]
        out.write('\t{ "%s",\n' % name + ''.join('\t\t%s\n' % json.dumps(r) for r in rows) + '\t},\n')
    out.write('\t{ 0, 0 },\n};\n')
