#!/usr/bin/env bash
# The steps that made sparta-small-zh.
#
#   bash research/chinese_model.sh DATA WORK
#
# DATA holds zh/wiki.jsonl.gz and zh/cmrc2018_train.json.gz. Needs opencc, jieba and scikit-learn beside the
# extra `train`. The training resumes, so the script can be repeated after an interruption.
set -euo pipefail
data=$(realpath "$1") work=$(realpath -m "$2")
root=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} OMP_NUM_THREADS=1

# 1. Simplified texts, a vocabulary of characters and words, and the model to begin with.
[ -f "$work/ids.npz" ] || python "$root/research/chinese_text.py" --wiki "$data/zh/wiki.jsonl.gz" \
  --train "$data/zh/cmrc2018_train.json.gz" --output "$work"
[ -d "$work/start" ] || python "$root/research/chinese_start.py" "$work"
[ -f "$work/made.jsonl" ] || python "$root/research/chinese_questions.py" "$work" --output "$work/made.jsonl"

# 2. CMRC 2018's training questions, and those made of sentences: two processes, a batch each.
train() {
  torchrun --nproc-per-node 2 -m cli._sparta train --resume --max-length 512 --train-length 320 \
    --pairs "$work/fit.json=2" --pairs "$work/made.jsonl=1" --dev "$work/held100.json" \
    --term-rate 1 --gain-rate 30 "$@"
}
