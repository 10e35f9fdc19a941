"""What may not be written into an index, and who may not write."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from sparta.base.errors import IndexStateError
from sparta.base.manifest import write_manifest
from sparta.index.build import delete_passages
from sparta.models.quantize import Quantizer
from sparta.search.searcher import Searcher
from tests.sparta.index.building import Stop, snapshot

pytestmark = pytest.mark.jvm


@pytest.mark.parametrize("mode", ["append", "update"])
def test_vectors_of_another_model_are_refused(builder, docs, mode, tiny_tokenizer):
    from tokenizers import Tokenizer

    builder.write(builder.source(docs("a", 5)))
    before = snapshot(builder.folder.path)
    larger = Tokenizer.from_str(tiny_tokenizer.to_str())
    larger.add_tokens(["jabberwocky"])
    weights = np.ones(tiny_tokenizer.get_vocab_size(), np.float32)
    for change, named in (
        ({"model_hash": "other"}, "sha256"),
        ({"quantizer": Quantizer(8.0, 7)}, "quantizer"),
        ({"quantizer": Quantizer(8.5)}, "quantizer"),
        ({"tokenizer": larger}, "tokenizer_sha256"),
        ({"weights": weights}, "weighted_queries"),
    ):
        source = builder.source(docs("b", 5), side=replace(builder.side, model="theirs", **change))
        with pytest.raises(IndexStateError, match=f"the index is of the model 'model'.*differing: {named}"):
            builder.write(source, mode)
    assert snapshot(builder.folder.path) == before


def test_a_newer_format_is_refused(builder, docs):
    builder.write(builder.source(docs("a", 5)))
    path = builder.folder.path / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "format_version": 4}))
    for attempt in (
        lambda: Searcher(builder.folder.path),
        lambda: delete_passages(builder.folder, ["a1"]),
        *(
            lambda mode=mode: builder.write(builder.source(docs("b", 5)), mode)
            for mode in ("create", "append", "update", "overwrite")
        ),
    ):
        with pytest.raises(IndexStateError, match="format version 4 is newer") as caught:
            attempt()
        assert "upgrade sparta" in caught.value.remedy.for_command_line()
    path.write_text(json.dumps(manifest))
    assert builder.contents() == docs("a", 5)


@pytest.fixture
def weighted(builder, docs, tiny_tokenizer):
    """A builder of an index whose model has query weights, and the file of these weights."""
    builder.side = replace(builder.side, weights=np.ones(tiny_tokenizer.get_vocab_size(), np.int32))
    builder.write(builder.source(docs("a", 5)))
    return builder, builder.folder.path / "tokenizer-000001" / "query_weights.safetensors"


@pytest.mark.parametrize("lost", ["weighted_queries", "quantizer"])
def test_a_damaged_description_of_the_model_is_told(weighted, lost):
    path = weighted[0].folder.path / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["live"]["model"][lost]
    write_manifest(path.parent, manifest)
    with pytest.raises(IndexStateError, match=f"the field live.model.{lost}") as caught:
        Searcher(path.parent)
    assert caught.value.remedy


def test_damaged_query_weights_are_told(weighted):
    builder, file = weighted
    content = file.read_bytes()
    for damaged in (b"no weights", content[:-1] + bytes([content[-1] ^ 1])):
        file.write_bytes(damaged)
        with pytest.raises(IndexStateError, match="tokenizer and query weights is damaged") as caught:
            Searcher(builder.folder.path)
        assert caught.value.remedy


def test_an_earlier_version_stored_no_hash_of_query_weights(weighted, docs):
    builder, file = weighted
    file.write_bytes(save(load_file(file)))
    builder.write(builder.source(docs("b", 5)), "append")
    assert builder.contents() == docs("a", 5) + docs("b", 5)


@pytest.mark.slow
def test_a_second_writer_is_refused(builder, docs):
    a = docs("a", 5)

    def second(number: int) -> None:
        for attempt in (
            lambda: builder.write(builder.source(docs("b", 5)), "overwrite"),
            lambda: builder.write(builder.source(docs("b", 5))),
        ):
            with pytest.raises(IndexStateError, match="another process is writing"):
                attempt()

    builder.write(builder.source(a, before=second))
    with builder.folder.lock():
        for attempt in (
            lambda: builder.write(builder.source(docs("b", 5)), "append"),
            lambda: delete_passages(builder.folder, ["a0"]),
        ):
            with pytest.raises(IndexStateError, match="another process is writing"):
                attempt()
        assert builder.contents() == a  # reading needs no lock
    builder.write(builder.source(docs("b", 5)), "append")


def test_a_failed_writer_lets_go_of_the_lock(builder, docs):
    with pytest.raises(OSError, match="x"):
        builder.write(builder.source(docs("a", 5), before=Stop(0, OSError("x"))))
    builder.write(builder.source(docs("a", 5)), resume=True)
    assert builder.contents() == docs("a", 5)


def test_a_folder_of_somebody_else_gets_no_lock(builder, docs):
    builder.folder.path.mkdir()
    (builder.folder.path / "mine.txt").touch()
    for mode in ("create", "overwrite"):
        with pytest.raises(IndexStateError, match=r"foreign file: mine\.txt"):
            builder.write(builder.source(docs("a", 5)), mode)
    assert [p.name for p in builder.folder.path.iterdir()] == ["mine.txt"]
