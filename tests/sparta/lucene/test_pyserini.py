"""Pyserini's impact searcher ranks as we do: the default model, real queries, both codecs; a tiny model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparta.index.build import write_index
from sparta.index.folder import IndexFolder
from sparta.index.inputs.sources import vectors_source
from sparta.index.jobs import WriteOptions
from sparta.models.resolve import default_model_folder
from sparta.search.searcher import Searcher
from tests.sparta.search.test_search import Collection, N, collection, pairs, questions, words

__all__ = ["collection", "words"]  # fixtures
pytestmark = [
    pytest.mark.jvm,
    pytest.mark.slow,
    pytest.mark.skipif(not default_model_folder().is_dir(), reason="the default model is not here"),
]

ROOT = Path(__file__).parents[3]
DEPTH = 100
SEARCH = """
import json, sys
from sparta.lucene import jvm
path, bags, k = json.load(sys.stdin)
jars = jvm.jar_paths()
jvm.jar_paths = lambda: tuple(jar for jar in jars if "sparta" not in jar.name)
jvm.start_jvm()
from tests.pyserinis_searchers import LuceneImpactSearcher

class Encoder:
    def encode(self, query):
        return bags[query]

searcher = LuceneImpactSearcher(path, Encoder(), min_idf=-1)
print(json.dumps({q: [[hit.docid, hit.score] for hit in searcher.search(q, k)] for q in bags}))
"""


def queries() -> list[str]:
    lines = (ROOT / "examples" / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] + " ?" for line in lines[:50]]


def pyserini_without_our_jar(path: Path, bags: dict[str, dict[str, int]]) -> dict[str, list[list]]:
    done = subprocess.run(
        [sys.executable, "-c", SEARCH],
        input=json.dumps([str(path), bags, DEPTH]),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[list]] = json.loads(done.stdout.splitlines()[-1])
    return found


def by_score(ranking: list[list]) -> list[tuple[int, set[str]]]:
    """The passages of each score. Anserini lowers tied scores by far less than 1: rounding restores them."""
    groups: dict[int, set[str]] = defaultdict(set)
    for passage_id, score in ranking:
        assert abs(score - round(score)) < 0.05
        groups[round(score)].add(passage_id)
    return list(groups.items())


@pytest.mark.parametrize(
    ("codec", "our_jar"), [("lucene", False), pytest.param("fast", True, marks=pytest.mark.release)]
)
def test_pyserini_ranks_50_queries_of_the_default_model_as_we_do(
    tmp_path: Path, example_shards: Path, ask_pyserini: Callable[..., Any], codec: str, our_jar: bool
) -> None:
    """Same passages at each score, 50 of 50; as many of the last score, where the depth cuts it."""
    index = IndexFolder(tmp_path / "index")
    write_index(index, vectors_source([example_shards]), WriteOptions(codec=codec))
    with Searcher(index.path) as searcher, searcher.reader.snapshot() as view:
        asked = queries()
        bags = {q: searcher.tokenizer.terms(q) for q in asked}
        ours = {q: [[h.passage_id, h.score] for h in searcher.search(q, DEPTH)] for q in asked}
        path = index.lucene_path(view.generation)
    assert len(bags) == 50
    if our_jar:
        rankings = ask_pyserini(path, list(bags.values()), [], "google", DEPTH)["sparta"]
        theirs = dict(zip(bags, rankings, strict=True))
    else:
        theirs = pyserini_without_our_jar(path, bags)
    same = 0
    for query in asked:
        mine, other = by_score(ours[query]), by_score(theirs[query])
        assert [(score, len(ids)) for score, ids in mine] == [(score, len(ids)) for score, ids in other]
        whole = None if len(ours[query]) < DEPTH else -1
        same += mine[:whole] == other[:whole]
        assert all(isinstance(score, int) for _, score in ours[query])
    assert same == 50


def test_pyserini_ranks_a_tiny_model_with_many_ties_as_we_do(
    collection: Collection, words: list[str], ask_pyserini: Callable[..., Any]
) -> None:
    """It orders equal scores by id, so the scores must agree, and each passage must have its own."""
    texts = [" ".join(q) for q in questions(words, 25, seed=9)]
    with Searcher(collection.index) as searcher:
        bags = [searcher.tokenizer.terms(q) for q in texts]
        with searcher.reader.snapshot() as snapshot:
            lucene = snapshot.lucene.path
    theirs = ask_pyserini(lucene, bags, texts, "p7", 100)
    assert json.loads(theirs["raw"])["id"] == "p7"
    for channel in ("sparta", "bm25"):
        with Searcher(collection.index, channel=channel) as searcher:
            for question, ranking in zip(texts, theirs[channel], strict=True):
                ours = pairs(searcher.search(question, N))
                scores = dict(ours)
                assert [s for _, s in ranking] == pytest.approx([s for _, s in ours[:100]], abs=1e-3)
                for passage_id, score in ranking:
                    assert scores[passage_id] == pytest.approx(score, abs=1e-3)
                assert len({i for i, _ in ranking}) == min(100, len(ours))
