"""Small shards of a dense channel are merged, and search does not notice."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dense.channel.folder import ChannelFolder
from dense.channel.merging import MERGED_AT_ONCE, merge_small_shards, runs_to_merge
from dense.channel.searcher import DenseSearcher
from dense.channel.sync import build_dense
from dense.models.resolve import ModelIdentity
from dense.search.store import VectorFolder, VectorWriter, describe_vectors, shard_path
from sparta.api import Index
from sparta.base.errors import InputError, ModelError, NewerFormatError, StorageError
from sparta.index.build import delete_passages
from sparta.index.folder import IndexFolder
from sparta.index.inputs.options import IndexOptions
from sparta.shards.folder import SHARD_SIZE, shard_files
from tests.dense.channel.channels import QUESTIONS, N, rankings, split_into_rows
from tests.moments import at

pytestmark = pytest.mark.usefixtures("one_thread")


def test_only_long_runs_of_small_shards_are_merged() -> None:
    few, many, half = MERGED_AT_ONCE - 1, MERGED_AT_ONCE + 3, SHARD_SIZE // 2
    assert runs_to_merge([1] * few) == []
    assert runs_to_merge([1] * few + [half] + [1] * few) == []
    assert runs_to_merge([half] * 20) == []
    runs = runs_to_merge([half, *[1] * many, half, 5, half, *[2] * many])
    assert runs == [range(1, 1 + many), range(many + 4, 2 * many + 4)]


@pytest.fixture
def store(tmp_path: Path) -> VectorFolder:
    """Shards of 30, 1 (ten times), 30 and 2 rows."""
    draw = np.random.default_rng(0)
    manifest = describe_vectors(ModelIdentity("m", "0"), 4, "float16", "passage")
    writer = VectorWriter(tmp_path / "v", manifest)
    start = 0
    for size in (30, *[1] * 10, 30, 2):
        positions = np.arange(start, start + size)
        writer.add(positions, draw.integers(0, 2**63, size).astype(np.uint64), draw.normal(size=(size, 4)))
        start += size
    return VectorFolder(tmp_path / "v")


def test_rows_keep_their_order_and_dead_rows_go(store: VectorFolder) -> None:
    rows = np.arange(len(store))
    for live, kept, sizes in (
        (None, rows, [30, 6, 4, 30, 2]),
        (np.delete(rows, [3, 31, 38]), np.delete(rows, [31, 38]), [30, 6, 2, 30, 2]),
    ):
        numbers = merge_small_shards(store, VectorWriter(store.folder, store.manifest), live, shard_size=6)
        assert numbers
        merged = VectorFolder(store.folder, shards=numbers)
        assert [len(shard) for shard in merged.shards] == sizes
        assert merged.positions.tolist() == store.positions[kept].tolist()
        assert merged.hashes.tolist() == store.hashes[kept].tolist()
        assert np.array_equal(merged.take(np.arange(len(merged))), store.take(kept))


@pytest.mark.jvm
@pytest.mark.parametrize("kind", ["flat", "ivf", "hnsw"])
def test_a_channel_of_many_shards_is_merged_by_the_next_write(index: Path, model: Path, kind: str) -> None:
    """Format 1, a shard per row: rankings stay, an open searcher goes on, nothing is encoded again."""
    build_dense(index, str(model), kind=kind)
    folder = split_into_rows(index)
    delete_passages(IndexFolder(index), ["n3", "n4"])
    before = rankings(index)
    with DenseSearcher(index) as open_before:
        report = build_dense(index)
        assert (report.encoded, report.removed_vectors) == (0, 2)
        assert rankings(index) == before
        hits = open_before.batch_search(QUESTIONS, QUESTIONS, 20)
        assert {q: [(hit.passage_id, hit.score) for hit in found] for q, found in hits.items()} == before
    assert list(shard_files(folder)) == [N]
    assert len(VectorFolder(folder)) == (N - 2 if kind == "flat" else N)
    manifest = json.loads((folder.parent / "manifest.json").read_text())
    assert (manifest["shards"], manifest["format_version"]) == ([N], 2)
    assert build_dense(index).unchanged


@pytest.mark.slow
@pytest.mark.jvm
@pytest.mark.parametrize(("kind", "merges"), [("flat", 2), ("hnsw", 1)])
def test_many_appends_leave_few_shards(
    index: Path,
    model: Path,
    tiny_model_folder: Path,
    make_records: Any,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    merges: int,
) -> None:
    monkeypatch.setattr("dense.channel.merging.MERGED_AT_ONCE", 3)
    build_dense(index, str(model), kind=kind)
    options = IndexOptions(model=str(tiny_model_folder))
    with Index(index) as opened:
        for record in make_records(merges * 3 + 2, seed=5, prefix="new"):
            opened.append([record], options=options)
    [place] = index.glob("dense-*")
    assert len(shard_files(place / "vectors-000001")) < 3
    appended = rankings(index, 100)
    build_dense(index, kind=kind, overwrite=True)
    assert rankings(index, 100) == appended


@pytest.mark.jvm
def test_what_a_killed_merge_left_is_removed(index: Path, model: Path) -> None:
    """Killed after the manifest: the replaced shards. Killed before it: the merged shard."""
    build_dense(index, str(model))
    folder = split_into_rows(index)
    delete_passages(IndexFolder(index), ["n3"])
    before = rankings(index)

    def killed() -> None:
        raise RuntimeError("killed")

    for moment in (("rename", "dense-*/manifest.json"), ("remove", "shard-*.safetensors")):
        with at(*moment, killed), pytest.raises(RuntimeError, match="killed"):
            build_dense(index)
        assert len(shard_files(folder)) == N + 1
        assert rankings(index) == before
    assert build_dense(index).encoded == 0
    assert len(shard_files(folder)) == 1
    assert rankings(index) == before


def test_a_damaged_shard_is_not_copied(store: VectorFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store above 64 MB is not checked when it is opened; a copy of its rows would get a new checksum."""
    monkeypatch.setattr("dense.search.store._LARGEST_IN_MEMORY", 0)
    path = shard_path(store.folder, 3)
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    large = VectorFolder(store.folder)
    before = set(shard_files(store.folder))
    with pytest.raises(InputError, match="cannot read the shard of vectors") as refused:
        merge_small_shards(large, VectorWriter(store.folder, store.manifest), shard_size=6)
    assert str(path) in str(refused.value.where)
    large.check_rows(np.arange(30))  # of another shard
    assert set(shard_files(store.folder)) == before


def test_an_overwrite_deletes_only_what_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Index.create(tmp_path / "ix", [{"id": "1", "text": "x"}], options=IndexOptions(channels="bm25")).close()
    folder = tmp_path / "ix" / "dense-000001"
    (folder / "vectors-000001").mkdir(parents=True)
    (folder / "vectors-000001" / "shard-00000.safetensors").write_bytes(b"work of hours")
    newer = json.dumps({"kind": "dense-channel", "format_version": 99})
    (folder / "manifest.json").write_text(newer)
    with pytest.raises(NewerFormatError):
        build_dense(tmp_path / "ix", str(tmp_path / "none"), overwrite=True)
    (folder / "manifest.json").unlink()
    with pytest.raises(ModelError):
        build_dense(tmp_path / "ix", str(tmp_path / "none"), overwrite=True)
    assert (folder / "vectors-000001" / "shard-00000.safetensors").is_file()

    def fail(_: ChannelFolder) -> Any:
        raise StorageError("the disk fails")

    with monkeypatch.context() as patched:
        patched.setattr(ChannelFolder, "read", fail)
        (folder / "manifest.json").write_text("{")
        with pytest.raises(StorageError):
            ChannelFolder(folder).read_if_finished(overwrite=True)
    assert ChannelFolder(folder).read_if_finished(overwrite=True) is None
    manifest = describe_vectors(ModelIdentity("m", "0"), 4, "float16", "passage")
    (folder / "vectors-000001" / "manifest.json").write_text(json.dumps(manifest))
    shard = folder / "vectors-000001" / "shard-00000.safetensors"
    opened = Path.open
    for number, message in ((errno.EACCES, "no rights"), (errno.EMFILE, "limit of open files")):

        def refuse(self: Path, *arguments: Any, number: int = number, **options: Any) -> Any:
            if self.suffix == ".safetensors":
                raise OSError(number, "no rights")
            return opened(self, *arguments, **options)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "open", refuse)
            with pytest.raises(StorageError, match=message):
                ChannelFolder(folder).remove_damaged(lambda: None)
    assert shard.read_bytes() == b"work of hours"
    ChannelFolder(folder).remove_damaged(lambda: None)
    assert not shard.exists()
