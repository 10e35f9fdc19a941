"""Open-domain question answering on a large corpus: every channel and hybrid, in one table.

    python benchmarks/open_domain.py --corpus passages.jsonl.gz --tune nq.dev.tsv \
        --test trivia.dev.tsv wq.test.tsv --regex curated.test.tsv --work DIR [--rankings DIR2] [--minutes M]
        [--alphas 0.5:2:0.1] [--normalization minmax]

The corpus is taken in parts. The commands that a user would type encode and index each (`sparta encode`,
`sparta index --vectors`; `dense index --kind flat`), and the 100 best passages for each question are merged
with those of the parts before. The scores of both channels do not depend on what else is in the index, so the
result is that of one index. BM25, whose do, searches the whole.

The merged rankings (`impact.json.gz`, `dense.json.gz`, 2 to 4 MB) say which parts they hold and what encoding
took; the same command goes on from them. Encoding takes hours on a CPU: --minutes begins no part after so
many. When all is there, α is tuned on the first set only (--alphas, answer_recall@20; TASER, §4.3), for the
dense base, the sparta base and both, and all channels and hybrids are measured on all sets.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import itertools
import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from dense.channel.searcher import DenseSearcher
from dense.models.resolve import identify
from hybrid.evaluation.compare import compare
from hybrid.evaluation.questions import questions_of
from hybrid.evaluation.results import results_table
from hybrid.evaluation.tables import Table
from hybrid.evaluation.testsets import QuestionSet
from hybrid.evaluation.tune import best_fusion, parse_alphas, tune
from hybrid.retrieval.channels import Channels
from hybrid.retrieval.fusion import NORMALIZATIONS, Fusion, formula
from sparta.base.closing import Closing
from sparta.base.disk.streams import open_decompressed
from sparta.base.files import atomic_write, sha256_file
from sparta.base.records import Ranking as Columns
from sparta.models.resolve import default_model_folder, hash_folder
from sparta.search.retriever import Page, Retriever
from sparta.search.searcher import Searcher

MEASURE = "answer_recall@20"
DEPTH = 100
NEURAL = ("impact", "dense")

Ranking = list[tuple[str, float]]


def command(program: str, *arguments: object) -> None:
    """Run one of our commands, as typed."""
    words = [*map(str, arguments), "--quiet"]
    print("$", program, *words, file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", f"cli._{program}", *words], check=True)


class Rankings:
    """The best passages of one channel for each question, over the parts of the corpus that are done.

    `facts` are what all parts must have in common; a file of other facts is refused.
    """

    def __init__(self, path: Path, facts: Mapping[str, Any]) -> None:
        self.path, self.facts = path, dict(facts)
        self.parts: dict[str, dict[str, Any]] = {}
        self.found: dict[str, Ranking] = {}
        if path.exists():
            stored = json.loads(gzip.decompress(path.read_bytes()))
            known = {k: stored["facts"].get(k) for k in facts}
            differing = {k: v for k, v in known.items() if v != facts[k]}
            if differing:
                found = ", ".join(f"{k} {v}" for k, v in differing.items())
                raise SystemExit(f"{path}: expected {self.facts}, found {found}: remove it")
            self.parts = stored["parts"]
            self.found = {q: list(zip(*own, strict=True)) for q, own in stored["found"].items()}

    def add(self, part: int, searcher: Retriever, questions: Mapping[str, str], took: float) -> None:
        """Merge what a part's index finds; of equal scores, the part that comes first in the corpus wins."""
        rows = zip(questions, searcher.rank(list(questions.values()), Page(DEPTH), 2), strict=True)
        for key, row in rows:
            new = [(p, round(score, 5)) for p, score in zip(row.passage_ids, row.scores, strict=True)]
            merged = [*self.found.get(key, []), *new]
            self.found[key] = sorted(merged, key=lambda one: -one[1])[:DEPTH]
        self.parts[str(part)] = {"passages": searcher.num_docs, "seconds": round(took, 1)}
        found = {q: [list(column) for column in zip(*own, strict=True)] for q, own in self.found.items()}
        stored = {"facts": self.facts, "parts": self.parts, "found": found}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(self.path, gzip.compress(json.dumps(stored).encode(), mtime=0))


def key_of(question: str) -> str:
    """What a question is called in the rankings: they do not repeat it."""
    return hashlib.sha256(question.encode()).hexdigest()[:16]


class Ranked(Closing):
    """BM25 of an index, searched as always, and beside it channels whose rankings are known."""

    def __init__(self, index: Path, rankings: Mapping[str, Rankings]) -> None:
        self.bm25 = Searcher(index, channel="bm25")
        self.searchers = dict.fromkeys(("bm25", *rankings), self.bm25)  # they tell the passages' texts
        self.rankings = rankings

    def batch_search(self, queries: Sequence[str], k: int, threads: int = 1) -> dict[str, list[Columns]]:
        """What each channel finds, as `hybrid.retrieval.channels.Channels` gives it."""
        found = {"bm25": self.bm25.rank(queries, Page(k), threads)}
        for name, own in self.rankings.items():
            found[name] = [self._known(own.found.get(key_of(q), [])[:k]) for q in queries]
        return found

    def _known(self, ranking: Ranking) -> Columns:
        ids = [docid for docid, _ in ranking]
        return Columns(ids, self.bm25.docids(ids), [score for _, score in ranking])

    def close(self) -> None:
        """Let go of the index."""
        self.bm25.close()


def facts_of(name: str, given: argparse.Namespace, sets: Sequence[QuestionSet]) -> dict[str, Any]:
    """What rankings depend on, so that those of another making are not merged with them."""
    texts = json.dumps([[one.name, [[q.query_id, q.text] for q in one.queries]] for one in sets])
    return {
        "model": identify(None).sha256 if name == "dense" else hash_folder(default_model_folder()),
        "corpus": sha256_file(given.corpus),
        "questions": hashlib.sha256(texts.encode()).hexdigest(),
        "parts": given.parts,
    }


def bare_index(records: Sequence[Mapping[str, Any]], folder: Path) -> Path:
    """Index passages without impacts: for BM25, or for a dense channel beside it."""
    index, bare = folder / "index", folder / "bare.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    bare.write_text("\n".join(json.dumps({**record, "vector": {}}) for record in records), encoding="utf-8")
    source = ("--vectors", bare, "--tokenizer", default_model_folder())
    command("sparta", "index", *source, "--index", index, "--resume")  # one of other passages is refused
    return index


def timed(folder: Path, program: str, *arguments: object) -> float:
    """Run a command; the seconds that it took, with those of the runs that were interrupted before."""
    spent = folder / "seconds"
    before = float(spent.read_text()) if spent.exists() else 0.0
    started = time.monotonic()
    try:
        command(program, *arguments)
    finally:
        spent.write_text(str(before + time.monotonic() - started))
    return float(spent.read_text())


def encode_part(name: str, records: Sequence[Mapping[str, Any]], folder: Path) -> tuple[Path, float]:
    """Encode and index a part; the index, and the seconds that encoding took."""
    if name == "dense":
        index = bare_index(records, folder)
        return index, timed(folder, "dense", "index", "--index", index, "--kind", "flat")
    folder.mkdir(parents=True, exist_ok=True)
    corpus, vectors, index = folder / "corpus.jsonl", folder / "vectors", folder / "index"
    corpus.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    took = timed(folder, "sparta", "encode", "--corpus", corpus, "--output", vectors, "--resume")
    command("sparta", "index", "--vectors", vectors, "--index", index, "--overwrite")
    return index, took


def parts_of(path: Path, n: int) -> Iterator[list[dict[str, Any]]]:
    """The records of a corpus in BEIR's form, as Pyserini's, in n parts of like size, in order."""
    with open_decompressed(path) as lines:
        read = [json.loads(line) for line in lines]
    records = [{"id": r["_id"], "contents": r["text"], "title": r.get("title", "")} for r in read]
    for first, end in itertools.pairwise(len(records) * i // n for i in range(n + 1)):
        yield records[first:end]


def search_parts(
    given: argparse.Namespace, rankings: Mapping[str, Rankings], sets: Sequence[QuestionSet]
) -> bool:
    """Do the parts that are missing, until the time is over; whether none is."""
    questions = {key_of(q.text): q.text for one in sets for q in one.queries}
    deadline = math.inf if given.minutes is None else time.monotonic() + 60 * given.minutes
    for name in given.channels:
        for number, records in enumerate(parts_of(given.corpus, given.parts)):
            if str(number) in rankings[name].parts:
                continue
            if time.monotonic() > deadline:
                return False
            index, took = encode_part(name, records, given.work / f"{name}-{number}")
            with DenseSearcher(index) if name == "dense" else Searcher(index) as searcher:
                rankings[name].add(number, searcher, questions, took)
    return all(len(own.parts) == given.parts for own in rankings.values())


def measure(given: argparse.Namespace, rankings: Mapping[str, Rankings], sets: Sequence[QuestionSet]) -> None:
    """Tune on the first set, measure on all, print the tables."""
    records = [record for part in parts_of(given.corpus, 1) for record in part]
    alphas = parse_alphas(given.alphas)
    with Ranked(bare_index(records, given.work / "bm25"), rankings) as ranked:
        channels = cast(Channels, ranked)
        fusions = []
        for name in [name for name in ("dense", "impact") if name in rankings]:
            fusion = Fusion({name: 1.0, "bm25": 1.0}, normalization=given.normalization)
            fusions.append(best_fusion(fusion, tune(channels, sets[:1], fusion, MEASURE, alphas=alphas)))
        if len(rankings) == 2:
            fusions.append(Fusion({"dense": 1.0, "impact": 1.0}, normalization=given.normalization))
            three = Fusion({"dense": 1.0, "impact": 1.0, "bm25": 1.0}, normalization=given.normalization)
            fusions.append(best_fusion(three, tune(channels, sets[:1], three, MEASURE, alphas=alphas)))
        table = results_table([compare(channels, one, fusions) for one in sets])
    for one in sets:
        print(
            f"{one.name}: {len(one.queries):,} questions"
            + (f" of {one.sampled_from:,}" if one.sampled_from else "")
        )
    print(f"\n{table.write('markdown')}\n\n{formula(*fusions)}\n\n{rates(rankings).write('markdown')}")


def rates(rankings: Mapping[str, Rankings]) -> Table:
    """How fast each channel was encoded, over all parts."""
    rows = []
    for name, own in rankings.items():
        passages = sum(part["passages"] for part in own.parts.values())
        seconds = sum(part["seconds"] for part in own.parts.values())
        rows.append([name, passages, seconds / 3600, passages / seconds])
    return Table(["encoded", "passages", "hours", "passages/s"], rows, digits=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument(
        "--tune", type=Path, required=True, help="questions with answers on which α is chosen"
    )
    parser.add_argument("--test", type=Path, nargs="*", default=[], help="other sets to measure on")
    parser.add_argument(
        "--regex", type=Path, nargs="*", default=[], help="sets whose answers are expressions"
    )
    parser.add_argument("--work", type=Path, required=True, help="folder for vectors and indexes")
    parser.add_argument(
        "--rankings", type=Path, help="folder of the merged rankings [default: that of --work]"
    )
    parser.add_argument("--channels", nargs="+", choices=NEURAL, default=NEURAL, help="what to encode")
    parser.add_argument("--sample", type=int, default=1000, help="questions of each set")
    parser.add_argument("--parts", type=int, default=12, help="parts of the corpus")
    parser.add_argument("--alphas", default="0.5:2:0.1", help="weights of BM25 to try")
    parser.add_argument("--normalization", choices=list(NORMALIZATIONS), default="minmax")
    parser.add_argument("--minutes", type=float, help="begin no part after so many")
    given = parser.parse_args()

    sets = [questions_of(path).sample(given.sample) for path in (given.tune, *given.test, *given.regex)]
    n = 1 + len(given.test)
    sets = [*sets[:n], *(replace(one, match="regex") for one in sets[n:])]
    folder = given.rankings or given.work
    rankings = {
        name: Rankings(folder / f"{name}.json.gz", facts_of(name, given, sets)) for name in given.channels
    }
    if not search_parts(given, rankings, sets):
        print("not all parts are encoded yet: repeat the command", file=sys.stderr)
        raise SystemExit(3)
    measure(given, rankings, sets)


if __name__ == "__main__":
    main()
