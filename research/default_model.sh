#!/usr/bin/env bash
# The steps that made the shipped models, each with the code of the commit that ran it.
#
#   bash research/default_model.sh DATA WORK MODEL.onnx TOKENIZER.json
#
# DATA holds the files named below (research/README.md). WORK gets a copy of each commit's code (code-COMMIT) and
# a folder for each step. Every training resumes, so the script can be repeated after an interruption.
set -euo pipefail
data=$(realpath "$1") work=$(realpath -m "$2") onnx=$(realpath "$3") tokenizer=$(realpath "$4")
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$work"

# Runs a command in the code of commit $1.
at() {
  local code=$work/code-$1
  if [ ! -d "$code" ]; then
    mkdir -p "$code"
    git -C "$root" archive "$1" | tar -x -C "$code"
  fi
  shift
  (cd "$code" && "$@")
}

sets=() # options of one training: `add pairs NAME=WEIGHT …`
add() {
  local layout=$1 name
  shift
  for name; do sets+=("--$layout" "$data/$name"); done
}

bge=$work/bge-small
[ -d "$bge" ] || python "$root/research/encoder_from_onnx.py" "$onnx" "$tokenizer" "$bge"

# 1. SPARTA on bge-small, 1,400 steps; shipped by d0aa1d0 (SHA-256 c84d6924…).
add articles squad-train-pairs.jsonl=3
add pairs squad_train_paras.jsonl.gz=2 squadshifts_new_wiki.jsonl.gz=2.5 squad_train_reqa.jsonl.gz=2 \
  afriqa_en.jsonl.gz=1 nq_pairs.jsonl=1 clapnq.jsonl.gz=0.5 bioasq.jsonl.gz=0.8 fairytaleqa.jsonl.gz=0.2 \
  qamr.jsonl.gz=0.4 conditionalqa.jsonl.gz=0.1
add passages boolq.jsonl.gz=0.5 medquad.jsonl.gz=0.3 ares_synthetic.jsonl.gz=0.5 stackexchange.jsonl.gz=0.2 \
  expertqa.jsonl.gz=0.2 dolly.jsonl.gz=0.1 covid_faq.jsonl.gz=0.1
at a9f5ea7 python -m cli._sparta train --resume --encoder "$bge" --output "$work/1" --steps 1400 \
  --validate-every 350 --learning-rate 1.5e-4 --seed 13 "${sets[@]}" --terms 1000 \
  --teacher bm25 --teacher "$bge=2"

# 2. Gains for terms that stand in the text (decision 0012): the best is step 0; shipped by 7650413 (84e3ff75…).
at af5ab56 python -m cli._sparta train --resume --encoder "$work/1/best" --output "$work/2" --steps 500 \
  --validate-every 125 --learning-rate 4e-5 --seed 13 "${sets[@]}" --terms 1000 --teacher bm25 --teacher "$bge=2"

# taser-det-en, with the model of step 1 among its teachers; shipped by d305be7 (a5d8e70b…), and today.
sets=()
add pairs squad-train-pairs.jsonl=1.5 squad_train_reqa.jsonl.gz=1.5
add passages squad_train_paras.jsonl.gz=2 squadshifts_new_wiki.jsonl.gz=2.5 afriqa_en.jsonl.gz=1 nq_pairs.jsonl=2 \
  clapnq.jsonl.gz=0.7 bioasq.jsonl.gz=0.7 boolq.jsonl.gz=0.7 medquad.jsonl.gz=0.4 ares_synthetic.jsonl.gz=0.5 \
  stackexchange.jsonl.gz=0.2 expertqa.jsonl.gz=0.2 dolly.jsonl.gz=0.2 covid_faq.jsonl.gz=0.1
at b47274d python -m cli._dense train --resume --encoder "$bge" --output "$work/taser" --routing det \
  --pooling cls --steps 600 --validate-every 150 --learning-rate 7e-5 --layer-decay 0.9 --batch-size 16 \
  --questions 3 --max-length 192 --seed 13 --teacher bm25=0.5 --teacher "$bge" --teacher "$work/1/best" "${sets[@]}"
[ -d "$work/taser-det-en" ] || at b47274d python -m cli._dense convert --from "$work/taser/best" \
  --output "$work/taser-det-en" --int8

# 3. A share of the context (decision 0014), 850 steps; shipped by 2f48679 (ab1b8d84…).
sets=()
add articles squad-train-pairs.jsonl=3.5
add pairs squad_train_paras.jsonl.gz=3.5 squadshifts_new_wiki.jsonl.gz=2.5 squad_train_reqa.jsonl.gz=1.5 \
  afriqa_en.jsonl.gz=1 nq_pairs.jsonl=1 clapnq.jsonl.gz=0.4 bioasq.jsonl.gz=0.5 qamr.jsonl.gz=0.3
add passages boolq.jsonl.gz=0.4 ares_synthetic.jsonl.gz=0.4 medquad.jsonl.gz=0.2
[ -d "$work/2-shared" ] || {
  cp -r "$work/2/best" "$work/2-shared"
  python - "$work/2-shared/config.json" <<'PYTHON'
import json, sys
from pathlib import Path

path = Path(sys.argv[1])
config = json.loads(path.read_text())
config["sparta"]["context_share"] = 0.4
path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
PYTHON
}
at c5c5b0f python -m cli._sparta train --resume --encoder "$work/2-shared" --output "$work/3" --steps 850 \
  --validate-every 425 --learning-rate 5e-5 --seed 31 "${sets[@]}" --terms 1000 \
  --teacher "$work/2-shared" --teacher "$work/taser-det-en=0.6"

# 4. A share of the loss of pruned texts (decision 0015), 1,300 steps on the sets of step 3; the average of both
#    ends was shipped by c90394c (d61231f8…).
at c0e6e37 python -m cli._sparta train --resume --encoder "$work/3/best" --output "$work/4" --steps 1300 \
  --validate-every 325 --learning-rate 5e-5 --seed 37 "${sets[@]}" --terms 1000 --pruned-to 100 --revive \
  --teacher "$work/3/best" --teacher "$work/taser-det-en=0.6"
[ -d "$work/5" ] || at c90394c env PYTHONPATH=. python scripts/average_models.py "$work/3/best" "$work/4/state.pt" \
  "$work/5" --share 0.3 --keep who what did how

# 5. Four terms trained alone (decision 0017); the best is step 50.
sets=()
add articles squad-train-pairs.jsonl=3.5
add pairs squad_train_paras.jsonl.gz=3 squadshifts_new_wiki.jsonl.gz=2.5 squad_train_reqa.jsonl.gz=1.5 \
  afriqa_en.jsonl.gz=1 qamr.jsonl.gz=0.5
at f78f36a python -m cli._sparta train --resume --encoder "$work/5" --output "$work/6" \
  --only-terms who,when,where,did --steps 250 --validate-every 50 --learning-rate 4e-3 --seed 5 "${sets[@]}"

# 6. Weights of 200 query terms (decision 0019), on the same sets; the best is step 250; shipped by 0ec64fe
#    (1bbcfb4d…), and today.
at 519aa1d python -m cli._sparta train --resume --encoder "$work/6/best" --output "$work/7" \
  --query-weights 200 --steps 500 --validate-every 125 --seed 5 "${sets[@]}"
# The reader. Passages for the questions of NQ and of the first 6,000 lines of TriviaQA come from BM25 over Wikipedia
# (DATA/passages.jsonl.gz). Step 425 was reached by the code of d437d2a; that of 6b108e5 went on from there.
[ -d "$work/wiki" ] || at 6b108e5 python -m cli._sparta index --corpus "$data/passages.jsonl.gz" --channels bm25 --index "$work/wiki"
for name in nq.dev trivia.train; do
  [ -f "$work/$name.jsonl" ] || at 6b108e5 python -m cli._sparta mine-answers --queries "$data/$name.tsv" \
    --index "$work/wiki" --depth 10 --output "$work/$name.jsonl"
done
at 6b108e5 python -m cli._sparta train-reader --resume --encoder "$bge" --output "$work/reader" \
  --data "$data/squad_train_paras.jsonl.gz=5000" --data "$data/squadshifts_new_wiki.jsonl.gz=6500" \
  --data "$data/afriqa_en.jsonl.gz=3000" --data "$data/qamr.jsonl.gz=700" --data "$data/bioasq.jsonl.gz=700" \
  --data "$data/fairytaleqa.jsonl.gz=400" --data "$work/nq.dev.jsonl=2200" --data "$work/trivia.train.jsonl=1900" \
  --steps 1700 --questions 12 --learning-rate 1.2e-4 --negatives 0.35 --train-length 224 --validate-every 425 \
  --held-out 300 --seed 13

echo "$work/7/best: sparta-bge-small-en; $work/taser-det-en: taser-det-en"
