"""Training pairs from questions with known answers and a corpus: distant supervision, as DPR trains (§4.1).

    python research/find_answers.py --corpus passages.jsonl.gz --questions nq.dev.tsv --output pairs.jsonl

The answer of a question is the best passage of BM25 that holds one of its answers, and in it the sentence
that holds the answer and shares most words with the question. Questions without such a passage among the
first 20 are left out. Pairs stand in the order of the corpus, so that neighbours in
the file are near in the texts.
"""

from __future__ import annotations

import argparse
import ast
import csv
import json
import tempfile
from collections.abc import Sequence
from itertools import batched
from pathlib import Path
from typing import Any

import numpy as np

from sparta.base.records import Passage, Query
from sparta.data.answers import has_answer, tokens
from sparta.data.corpus import open_corpus
from sparta.data.sentences import sentence_splitter
from sparta.lucene.bridge import ImpactSearcher, ImpactWriter


def read_questions(path: Path) -> list[Query]:
    """DPR's question files: tab-separated as CSV, question and a Python list of answers."""
    found = []
    with path.open(encoding="utf-8", newline="") as lines:
        for number, row in enumerate(csv.reader(lines, delimiter="\t"), 1):
            answers = ast.literal_eval(row[1]) if len(row) == 2 else None
            if not isinstance(answers, list) or not all(isinstance(a, str) for a in answers):
                raise SystemExit(f"{path}:{number}: expected a question and a list of answers, found {row}")
            found.append(Query(str(number), row[0], tuple(answers)))
    return found


def index_text(passages: Sequence[Passage], folder: Path) -> None:
    """Write a BM25 index: documents without impacts."""
    with ImpactWriter(folder, codec="lucene", threads=2) as writer:
        for first in range(0, len(passages), 2000):
            part = passages[first : first + 2000]
            nothing = np.zeros(0, dtype=np.int32)
            writer.add(
                [str(first + i) for i in range(len(part))],
                [""] * len(part),
                [f"{p.title} {p.text}" for p in part],
                np.arange(first, first + len(part)),
                np.zeros(len(part) + 1, dtype=np.int32),
                nothing,
                nothing,
            )
        writer.commit("")


def pair(query: Query, passage: Passage, spans: Sequence[tuple[int, int]]) -> dict[str, Any] | None:
    """Return the training pair of a question in this passage, if the passage holds an answer."""
    asked = set(tokens(query.text))
    best, most = None, -1
    for start, end in spans:
        sentence = passage.text[start:end]
        if has_answer(sentence, query.answers):
            shared = len(asked & set(tokens(sentence)))
            if shared > most:
                best, most = (start, end), shared
    if best is None:
        return None
    start, end = best
    return {
        "question": query.text,
        "positive": passage.text[start:end],
        "context": passage.text,
        "start": start,
        "end": end,
        "title": passage.title,
        "answers": list(query.answers),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--questions", type=Path, required=True, help="question<TAB>list of answers")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--depth", type=int, default=20)
    given = parser.parse_args()
    passages = list(open_corpus(given.corpus))
    queries = read_questions(given.questions)
    split = sentence_splitter("en")
    found: list[tuple[int, dict[str, Any]]] = []
    with tempfile.TemporaryDirectory() as work:
        index_text(passages, Path(work))
        with ImpactSearcher(work) as searcher:
            for part in batched(queries, 500):
                hits = searcher.search_text([q.text for q in part], given.depth, 2)
                for i, query in enumerate(part):
                    for position in searcher.positions(hits.query(i)[0]).tolist():
                        made = pair(query, passages[position], split(passages[position].text))
                        if made:
                            found.append((position, made))
                            break
    found.sort(key=lambda item: item[0])
    with given.output.open("w", encoding="utf-8") as out:
        for _, made in found:
            out.write(json.dumps(made, ensure_ascii=False) + "\n")
    print(f"{given.output}: {len(found):,} pairs of {len(queries):,} questions")


if __name__ == "__main__":
    main()
