"""Whether BEIR's evaluator and ours agree on the same runs, and BEIR, Pyserini and we on the documents.

    JAVA_HOME=a-full-JDK python benchmarks/beir_agreement.py FOLDER… --peer-python PATH

Each FOLDER is of BEIR's form. One more is made of the first, in ArguAna's form: its queries are passages of
the corpus, with the same ids, and a hit with the query's own id does not count. The runs are our BM25's, 100
hits per query. --peer-python has pytrec-eval-terrier and beir (pip install --no-deps beir).

BEIR's rounding to five digits is switched off. Pyserini reads by Anserini's BeirFlatCollection (Java 21).
Documents are compared by id, and title and text joined: we read a record that has only a title as a text.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from hybrid.evaluation.measures import evaluate, parse_measures, without_own_passages
from hybrid.evaluation.testsets import open_test_set
from sparta.data.corpus import CorpusReader
from sparta.data.trec import write_run
from sparta.index.pipeline import IndexOptions, build_index
from sparta.search.searcher import Searcher

DEPTH, CUTOFFS = 100, (1, 10, 100)
OURS = {"nDCG": "NDCG", "AP": "MAP", "R": "Recall", "P": "P"}
BEIR = """
import json, sys
import beir.retrieval.evaluation as evaluation
from beir.datasets.data_loader import GenericDataLoader
evaluation.round = lambda number, digits: number
folder, run_file = sys.argv[1:]
corpus, queries, qrels = GenericDataLoader(folder).load(split="test")
run = {}
for line in open(run_file):
    query, _, passage, _, score, _ = line.split()
    run.setdefault(query, {})[passage] = float(score)
cutoffs = [1, 10, 100]
found = {}
for some in evaluation.EvaluateRetrieval.evaluate(qrels, run, cutoffs):
    found.update(some)
documents = {i: f"{one['title']} {one['text']}".strip() for i, one in corpus.items()}
json.dump({"measures": found, "documents": documents, "queries": queries}, sys.stdout)
"""
ANSERINI = """
import json, sys
from pyserini.pyclass import autoclass
path = autoclass("java.nio.file.Paths").get(sys.argv[1])
found = {}
for segment in autoclass("io.anserini.collection.BeirFlatCollection")(path).iterator():
    documents = segment.iterator()
    while documents.hasNext():
        document = documents.next()
        found[document.id()] = document.contents()
json.dump(found, sys.stdout)
"""


def output_of(python: str, code: str, *arguments: object) -> dict[str, Any]:
    """What a program prints as JSON."""
    command = [python, "-c", code, *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def arguana(folder: Path, work: Path) -> Path:
    """Make a folder whose queries are passages: another passage of the same title is the right one."""
    by_title = defaultdict(list)
    passages = [json.loads(line) for line in (folder / "corpus.jsonl").read_text("utf-8").splitlines()]
    for passage in passages:
        if passage["text"]:
            by_title[passage["title"]].append(passage)
    pairs = [own for own in by_title.values() if len(own) > 1][:300]
    made = work / "arguana-form"
    (made / "qrels").mkdir(parents=True)
    (made / "corpus.jsonl").write_text((folder / "corpus.jsonl").read_text("utf-8"), "utf-8")
    queries = "".join(json.dumps({"_id": a["_id"], "text": a["text"]}) + "\n" for a, *_ in pairs)
    (made / "queries.jsonl").write_text(queries, "utf-8")
    lines = "".join(f"{a['_id']}\t{b['_id']}\t1\n" for a, b, *_ in pairs)
    (made / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + lines, "utf-8")
    return made


def compare(folder: Path, work: Path, peer: str) -> tuple[int, float, bool, bool]:
    """Return the number of queries, the largest difference, and whether BEIR and Pyserini read the same."""
    index, run_file = work / f"{folder.name}-index", work / f"{folder.name}.trec"
    build_index(index, folder, options=IndexOptions(channels="bm25"))
    tested = open_test_set(folder, work)
    queries = {query.query_id: query.text for query in tested.queries}
    with Searcher(index, channel="bm25") as searcher:
        run = searcher.run(list(queries.values()), list(queries), DEPTH)
    write_run(run_file, run.items())
    beir = output_of(peer, BEIR, folder, run_file)
    names = {f"{ours}@{k}": f"{theirs}@{k}" for ours, theirs in OURS.items() for k in CUTOFFS}
    counted = without_own_passages(run, DEPTH)
    ours = evaluate("bm25", counted, tested.qrels, parse_measures(list(names)))
    difference = max(abs(ours.mean(mine) - beir["measures"][theirs]) for mine, theirs in names.items())
    read = {one.passage_id: f"{one.title} {one.text}".strip() for one in CorpusReader(folder)}
    alone = work / f"{folder.name}-corpus"
    alone.mkdir()
    (alone / "corpus.jsonl").symlink_to((folder / "corpus.jsonl").resolve())
    pyserini = output_of(sys.executable, ANSERINI, alone)
    pyserini = {i: contents.replace("\n", " ", 1).strip() for i, contents in pyserini.items()}
    return len(tested.queries), difference, read == beir["documents"], read == pyserini


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--peer-python", required=True)
    given = parser.parse_args()
    print("| folder | queries | largest difference | BEIR reads the same | Pyserini reads the same |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        agree = True
        for folder in [*given.folders, arguana(given.folders[0], work)]:
            n, difference, beir, pyserini = compare(folder, work, given.peer_python)
            print(f"| {folder.name} | {n:,} | {difference:.1e} | {beir} | {pyserini} |", flush=True)
            agree &= difference <= 1e-6 and beir and pyserini
    sys.exit(0 if agree else 1)


if __name__ == "__main__":
    main()
