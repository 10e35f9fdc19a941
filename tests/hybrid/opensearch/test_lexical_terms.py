"""Rankings in OpenSearch of indexes with lexical terms: pairs have spaces."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from hybrid.opensearch.files import export_opensearch
from hybrid.opensearch.push import push
from hybrid.opensearch.remote import RemoteIndex
from hybrid.opensearch.searcher import OpenSearchSearcher
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from sparta.search.explain import explain
from sparta.search.searcher import Searcher

pytestmark = pytest.mark.jvm
WORDS = ["zyxo", "quux.js", "mirko-7", "moon", "earth", "the", "of", "google"]


@pytest.fixture
def index(tmp_path: Path, lexical_model: Path) -> Path:
    rng = random.Random(2)
    texts = [" ".join(rng.choices(WORDS, k=9)) for _ in range(40)]
    build_index(tmp_path / "ix", texts, options=IndexOptions(model=str(lexical_model)))
    return tmp_path / "ix"


@pytest.mark.parametrize("kind", ["neural_sparse", "rank_feature"])
def test_rankings_and_explanations_are_those_of_the_index(index: Path, server, name: str, kind: str) -> None:
    rng = random.Random(3)
    queries = [" ".join(rng.choices(WORDS, k=3)) for _ in range(20)]
    ids = [str(i) for i in range(20)]
    with Searcher(index) as here:
        push(here, server, name)
        there = OpenSearchSearcher(server, name, opened=RemoteIndex(server, name, kind))
        assert there.run(queries, ids, 40) == here.run(queries, ids, 40)
        best = here.search("quux.js moon earth")[0]
        why = explain(here, "quux.js moon earth", best.passage_id)
        assert {word.word for word in why.words} >= {"quux", "moon", "earth"}
        assert there.explain("quux.js moon earth", best.passage_id) == why


def test_files_name_features_without_dots(tmp_path: Path, index: Path) -> None:
    with Searcher(index) as here:
        export_opensearch(here, tmp_path / "out")
    lines = (tmp_path / "out" / "bulk" / "000000.ndjson").read_text(encoding="utf-8").splitlines()
    names = {name for line in lines[1::2] for name in json.loads(line)["impacts"]}
    assert {"quux js", "moon earth"} <= names
    assert not any("." in name for name in names)
    assert "tokenizer model makes wordpieces only" in (tmp_path / "out" / "README.md").read_text()
