"""Search among some rows beside a matrix product of those rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dense.models.resolve import ModelIdentity
from dense.search.exact import ExactSearch, rank
from dense.search.faiss_index import ApproximateSearch, FlatSearch, Parameters, build, nodes_of
from dense.search.selection import select
from dense.search.store import VectorFolder, VectorWriter, describe_vectors

pytestmark = pytest.mark.usefixtures("one_thread")

N = 3000


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    """Clusters, as those of texts are, and some rows that are copies of others."""
    rng = np.random.default_rng(9)
    centers = rng.standard_normal((150, 24))
    made = (centers[rng.integers(0, 150, N)] + 0.5 * rng.standard_normal((N, 24))).astype(np.float32)
    made[rng.integers(0, N, 300)] = made[7]
    return made


@pytest.fixture(scope="module")
def folder(vectors: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> VectorFolder:
    path = tmp_path_factory.mktemp("vectors") / "v"
    writer = VectorWriter(path, describe_vectors(ModelIdentity("m", "0"), 24, "float32", "passage"))
    for start in range(0, N, 700):
        rows = np.arange(start, min(N, start + 700))
        writer.add(rows, rows.astype(np.uint64), vectors[rows])
    return VectorFolder(path, block_size=370)


@pytest.fixture(scope="module")
def questions(vectors: np.ndarray) -> np.ndarray:
    return vectors[::250] + np.float32(0.1)


def opened(kind: str, folder: VectorFolder, rows: np.ndarray) -> Any:
    if kind in ("ivf", "ivfpq", "hnsw"):
        parameters = Parameters.default(kind, N)
        nodes = nodes_of(folder) if parameters.distinct else None
        return ApproximateSearch(build(parameters, folder, nodes), parameters, rows, nodes)
    if kind == "flat":
        return FlatSearch(folder, rows)
    return ExactSearch(folder, rows, **({"largest_copy": 0} if kind == "masked" else {}))


def best_rows(vectors: np.ndarray, rows: np.ndarray, question: np.ndarray, k: int) -> list[int]:
    scores = (vectors[rows].astype(np.float64) @ question.astype(np.float64)).astype(np.float32)
    return rows[np.lexsort((rows, -scores))][:k].tolist()


@pytest.mark.parametrize("kind", ["numpy", "masked", "flat", "ivf", "ivfpq", "hnsw"])
def test_few_and_many_rows_exactly(
    folder: VectorFolder, vectors: np.ndarray, questions: np.ndarray, kind: str
) -> None:
    """Approximate kinds are exact here, for the rows are few."""
    rng = np.random.default_rng(1)
    rows = np.sort(rng.permutation(N)[:2500])
    find = opened(kind, folder, rows)
    for share in (0, 0.001, 0.01, 0.3, 1):
        kept = rng.random(len(rows)) < share
        among = select(find, folder, rows, kept)
        assert among.exact
        for k in (1, 10, 500):
            n = int(kept.sum())
            ranked = rank(among, folder, questions, min(k, n), n)
            for question, (found, _) in zip(questions, ranked, strict=True):
                assert found.tolist() == best_rows(vectors, rows[kept], question, k)


@pytest.mark.parametrize("kind", ["ivf", "ivfpq", "hnsw"])
def test_approximate_search_finds_as_many_as_there_are(
    folder: VectorFolder, vectors: np.ndarray, questions: np.ndarray, kind: str
) -> None:
    rng = np.random.default_rng(2)
    rows = np.arange(N)
    find = opened(kind, folder, rows)
    for share in (0.005, 0.05, 0.5):
        kept = rng.random(N) < share
        among, n = select(find, folder, rows, kept, largest_exact=0), int(kept.sum())
        assert not among.exact
        for k in (10, 100):
            ranked = rank(among, folder, questions, min(k, n), n)
            common = []
            for question, (found, _) in zip(questions, ranked, strict=True):
                assert set(found.tolist()) <= set(rows[kept].tolist())
                assert len(set(found.tolist())) == min(k, n)
                common.append(len({*found} & {*best_rows(vectors, rows[kept], question, k)}) / min(k, n))
            assert np.mean(common) >= 0.95


class Counted(VectorFolder):
    """Counts how often all of some rows are read."""

    reads = 0

    def blocks(self, *arguments: Any) -> Any:
        self.reads += 1
        return super().blocks(*arguments)


def test_what_a_filter_falls_back_to_keeps_no_vectors_in_memory(
    folder: VectorFolder, vectors: np.ndarray, questions: np.ndarray
) -> None:
    """Several filters are kept, each with its own rows."""
    rows, kept = np.arange(N), np.arange(N) % 3 > 0
    counted = Counted(folder.folder)
    among: Any = select(opened("ivf", folder, rows), counted, rows, kept, largest_exact=0)
    nothing = np.full((len(questions), 10), -1), np.full((len(questions), 10), -np.inf, np.float32)
    for own in (among, among.within(np.arange(kept.sum()) % 2 > 0)):
        own.search = lambda *_: (nothing[0].copy(), nothing[1].copy())
        counted.reads = 0
        own(questions, 10)
        found, _ = own(questions, 10)
        assert counted.reads == 2, "each search reads the files"
        for question, best in zip(questions, found, strict=True):
            expected = best_rows(vectors, own.exact_search.rows, question, 10)
            np.testing.assert_allclose(vectors[best] @ question, vectors[expected] @ question, rtol=1e-5)
