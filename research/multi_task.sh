#!/usr/bin/env bash
# One bi-encoder for eight tasks and questions (Maillard et al., Table 3), against models of one task each, TASER and BM25.
#
#   bash research/multi_task.sh DATA WORK
#
# DATA holds kilt/*.jsonl.gz, qa/nq.{dev,test}.tsv, wiki/passages.jsonl.gz, train/*.jsonl.gz. All models begin as taser-det-en. An
# H200 trained them in six minutes, three at a time; here they are trained one after the other. Each model then encodes 341,354
# passages: three hours on two CPU cores. What is finished in WORK is not done again.
set -euo pipefail
data=$(realpath "$1") work=$(realpath -m "$2")
steps=${STEPS:-1500} few=${FEW:-200} batch=${BATCH:-128}
mkdir -p "$work/mined" "$work/single"
cd "$(dirname "$0")/.."
source research/settings.sh
same_settings "$work" "data=$data steps=$steps few=$few batch=$batch"

if [ ! -f "$work/corpus.jsonl.gz" ]; then
  cat "$data/wiki/passages.jsonl.gz" "$data/kilt/passages.jsonl.gz" > "$work/corpus.tmp"
  mv "$work/corpus.tmp" "$work/corpus.jsonl.gz"
fi
if [ ! -f "$work/indexed" ]; then
  rm -rf "$work/full"
  python -m cli._sparta index --channels bm25 --corpus "$work/corpus.jsonl.gz" --index "$work/full" --quiet
  touch "$work/indexed"
fi
trained=() tasks=(fever trex linking wow multihop hover tabletext nq)
declare -A weight=([fever]=2 [trex]=2 [linking]=2 [wow]=1.5 [multihop]=2 [hover]=0.4 [tabletext]=1.5 [nq]=2)
for name in "${tasks[@]}"; do
  from=$data/kilt/$name.train.jsonl.gz answers=(--with-answers)
  [ "$name" != nq ] || { from=$data/qa/nq.dev.tsv answers=(); }
  [ -f "$work/mined/$name.train.json" ] || python -m cli._dense mine --dataset "$from" --index "$work/full" --negatives 20 \
    "${answers[@]}" --quiet --output "$work/mined/$name.train.json"
  trained+=(--single "$work/mined/$name.train.json=${weight[$name]}")
done
for name in squad_train_paras squadshifts_new_wiki afriqa_en; do trained+=(--single "$data/train/$name.jsonl.gz=1"); done

recipe=(--encoder taser-det-en --placement feed-forward --period 3 --assignment pretraining --pooling cls --cosine --max-length 192
  --batch-size "$batch" --learning-rate 1e-4 --held-out 50 --seed 13)
python -m cli._dense train-skills --resume --output "$work/multi" "${recipe[@]}" "${trained[@]}" --steps "$steps" --validate-every 500
models=(taser-det-en "$work/multi/best")
for name in "${tasks[@]}"; do
  own=$few; [ "$name" != hover ] || own=$((few * 3 / 10)) # 129 examples
  python -m cli._dense train-skills --resume --output "$work/single/$name" "${recipe[@]}" --single "$work/mined/$name.train.json" \
    --steps "$own" --validate-every "$((own < 100 ? own : 100))"
  models+=("$work/single/$name/best")
done

datasets=()
for name in fever trex zsre linking wow multihop hover tabletext; do datasets+=(--dataset "$data/kilt/$name.dev.jsonl.gz"); done
if [ ! -f "$work/tasks.md" ]; then
  python -m cli._hybrid tasks --index "$work/full" "${models[@]/#/--model=}" "${datasets[@]}" --format markdown > "$work/tasks.tmp"
  mv "$work/tasks.tmp" "$work/tasks.md"
fi
if [ ! -d "$work/multi-int8" ]; then
  rm -rf "$work/multi-tmp"
  python -m cli._dense convert --from "$work/multi/best" --output "$work/multi-tmp" --int8
  mv "$work/multi-tmp" "$work/multi-int8"
fi
python -m cli._dense index --index "$work/full" --model "$work/multi-int8" --kind flat --quiet
if [ ! -f "$work/fused.md" ]; then
  python -m cli._hybrid eval --index "$work/full" --weights dense=1,bm25=1 "${datasets[@]}" --format markdown \
    --measures page_Rprec,page_recall@20 --per-query "$work/fused.jsonl" > "$work/fused.tmp"
  mv "$work/fused.tmp" "$work/fused.md"
fi
if [ ! -f "$work/nq.md" ]; then
  python -m cli._hybrid eval --index "$work/full" --weights dense=1,bm25=1 --dataset "$data/qa/nq.test.tsv" --sample 1000 \
    --format markdown --per-query "$work/nq.jsonl" > "$work/nq.tmp"
  mv "$work/nq.tmp" "$work/nq.md"
fi
for one in taser-det-en nq; do # Natural Questions by TASER and by the model that was trained on them alone
  [ ! -f "$work/nq-$one.md" ] || continue
  from=$work/single/nq/best; [ "$one" = nq ] || from=$one
  [ -d "$work/$one" ] || cp -r "$work/full" "$work/$one"
  python -m cli._dense index --index "$work/$one" --model "$from" --kind flat --overwrite --quiet
  python -m cli._hybrid eval --index "$work/$one" --dataset "$data/qa/nq.test.tsv" --sample 1000 --format markdown > "$work/nq.tmp"
  mv "$work/nq.tmp" "$work/nq-$one.md"
done
cat "$work/tasks.md" "$work/fused.md" "$work"/nq*.md
