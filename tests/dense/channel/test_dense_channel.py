"""A dense channel that lost a file, or all its passages: what it says, and that it is made whole again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dense.channel.builder import ShardSizes
from dense.channel.folder import ChannelFolder
from dense.channel.passages import LivePassages, commit_of
from dense.channel.searcher import DenseSearcher
from dense.channel.sync import build_dense
from dense.models.bi_encoder import DenseConfig, DenseModel
from dense.search.faiss_index import write
from dense.search.store import shard_path
from sparta.base.errors import SpartaError, StorageError
from sparta.index.build import delete_passages
from sparta.index.folder import IndexFolder
from sparta.neural.inputs import InputLayout
from sparta.search.retriever import Page
from tests.moments import at, ctrl_c
from tests.programs import sparta

pytestmark = pytest.mark.jvm
N = 30
EIGHT = ShardSizes(largest=8)
"""Four shards."""
QUESTIONS = ["the moon of the earth", "old city"]


@pytest.fixture(scope="module")
def model(make_tiny_model: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    tiny, folder = make_tiny_model(), tmp_path_factory.mktemp("dense") / "model"
    layout = InputLayout(use_title=True, answer_segment=0, max_length=64, overlap=0)
    DenseModel(tiny.encoder, tiny.tokenizer, DenseConfig(layout)).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def built(
    make_records: Any, write_jsonl: Any, tiny_model_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An index without a dense channel, beside its corpus."""
    folder = tmp_path_factory.mktemp("built")
    corpus = write_jsonl(folder / "corpus.jsonl", make_records(N, seed=1, prefix="n"))
    command = ["index", "--corpus", corpus, "--model", tiny_model_folder, "--index", folder / "index"]
    result = sparta(*command)
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture
def index(built: Path, tmp_path: Path) -> Path:
    """The same, for a test that changes it."""
    shutil.copytree(built, tmp_path, dirs_exist_ok=True)
    return tmp_path / "index"


def place_of(index: Path) -> ChannelFolder:
    return ChannelFolder(next(index.glob("dense-*")))


def rankings(index: Path) -> dict[str, list[Any]]:
    with DenseSearcher(index) as searcher:
        found = searcher.batch_search(QUESTIONS, QUESTIONS, N)
    return {q: [(hit.passage_id, hit.score) for hit in hits] for q, hits in found.items()}


def assert_alike(found: dict[str, list[Any]], wanted: dict[str, list[Any]]) -> None:
    """The same passages with the same scores, but for what other batches round differently."""
    for question, hits in wanted.items():
        assert dict(found[question]) == pytest.approx(dict(hits), abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1, 3])
@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_a_lost_shard_is_encoded_again(index: Path, model: str, kind: str, number: int) -> None:
    """Rows of a folder with a gap, or with another last shard, are not where FAISS has them."""
    build_dense(index, model, kind=kind, shard_sizes=EIGHT)
    wanted, place = rankings(index), place_of(index)
    shard_path(place.path / "vectors-000001", number).unlink()
    with pytest.raises(
        SpartaError, match=rf"1 of 4 shards are missing\n.*: dense index --index {index}( |$)"
    ):
        rankings(index)
    lost = 8 if number < 3 else N - 24
    report = build_dense(index)
    assert (report.encoded, report.copied_vectors, report.kept) == (lost, 0, N - lost)
    assert_alike(rankings(index), wanted)
    assert build_dense(index).unchanged


@pytest.mark.parametrize("name", ["rows-000001.npy", "search-000001.faiss", "manifest.json"])
def test_a_lost_file_is_made_again(index: Path, model: str, name: str) -> None:
    build_dense(index, model, kind="hnsw", shard_sizes=EIGHT)
    wanted, place = rankings(index), place_of(index)
    (place.path / name).unlink()
    with pytest.raises(SpartaError):
        rankings(index)
    report = build_dense(index, model, kind="hnsw")
    assert (report.encoded, report.unchanged) == (0, False)
    assert_alike(rankings(index), wanted)


def test_an_interrupted_overwrite_of_a_damaged_channel_keeps_model_kind_and_vectors(
    index: Path, model: str
) -> None:
    build_dense(index, model, kind="hnsw", shard_sizes=EIGHT)
    wanted, place = rankings(index), place_of(index)
    for name in ("rows-000001.npy", "vectors-000001/shard-00003.safetensors"):
        data = bytearray((place.path / name).read_bytes())
        data[-1] ^= 1
        (place.path / name).write_bytes(data)
    with pytest.raises(KeyboardInterrupt), at("rename", "shard-*.safetensors", ctrl_c):
        build_dense(index, overwrite=True)
    assert place.exists()
    with pytest.raises(SpartaError, match="1 of 4 shards are missing"):
        rankings(index)
    report = build_dense(index, overwrite=True)
    lost = N - 24
    assert (report.model, report.kind, report.encoded, report.kept) == (model, "hnsw", lost, N - lost)
    assert_alike(rankings(index), wanted)


def test_vectors_whose_deletion_was_killed_are_never_used(index: Path, model: str) -> None:
    """A killed deletion may remove the manifest of a folder and leave its shards."""
    build_dense(index, model, shard_sizes=EIGHT)
    wanted, place = rankings(index), place_of(index)
    leftover = place.path / "vectors-000001"
    for shard in leftover.glob("shard-*"):
        shard.write_bytes(b"of another model")
    (leftover / "manifest.json").unlink()
    report = build_dense(index, overwrite=True)
    assert (report.encoded, report.kept, place.read().store) == (N, 0, "vectors-000002")
    assert not leftover.exists()
    assert_alike(rankings(index), wanted)


def test_overwrite_makes_a_channel_of_the_same_model_anew(index: Path, model: str) -> None:
    build_dense(index, model, kind="hnsw", shard_sizes=EIGHT)
    wanted, before = rankings(index), place_of(index).read()
    report = build_dense(index, kind="hnsw", overwrite=True, model=model)
    assert (report.unchanged, report.encoded, report.passages) == (False, 0, N)
    assert place_of(index).read().serial == before.serial + 1
    assert_alike(rankings(index), wanted)


def test_more_updates_and_stores_than_six_digits_count(index: Path, model: str) -> None:
    build_dense(index, model)
    place = place_of(index)
    channel = replace(place.read(), serial=999_999, store="vectors-999999")
    (place.path / "vectors-000001").rename(place.path / channel.store)
    (place.path / "rows-000001.npy").rename(place.path / channel.rows_name)
    place.write(channel)
    delete_passages(IndexFolder(index), [f"n{i}" for i in range(20)])

    def killed() -> None:
        raise RuntimeError("killed")

    with at("rename", "dense-*/manifest.json", killed), pytest.raises(RuntimeError, match="killed"):
        build_dense(index)
    assert [number for number, _ in place.stores()] == [999_999, 1_000_000]
    build_dense(index)
    assert (place.read().serial, place.read().store) == (1_000_000, "vectors-1000000")
    assert sorted(path.name for path in place.path.iterdir()) == [
        "manifest.json",
        "rows-1000000.npy",
        "vectors-1000000",
    ]
    with DenseSearcher(index) as searcher:
        assert searcher.num_docs == N - 20


def test_overwrite_keeps_the_channels_own_model(index: Path, model: str) -> None:
    build_dense(index, model, shard_sizes=EIGHT)
    wanted = rankings(index)
    report = build_dense(index, overwrite=True)
    assert (report.model, report.encoded) == (model, 0)
    assert_alike(rankings(index), wanted)


@pytest.mark.slow
def test_a_change_of_model_that_was_interrupted_goes_on(
    index: Path, model: str, make_tiny_model: Callable[..., Any], tmp_path: Path
) -> None:
    """Also after the channel, which still has its old model, has followed the index."""
    build_dense(index, model, shard_sizes=EIGHT)
    other = make_tiny_model(seed=7)
    layout = InputLayout(use_title=True, answer_segment=0, max_length=64, overlap=0)
    DenseModel(other.encoder, other.tokenizer, DenseConfig(layout)).save_pretrained(tmp_path / "other")
    counted: list[int] = []

    def stop(n: int) -> None:
        counted.append(n)
        if len(counted) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_dense(index, str(tmp_path / "other"), overwrite=True, advance=stop, shard_sizes=EIGHT)
    delete_passages(IndexFolder(index), [f"n{N - 1}"])
    assert build_dense(index).model == model, "what was there before is still searched, and follows"
    report = build_dense(index, str(tmp_path / "other"), overwrite=True)
    assert report.encoded == N - 1 - counted[0], "a block that was encoded and not written is encoded again"
    assert [path.name for path in place_of(index).path.glob("vectors-*")] == ["vectors-000002"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("n", [10, 20_000])
def test_a_disk_that_is_full(n: int) -> None:
    """Whether it shows while FAISS writes or when the file is closed."""
    import faiss

    index = faiss.IndexFlatIP(64)
    index.add(np.zeros((n, 64), np.float32))
    with pytest.raises(StorageError, match="No space left on device"):
        write(index, Path("/dev/full"))


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_an_index_without_passages(index: Path, model: str, kind: str) -> None:
    delete_passages(IndexFolder(index), [f"n{i}" for i in range(N)])
    assert build_dense(index, model, kind=kind).passages == 0
    assert rankings(index) == {q: [] for q in QUESTIONS}
    assert build_dense(index).unchanged


@pytest.mark.slow
def test_a_model_that_moved_is_told_to_the_channel(index: Path, model: str, tmp_path: Path) -> None:
    own = shutil.copytree(model, tmp_path / "model")
    build_dense(index, str(own))
    told = json.loads((place_of(index).path / "manifest.json").read_text())
    moved = own.rename(tmp_path / "moved")
    with pytest.raises(SpartaError, match="dense index --model FOLDER"):
        rankings(index)
    assert build_dense(index, str(moved)).unchanged
    now = json.loads((place_of(index).path / "manifest.json").read_text())
    changed = {"model": {**told["model"], "name": str(moved)}, "checksum": now["checksum"]}
    assert now == {**told, **changed}
    assert rankings(index)


def test_a_commit_that_is_replaced_while_it_is_read(index: Path) -> None:
    """Lucene removes the old commit's file when the new one is there."""
    folder = IndexFolder(index)
    live = folder.state().live
    assert live is not None
    path = folder.lucene_path(live)
    before = commit_of(path)
    with at("read", "segments_*", lambda: delete_passages(folder, ["n1"])):
        found = commit_of(path)
    assert found == commit_of(path) != before
    with LivePassages.open(path, live.language) as passages:
        assert (passages.commit, len(passages)) == (found, N - 1)


@pytest.mark.slow
def test_a_sentence_is_encoded_again_when_its_passage_changes(
    make_tiny_model: Callable[..., Any], write_jsonl: Any, tiny_model_folder: Path, tmp_path: Path
) -> None:
    """It is read in its passage: also where its own words stay, and where another sentence only went."""
    tiny = make_tiny_model()
    layout = InputLayout(use_title=True, use_context=True, max_length=64, overlap=0)
    DenseModel(tiny.encoder, tiny.tokenizer, DenseConfig(layout)).save_pretrained(tmp_path / "model")

    def change(*command: object) -> None:
        given = ["--model", tiny_model_folder, "--index", tmp_path / "index", "--unit", "sentence", "--quiet"]
        result = sparta(*command, *given)
        assert result.exit_code == 0, result.output

    def corpus(name: str, text: str) -> Path:
        records = [{"id": "p", "text": text}, {"id": "q", "text": "Larry founded google. He is young."}]
        return write_jsonl(tmp_path / name, records)

    def vectors(model: str | None = None) -> dict[str, Any]:
        index = tmp_path / "index"
        build_dense(index, model)
        with DenseSearcher(index) as searcher:
            query = np.ones((1, searcher.vectors.width), np.float32)
            with searcher.opened() as channel:
                [ranking] = channel.rank_vectors(query, Page(len(channel.rows)), 1)
                rows = {docid: row for row, docid in enumerate(channel.docids.tolist())}
                vectors = channel.vectors.take(np.array([rows[docid] for docid in ranking.docids]))
                return dict(zip(ranking.passage_ids, vectors, strict=True))

    change("index", "--corpus", corpus("a.jsonl", "The moon is old. The earth is older. Paris is a city."))
    first = vectors(str(tmp_path / "model"))
    change("update", "--corpus", corpus("b.jsonl", "The moon is old. A river of water. Paris is a city."))
    second = vectors()
    change("update", "--corpus", corpus("c.jsonl", "The moon is old. A river of water."))
    third = vectors()
    assert (len(first), len(second), len(third)) == (5, 5, 4)
    for before, after in ((first, second), (second, third)):
        assert abs(before["p#0"] - after["p#0"]).max() > 1e-3
        for same in ("q#0", "q#1"):
            assert (before[same] == after[same]).all()
    loaded = DenseModel.load(tmp_path / "model")
    folder = IndexFolder(tmp_path / "index")
    live = folder.state().live
    assert live is not None
    with LivePassages.open(folder.lucene_path(live), live.language) as there:
        blocks = list(there.blocks(there.docids, context=True, block_size=1))
        expected = loaded.encode_passages(list(chain.from_iterable(blocks)))[:, 0]
        for passage_id, vector in zip(there.lucene.ids(there.docids), expected, strict=True):
            assert abs(third[passage_id] - vector).max() < 0.03
        assert len(blocks) == 4, "a block ends at its size"
        assert [len(block) for block in there.blocks(there.docids, context=True)] == [4]
