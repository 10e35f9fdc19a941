#!/usr/bin/env bash
# The steps that made reader-small-zh.
#
#   bash research/chinese_reader.sh DATA WORK
#
# DATA holds zh/wiki.jsonl.gz and zh/cmrc2018_train.json.gz; WORK may be that of chinese_model.sh, whose texts
# and tokenizer are then used again. Needs opencc, jieba and scikit-learn beside the extra `train`. Trainings
# resume: the script can be repeated after an interruption.
set -euo pipefail
data=$(realpath "$1") work=$(realpath -m "$2")
root=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH=$root
mkdir -p "$work"

# 1. Simplified texts, a vocabulary, an untrained reader, and two questions made of each passage.
[ -f "$work/held.json" ] || python "$root/research/chinese_text.py" --wiki "$data/zh/wiki.jsonl.gz" \
  --train "$data/zh/cmrc2018_train.json.gz" --output "$work"
[ -d "$work/reader-start" ] || python "$root/research/chinese_reader_start.py" "$work"
[ -f "$work/made-with-answers.jsonl" ] || {
  for seed in 7 8; do
    python "$root/research/chinese_questions.py" "$work" --most 100000 --seed $seed --output "$work/made-$seed.jsonl"
  done
  cat "$work"/made-[78].jsonl > "$work/made-with-answers.jsonl"
}

# 2. Made questions and those of CMRC 2018, on short windows.
python -m cli._sparta train-reader --resume --language zh --encoder "$work/reader-start" --output "$work/reader-1" \
  --data "$work/made-with-answers.jsonl" --data "$work/fit.json=20000" --steps 2400 --questions 32 \
  --learning-rate 6e-4 --negatives 0 --unanswered 0 --train-length 200 --held-out 400 --validate-every 300

# 3. Then CMRC 2018 with whole paragraphs, paragraphs that do not answer, and a few made questions.
python -m cli._sparta train-reader --resume --language zh --encoder "$work/reader-1/best" --output "$work/reader-2" \
  --data "$work/fit.json" --data "$work/made-with-answers.jsonl=3000" --steps 700 --questions 24 \
  --learning-rate 4e-4 --negatives 0.3 --unanswered 0.15 --train-length 384 --held-out 300 --validate-every 100 \
  --dropout 0.1
