#!/usr/bin/env bash
# An index with impacts, BM25 and vectors of one in PART of Wikipedia's articles (1: all; which one, its title decides).
#
#   bash benchmarks/part_of_wikipedia.sh PASSAGES WORK [PART] [MODEL]
#
# PASSAGES is JSONL with titles, gzipped; MODEL makes the vectors. WORK gets passages.jsonl and index. Two CPU cores read
# 40 passages a second, so that a quarter of 307,247 takes 50 minutes; the commands that were interrupted go on when this
# is repeated.
set -euo pipefail
passages=$(realpath "$1") work=$(realpath -m "$2") part=${3:-4} model=${4:-taser-det-en}
mkdir -p "$work"
cd "$(dirname "$0")/.."

if [ ! -f "$work/passages.jsonl" ]; then
  python - "$passages" "$part" > "$work/passages.tmp" << 'PYTHON'
import gzip, json, sys, zlib
for line in gzip.open(sys.argv[1], "rt", encoding="utf-8"):
    if zlib.crc32(json.loads(line)["title"].encode()) % int(sys.argv[2]) == 0:
        sys.stdout.write(line)
PYTHON
  mv "$work/passages.tmp" "$work/passages.jsonl"
fi
resume=()
[ ! -d "$work/index" ] || resume=(--resume)
python -m cli._sparta index --corpus "$work/passages.jsonl" --index "$work/index" "${resume[@]}" --quiet
python -m cli._dense index --index "$work/index" --kind flat --model "$model" --quiet
