"""benchmarks/msmarco_size.py: the exact ranking that it compares with, and the times that it extrapolates."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def msmarco_size(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return script("msmarco_size", monkeypatch)


@pytest.fixture
def size_tables(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return script("size_tables", monkeypatch)


def test_the_truth_has_the_best_sums_of_all_chunks(msmarco_size) -> None:
    """Sorted by descending sum, then by position; documents without a query term are missing."""
    rng = np.random.default_rng(3)
    matrix = np.where(rng.random((60, 5)) < 0.3, rng.integers(1, 4, (60, 5)), 0)
    questions = [{"a": 1, "c": 2}, {"e": 1, "unknown": 7}, {"unknown": 1}]
    truth = msmarco_size.Truth(list("abcde"), questions, k=9)
    for first in range(0, 60, 20):
        docs, terms = np.nonzero(matrix[first : first + 20])
        indptr = np.concatenate([[0], np.cumsum(np.bincount(docs, minlength=20))])
        truth.add(msmarco_size.Rows(indptr, terms, matrix[first + docs, terms]), first)
    sums = np.stack([matrix[:, 0] + 2 * matrix[:, 2], matrix[:, 4], np.zeros(60, np.int64)])
    for found, expected in zip(truth.best, sums, strict=True):
        order = np.lexsort((np.arange(60), -expected))
        order = order[expected[order] > 0][:9]
        assert found.tolist() == [expected[order].tolist(), order.tolist()]


def test_a_missing_engine_grows_with_the_documents(size_tables) -> None:
    """Only its times grow, and they are marked."""
    ours, lucene = {"10/1": 1.0, "10/p50": 3.0}, {"10/1": 2.0, "10/p50": 4.0, "memory": 5.0}
    results = [
        {"documents": 10, "engines": {"sparta": ours, "lucene": lucene}},
        {"documents": 40, "engines": {"sparta": ours}},
    ]
    small, large = size_tables.extrapolated(results)
    assert small == results[0]
    assert large["engines"] == {"sparta": ours, "lucene": {"10/1": 8.0, "extrapolated": 1.0}}
