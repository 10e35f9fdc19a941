"""Indexes with lexical terms: what passages and queries get, and which jobs keep, add or refuse the terms."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from sparta.base.errors import IndexStateError, InputError
from sparta.base.records import Passage
from sparta.index.folder import IndexFolder
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index, build_index_from_vectors
from sparta.models import query_encoder
from sparta.models.document_encoder import DocumentEncoder
from sparta.models.lexical_terms import TERMS_FILE, LexicalTerms, TermSettings
from sparta.models.load import load_model
from sparta.search.searcher import Searcher
from sparta.shards.encode import EncodeOptions, encode_corpus
from tests.programs import sparta

pytestmark = pytest.mark.jvm

FORMATS = Path(__file__).parents[2] / "formats"
WORDS = ["zyxo", "quux", "mirko", "bravo-7", "google", "moon", "earth", "the", "of", "founded", "house"]


@pytest.fixture
def model(lexical_model: Path) -> Path:
    return lexical_model


def passages(n: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {"id": f"p{seed}-{i}", "title": rng.choice(["", *WORDS]), "text": " ".join(rng.choices(WORDS, k=9))}
        for i in range(n)
    ]


def expected(
    folder: Path, records: Sequence[dict[str, Any]], top_k: int | None = None
) -> list[dict[str, int]]:
    """The impacts of each passage: the network's, and those of the lexical terms, on one scale."""
    model = load_model(folder)
    units = [Passage(r["id"], r["text"], r["title"]) for r in records]
    rows, _ = DocumentEncoder(model, top_k=top_k).encode(units)
    side, impacts = model.query_side(), []
    for i, unit in enumerate(units):
        begin, end = rows.indptr[i : i + 2]
        pieces = map(side.tokenizer.id_to_token, rows.term_ids[begin:end].tolist())
        of_pieces = side.quantizer.quantize(rows.weights[begin:end])[0].tolist()
        terms = model.lexical.passage_terms(unit, rows.term_ids[begin:end], rows.weights[begin:end])
        of_terms = side.quantizer.quantize(np.array([*terms.values()], np.float32))[0].tolist()
        both = zip([*pieces, *terms], of_pieces + of_terms, strict=True)
        impacts.append({term: impact for term, impact in both if not term.startswith("##")})
    return impacts


def vectors(index: Path) -> dict[str, dict[str, int]]:
    with Searcher(index) as searcher, searcher.reader.snapshot() as snapshot:
        docids = snapshot.lucene.live()
        return {
            i: snapshot.lucene.vector(d) for i, d in zip(snapshot.lucene.ids(docids), docids, strict=True)
        }


def has_terms(index: Path) -> bool:
    """Whether the index names lexical terms; if so, passages have some."""
    named = "lexical_terms" in IndexFolder(index).require_live().model
    assert named == any("quux" in vector for vector in vectors(index).values())
    return named


@pytest.mark.parametrize("codec", ["fast", "lucene"])
def test_rankings_equal_brute_force(tmp_path: Path, model: Path, codec: str) -> None:
    records = passages(40)
    build_index(tmp_path / "ix", records, options=IndexOptions(model=str(model), codec=codec, top_k=20))
    impacts = expected(model, records, top_k=20)
    assert vectors(tmp_path / "ix") == {r["id"]: row for r, row in zip(records, impacts, strict=True)}
    tokenizer = load_model(model).query_side().query_tokenizer()
    rng = random.Random(1)
    with Searcher(tmp_path / "ix") as searcher:
        for query in (" ".join(rng.choices([*WORDS, "unknown"], k=3)) for _ in range(20)):
            bag = tokenizer.terms(query)
            scores = [sum(n * row.get(term, 0) for term, n in bag.items()) for row in impacts]
            order = sorted((-score, i) for i, score in enumerate(scores) if score)
            hits = [(hit.passage_id, hit.score) for hit in searcher.search(query, 99)]
            assert hits == [(records[i]["id"], -score) for score, i in order]


def test_a_query_has_each_occurrence_once_and_unknown_terms_change_nothing(
    tmp_path: Path, model: Path
) -> None:
    build_index(tmp_path / "ix", passages(9), options=IndexOptions(model=str(model)))
    with Searcher(tmp_path / "ix") as searcher:
        bag = searcher.tokenizer.terms("Quux, quux Mirko")
        assert bag["quux"] == 6  # a query counts a word three times
        assert bag["mirko"] == 3
        assert bag["quux mirko"] == 1
        hits = searcher.search("moon", 99)
        assert hits == searcher.search("moon .", 99)
        assert searcher.search("!!") == []


@pytest.mark.slow
def test_a_growing_index_keeps_its_terms(tmp_path: Path, model: Path, tiny_model_folder: Path) -> None:
    with_terms, without = tmp_path / "with", tmp_path / "without"
    build_index(with_terms, passages(5), options=IndexOptions(model=str(model)))
    build_index(without, passages(5), options=IndexOptions(model=str(model), lexical_terms=False))
    assert has_terms(with_terms)
    assert not has_terms(without)
    (model / TERMS_FILE).unlink()  # the index has its own copy
    for mode, seed in (("append", 1), ("update", 1), ("update", 0)):
        build_index(with_terms, passages(5, seed), mode)
    assert sum("zyxo" in vector for vector in vectors(with_terms).values()) > 5
    LexicalTerms(TermSettings(word_gain=1.0), load_model(model).tokenizer).save(model)
    for index, kept in ((with_terms, True), (without, False)):
        build_index(index, passages(5, 2), "append")
        build_index(index, passages(5, 0), "update", IndexOptions(lexical_terms=kept))
        assert has_terms(index) == kept
        with pytest.raises(InputError, match=f"the index has {'lexical' if kept else 'no lexical'} terms"):
            build_index(index, passages(5, 3), "append", IndexOptions(lexical_terms=not kept))


def test_the_same_command_changes_nothing(tmp_path: Path, model: Path) -> None:
    """An index of before the model had lexical terms is up to date; --overwrite gives it the terms."""
    corpus = tmp_path / "c.jsonl"
    corpus.write_text("".join(json.dumps(r) + "\n" for r in passages(5)))
    old = IndexOptions(model=str(model), lexical_terms=False)
    build_index(tmp_path / "ix", corpus, options=old)
    assert build_index(tmp_path / "ix", corpus, options=IndexOptions(model=str(model))).unchanged
    build_index(tmp_path / "ix", corpus, "overwrite", IndexOptions(model=str(model)))
    assert has_terms(tmp_path / "ix")
    assert build_index(tmp_path / "ix", corpus, options=IndexOptions(model=str(model))).unchanged


def test_a_model_without_lexical_terms_is_refused(tmp_path: Path, tiny_model_folder: Path) -> None:
    options = IndexOptions(model=str(tiny_model_folder), lexical_terms=True)
    with pytest.raises(InputError, match="has no lexical terms"):
        build_index(tmp_path / "ix", passages(3), options=options)


def test_shards_get_terms_without_encoding_again(tmp_path: Path, model: Path) -> None:
    corpus, shards = tmp_path / "c.jsonl", tmp_path / "shards"
    corpus.write_text("".join(json.dumps(r) + "\n" for r in passages(9)))
    encode_corpus(corpus, shards, str(model), EncodeOptions())
    build_index(tmp_path / "one", corpus, options=IndexOptions(model=str(model)))
    build_index_from_vectors(tmp_path / "two", [shards])
    assert has_terms(tmp_path / "two")
    assert vectors(tmp_path / "one") == vectors(tmp_path / "two")
    (shards / "tokenizer" / TERMS_FILE).unlink()  # as encoded before the model had such terms
    build_index_from_vectors(tmp_path / "old", [shards])
    assert not has_terms(tmp_path / "old")
    build_index_from_vectors(tmp_path / "new", [shards], options=IndexOptions(lexical_terms=True))
    assert vectors(tmp_path / "one") == vectors(tmp_path / "new")


def test_json_vectors_may_hold_terms(tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "v.jsonl"
    lines = [{"id": "a", "contents": "", "vector": {"zyxo": 9, "moon earth": 5, "moon": 1}}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    build_index_from_vectors(
        tmp_path / "ix", [path], options=IndexOptions(lexical_terms=True), tokenizer=str(model)
    )
    assert not caplog.records
    with Searcher(tmp_path / "ix") as searcher:
        assert [hit.score for hit in searcher.search("zyxo moon earth")] == [3 * 9 + 5 + 1]
    build_index_from_vectors(tmp_path / "without", [path], tokenizer=str(model))
    assert "2 terms are neither wordpieces nor lexical terms" in caplog.text
    assert "build the index anew with overwrite=True and lexical_terms=True" in caplog.text
    path.write_text(json.dumps({"id": "a", "contents": "", "vector": {"zyxo": 9}}) + "\n")
    with pytest.raises(InputError, match="knows none of the terms") as refused:
        build_index_from_vectors(tmp_path / "without", [path], "overwrite", tokenizer=str(model))
    assert "lexical_terms=True" in str(refused.value.remedy)


@pytest.mark.parametrize("codec", ["lucene", "sparta"])
def test_an_older_index_grows_without_terms(tmp_path: Path, codec: str) -> None:
    shutil.copytree(FORMATS / f"index-2-{codec}", tmp_path / "ix")
    more = tmp_path / "vectors.jsonl"
    more.write_text(json.dumps({"id": "z", "contents": "", "vector": {"moon": 255}}) + "\n")
    tokenizer = tmp_path / "ix" / "tokenizer-000001"
    build_index_from_vectors(tmp_path / "ix", [more], "append", tokenizer=str(tokenizer))
    assert "lexical_terms" not in IndexFolder(tmp_path / "ix").require_live().model
    with Searcher(tmp_path / "ix") as searcher:
        assert searcher.search("moon")[0].passage_id == "z"


def test_a_damaged_definition_is_refused(tmp_path: Path, model: Path) -> None:
    build_index(tmp_path / "ix", passages(3), options=IndexOptions(model=str(model)))
    stored = tmp_path / "ix" / "tokenizer-000001" / TERMS_FILE
    content = stored.read_bytes()
    for damaged in (None, content[:-9], b""):
        stored.unlink()
        if damaged is not None:
            stored.write_bytes(damaged)
        with pytest.raises(IndexStateError, match=TERMS_FILE.replace(".", r"\.") + "|lexical"):
            Searcher(tmp_path / "ix").search("moon")
        stored.write_bytes(content)
    LexicalTerms(TermSettings(pair_gain=1.0), load_model(model).tokenizer).save(stored.parent)
    with pytest.raises(IndexStateError, match=TERMS_FILE):
        Searcher(tmp_path / "ix").search("moon")


def test_the_option_of_the_command(tmp_path: Path, model: Path) -> None:
    corpus = tmp_path / "c.jsonl"
    corpus.write_text("".join(json.dumps(r) + "\n" for r in passages(3)))
    command = ["index", "--corpus", str(corpus), "--index", str(tmp_path / "ix"), "--model", str(model)]
    assert sparta(*command, "--no-lexical-terms").exit_code == 0
    assert not has_terms(tmp_path / "ix")
    result = sparta(*command, "--lexical-terms")
    assert result.exit_code
    assert "the index has no lexical terms" in result.stderr
    assert (
        "omit --lexical-terms, or rebuild the index: sparta index --corpus FILE --overwrite" in result.stderr
    )
    assert "--lexical-terms --index" in result.stderr
    assert sparta(*command, "--overwrite").exit_code == 0
    assert has_terms(tmp_path / "ix")


def test_terms_that_are_removed_while_they_are_read_are_missing(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queries without the terms would rank in another way."""
    side = load_model(model).query_side()
    side.save(tmp_path / "side")

    def read_tokenizer(folder: Path) -> Tokenizer:
        (folder / TERMS_FILE).unlink()
        return side.tokenizer

    monkeypatch.setattr(query_encoder, "shared_tokenizer", read_tokenizer)
    with pytest.raises(IndexStateError, match="the file is missing"):
        query_encoder.QuerySide.load(tmp_path / "side", side.identity())


def test_terms_that_an_overwrite_removes_are_read_again(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process ends an overwrite between the readings of the tokenizer and of the lexical terms.

    The first reading finds out whether the index is up to date, the second is for the passages.
    """
    path, options = tmp_path / "ix", IndexOptions(model=str(model))
    build_index(path, passages(3), options=options)
    read_tokenizer, readings = query_encoder.shared_tokenizer, list[Path]()

    def overwrite(folder: Path) -> Tokenizer:
        tokenizer = read_tokenizer(folder)
        if folder.parent == path:
            readings.append(folder)
            if len(readings) == 2:
                build_index(path, passages(4), "overwrite", options)
        return tokenizer

    monkeypatch.setattr(query_encoder, "shared_tokenizer", overwrite)
    assert build_index(path, passages(2, seed=1), "update", options).documents == 6
    assert len(readings) > 2
