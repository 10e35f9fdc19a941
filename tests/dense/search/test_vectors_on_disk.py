"""Vectors on disk, and what NumPy and FAISS find in them."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from dense.models.resolve import ModelIdentity
from dense.search.exact import ExactSearch, rank
from dense.search.faiss_index import (
    LARGEST_FLAT,
    ApproximateSearch,
    FlatSearch,
    Parameters,
    build,
    choose_kind,
    extend,
    nodes_of,
)
from dense.search.store import (
    VectorFolder,
    VectorShard,
    VectorWriter,
    describe_vectors,
    find,
    open_shard,
    write_shard,
)
from dense.search.stored_rows import StoredRows
from sparta.base.errors import IndexStateError, InputError, StorageError
from sparta.shards.folder import shard_files

pytestmark = pytest.mark.usefixtures("one_thread")


# ---------------------------------------------------------------- vectors on disk


def random_shard(n: int = 20, *, number: int = 0, width: int = 8, dtype: str = "float16") -> VectorShard:
    rng = np.random.default_rng(number)
    hashes = rng.integers(0, 2**64, n, dtype=np.uint64)
    vectors = rng.standard_normal((n, width)).astype(dtype)
    return VectorShard(number, np.arange(n, dtype=np.int64) + n * number, hashes, vectors)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_shard_is_read_where_it_lies(tmp_path: Path, dtype: str) -> None:
    shard = random_shard(dtype=dtype)
    write_shard(tmp_path, shard)
    (path,) = shard_files(tmp_path).values()
    found = open_shard(path)
    assert isinstance(found.vectors, StoredRows)
    for name in ("positions", "hashes", "vectors"):
        np.testing.assert_array_equal(getattr(found, name), getattr(shard, name))
        assert getattr(found, name).dtype == getattr(shard, name).dtype
    before = path.read_bytes()
    write_shard(tmp_path, shard)
    assert path.read_bytes() == before
    assert path.name == "shard-00000.safetensors"


DAMAGE = {
    "cut short": lambda data: data[:-7],
    "too long": lambda data: data + b"0",
    "header cut": lambda data: data[:30],
    "not a header": lambda data: data[:8] + b"x" * (len(data) - 8),
    "empty": lambda data: b"",
    "another file": lambda data: b"\xff" * len(data),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_shard_is_refused(tmp_path: Path, damage: str) -> None:
    write_shard(tmp_path, random_shard())
    (path,) = shard_files(tmp_path).values()
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    with pytest.raises(InputError, match=r"shard-00000\.safetensors: "):
        open_shard(path)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_vectors_that_are_not_finite_are_not_written(tmp_path: Path, bad: float) -> None:
    shard = random_shard()
    shard.vectors[3, 1] = bad
    with pytest.raises(InputError, match="vector 3 "):
        write_shard(tmp_path, shard)
    assert list(tmp_path.iterdir()) == []


def test_numbers_too_large_for_half_precision_are_not_written(tmp_path: Path) -> None:
    writer = VectorWriter(tmp_path, describe_vectors(ModelIdentity("m", ""), 2, "float16", "passage"))
    with pytest.raises(InputError, match="vector 1 "):
        writer.add(np.arange(2), np.arange(2, dtype=np.uint64), np.array([[0.0, 1.0], [1e6, 0.0]]))


def folder_of(
    path: Path, vectors: np.ndarray, *, size: int = 64, precision: str = "float32", **options: int
) -> VectorFolder:
    manifest = describe_vectors(ModelIdentity("m", "0"), vectors.shape[1], precision, "passage")
    writer = VectorWriter(path, manifest)
    for start in range(0, len(vectors), size):
        part = vectors[start : start + size]
        positions = np.arange(start, start + len(part))
        writer.add(positions, positions.astype(np.uint64) + np.uint64(7), part)
    return VectorFolder(path, **options)


def test_a_folder_is_one_table(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).standard_normal((150, 5)).astype(np.float32)
    folder = folder_of(tmp_path / "v", vectors, block_size=13)
    assert len(folder) == 150
    assert len(folder.shards) == 3
    rows = np.random.default_rng(1).permutation(150)[:70]
    np.testing.assert_array_equal(folder.take(rows), vectors[rows])
    np.testing.assert_array_equal(np.concatenate(list(folder.blocks(rows))), vectors[rows])
    np.testing.assert_array_equal(folder.rows_of(rows, rows.astype(np.uint64) + np.uint64(7)), rows)
    assert (folder.rows_of(rows, rows.astype(np.uint64)) == -1).all()
    assert len(VectorFolder(tmp_path / "v", shards=range(2))) == 128
    with pytest.raises(InputError, match="1 of 4 shards are missing"):
        VectorFolder(tmp_path / "v", shards=range(4))


def test_vectors_in_memory_keep_no_file_open(tmp_path: Path) -> None:
    vectors = np.ones((150, 5), np.float32)
    with warnings.catch_warnings(record=True, action="always") as raised:
        folder = folder_of(tmp_path / "v", vectors, size=10)
    assert not [str(warning.message) for warning in raised if warning.category is ResourceWarning]
    opened = [file.path for file in psutil.Process().open_files() if file.path.startswith(str(tmp_path))]
    assert not opened
    np.testing.assert_array_equal(folder.take(np.array([149, 0])), vectors[:2])


def test_find_is_a_dictionary() -> None:
    rng = random.Random(3)
    keys = rng.sample(range(1000), 60)
    wanted = [rng.randrange(1000) for _ in range(300)]
    known = {key: i for i, key in enumerate(keys)}
    found = find(np.array(keys, np.uint64), np.array(wanted, np.uint64))
    assert found.tolist() == [known.get(key, -1) for key in wanted]
    assert find(np.empty(0, np.uint64), np.array([4], np.uint64)).tolist() == [-1]


@pytest.mark.slow
def test_more_shards_than_files_may_usually_be_open(tmp_path: Path) -> None:
    """The process raises its own limit; where it may not, the user is told to, and not to delete anything."""
    resource = pytest.importorskip("resource")
    vectors = np.arange(300, dtype=np.float32)[:, None]
    folder_of(tmp_path / "v", vectors, size=1)
    program = f"""
import resource, sys
from pathlib import Path
from dense.search.store import VectorFolder
resource.setrlimit(resource.RLIMIT_NOFILE, (100, int(sys.argv[1])))
print(VectorFolder(Path({str(tmp_path / "v")!r})).take(__import__("numpy").array([299, 3])).tolist())
"""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

    def opened(highest: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, str(highest)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    assert opened(hard).stdout == "[[299.0], [3.0]]\n"
    refused = opened(100).stderr.splitlines()[-1]
    assert "ulimit -n" in refused or "ulimit" in opened(100).stderr
    assert "delete" not in refused


def test_shards_of_another_width_are_refused(tmp_path: Path) -> None:
    folder_of(tmp_path / "v", np.ones((3, 5), np.float32))
    write_shard(tmp_path / "v", random_shard(number=1, width=6, dtype="float32"))
    with pytest.raises(InputError, match=r"shard-00001.*\b6 float32 .*\b5 float32"):
        VectorFolder(tmp_path / "v")


# ---------------------------------------------------------------- what is found


def brute_force(vectors: np.ndarray, rows: np.ndarray, question: np.ndarray, k: int) -> list[int]:
    scores = (vectors[rows].astype(np.float64) @ question.astype(np.float64)).astype(np.float32)
    return rows[np.lexsort((rows, -scores))][:k].tolist()


@pytest.fixture(scope="module")
def tied() -> np.ndarray:
    """Small integers, many of them equal: sums are exact in any order."""
    rng = np.random.default_rng(5)
    return rng.integers(-2, 3, (400, 4)).astype(np.float32)


FROM_FILES = partial(ExactSearch, largest_in_memory=4 * 4 * 300 - 1)


@pytest.mark.parametrize("search", [ExactSearch, FROM_FILES, FlatSearch])
@pytest.mark.parametrize("k", [1, 7, 100, 1000])
def test_exact_search_is_a_matrix_product(tmp_path: Path, tied: np.ndarray, search: Any, k: int) -> None:
    folder = folder_of(tmp_path / "v", tied, block_size=37)
    rows = np.sort(np.random.default_rng(6).permutation(len(tied))[:300])
    questions = np.random.default_rng(7).integers(-3, 4, (9, 4)).astype(np.float32)
    found = rank(search(folder, rows), folder, questions, k, len(rows))
    for question, (best, scores) in zip(questions, found, strict=True):
        assert best.tolist() == brute_force(tied, rows, question, k)
        np.testing.assert_array_equal(scores, tied[best] @ question)


def test_faiss_flat_equals_numpy_on_real_numbers(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    vectors = rng.standard_normal((3000, 48)).astype(np.float16)
    folder = folder_of(tmp_path / "v", vectors, size=700, precision="float16")
    questions = rng.standard_normal((20, 48)).astype(np.float32)
    rows = np.arange(len(vectors))
    ours = rank(ExactSearch(folder, rows), folder, questions, 100, len(rows))
    faiss = rank(FlatSearch(folder, rows), folder, questions, 100, len(rows))
    for question, (a, scores), (b, same) in zip(questions, ours, faiss, strict=True):
        assert a.tolist() == b.tolist() == brute_force(vectors, rows, question, 100)
        np.testing.assert_array_equal(scores, same)


def near_each_other(n: int, width: int) -> np.ndarray:
    """Vectors in clusters, as those of texts are."""
    rng = np.random.default_rng(9)
    centers = rng.standard_normal((n // 20, width))
    return (centers[rng.integers(0, len(centers), n)] + 0.5 * rng.standard_normal((n, width))).astype(
        np.float32
    )


@pytest.mark.parametrize("kind", ["ivf", "ivfpq", "hnsw"])
def test_approximate_search_leaves_out_what_is_gone(tmp_path: Path, kind: str) -> None:
    vectors = near_each_other(4000, 24)
    first = folder_of(tmp_path / "v", vectors[:3000], size=1000)
    index = build(Parameters.default(kind, 3000), first)
    writer = VectorWriter(tmp_path / "v", first.manifest)
    positions = np.arange(3000, 4000)
    writer.add(positions, positions.astype(np.uint64), vectors[3000:])
    folder = VectorFolder(tmp_path / "v")
    extend(index, folder)
    assert index.ntotal == 4000
    questions = near_each_other(4000, 24)[::200] + np.float32(0.1)
    for rows in (np.arange(4000), np.sort(np.random.default_rng(1).permutation(4000)[:2200])):
        search = ApproximateSearch(index, Parameters.default(kind, 3000), rows)
        hits = []
        for question, (best, scores) in zip(
            questions, rank(search, folder, questions, 100, len(rows)), strict=True
        ):
            assert set(best.tolist()) <= set(rows.tolist())
            assert len(best) == len(set(best.tolist())) == 100
            np.testing.assert_allclose(scores, vectors[best] @ question, rtol=1e-4, atol=1e-4)
            assert (np.diff(scores) <= 0).all()
            hits.append(len({*best.tolist()} & {*brute_force(vectors, rows, question, 100)}) / 100)
        assert np.mean(hits) >= 0.95


@pytest.mark.parametrize("kind", ["ivf", "ivfpq", "hnsw"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_approximate_search_among_copies(tmp_path: Path, kind: str, share: float) -> None:
    """Texts that stand in many passages: as many are found as exist, those first that come first."""
    rng = np.random.default_rng(4)
    vectors = near_each_other(4000, 24)
    few = vectors[:20].copy()
    copies = np.sort(rng.permutation(4000)[: int(4000 * share)])
    vectors[copies] = few[rng.integers(0, len(few), len(copies))]
    first = folder_of(tmp_path / "v", vectors[:3000], size=1000)
    parameters = Parameters.default(kind, 3000)
    index = build(parameters, first, nodes_of(first) if parameters.distinct else None)
    writer = VectorWriter(tmp_path / "v", first.manifest)
    writer.add(np.arange(3000, 4000), np.arange(3000, 4000).astype(np.uint64), vectors[3000:])
    folder = VectorFolder(tmp_path / "v")
    nodes = nodes_of(folder) if parameters.distinct else None
    extend(index, folder, nodes)
    assert index.ntotal == (len(np.unique(vectors, axis=0)) if nodes is not None else 4000)
    questions = np.concatenate([few, vectors[rng.permutation(4000)[:20]]]) + np.float32(0.05)
    for rows in (np.arange(4000), np.sort(rng.permutation(4000)[:2200])):
        search = ApproximateSearch(index, parameters, rows, nodes)
        for k in (10, 300):
            hits = []
            ranked = rank(search, folder, questions, k, len(rows))
            for question, (best, _) in zip(questions, ranked, strict=True):
                assert set(best.tolist()) <= set(rows.tolist())
                assert len(set(best.tolist())) == k
                hits.append(len({*best.tolist()} & {*brute_force(vectors, rows, question, k)}) / k)
            assert np.mean(hits) >= 0.95


def test_auto_goes_by_size() -> None:
    sizes = (0, LARGEST_FLAT, LARGEST_FLAT + 1)
    assert [choose_kind("auto", n) for n in sizes] == ["flat", "flat", "ivfpq"]
    with pytest.raises(InputError, match="unknown kind of index 'tree'"):
        choose_kind("tree", 1)


def test_gpus_are_used_where_faiss_has_them(tmp_path: Path, tied: np.ndarray, monkeypatch: Any) -> None:
    """FAISS for CPUs has no such functions: here they stand in, and count."""
    import faiss

    copied: list[Any] = []
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 2, raising=False)
    monkeypatch.setattr(
        faiss, "index_cpu_to_all_gpus", lambda index: copied.append(index) or index, raising=False
    )
    folder = folder_of(tmp_path / "v", tied)
    search = FlatSearch(folder, np.arange(len(tied)))
    assert copied == [search.index]
    [(best, _)] = rank(search, folder, tied[:1], 5, len(tied))
    assert best.tolist() == brute_force(tied, np.arange(len(tied)), tied[0], 5)


REPLACED = """
import sys
from pathlib import Path

import numpy as np

import dense.search.store
from dense.search.store import VectorFolder
from dense.search.stored_rows import StoredRows
from sparta.base.errors import IndexStateError

dense.search.store._LARGEST_IN_MEMORY = int(sys.argv[2])
folder = VectorFolder(Path(sys.argv[1]))
rows = np.arange(len(folder))
before = folder.take(rows)
for path in folder.paths:
    path.write_bytes(path.read_bytes()[:100])  # as cp does: into the same file
try:
    print("the same" if np.array_equal(folder.take(rows), before) else "others")
except IndexStateError as error:
    print(error.remedy)
"""


@pytest.mark.parametrize(("small", "said"), [(1 << 20, "the same"), (0, "rename a folder")])
def test_files_that_are_cut_short_do_not_end_the_process(tmp_path: Path, small: int, said: str) -> None:
    """Small vectors are in memory; of others, reading them is an error. In a process of its own."""
    writer = VectorWriter(
        tmp_path / "v", describe_vectors(ModelIdentity("m", ""), 2000, "float16", "passage")
    )
    for start in (0, 50):
        rows = np.arange(start, start + 50)
        writer.add(rows, rows.astype(np.uint64), np.random.default_rng(start).normal(size=(50, 2000)))
    paths = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", REPLACED, str(tmp_path / "v"), str(small)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=paths)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


def test_a_file_that_another_program_changed_is_told(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    numbers = np.arange(12, dtype=np.float32).reshape(6, 2)
    path.write_bytes(b"head" + numbers.tobytes())
    rows = StoredRows(path, np.float32, 4, (6, 2))
    chosen = np.array([4, 1, 2, 2])
    assert np.array_equal(rows[chosen], numbers[chosen])
    assert np.array_equal(np.asarray(rows), numbers)
    assert rows[np.empty(0, np.int64)].shape == (0, 2)
    path.write_bytes(b"head" + numbers[::-1].tobytes())
    os.utime(path, ns=(0, 0))
    with pytest.raises(IndexStateError, match="another program"):
        rows[chosen]


def test_a_disk_that_fails_while_rows_are_read_is_told(tmp_path: Path, monkeypatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    path = tmp_path / "numbers"
    path.write_bytes(bytes(48))
    rows = StoredRows(path, np.float32, 0, (6, 2))
    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(StorageError, match="cannot be read: Input/output error") as caught:
        rows[np.array([4])]
    assert caught.value.where == str(path)


class Rough:
    """Returns all rows, with scores that say nothing."""

    exact = False

    def __init__(self, n: int) -> None:
        self.rows = np.random.default_rng(3).permutation(n)

    def __call__(self, query_vectors: np.ndarray, k: int, threads: int = 1) -> tuple[np.ndarray, np.ndarray]:
        rows = np.broadcast_to(self.rows, (len(query_vectors), len(self.rows)))
        return rows, np.zeros(rows.shape, np.float32)

    def within(self, mask: np.ndarray) -> Rough:
        raise NotImplementedError


def test_rough_candidates_are_scored_exactly(tmp_path: Path, tied: np.ndarray) -> None:
    """An approximate search may return many rows: the exact scores decide, and ties go by position."""
    folder, rows = folder_of(tmp_path / "v", tied, size=50), np.arange(len(tied))
    questions = tied[::20] + np.float32(0.01)
    for k in (1, 10, 60):
        ranked = rank(Rough(len(tied)), folder, questions, k, len(tied))
        for question, (best, _) in zip(questions, ranked, strict=True):
            assert best.tolist() == list(brute_force(tied, rows, question, k))


def test_rows_come_in_the_order_asked_for(tmp_path: Path, tied: np.ndarray) -> None:
    folder = folder_of(tmp_path / "v", tied, size=50)
    for rows in ([], [7], [120, 3, 4, 5, 3, 49, 50, 51], list(range(len(tied)))[::-1]):
        np.testing.assert_array_equal(folder.take(np.array(rows, np.int64)), tied[rows])


@pytest.mark.parametrize("width", [7, 24])
def test_ivfpq_of_any_width_and_few_vectors(tmp_path: Path, width: int, capfd: Any) -> None:
    assert [choose_kind("ivfpq", n) for n in (0, 623, 624)] == ["flat", "flat", "ivfpq"]
    vectors, rows = near_each_other(640, width)[:624], np.arange(624)
    folder = folder_of(tmp_path / "v", vectors, size=100)
    parameters = Parameters.default("ivfpq", 624)
    search = ApproximateSearch(build(parameters, folder), parameters, rows)
    questions = vectors[::50]
    for question, (best, _) in zip(questions, rank(search, folder, questions, 624, 624), strict=True):
        assert best.tolist() == list(brute_force(vectors, rows, question, 624))
    assert capfd.readouterr().err == ""
