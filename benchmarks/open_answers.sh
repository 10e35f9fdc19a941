#!/usr/bin/env bash
# Answers to open-domain questions over Wikipedia passages: EM and F1 of bm25, impacts, vectors and their fusions.
#
#   bash benchmarks/open_answers.sh DATA WORK [PART] [SAMPLE]
#
# DATA holds wiki/passages.jsonl.gz, qa/{nq.test,trivia.dev,wq.test,curated.test}.tsv. Of the articles, one in PART is
# searched (1: all), as part_of_wikipedia.sh chooses and indexes them, and SAMPLE questions of each set are asked. Of
# TriviaQA, the first 6,000 lines are left out: the reader was trained on them. With all articles and 1,000 questions, two
# CPU cores encode for seven hours and read for one and a half.
set -euo pipefail
data=$(realpath "$1") work=$(realpath -m "$2") part=${3:-1} sample=${4:-1000}
cd "$(dirname "$0")/.."

bash benchmarks/part_of_wikipedia.sh "$data/wiki/passages.jsonl.gz" "$work" "$part" multi-task-bge-small-en
tail -n +6001 "$data/qa/trivia.dev.tsv" > "$work/trivia.test.tsv"
python -m cli._hybrid eval --index "$work/index" --sample "$sample" --answers --depths 1,5,10 \
  --alpha 0.5 --format markdown --dataset "$data/qa/nq.test.tsv" \
  --dataset "$work/trivia.test.tsv" --dataset "$data/qa/wq.test.tsv" --dataset "$data/qa/curated.test.tsv" \
  --match curated.test=regex --per-query "$work/answers.jsonl" | tee "$work/answers.md"

echo "Differences from BM25, in points, with p of a paired t-test:"
python - "$work/answers.jsonl" << 'PYTHON'
import collections, json, sys
from scipy.stats import ttest_rel
found = collections.defaultdict(lambda: collections.defaultdict(dict))
for line in open(sys.argv[1], encoding="utf-8"):
    one = json.loads(line)
    for measure in ("answer_recall@20", "EM@1", "EM@5", "EM@10"):
        found[one["set"], measure][one["ranking"]][one["query_id"]] = one[measure]
for (name, measure), by_ranking in found.items():
    plain = by_ranking.pop("bm25")
    for ranking, own in by_ranking.items():
        ours, theirs = [own[q] for q in plain], list(plain.values())
        mean = 100 * (sum(ours) - sum(theirs)) / len(plain)
        print(f"{name}, {measure}, {ranking}: {mean:+.1f} (p {ttest_rel(ours, theirs).pvalue:.3f})")
PYTHON
