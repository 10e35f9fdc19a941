"""An index is replaced while it can be searched."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sparta.base.errors import IndexStateError, InputError
from sparta.index.build import delete_passages
from sparta.index.folder import IndexFolder
from sparta.index.generation import Generation
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index, build_index_from_vectors
from sparta.index.reader import IndexReader
from sparta.index.snapshot import newest_commit
from sparta.lucene.bridge import ImpactSearcher
from sparta.models.quantize import Quantizer
from tests.moments import at
from tests.sparta.index.building import Builder, Doc, Stop

pytestmark = pytest.mark.jvm


def test_overwrite_swaps_at_the_end(builder, docs):
    a, b = docs("a", 10), docs("b", 12)
    builder.write(builder.source(a))
    reader = builder.reader()
    seen: list[list[Doc]] = []
    source = builder.source(b, before=lambda number: seen.append(builder.contents()))
    builder.write(source, "overwrite", commit_seconds=0)
    assert seen == [a] * 4
    assert builder.contents() == b
    assert builder.generations() == ["sparta-000002", "tokenizer-000002"]
    assert reader.num_docs == 10  # who had it open goes on with the old one
    assert reader.docids(["a9"])[0] >= 0
    reader.close()


@pytest.fixture
def swap(builder) -> Callable[[], None]:
    """A function that replaces the generation `old` by `new`."""
    builder.write(builder.source([Doc("old", {"moon": 1})]))
    return lambda: builder.write(builder.source([Doc("new", {"moon": 2})], name="new"), "overwrite")


def test_a_searcher_that_opens_while_the_swap_happens(builder, swap):
    """It has chosen the commit that stands there when the commit is removed."""
    with at("read", "tokenizer.json", swap):
        assert builder.ranking("moon") == [("new", 2.0)]


@pytest.mark.parametrize("opens", [newest_commit, IndexReader])
def test_a_manifest_that_was_read_before_the_swap(builder, swap, opens):
    """What it names is gone: that is no index which lost its commit."""
    with at("read", "segments_*", swap):
        opens(builder.folder.path)
    assert newest_commit(builder.folder.path).version.generation == 2


@pytest.mark.parametrize("nth", [1, 2])
def test_an_append_beside_an_overwrite_finds_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    """Two checks read the index without its lock: whether it is up to date, and whether it holds the ids."""
    path, corpus, options = tmp_path / "ix", tmp_path / "corpus.jsonl", IndexOptions(channels="bm25")
    corpus.write_text('{"id": "c", "text": "star"}\n')
    build_index(path, [{"id": "a", "text": "moon"}], options=options)
    opened: list[Generation] = []
    open_searcher = IndexFolder.searcher

    def searcher(folder: IndexFolder, generation: Generation) -> ImpactSearcher:
        opened.append(generation)
        if len(opened) == nth:
            build_index(path, [{"id": "b", "text": "sun"}], "overwrite", options)
        return open_searcher(folder, generation)

    monkeypatch.setattr(IndexFolder, "searcher", searcher)
    assert build_index(path, corpus, "append", options).documents == 2
    assert IndexFolder(path).require_live().number == 2


def test_overwrite_takes_another_model(builder, docs, tiny_tokenizer):
    builder.write(builder.source(docs("a", 4)))
    weights = np.full(tiny_tokenizer.get_vocab_size(), 2, np.int32)
    other = replace(builder.side, weights=weights, model_hash="other", quantizer=Quantizer(2.0, 4))
    builder.write(builder.source([Doc("x", {"moon": 3})], side=other), "overwrite", language="de")
    assert builder.ranking("moon") == [("x", 6)]
    state = builder.folder.state()
    assert state.live.language == "de"
    assert state.live.model == other.identity()


def test_an_overwrite_warns_of_settings_that_change_without_an_option(tmp_path, caplog):
    passages = [{"id": "a", "text": "Der Mond zieht das Meer an."}]
    german = IndexOptions(channels="bm25", language="de", unit="sentence")
    build_index(tmp_path, passages, options=german)
    build_index(tmp_path, passages, "overwrite", german)
    assert not caplog.records
    build_index(tmp_path, passages, "overwrite", IndexOptions(channels="bm25"))
    assert "has language de and unit sentence, the new index has language en and unit passage" in caplog.text
    caplog.clear()
    build_index(tmp_path, passages, "overwrite", german)
    vectors = tmp_path / "vectors.jsonl"
    vectors.write_text('{"id": "a", "contents": "Der Mond", "vector": {"moon": 5}}\n')
    build_index_from_vectors(tmp_path, [vectors], "overwrite")  # whoever made vectors chose their unit
    assert not caplog.records


def test_a_failed_overwrite_leaves_the_old_index(builder, docs, caplog):
    a, b = docs("a", 10), docs("b", 12)
    builder.write(builder.source(a))
    for error in (InputError("a bad record"), OSError("broken"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            builder.write(builder.source(b, before=Stop(2, error)), "overwrite", commit_seconds=0)
        assert builder.contents() == a
        assert len(builder.ranking("moon")) == sum("moon" in d.vector for d in a)
        assert not caplog.records
    assert builder.folder.state().building is not None
    builder.write(builder.source(b), "overwrite", resume=True)
    assert builder.contents() == b
    assert len(builder.generations()) == 2


def test_growing_leaves_an_interrupted_overwrite_to_be_finished(builder, docs):
    """It was to replace all by the new corpus, and does: also what was written meanwhile."""
    a, b, c = docs("a", 10), docs("b", 12), docs("c", 2)
    builder.write(builder.source(a))
    with pytest.raises(KeyboardInterrupt):
        builder.write(builder.source(b, before=Stop(2, KeyboardInterrupt())), "overwrite")
    builder.write(builder.source(c, name="c"), "append")
    delete_passages(builder.folder, ["a0"])
    assert builder.contents() == a[1:] + c
    seen: list[int] = []
    builder.write(builder.source(b, before=seen.append), "overwrite", resume=True)
    assert builder.contents() == b
    assert seen == [2, 3]


def test_an_overwrite_begun_again_drops_the_unfinished_one(builder, docs):
    builder.write(builder.source(docs("a", 10)))
    for name in ("b", "c"):
        stopped = builder.source(docs(name, 12), before=Stop(2, KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            builder.write(stopped, "overwrite")
        assert len(builder.generations()) == 4
    with pytest.raises(
        IndexStateError,
        match=r"the input has changed since this index was started\s+→ start again with overwrite=True",
    ):
        builder.write(builder.source(docs("b", 12)), "overwrite", resume=True)
    assert builder.contents() == docs("a", 10)


def test_a_finished_overwrite_is_not_repeated_by_resume(builder, docs):
    builder.write(builder.source(docs("a", 4)))
    builder.write(builder.source(docs("b", 4)), "overwrite")
    assert builder.write(builder.source(docs("b", 4)), "overwrite", resume=True).unchanged
    assert not builder.write(builder.source(docs("b", 4)), "overwrite").unchanged


def lost_manifest(builder: Builder) -> None:
    """Flip a byte of the manifest, of an index that has a dense channel."""
    (builder.folder.path / "dense-000001").mkdir()
    (builder.folder.path / "dense-000001" / "manifest.json").write_text("{}")
    path = builder.folder.path / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b"complete", b"compleat", 1))


def test_a_failed_overwrite_keeps_what_a_damaged_manifest_named(builder, docs):
    builder.write(builder.source(docs("a", 10)))
    lost_manifest(builder)
    for _ in range(2):
        with pytest.raises(OSError, match="broken"):
            builder.write(builder.source(docs("b", 12), before=Stop(2, OSError("broken"))), "overwrite")
        kept = {"dense-000001", "sparta-000001", "tokenizer-000001"}
        assert kept < set(builder.generations())
        assert len(builder.generations()) == 5
    builder.write(builder.source(docs("b", 12)), "overwrite")
    assert builder.contents() == docs("b", 12)
    assert builder.generations() == ["dense-000001", "sparta-000004", "tokenizer-000004"]
    assert (builder.folder.path / "dense-000001" / "manifest.json").read_text() == "{}"


@pytest.mark.slow
def test_a_kill_between_the_swap_and_the_sweep_is_made_good(builder, make_records, tmp_path, monkeypatch):
    """By the same command, though the index is unchanged: vectors stay, the old index is removed."""
    options = IndexOptions(channels="bm25")
    path, [first, second] = builder.folder.path, [make_records(5, prefix=p) for p in "ab"]
    corpora = [tmp_path / name for name in ("a.jsonl", "b.jsonl")]
    for corpus, records in zip(corpora, (first, second), strict=True):
        corpus.write_text("".join(json.dumps(record) + "\n" for record in records))
    build_index(path, corpora[0], options=options)
    (path / "dense-000001").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(IndexFolder, "sweep", lambda self: None)
        build_index(path, corpora[1], "overwrite", options)
    assert {"dense-000001", "sparta-000001", "sparta-000002"} < set(builder.generations())
    assert build_index(path, corpora[1], options=options).unchanged
    assert builder.generations() == ["dense-000001", "sparta-000002", "tokenizer-000002"]
