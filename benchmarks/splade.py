"""A SPLADE model in sparta, Pyserini and sentence-transformers: one query at a time, from text to hits.

    python benchmarks/splade.py --model FOLDER [--questions 300] SET…

A SET is a BEIR folder; FOLDER is a BertForMaskedLM with model.safetensors. sparta's index has Lucene's codec,
so Pyserini searches the same file with the same integer impacts. Its SpladeQueryEncoder rounds query weights
to 5/256. sentence-transformers keeps the passages' weights in float32 and multiplies sparse matrices
(`util.semantic_search`). Each query runs in all engines before the next query, with k = 100; the first ten
queries warm up. All engines have two cores. Prints a Markdown table with medians and means.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median

from hybrid.evaluation.evaluate import corpus_of
from hybrid.evaluation.measures import evaluate
from hybrid.evaluation.tables import Cell, Table
from hybrid.evaluation.testsets import Qrels, open_test_set
from sparta import Index
from sparta.base.records import Passage, ScoredPassage
from sparta.data.corpus import open_corpus
from sparta.index.inputs.options import IndexOptions

DEPTH = 100
WARM = 10
Engine = Callable[[str], list[ScoredPassage]]


def sparta_engine(index: Index) -> Engine:
    """Search with the network of the index."""
    return lambda query: [ScoredPassage(hit.passage_id, hit.score) for hit in index.search(query, DEPTH)]


def pyserini_engine(index: Index, model: Path, work: Path) -> Engine:
    """Search the same Lucene index. Pyserini's encoder reads only the weights of torch's own format."""
    import torch
    from pyserini.encode import SpladeQueryEncoder
    from pyserini.search.lucene import LuceneImpactSearcher
    from safetensors.torch import load_file

    folder = work / "for-pyserini"
    if not folder.exists():
        shutil.copytree(model, folder, ignore=shutil.ignore_patterns("*.safetensors"))
        torch.save(load_file(str(model / "model.safetensors")), folder / "pytorch_model.bin")
    encoder = SpladeQueryEncoder(str(folder))
    lucene = index.reader.folder.lucene_path(index.reader.folder.require_live())
    searcher = LuceneImpactSearcher(str(lucene), encoder, min_idf=-1)

    def search(query: str) -> list[ScoredPassage]:
        return [ScoredPassage(hit.docid, hit.score) for hit in searcher.search(query, DEPTH)]

    return search


def sentence_transformers_engine(model: Path, passages: list[Passage]) -> Engine:
    """Search all passages' weights, as the documentation of sentence-transformers does."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.util import semantic_search

    encoder = SparseEncoder(str(model), device="cpu")
    texts = [f"{passage.title} {passage.text}".strip() for passage in passages]
    weights = encoder.encode_document(texts, batch_size=16, show_progress_bar=False)

    def search(query: str) -> list[ScoredPassage]:
        vector = encoder.encode_query(query, show_progress_bar=False)
        [found] = semantic_search(
            vector.unsqueeze(0), weights, top_k=DEPTH, score_function=encoder.similarity
        )
        return [ScoredPassage(passages[int(hit["corpus_id"])].passage_id, hit["score"]) for hit in found]

    return search


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sets", nargs="+", type=Path)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--questions", type=int, default=300)
    options = parser.parse_args()
    rows: list[list[Cell]] = []
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        for path in options.sets:
            tested = open_test_set(path, work).sample(options.questions)
            passages = list(open_corpus(corpus_of(tested)))
            index_options = IndexOptions(model=str(options.model), codec="lucene")
            with Index.create(work / path.name, corpus_of(tested), options=index_options) as index:
                engines = {
                    "sparta": sparta_engine(index),
                    "Pyserini": pyserini_engine(index, options.model, work),
                    "sentence-transformers": sentence_transformers_engine(options.model, passages),
                }
                queries = {query.query_id: query.text for query in tested.queries}
                rows += compared(engines, queries, tested.qrels)
                rows[-len(engines)][0] = f"{path.name} ({len(passages):,} passages)"
    header = ["set", "engine", "ms/query, median", "mean", "MRR", "first hits as in float32, %"]
    print(Table(header, rows, digits=2).write("markdown"))


def compared(engines: dict[str, Engine], queries: dict[str, str], qrels: Qrels) -> list[list[Cell]]:
    """Return a row for each engine, the last of which computes in float32."""
    runs: dict[str, dict[str, list[ScoredPassage]]] = {name: {} for name in engines}
    times: dict[str, list[float]] = {name: [] for name in engines}
    for number, (query_id, text) in enumerate(queries.items()):
        for name, search in engines.items():
            started = time.perf_counter()
            runs[name][query_id] = search(text)
            if number >= WARM:
                times[name].append(1000 * (time.perf_counter() - started))
    exact = list(runs.values())[-1]
    rows: list[list[Cell]] = []
    for name, run in runs.items():
        mrr = 100 * evaluate(name, run, qrels, ["RR"]).mean("RR")
        equal = fmean(run[i][0].passage_id == exact[i][0].passage_id for i in queries)
        rows.append(["", name, median(times[name]), fmean(times[name]), mrr, 100 * equal])
    return rows


if __name__ == "__main__":
    main()
