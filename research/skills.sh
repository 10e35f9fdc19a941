#!/usr/bin/env bash
# Trains a multi-task retriever with skills, and ablations: experts or none, with and without pretraining.
#
#   bash research/skills.sh prepare DATA WORK ENCODER    # no GPU needed: index, negatives of BM25, a pool (10 min)
#   bash research/skills.sh train DATA WORK ENCODER      # one GPU, 25 minutes in all
#   SMOKE=1 bash research/skills.sh all DATA WORK ENCODER
#
# DATA holds kilt/*.jsonl.gz, wiki/passages.jsonl.gz, qa/nq.dev.tsv; ENCODER is bge-small-en-v1.5, as
# encoder_from_onnx.py makes it. With experts in every third layer int8 weights are about 45 MB.
# What is finished in WORK is not done again, and a training that was interrupted goes on, so that a machine
# that is lent for less time can be given the script again. After LIMIT seconds no further ablation begins.
#
# Planned for one H100 (about 8 steps a second at 64 questions with 64 negatives; not measured yet):
#   pretraining, with and without experts   2 ×   600 steps    3 min
#   default model                           1 × 1,500 steps    4 min
#   ablations 2 × 2, three seeds           12 ×   300 steps   12 min, measured on a pool of 30,000 passages
#   default over all 341,000 passages, int8                    4 min
set -euo pipefail
stage=$1 data=$(realpath "$2") work=$(realpath -m "$3") encoder=$(realpath "$4")
limit=${LIMIT:-1300}
tasks=(fever trex linking wow hover tabletext nq) dev=(fever trex zsre linking wow multihop hover tabletext)
steps=1500 pretraining=600 few=300 batch=64 length=192 pool=30000 seeds=(13 17 19) mined=1000000
if [ -n "${SMOKE:-}" ]; then
  steps=2 pretraining=2 few=2 batch=2 length=48 pool=40 seeds=(13) mined=6 dev=(fever wow)
  tasks=(fever trex linking wow hover tabletext)
fi
mkdir -p "$work/data"
cd "$(dirname "$0")/.."

dense() { python -m cli._dense "$@"; }
hybrid() { python -m cli._hybrid "$@"; }

prepare() {
  if [ ! -f "$work/corpus.jsonl.gz" ]; then
    cat "$data/wiki/passages.jsonl.gz" "$data/kilt/passages.jsonl.gz" > "$work/corpus.tmp"
    mv "$work/corpus.tmp" "$work/corpus.jsonl.gz"
  fi
  [ -f "$work/data/selected" ] || python research/skill_pool.py "$data" "$work" --pool "$pool" --most "$mined" \
    ${SMOKE:+--smoke}
  local name corpus=$work/corpus.jsonl.gz
  [ -z "${SMOKE:-}" ] || corpus=$work/pool.jsonl
  [ -d "$work/index" ] || python -m cli._sparta index --channels bm25 --corpus "$corpus" --index "$work/index" --quiet
  [ -d "$work/pool" ] || python -m cli._sparta index --channels bm25 --corpus "$work/pool.jsonl" --index "$work/pool" --quiet
  local questions answers
  for name in "${tasks[@]}"; do
    questions=$work/data/$name.jsonl answers=--with-answers # "SUPPORTS" stands in no passage, a title in many
    [ "$name" != nq ] || { questions=$data/qa/nq.dev.tsv answers=; }
    [ -f "$work/data/$name.train.json" ] || dense mine --index "$work/index" --questions "$questions" \
      --output "$work/data/$name.train.json" --depth 30 --negatives 5 $answers --quiet
  done
}

# A training: NAME PLACEMENT ASSIGNMENT ENCODER STEPS SEED, then its files.
fit() {
  local name=$1 placement=$2 assignment=$3 from=$4 n=$5 seed=$6
  shift 6
  [ -f "$work/$name/done" ] && return
  dense train-skills --resume --encoder "$from" --output "$work/$name" --placement "$placement" \
    --assignment "$assignment" --period 3 --cosine --steps "$n" --seed "$seed" --batch-size "$batch" \
    --max-length "$length" --learning-rate 5e-5 --held-out "$((batch < 50 ? 2 : 50))" --validate-every "$n" \
    --texts "$work/texts.jsonl" "$@"
  touch "$work/$name/done"
}

pretrain() { # placement
  fit "pretrained-$1" "$1" pretraining "$encoder" "$pretraining" 13 --single "$work/crops.jsonl" \
    --link "$work/links.jsonl" --expanded "$work/paragraphs.jsonl"
}

own=(--single "$work/data/multihop.jsonl" --by-size --largest 4000)
for name in "${tasks[@]}"; do own+=(--single "$work/data/$name.train.json"); done
skills=(--expanded "$work/data/multihop.jsonl" --rerank "$work/data/multihop.jsonl" --link "$work/links.jsonl=0.1"
  --span "$work/paragraphs.jsonl=0.3")
of_tasks=()
for name in "${dev[@]}"; do of_tasks+=(--dataset "$work/data/$name.dev.jsonl"); done

train() {
  local placement seed start name models=()
  pretrain attention
  fit default attention paper "$work/pretrained-attention" "$steps" 13 "${own[@]}" "${skills[@]}"
  [ -d "$work/skills-bge-small-en" ] || dense convert --from "$work/default" --output "$work/skills-bge-small-en" --int8
  du -b "$work/skills-bge-small-en/model.safetensors"
  pretrain none
  for seed in "${seeds[@]}"; do
    for placement in attention none; do
      for start in "$work/pretrained-$placement" "$encoder"; do
        [ "$SECONDS" -lt "$limit" ] || break 3
        name=$placement-$([ "$start" = "$encoder" ] && echo plain || echo pretrained)-$seed
        fit "$name" "$placement" paper "$start" "$few" "$seed" "${own[@]}" "${skills[@]}"
      done
    done
  done
  for name in "$work"/{attention,none}-*-*/done; do
    [ ! -e "$name" ] || models+=(--model "${name%/done}")
  done
  hybrid tasks --index "$work/pool" "${of_tasks[@]}" "${models[@]}" --model taser-det-en \
    --per-query "$work/ablations.jsonl" --format markdown > "$work/ablations.md"
  hybrid tasks --index "$work/index" "${of_tasks[@]}" --model "$work/skills-bge-small-en" --model taser-det-en \
    --per-query "$work/default.jsonl" --format markdown > "$work/default.md"
  echo "$work/default.md, $work/ablations.md: $SECONDS s"
}

case $stage in
  prepare) prepare ;;
  train) train ;;
  all) prepare && train ;;
  *) echo "expected prepare, train or all, found $stage" >&2 && exit 2 ;;
esac
