#!/usr/bin/env bash
# The steps that made reader-small-zh.
#
#   bash research/chinese_reader.sh DATA WORK
#
# DATA holds zh/wiki.jsonl.gz and zh/cmrc2018_train.json.gz; WORK may be that of chinese_model.sh, whose texts
# and tokenizer are then used again. Needs opencc, jieba and scikit-learn beside the extra `train`. Trainings
# resume: the script can be repeated after an interruption.
set -euo pipefail
data=$(realpath "$1") work=$(realpath -m "$2")
root=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH=$root
mkdir -p "$work"

# 1. Simplified texts, a vocabulary, an untrained reader, and two questions made of each passage.
[ -f "$work/held.json" ] || python "$root/research/chinese_text.py" --wiki "$data/zh/wiki.jsonl.gz" \
  --train "$data/zh/cmrc2018_train.json.gz" --output "$work"
[ -d "$work/reader-start" ] || python "$root/research/chinese_reader_start.py" "$work"
[ -f "$work/made-with-answers.jsonl" ] || {
  for seed in 7 8; do
    python "$root/research/chinese_questions.py" "$work" --most 100000 --seed $seed --output "$work/made-$seed.jsonl"
  done
  cat "$work"/made-[78].jsonl > "$work/made-with-answers.jsonl"
}

# 2. Made questions and those of CMRC 2018, on short windows.
python -m cli._sparta train-reader --resume --language zh --encoder "$work/reader-start" --output "$work/reader-1" \
  --data "$work/made-with-answers.jsonl" --data "$work/fit.json=20000" --steps 2400 --batch-size 32 \
  --learning-rate 6e-4 --negatives 0 --unanswered 0 --train-length 200 --held-out 400 --validate-every 300

# 3. Then CMRC 2018 with whole paragraphs, paragraphs that do not answer, and a few made questions.
python -m cli._sparta train-reader --resume --language zh --encoder "$work/reader-1/best" --output "$work/reader-2" \
  --data "$work/fit.json" --data "$work/made-with-answers.jsonl=3000" --steps 700 --batch-size 24 \
  --learning-rate 4e-4 --negatives 0.3 --unanswered 0.15 --train-length 384 --held-out 300 --validate-every 100 \
  --dropout 0.1

# 4. Probabilities and the ranker's share, on the questions that were kept, over CMRC's paragraphs and 15,000 passages.
[ -f "$work/tune.jsonl" ] || python - "$work" <<'PYTHON'
import json, random, sys
from pathlib import Path

work = Path(sys.argv[1])
read = lambda name: [p | {"title": a.get("title", "")} for a in json.loads((work / name).read_text())["data"] for p in a["paragraphs"]]
held, wiki = read("held.json"), [json.loads(line) for line in (work / "wiki.jsonl").open()]
texts = {p["context"]: p["title"] for p in [*read("fit.json"), *held]}
records = [{"id": f"c{n}", "title": title, "text": text} for n, (text, title) in enumerate(texts.items())]
records += [{"id": r["_id"], "title": r["title"], "text": r["text"]} for r in random.Random(5).sample(wiki, 15_000)]
asked = [q for p in held for q in p["qas"]]
questions = [
    {"id": f"h{n}", "question": q["question"], "answers": sorted({a["text"] for a in q["answers"]})}
    for n, q in enumerate(asked)
]
for name, found in (("tune-corpus.jsonl", records), ("tune.jsonl", questions)):
    (work / name).write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in found))
PYTHON
[ -d "$work/tune-index" ] || python -m cli._sparta index --corpus "$work/tune-corpus.jsonl" --language zh \
  --channels bm25 --index "$work/tune-index"
[ -d "$work/reader-small-zh" ] || python -m cli._sparta tune-reader --reader "$work/reader-2/best" --dataset "$work/tune.jsonl" \
  --index "$work/tune-index" --int8 --output "$work/reader-small-zh"
