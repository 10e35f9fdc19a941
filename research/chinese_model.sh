#!/usr/bin/env bash
# The steps that made sparta-small-zh.
#
#   bash research/chinese_model.sh DATA WORK
#
# DATA holds zh/wiki.jsonl.gz and zh/cmrc2018_train.json.gz. Needs opencc, jieba and scikit-learn beside the
# extra `train`. All steps run the code of the commit that made the model, which does not cut Chinese texts at
# characters. Trainings resume: the script can be repeated after an interruption.
set -euo pipefail
data=$(realpath "$1") work=$(realpath -m "$2")
root=$(cd "$(dirname "$0")/.." && pwd)
commit=86325ab
export OMP_NUM_THREADS=1
mkdir -p "$work"
[ -d "$work/code" ] || { mkdir "$work/code" && git -C "$root" archive "$commit" | tar -x -C "$work/code"; }
export PYTHONPATH=$work/code
steps=$work/code/research

# 1. Simplified texts, a vocabulary of characters and words, the model to begin with, and questions.
[ -f "$work/held.json" ] || python "$steps/chinese_text.py" --wiki "$data/zh/wiki.jsonl.gz" \
  --train "$data/zh/cmrc2018_train.json.gz" --output "$work"
[ -d "$work/start" ] || python "$steps/chinese_start.py" "$work"
[ -f "$work/made.jsonl" ] || {
  python "$steps/chinese_questions.py" "$work" --most 40000 --output "$work/all-made.jsonl"
  tail -n 9000 "$work/all-made.jsonl" > "$work/made.jsonl"
}

# 2. CMRC 2018's training questions, and those made of sentences: two processes, a batch each. The best step is 200.
[ -f "$work/dev.json" ] || python - "$work" <<'PYTHON'
import json, sys
from pathlib import Path

work = Path(sys.argv[1])
held = json.loads((work / "held.json").read_text())["data"]
(work / "dev.json").write_text(json.dumps({"version": "folded", "data": held[:100]}, ensure_ascii=False))
PYTHON
torchrun --nproc-per-node 2 -m cli._sparta train --resume --encoder "$work/start" --output "$work/1" \
  --steps 700 --validate-every 100 --max-length 512 --train-length 320 --pairs "$work/fit.json=2" \
  --pairs "$work/made.jsonl=1" --dev "$work/dev.json" --pressure 0 --learning-rate 2e-4 --term-rate 1 --gain-rate 30

echo "$work/1/best: sparta-small-zh, in full precision: decision 0024"
