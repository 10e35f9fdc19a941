"""Our measures beside those of BEIR's own evaluator, on a run of hand-made ties and own passages."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from hybrid.evaluation.testsets import open_test_set
from sparta.base.records import ScoredPassage
from sparta.data.trec import write_run

RANKINGS = {
    "a": [("a", 3.0), ("x", 2.0), ("b", 2.0), ("c", 2.0)],  # its own passage first, then ties
    "b": [("x", 1.0), ("y", 1.0), ("b", 1.0), ("a", 1.0), ("c", 1.0)],  # all tied, its own among them
    "c": [("y", 5.0), ("x", 4.0)],  # nothing right
}


@pytest.fixture
def script() -> ModuleType:
    path = Path(__file__).parents[3] / "benchmarks" / "beir_agreement.py"
    spec = importlib.util.spec_from_file_location("beir_agreement", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of ArguAna's form: each query is a passage too."""
    (tmp_path / "qrels").mkdir()
    lines = [f'{{"_id": "{i}", "title": "t", "text": "passage {i}"}}\n' for i in "abcxyz"]
    (tmp_path / "corpus.jsonl").write_text("".join(lines))
    (tmp_path / "queries.jsonl").write_text("".join(lines[:3]))
    rows = "a\tb\t2\na\tc\t1\nb\ta\t1\nc\tz\t1\n"
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    return tmp_path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    rankings = {q: [ScoredPassage(*hit) for hit in hits] for q, hits in RANKINGS.items()}
    write_run(tmp_path / "run.trec", rankings.items())
    return tmp_path / "run.trec"


def test_ties_and_own_passages_by_hand(script: ModuleType, folder: Path, run: Path, tmp_path: Path) -> None:
    found = script.measured_here(open_test_set(folder, tmp_path), run)
    # a: x b c, of which b and c count; b: x y a c, of which a counts; c: nothing
    assert found["NDCG@3"] == pytest.approx((_ndcg_of_a() + 0.5) / 3)
    assert found["MRR@10"] == pytest.approx((1 / 2 + 1 / 3 + 0) / 3)
    assert found["MRR@1"] == 0
    assert found["P@3"] == pytest.approx((2 / 3 + 1 / 3 + 0) / 3)
    assert found["Recall@3"] == pytest.approx((1 + 1 + 0) / 3)
    assert found["MAP@10"] == pytest.approx(((1 / 2 + 2 / 3) / 2 + 1 / 3 + 0) / 3)


def _ndcg_of_a() -> float:
    """Gains 0, 2, 1 in place of the ideal 2, 1: discounts 1, 1/log2(3), 1/log2(4)."""
    return (2 * 0.6309297536 + 1 * 0.5) / (2 + 1 * 0.6309297536)


def test_beirs_evaluator_finds_the_same(script: ModuleType, folder: Path, run: Path, tmp_path: Path) -> None:
    pytest.importorskip("beir", reason="pip install --no-deps beir")
    tested = open_test_set(folder, tmp_path)
    qrels = {q: dict(judged) for q, judged in tested.qrels.items()}
    theirs = script.measured_by_beir(qrels, run)
    ours = script.measured_here(tested, run)
    assert ours.keys() == theirs.keys()
    assert ours == pytest.approx(theirs, abs=1e-9)


def test_a_made_folder_is_of_arguanas_form(script: ModuleType, folder: Path, tmp_path: Path) -> None:
    made = open_test_set(script.twins(folder, tmp_path / "made"), tmp_path)
    assert [(q.query_id, q.text, list(made.qrels[q.query_id])) for q in made.queries][:2] == [
        ("a", "passage a", ["b"]),
        ("b", "passage b", ["c"]),
    ]
