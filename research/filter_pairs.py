"""Leave out training pairs that a cross-encoder scores low.

    python research/filter_pairs.py IN.jsonl[.gz] OUT.jsonl [--cross-encoder NAME] [--least 0]

A pair is kept if the logit of the question with the passage (the context, or the answer if there is none)
reaches `--least`. Pairs that were found by the strings of their answers need this: of 3,368 pairs of Natural
Questions by `find_answers.py`, 79 % have a logit of 0 or more.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from sparta.models.folders.cross_encoder import CrossEncoder
from sparta.training.formats import form_of, read_records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--cross-encoder", default="reranker-minilm-en", metavar="NAME")
    parser.add_argument("--least", type=float, default=0.0, help="smallest logit of a pair that is kept")
    options = parser.parse_args()
    records = list(read_records(options.pairs, form_of(options.pairs)))
    texts = [f"{r.get('title') or ''} {r.get('context') or r['positive']}".strip() for r in records]
    logits = CrossEncoder.open(options.cross_encoder).logits([r["question"] for r in records], texts)
    kept = [record for record, logit in zip(records, logits, strict=True) if logit >= options.least]
    options.output.write_text(
        "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in kept), encoding="utf-8"
    )
    print(f"{options.output}: {len(kept):,} of {len(records):,} pairs")


if __name__ == "__main__":
    main()
