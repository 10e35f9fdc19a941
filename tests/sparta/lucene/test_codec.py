"""Both formats of an index give the same answers, and those that NumPy finds in the matrix itself."""

from pathlib import Path

import numpy as np
import pytest

from sparta.base.errors import InputError
from sparta.lucene.bridge import ImpactSearcher, ImpactWriter

pytestmark = pytest.mark.jvm

DOCUMENTS, TERMS = 9000, 40  # more than one range of documents
DENSITIES = np.geomspace(0.9, 0.0005, TERMS)


def random_matrix(rng: np.random.Generator, highest: int) -> np.ndarray:
    """`(DOCUMENTS, TERMS) int64`, 0 where a document lacks a term; few distinct sums, so that ties abound."""
    impacts = rng.integers(1, highest + 1, (DOCUMENTS, TERMS))
    return np.where(rng.random((DOCUMENTS, TERMS)) < DENSITIES, impacts, 0)


def write(path: Path, matrix: np.ndarray, positions: np.ndarray, codecs: list[str]) -> None:
    """One commit a codec, each with its share of the documents."""
    for part, codec in zip(np.array_split(np.arange(len(matrix)), len(codecs)), codecs, strict=True):
        with ImpactWriter(path, codec=codec) as writer:
            writer.add_terms([f"t{i}" for i in range(TERMS)])
            docs, terms = np.nonzero(matrix[part])
            indptr = np.concatenate([[0], np.cumsum(np.bincount(docs, minlength=len(part)))])
            ids = [f"d{i}" for i in part]
            writer.add(ids, ids, ids, positions[part], indptr, terms, matrix[part][docs, terms])
            writer.commit("")


def queries(rng: np.random.Generator, weighted: bool) -> list[dict[str, int]]:
    found = []
    for _ in range(25):
        terms = rng.choice(TERMS + 2, rng.integers(1, 12), replace=False)
        weights = rng.integers(1, 16 if weighted else 4, len(terms))
        found.append({f"t{t}": int(w) for t, w in zip(terms, weights, strict=True)})
    return found


def by_hand(
    matrix: np.ndarray, positions: np.ndarray, query: dict[str, int], k: int
) -> tuple[list[int], np.ndarray]:
    """Rows and scores: integers, of which each is below 2^24."""
    scores = np.zeros(len(matrix), np.int64)
    for term, weight in query.items():
        column = int(term[1:])
        if column < TERMS:
            scores += weight * matrix[:, column]
    order = np.lexsort((positions, -scores))
    order = order[scores[order] > 0][:k]
    return order.tolist(), scores[order]


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("highest", [1, 255, 65535])
def test_both_codecs_answer_as_numpy_does(tmp_path: Path, highest: int, weighted: bool) -> None:
    rng = np.random.default_rng(highest)
    matrix = random_matrix(rng, highest)
    positions = rng.permutation(DOCUMENTS)
    asked = queries(rng, weighted)
    gone = sorted(rng.choice(DOCUMENTS, 500, replace=False).tolist())
    for codec in ("fast", "lucene"):
        write(tmp_path / codec, matrix, positions, [codec] * 3)
        with ImpactWriter(tmp_path / codec, codec=codec) as writer:
            assert writer.delete([f"d{i}" for i in gone]) == len(gone)
            writer.commit("")
    matrix[gone] = 0
    for codec in ("fast", "lucene"):
        with ImpactSearcher(tmp_path / codec) as searcher:
            for k in (1, 10, 1000, DOCUMENTS + 1):
                hits = searcher.search_impacts(asked, k, threads=2)
                for q, query in enumerate(asked):
                    docids, scores = hits.query(q)
                    rows, expected = by_hand(matrix, positions, query, k)
                    assert searcher.ids(docids) == [f"d{row}" for row in rows]
                    np.testing.assert_array_equal(scores, expected)


def test_an_index_may_hold_both_formats(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    matrix, positions = random_matrix(rng, 200), rng.permutation(DOCUMENTS)
    write(tmp_path, matrix, positions, ["fast", "lucene", "fast", "lucene"])
    asked = queries(rng, weighted=False)
    with ImpactSearcher(tmp_path) as searcher:
        hits = searcher.search_impacts(asked, 300)
        for q, query in enumerate(asked):
            rows, expected = by_hand(matrix, positions, query, 300)
            assert searcher.ids(hits.query(q)[0]) == [f"d{row}" for row in rows]
            np.testing.assert_array_equal(hits.query(q)[1], expected)


def test_the_files_say_which_codec_wrote_them(tmp_path: Path) -> None:
    matrix = np.ones((10, TERMS), np.int64)
    for codec in ("fast", "lucene"):
        write(tmp_path / codec, matrix, np.arange(10), [codec])
        read = b"".join(file.read_bytes() for file in (tmp_path / codec).iterdir())
        assert (b"SpartaImpacts" in read) == (codec == "fast")


def test_an_unknown_codec_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown codec 'zip'; known are fast, lucene"):
        ImpactWriter(tmp_path, codec="zip")
