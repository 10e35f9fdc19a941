"""Reranking: the rankings and the answers of the impact channel, before and after a cross-encoder.

    python benchmarks/reranking.py --work FOLDER [--questions 300] [--answers] SET…
    python benchmarks/reranking.py --work FOLDER --answers --corpus passages.jsonl.gz [--pool 30] nq.test.tsv

A SET is a BEIR folder. With --corpus it is a file of questions, which search a pool of the corpus: the --pool
first passages of BM25 for each question, because encoding a large corpus takes hours. FOLDER keeps the
indexes, so that the command measures at once when it is repeated; after a change of the default model, name
another FOLDER.

The ranking has 100 passages, of which the cross-encoder orders the first 20 anew. ms/query is the time of all
questions, one after the other, by their number. With --answers, the reader reads as many passages as `sparta
answer` does: the first 10, or all 20 reranked ones. p is that of a paired t-test against the impact channel.
Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hybrid.evaluation.answering import Answering
from hybrid.evaluation.compare import compare
from hybrid.evaluation.measures import can_measure
from hybrid.evaluation.questions import questions_of
from hybrid.evaluation.results import results_table
from hybrid.evaluation.testsets import QuestionSet
from hybrid.retrieval.channels import Channels
from sparta import Index
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from sparta.models.resolve import default_name
from sparta.reader.config import reader_folder
from sparta.reader.reader import Reader
from sparta.rerank.reranked import Reranking
from sparta.search.searcher import BM25, IMPACT

MEASURES = ("RR", "Success@1", "answer_recall@20")
DEPTH = 100


def pooled(corpus: Path, questions: QuestionSet, first: int, work: Path) -> Iterator[dict[str, Any]]:
    """Yield the first passages of BM25 for each question, each passage once."""
    if not (work / "bm25").exists():
        build_index(work / "bm25", corpus, options=IndexOptions(channels=BM25))
    with Index(work / "bm25") as index:
        hits = index.batch_search([query.text for query in questions.queries], k=first, threads=2)
        for hit in {hit.passage_id: hit for hit in itertools.chain.from_iterable(hits.values())}.values():
            yield {"id": hit.passage_id, "title": hit.title, "text": hit.text}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sets", nargs="+", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--pool", type=int, default=30)
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--answers", action="store_true")
    parser.add_argument("--reranker", default=default_name("reranker"))
    options = parser.parse_args()
    answering = Answering(Reader.open(reader_folder(None))) if options.answers else None
    results = []
    for path in options.sets:
        questions = questions_of(path).sample(options.questions)
        pool = f"-{options.questions}" if options.corpus else ""
        index = options.work / f"{path.name}{pool}"
        if not index.exists():
            passages = (
                pooled(options.corpus, questions, options.pool, options.work) if options.corpus else path
            )
            report = build_index(index, passages)
            print(f"{path.name}: {report.documents:,} passages", flush=True)
        with Channels(index, [IMPACT]) as channels:
            results.append(
                compare(
                    channels,
                    questions,
                    (),
                    threads=2,
                    answering=answering,
                    measures=[measure for measure in MEASURES if can_measure(questions, measure)],
                    depth=DEPTH,
                    one_by_one=True,
                    reranking=Reranking(options.reranker),
                )
            )
    print(results_table(results, label="ranking", digits=1).write("markdown"))


if __name__ == "__main__":
    main()
