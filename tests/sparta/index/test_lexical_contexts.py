"""Lexical terms of sentences: their context is the text of the passage, from a corpus and from shards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparta.index.inputs.options import IndexOptions
from sparta.index.inputs.sources import vectors_source
from sparta.index.pipeline import build_index, build_index_from_vectors
from sparta.search.explain import top_terms
from sparta.search.searcher import Searcher
from sparta.shards.encode import EncodeOptions, encode_corpus

pytestmark = pytest.mark.jvm
RECORDS: list[dict[str, Any]] = [
    {"id": "a", "title": "zyxo", "text": "The moon of quux.  It goes around the earth. Mirko founded it."},
    {"id": "b", "text": "A house.\nThe google earth.", "context": "metadata of quuxo"},
    {"id": "c", "text": "star", "context": "a star of quuxo", "start": 2, "end": 6, "passage_id": 7},
]


def vectors(index: Path) -> dict[str, dict[str, int]]:
    with Searcher(index) as searcher, searcher.reader.snapshot() as snapshot:
        docids = snapshot.lucene.live()
        ids = snapshot.lucene.ids(docids)
        return {i: snapshot.lucene.vector(docid) for i, docid in zip(ids, docids, strict=True)}


@pytest.mark.parametrize("size", [1, 2, 100])
def test_shards_give_the_terms_of_the_corpus(tmp_path: Path, lexical_model: Path, size: int) -> None:
    corpus = tmp_path / "c.jsonl"
    corpus.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    options = IndexOptions(model=str(lexical_model), unit="sentence")
    build_index(tmp_path / "one", corpus, options=options)
    encode_corpus(
        corpus, tmp_path / "shards", str(lexical_model), EncodeOptions(unit="sentence", shard_size=size)
    )
    build_index_from_vectors(tmp_path / "two", [tmp_path / "shards"])
    impacts = vectors(tmp_path / "one")
    assert impacts == vectors(tmp_path / "two")
    assert set(impacts) == {"a#0", "a#1", "a#2", "b#0", "b#1", "c"}
    source = vectors_source([tmp_path / "shards"])
    whole = list(source.batches(0, ""))
    for n in range(1, len(whole)):  # what a resumed job writes
        rest = list(source.batches(sum(map(len, whole[:n])), whole[n - 1].passage_ids[-1]))
        assert [batch.impacts.tolist() for batch in rest] == [batch.impacts.tolist() for batch in whole[n:]]
    own, others = impacts["a#2"]["mirko"], [impacts[i]["mirko"] for i in ("a#0", "a#1")]
    assert own > max(others)
    assert min(others) > 0
    assert impacts["c"]["quuxo"] > 0
    assert "quuxo" not in impacts["b#0"], "metadata is not the passage's text"


def test_a_pair_is_named_by_its_words(tmp_path: Path, lexical_model: Path) -> None:
    metadata = {"passage_id": 7, "start": 0, "end": 3}  # of the user: this is no sentence of a passage 7
    records = [{**RECORDS[0], **metadata}]
    build_index(tmp_path / "ix", records, options=IndexOptions(model=str(lexical_model)))
    with Searcher(tmp_path / "ix") as searcher:
        names = {term for term, _, _ in top_terms(searcher, "a")}
    assert "mirko founded" in names
    assert not any(name.startswith("pair ") for name in names)
