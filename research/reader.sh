#!/usr/bin/env bash
# Trains the English reader further: passages by the shipped rankers, several of a question, then a mean of weights.
#
#   bash research/reader.sh DATA WORK
#
# DATA holds train/*.jsonl.gz, kilt/{tabletext,multihop}.train.jsonl.gz, qa/{nq,trivia}.dev.tsv, wiki/passages.jsonl.gz and
# kilt/passages.jsonl.gz. WORK has what `git show 2882d5d5:research/default_model.sh` left there: reader/best, with which this begins (what
# ships began with its 8-bit form), and what it learned from, nq.dev.jsonl and trivia.train.jsonl; its questions of TriviaQA are the first 6,000
# lines here. Two CPU cores encode for an hour and train for 40 minutes. What is finished in WORK is not done again.
# Steps were typed one by one and written down here; as a whole the script has not been run.
set -euo pipefail
data=$(realpath "$1") work=$(realpath "$2")
cd "$(dirname "$0")/.."
sparta() { python -m cli._sparta "$@"; }

# Passages for the questions by vectors and impacts over a quarter of Wikipedia, beside those of BM25 over all of it.
quarter=$work/quarter
bash benchmarks/part_of_wikipedia.sh "$data/wiki/passages.jsonl.gz" "$quarter"
head -n 6000 "$data/qa/trivia.dev.tsv" > "$work/trivia.train.tsv"
cp "$data/qa/nq.dev.tsv" "$work/nq.dev.tsv"
for name in nq.dev trivia.train; do
  [ -f "$work/$name.both.jsonl" ] || {
    sparta mine-answers --dataset "$work/$name.tsv" --index "$quarter/index" --channel dense,impact --output "$work/$name.own.jsonl"
    python - "$work/$name.own.jsonl" "$work/$name.jsonl" > "$work/$name.tmp" << 'PYTHON'
import json, sys
by_question = {}
for line in (line for path in sys.argv[1:] for line in open(path, encoding="utf-8")):
    new = json.loads(line)
    known = by_question.setdefault(new["question"], new)["passages"]
    texts = {one["text"] for one in known}
    known += [one for one in new["passages"] if one["text"] not in texts]
for one in by_question.values():
    print(json.dumps(one))
PYTHON
    mv "$work/$name.tmp" "$work/$name.both.jsonl"
  }
  head -n -500 "$work/$name.both.jsonl" > "$work/$name.most.jsonl" # of the others, those that are new are for the probabilities
done

# Questions on tables and of two hops whose answer stands in a passage.
if [ ! -f "$work/kilt.done" ]; then
  cat "$data/wiki/passages.jsonl.gz" "$data/kilt/passages.jsonl.gz" > "$work/kilt.jsonl.gz"
  for name in wikipedia kilt; do
    rm -rf "${work:?}/$name"
    corpus=$work/kilt.jsonl.gz
    [ "$name" = kilt ] || corpus=$data/wiki/passages.jsonl.gz
    sparta index --corpus "$corpus" --channels bm25 --index "$work/$name" --quiet
  done
  touch "$work/kilt.done"
fi
for name in tabletext multihop; do
  [ -f "$work/$name.jsonl" ] || {
    python - "$data/kilt/$name.train.jsonl.gz" > "$work/$name.questions.jsonl" << 'PYTHON'
import gzip, json, sys
for line in gzip.open(sys.argv[1], "rt", encoding="utf-8"):
    row = json.loads(line)
    answers = sorted({one["answer"] for one in row["output"] if one.get("answer")} - {"yes", "no"})
    if answers and "\t" not in row["input"]:
        print(json.dumps({"question": row["input"], "answers": answers}))
PYTHON
    sparta mine-answers --dataset "$work/$name.questions.jsonl" --index "$work/kilt" --channel bm25 --output "$work/$name.jsonl"
  }
done

# A training: NAME, the reader to begin with, sizes of the six sets, then options.
fit() {
  local name=$1 from=$2 own=() one
  read -ra one <<< "$3"
  shift 3
  [ -f "$work/$name/done" ] && return
  for set in squad_train_paras squadshifts_new_wiki afriqa_en qamr bioasq fairytaleqa; do
    own+=(--data "$data/train/$set.jsonl.gz=${one[0]}")
    one=("${one[@]:1}")
  done
  sparta train-reader --resume --encoder "$from" --output "$work/$name" --train-length 224 --held-out 300 "${own[@]}" "$@"
  touch "$work/$name/done"
}
fit reader-2 "$work/reader/best" "2500 4000 2000 300 300 100" --data "$work/nq.dev.most.jsonl" \
  --data "$work/trivia.train.most.jsonl" --steps 450 --validate-every 450 --batch-size 8 --passages 4 --negatives 0.8 --seed 13
fit reader-3 "$work/reader-2/best" "3300 4400 1500 200 200 100" --data "$work/nq.dev.most.jsonl=2000" \
  --data "$work/trivia.train.most.jsonl=1600" --data "$work/tabletext.jsonl=400" --data "$work/multihop.jsonl=500" \
  --steps 900 --validate-every 450 --batch-size 12 --passages 3 --negatives 0.4 --learning-rate 9e-5 --seed 17

# The mean of the first reader's weights and the last one's.
python - "$work/reader/best" "$work/reader-3/best" "$work/reader-mean" << 'PYTHON'
import sys
from sparta.reader.span_reader import SpanReader
first, last = (SpanReader.load(folder).float() for folder in sys.argv[1:3])
weights = first.state_dict()
for name, other in last.state_dict().items():
    if other.is_floating_point():
        weights[name] = (weights[name] + other) / 2
last.load_state_dict(weights)
last.save_pretrained(sys.argv[3])
PYTHON

# Probabilities, from questions that no training saw: among the last 500 of each set those that the first left out, and as
# many of those without an answer in the passages as there are of them beside the others.
python - "$data" "$work" << 'PYTHON'
import json, random, sys
from pathlib import Path
from hybrid.evaluation.questions import questions_of
from sparta.reader.examples import read_examples
from sparta.reader.train import ReadingSet, split
data, work = map(Path, sys.argv[1:])
sizes = {"squad_train_paras": 5000, "squadshifts_new_wiki": 6500, "afriqa_en": 3000, "qamr": 700, "bioasq": 700, "fairytaleqa": 400}
first = {data / "train" / f"{name}.jsonl.gz": n for name, n in sizes.items()}
first |= {work / "nq.dev.jsonl": 2200, work / "trivia.train.jsonl": 1900}
sets = [ReadingSet(path.name, read_examples(path), n) for path, n in first.items()]
seen = {one.question for one in split(sets, 300)[0]}
draw = random.Random(1)
answered, unanswered, found = [], [], set()
for own in sets[-2:]:
    with (work / own.name.replace("jsonl", "both.jsonl")).open(encoding="utf-8") as lines:
        mined = list(map(json.loads, lines))
    found |= {one["question"] for one in mined}
    by_bm25 = {one.question for one in own.examples}
    answered.append([one for one in mined[-500:] if one["question"] in by_bm25 - seen])
for own, known in zip(sets[-2:], answered):
    every = questions_of(work / own.name.replace("jsonl", "tsv")).queries
    others = [{"question": one.text, "answers": list(one.answers)} for one in every if one.text not in found]
    unanswered += draw.sample(others, round(len(known) * len(every) / len(own.examples)) - len(known))
with (work / "unseen.jsonl").open("w", encoding="utf-8") as stream:
    for one in (*answered[0], *answered[1], *unanswered):
        stream.write(json.dumps({key: one[key] for key in ("question", "answers")}) + "\n")
PYTHON
[ -d "$work/reader-bge-small-en" ] || sparta tune-reader --dataset "$work/unseen.jsonl" --index "$work/wikipedia" --channel bm25 --reader "$work/reader-mean" \
  --output "$work/reader-bge-small-en" --int8
