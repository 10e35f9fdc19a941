#!/usr/bin/env bash
# Trains the reader of paths, chooses how much its scores count, and measures it (docs/chains.md, "Read the paths").
#
#   bash research/path_reader.sh DATA WORK
#
# DATA holds kilt/{passages,multihop.train,multihop.dev}.jsonl.gz and wiki/passages.jsonl.gz. 50 minutes on two CPU cores; what is
# finished in WORK is not done again.
set -euo pipefail
data=$(realpath "$1") work=$(realpath -m "$2")
mkdir -p "$work"
cd "$(dirname "$0")/.."

if [ ! -f "$work/indexed" ]; then
  cat "$data/wiki/passages.jsonl.gz" "$data/kilt/passages.jsonl.gz" > "$work/corpus.jsonl.gz"
  rm -rf "$work/index"
  python -m cli._sparta index --channels bm25 --corpus "$work/corpus.jsonl.gz" --index "$work/index" --quiet
  touch "$work/indexed"
fi
[ -f "$work/paths.jsonl" ] || python -m cli._sparta mine-paths --dataset "$data/kilt/multihop.train.jsonl.gz" \
  --index "$work/index" --output "$work/paths.jsonl" --quiet
python -m cli._sparta train-paths --resume --data "$work/paths.jsonl" --output "$work/reader"

python - "$work/reader/best" "$work/path-reader-bge-small-en" << 'PYTHON'
import sys
from sparta.reader.path_model import PathModel
PathModel.load(sys.argv[1]).float().save_pretrained(sys.argv[2], int8=True)
PYTHON
reader=$work/path-reader-bge-small-en

# Passage EM of the held-out questions by the weight of the reader's scores.
sed 's/^weight = 0.05 .*/weight = 0/' hybrid/multihop/hop-read.toml > "$work/unweighted.toml"
python research/path_weights.py questions "$data/kilt/multihop.train.jsonl.gz" "$work/paths.jsonl" "$work/held.jsonl"
[ -f "$work/held.paths.jsonl" ] || python -m cli._sparta search --queries "$work/held.jsonl" --chain "$work/unweighted.toml" \
  --path-reader "$reader" --index "$work/index" -k 100 --json --output "$work/held.paths.jsonl"
python research/path_weights.py weights "$data/kilt/multihop.train.jsonl.gz" "$work/held.paths.jsonl"

python -m cli._hybrid eval --index "$work/index" --no-dense --chain hop --chain hop-read --path-reader "$reader" --answers \
  --dataset "$data/kilt/multihop.dev.jsonl.gz" --format markdown --per-query "$work/dev.jsonl"
