"""What a dense channel refuses."""

from __future__ import annotations

import errno
import gc
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from dense.channel import encode, sync, vectors
from dense.channel.builder import ShardSizes
from dense.channel.encode import VectorOptions, encode_vectors
from dense.channel.folder import ChannelFolder
from dense.channel.passages import folding_language
from dense.channel.searcher import DenseSearcher
from dense.channel.sync import build_dense
from dense.channel.table import exists as has_dense
from dense.models.bi_encoder import DenseModel
from dense.search.store import VectorFolder
from sparta.base.errors import InputError, ModelError, ReplacedError, StorageError
from sparta.base.manifest import write_manifest
from sparta.index.build import delete_passages
from sparta.index.folder import IndexFolder
from sparta.shards.folder import shard_files
from tests.dense.channel.channels import QUESTIONS, SIZE, N, assert_same, done, expected, rankings, refused
from tests.moments import watched
from tests.programs import dense

pytestmark = pytest.mark.usefixtures("one_thread")


def without_permission(pattern: str) -> Callable[[str, Path], None]:
    """Make files of a name like `pattern` unreadable, as a watcher."""

    def refuse(action: str, path: Path) -> None:
        if action == "read" and path.match(pattern):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))

    return refuse


@pytest.fixture
def made(index: Path, model: Path) -> Path:
    """An index with a dense channel of four shards."""
    build_dense(index, str(model), shard_sizes=ShardSizes(largest=SIZE))
    return index


@pytest.mark.slow
@pytest.mark.jvm
def test_another_model_is_refused(made: Path, make_dense: Any, corpus: Path, tmp_path: Path) -> None:
    other = make_dense(seed=1)
    index = ["index", "--index", made, "--quiet"]
    said = refused("replace the channel", *index, "--model", other)
    assert f"dense index --overwrite --model {other} --index {made}" in " ".join(said.split())
    encode_vectors(corpus, tmp_path / "v", other, VectorOptions())
    refused("the vectors are of the model", *index, "--vectors", tmp_path / "v", "--kind", "ivf")
    before = rankings(made)
    said = done(dense, *index, "--overwrite", "--vectors", tmp_path / "v")
    assert f"encoded 0, reused {N}" in said
    assert rankings(made) != before
    assert_same(rankings(made), expected(made, other, QUESTIONS, 20))


@pytest.mark.jvm
def test_vectors_of_other_passages_or_units_are_refused(
    index: Path, model: Path, corpus: Path, make_records: Any, write_jsonl: Any, tmp_path: Path
) -> None:
    other = write_jsonl(tmp_path / "o.jsonl", make_records(4, seed=9))
    encode_vectors(other, tmp_path / "v", model, VectorOptions())
    refused("no vector of a passage", "index", "--index", index, "--vectors", tmp_path / "v")
    encode_vectors(corpus, tmp_path / "s", model, VectorOptions(unit="sentence"))
    refused(
        "the unit 'sentence', not 'passage'",
        "index",
        "--index",
        index,
        "--vectors",
        tmp_path / "s",
    )
    encode_vectors(other, tmp_path / "zh", model, VectorOptions(language="zh"))
    folding = "for the language 'zh', not for 'en'"
    assert "--language en" in refused(folding, "index", "--index", index, "--vectors", tmp_path / "zh")
    chinese = VectorFolder(tmp_path / "zh")
    manifest = {name: value for name, value in chinese.manifest.items() if name != "options"}
    likes = [chinese.is_like({**manifest, "language": language}) for language in ("zh", "en", "")]
    assert likes == [True, False, True]
    english = replace(IndexFolder(index).require_live(), analyzer="smart")
    chinese_index = replace(english, language="zh")
    generations = [english, chinese_index, replace(chinese_index, analyzer="")]
    assert [folding_language(generation) for generation in generations] == ["en", "zh", "en"]
    refused(
        "kind 'dense-vectors'",
        "index",
        "--index",
        index,
        "--vectors",
        tmp_path,
    )
    assert not has_dense(index)


@pytest.mark.jvm
def test_a_share_without_passages_is_no_mistake(
    index: Path, model: Path, corpus: Path, tmp_path: Path
) -> None:
    encode_vectors(corpus, tmp_path / "whole", model, VectorOptions())
    encode_vectors(corpus, tmp_path / "nothing", model, VectorOptions(part=(7, 8)))
    parts = ["--vectors", tmp_path / "whole", "--vectors", tmp_path / "nothing"]
    assert f"encoded 0, reused {N}" in done(dense, "index", "--index", index, *parts, "--quiet")


@pytest.mark.jvm
def test_a_damaged_channel_is_refused(made: Path) -> None:
    place = ChannelFolder(next(made.glob("dense-*")))
    shard = min(shard_files(place.path / "vectors-000001").values())
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-9])
    refused("shard of vectors", "search", "the moon", "--index", made)
    shard.unlink()
    refused("1 of 4 shards are missing", "search", "the moon", "--index", made)
    shard.write_bytes(whole)
    rows = place.path / "rows-000001.npy"
    data = rows.read_bytes()
    rows.write_bytes(data[:-8])
    refused("a file of the dense channel", "search", "the moon", "--index", made)
    rows.write_bytes(data)
    build_dense(made, kind="hnsw")
    faiss, written = place.path / "search-000002.faiss", (place.path / "search-000002.faiss").read_bytes()
    before = rankings(made)
    vectors = len(written) // 2  # some of them are others then
    faiss.write_bytes(written[:vectors] + bytes(64) + written[vectors + 64 :])
    assert not build_dense(made, kind="hnsw").unchanged
    assert rankings(made) == before, "made anew, not extended"
    (place.path / place.read().index_name).write_bytes(b"nothing")
    refused("FAISS index", "search", "the moon", "--index", made)
    with (
        watched(without_permission("manifest.json")),
        pytest.raises(StorageError, match=r"Permission denied\n  → change the permissions"),
    ):
        place.read()
    manifest = json.loads((place.path / "manifest.json").read_text())
    write_manifest(place.path, {**manifest, "search": {"kind": 1, "extra": 2}})
    refused("as search.kind, found 1", "search", "the moon", "--index", made)
    (place.path / "manifest.json").write_text(json.dumps({**manifest, "format_version": 99}))
    refused("upgrade sparta", "search", "the moon", "--index", made)


@pytest.mark.jvm
def test_questions_of_another_width_or_not_finite_are_refused(made: Path) -> None:
    with DenseSearcher(made) as searcher:
        with pytest.raises(InputError, match=r"must have 32 numbers, found shape \(1, 31\)"):
            list(searcher.search_vectors(np.ones((1, 31), np.float32)))
        with pytest.raises(InputError, match="vector 1 "):
            list(searcher.search_vectors(np.array([np.ones(32), np.full(32, np.nan)], np.float32)))
        with pytest.raises(InputError, match="k must be at least 1"):
            searcher.search("the moon", 0)
        with pytest.raises(InputError, match="every query needs one query id"):
            searcher.batch_search(["a"], [])
        with pytest.raises(InputError, match="a list of queries, found dict"):
            searcher.run({"q": "moon"}, ["q"])
        with pytest.raises(InputError, match="threads must be at least 1"):
            searcher.run(["moon"], ["q"], threads=0)
        with pytest.raises(InputError, match="lone surrogate"):
            searcher.search("\ud800")


@pytest.mark.jvm
def test_a_model_that_moved_or_changed(made: Path, model: Path, make_dense: Any, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(model, tmp_path / "moved"))
    again = Path(shutil.copytree(made, tmp_path / "again"))
    assert build_dense(again, str(moved)).unchanged
    assert ChannelFolder(next(again.glob("dense-*"))).read().model.name == str(moved)
    assert rankings(again) == rankings(made)
    gc.collect()  # channels of one process share an open model
    (moved / "model.safetensors").write_bytes((make_dense(seed=2) / "model.safetensors").read_bytes())
    with (
        DenseSearcher(again) as searcher,
        pytest.raises(ModelError, match=r"the model has changed: its SHA-256 is .*, not"),
    ):
        searcher.search("the moon")

    os.utime(moved / "config.json")  # a new time: the hash of an unchanged file is kept
    with (
        DenseSearcher(again) as searcher,
        watched(without_permission("moved/*")),
        pytest.raises(StorageError, match=r"moved/.*cannot be read: Permission denied\n  → change the perm"),
    ):
        searcher.search("the moon")
    shutil.rmtree(moved)
    delete_passages(IndexFolder(again), ["n1"])
    refused("dense index --model FOLDER", "index", "--index", again)
    refused("no such model folder", "search", "the moon", "--index", again)


def test_a_cached_hub_model_needs_no_hub(
    made: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    revision = shutil.copytree(model, tmp_path / "models--someone--dense" / "snapshots" / "1a")
    again = Path(shutil.copytree(made, tmp_path / "again"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **_options: revision)
    assert build_dense(again, "someone/dense").unchanged
    monkeypatch.setattr("huggingface_hub.snapshot_download", Mock(side_effect=ConnectionError))
    gc.collect()  # channels of one process share an open model
    assert rankings(again) == rankings(made)


def test_a_model_that_is_replaced_while_it_is_read(
    index: Path, make_dense: Any, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stored hash is that of the files that were read."""
    model = Path(shutil.copytree(make_dense(seed=11), tmp_path / "model"))
    before = (model / "tokenizer.json").read_text()

    def replaced_before(read: Callable[..., Any]) -> Callable[..., Any]:
        def replace_and_read(*arguments: Any) -> Any:
            (model / "tokenizer.json").write_text(before + " ")
            return read(*arguments)

        return replace_and_read

    monkeypatch.setattr(encode, "load_dense", replaced_before(encode.load_dense))
    with pytest.raises(ReplacedError, match="the files of the model have changed"):
        encode_vectors(corpus, tmp_path / "v", model, VectorOptions(), device="cpu")
    assert not (tmp_path / "v" / "manifest.json").exists()
    monkeypatch.undo()
    (model / "tokenizer.json").write_text(before)
    build_dense(index, str(model), device="cpu")
    monkeypatch.setattr(vectors, "open_question_encoder", replaced_before(vectors.open_question_encoder))
    with DenseSearcher(index) as searcher, pytest.raises(ReplacedError):
        searcher.search("the moon")


def test_models_that_no_index_holds(
    make_dense: Any, tiny_model_folder: Path, corpus: Path, tmp_path: Path
) -> None:
    given = ["encode", "--corpus", corpus, "--output", tmp_path / "v", "--model"]
    refused("found a Poly-Encoder with 3", *given, make_dense(codes=3))
    refused("expected a dense model (config.json with a dense object)", *given, tiny_model_folder)
    refused("no such model folder", *given, tmp_path / "nothing")
    assert not (tmp_path / "v").exists()


def test_a_model_that_gives_no_numbers(make_dense: Any, corpus: Path, tmp_path: Path) -> None:
    import torch

    folder = make_dense()
    model = DenseModel.load(folder)
    with torch.no_grad():
        model.passage_encoder.get_input_embeddings().weight.fill_(torch.nan)
    model.save_pretrained(folder)
    refused(
        "passage 'n0'",
        "encode",
        "--corpus",
        corpus,
        "--output",
        tmp_path / "v",
        "--model",
        folder,
    )


@pytest.mark.jvm
def test_no_index_and_one_that_is_being_written(index: Path, model: Path, tmp_path: Path) -> None:
    refused("there is no index here", "index", "--index", tmp_path / "none", "--model", model)
    refused("there is no index here", "search", "the moon", "--index", tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with IndexFolder(index).lock():
        refused("another process is writing to this index", "index", "--index", index, "--model", model)
    refused("Invalid value for '--kind'", "index", "--index", index, "--kind", "tree")
    with pytest.raises(InputError, match="unknown kind of index 'tree'"):
        build_dense(index, str(model), kind="tree")


def test_encode_into_a_folder_of_other_work(
    model: Path, make_dense: Any, corpus: Path, tmp_path: Path
) -> None:
    given = ["encode", "--corpus", corpus, "--output", tmp_path / "v", "--quiet"]
    done(dense, *given, "--model", model)
    refused("with --resume", *given, "--model", model)
    refused("settings: unit", *given, "--model", model, "--resume", "--unit", "sentence")
    refused("settings: model", *given, "--model", make_dense(seed=1), "--resume")
    refused("--shard must be i/n with 0 ≤ i < n, found '2/2'", *given, "--shard", "2/2")
    assert f"encoded 0 passages, kept {N}" in done(dense, *given, "--model", model, "--resume")
    other = tmp_path / "c.jsonl"
    other.write_text(corpus.read_text().replace("the", "a"))
    changed = ["encode", "--corpus", other, "--output", tmp_path / "v", "--model", model, "--resume"]
    refused("the corpus has changed: it no longer has the passages", *changed)
    manifest = json.loads((tmp_path / "v" / "manifest.json").read_text())
    write_manifest(tmp_path / "v", {**manifest, "complete": False})
    with pytest.raises(InputError, match="encoding in this folder is unfinished"):
        sync.open_finished(tmp_path / "v")
