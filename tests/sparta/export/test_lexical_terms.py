"""Exports of indexes and models with lexical terms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparta.export.exporters import export_index
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index, build_index_from_vectors
from sparta.search.searcher import Searcher

TEXTS = ["zyxo quux runs on the moon", "the moon earth of mirko.js", "quux zyxo, and zyxob"]
QUERIES = ["zyxo quux", "mirko.js", "moon earth", "quux zyxo", "zyxob"]


@pytest.mark.jvm
def test_pairs_are_single_terms_in_other_engines_and_come_back(tmp_path: Path, lexical_model: Path) -> None:
    build_index(tmp_path / "ix", TEXTS, options=IndexOptions(model=str(lexical_model)))
    with Searcher(tmp_path / "ix") as searcher:
        export_index(searcher, "pyserini-json", tmp_path / "v.jsonl")
        export_index(searcher, "ciff", tmp_path / "v.ciff")
        expected = searcher.run(QUERIES, QUERIES, 9)
        assert all(expected.values())
    vectors = [json.loads(line)["vector"] for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    terms = {term for vector in vectors for term in vector}
    assert {"zyxo", "zyxo!quux", "mirko!js", "moon!earth"} <= terms
    assert not any(" " in term for term in terms)
    content = (tmp_path / "v.ciff").read_bytes()
    names = ["zyxo", "zyxo!quux", "zyxob"]  # byte order, as the lists of terms in CIFF
    places = [content.index(b"\n" + bytes([len(name)]) + name.encode()) for name in names]
    assert places == sorted(places)
    assert b"zyxo quux" not in content
    options = IndexOptions(lexical_terms=True)
    build_index_from_vectors(
        tmp_path / "again", [tmp_path / "v.jsonl"], options=options, tokenizer=lexical_model
    )
    with Searcher(tmp_path / "again") as searcher:
        assert searcher.run(QUERIES, QUERIES, 9) == expected


def test_a_model_for_sentence_transformers_has_no_lexical_terms(
    tmp_path: Path, lexical_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("sentence_transformers")
    from sparta.export.sentence_transformers import export_sentence_transformers

    export_sentence_transformers(lexical_model, tmp_path / "out")
    assert "cannot hold the model's lexical terms" in caplog.text
    assert not list((tmp_path / "out").rglob("lexical_terms*"))
