#!/usr/bin/env bash
# What each part of a reader's training brings: readers of equal steps, with one part changed, and their answers.
#
#   bash research/reader_ablations.sh DATA WORK ENCODER
#
# DATA holds train/*.jsonl.gz, qa/*.tsv, wiki/passages.jsonl.gz, squad-passages-dev/; ENCODER is bge-small-en-v1.5 as
# encoder_from_onnx.py makes it. An hour on two CPU cores; what is finished in WORK is not done again.
set -euo pipefail
data=$(realpath "$1") work=$(realpath -m "$2") encoder=$(realpath "$3")
mkdir -p "$work"
cd "$(dirname "$0")/.."
source research/settings.sh
same_settings "$work" "data=$data" "$encoder"
sparta() { python -m cli._sparta "$@"; }

head -n 6000 "$data/qa/trivia.dev.tsv" > "$work/trivia.train.tsv"
tail -n +6001 "$data/qa/trivia.dev.tsv" > "$work/trivia.test.tsv"
cp "$data/qa/nq.dev.tsv" "$work/nq.dev.tsv"
[ -d "$work/wiki" ] || sparta index --corpus "$data/wiki/passages.jsonl.gz" --channels bm25 --index "$work/wiki" --quiet
[ -d "$work/squad" ] || sparta index --corpus "$data/squad-passages-dev" --channels bm25 --index "$work/squad" --quiet
for name in nq.dev trivia.train; do
  [ -f "$work/$name.jsonl" ] || sparta mine-answers --dataset "$work/$name.tsv" --index "$work/wiki" --depth 10 \
    --output "$work/$name.jsonl"
done

own=() mined=(--data "$work/nq.dev.jsonl=2200" --data "$work/trivia.train.jsonl=1900")
for one in squad_train_paras=5000 squadshifts_new_wiki=6500 afriqa_en=3000 qamr=700 bioasq=700 fairytaleqa=400; do
  own+=(--data "$data/train/${one%=*}.jsonl.gz=${one#*=}")
done

# A reader: NAME, then what is changed.
reader() {
  local name=$1
  shift
  [ -f "$work/$name/done" ] && return
  sparta train-reader --resume --encoder "$encoder" --output "$work/$name" --steps 200 --batch-size 12 \
    --learning-rate 1.2e-4 --negatives 0.35 --train-length 224 --validate-every 200 --held-out 300 --seed 13 \
    "${own[@]}" "$@"
  touch "$work/$name/done"
}
reader shared "${mined[@]}"
reader per-passage "${mined[@]}" --per-passage
reader not-mined
reader global-tokens "${mined[@]}" --global-tokens 10

for name in shared per-passage not-mined global-tokens; do
  for set in squad nq.test trivia.test; do
    index=$work/wiki questions=$work/$set.tsv
    [ "$set" != nq.test ] || questions=$data/qa/nq.test.tsv
    [ "$set" != squad ] || { index=$work/squad questions=$data/squad-passages-dev; }
    [ -f "$work/$name/$set.md" ] || {
      python -m cli._hybrid eval --index "$index" --answers --reader "$work/$name/best" --weight 0 \
        --sample 300 --depths 1,10 --dataset "$questions" --format markdown > "$work/$name/$set.tmp"
      mv "$work/$name/$set.tmp" "$work/$name/$set.md"
    }
    echo "$name, $set"
    cat "$work/$name/$set.md"
  done
done
