"""Runs keep their order in every tool, and their scores."""

import itertools
import random
from pathlib import Path

import numpy as np
import pytest

from sparta.base.errors import InputError
from sparta.base.records import ScoredPassage
from sparta.data.trec import read_qrels, read_run, with_ties, write_run


def run_of(*scores: float) -> list[ScoredPassage]:
    """Passages whose ids sort the other way round than their ranks."""
    return [ScoredPassage(f"p{10_000 - i}", score) for i, score in enumerate(scores)]


def test_the_six_columns(tmp_path: Path) -> None:
    write_run(tmp_path / "r", [("q1", run_of(3.5, 2.0)), ("q2", []), ("q3", run_of(1.0))], tag="mine")
    assert (tmp_path / "r").read_text() == (
        "q1 Q0 p10000 1 3.5 mine\nq1 Q0 p9999 2 2.0 mine\nq3 Q0 p10000 1 1.0 mine\n"
    )


def test_scores_that_differ_are_written_in_full(tmp_path: Path) -> None:
    scores = [float(np.float32(12.3456789)), 0.1 + 0.2, 1e-7, -5.0]
    write_run(tmp_path / "r", [("q", run_of(*scores))])
    assert [hit.score for hit in read_run(tmp_path / "r")["q"]] == scores


def test_ties_are_lowered_by_the_least_that_single_precision_shows(tmp_path: Path) -> None:
    write_run(tmp_path / "r", [("q", run_of(8.0, 8.0, 8.0, 7.0))])
    scores = [hit.score for hit in read_run(tmp_path / "r")["q"]]
    assert scores == [8.0, 8.0 - 2**-21, 8.0 - 2**-20, 7.0]  # singles below 8 are 2^-21 apart


def test_ties_are_ties_again_for_a_fusion(tmp_path: Path) -> None:
    rankings = {"q": run_of(0.1 + 0.2, 0.1 + 0.2, 0.0, 0.0, 0.0, -5, -7, -7), "tied": run_of(7), "none": []}
    write_run(tmp_path / "r", rankings.items())
    assert read_run(tmp_path / "r")["q"] != rankings["q"]
    assert {**with_ties(read_run(tmp_path / "r")), "none": []} == rankings
    assert with_ties({"none": [], "huge": run_of(1e300, 1e299)})["huge"] == run_of(1e300, 1e299)


def random_scores(rng: random.Random) -> list[float]:
    pool = [rng.uniform(-3, 30) for _ in range(6)] + [0.0, 5.0, 5.0 + 1e-12, 5.0 - 1e-9]
    return sorted(rng.choices(pool, k=rng.randint(1, 60)), reverse=True)


def test_tools_that_sort_by_score_in_single_precision_keep_the_order(tmp_path: Path) -> None:
    rng = random.Random(5)
    for _ in range(30):
        given = run_of(*random_scores(rng))
        write_run(tmp_path / "r", [("q", given)])
        rows = [line.split() for line in (tmp_path / "r").read_text().splitlines()]
        printed = [float(row[4]) for row in rows]
        assert [row[2] for row in rows] == [hit.passage_id for hit in given]
        assert all(np.float32(a) > np.float32(b) for a, b in itertools.pairwise(printed))
        assert np.allclose(printed, [hit.score for hit in given], rtol=1e-5, atol=1e-5)
        assert [hit.passage_id for hit in read_run(tmp_path / "r")["q"]] == [hit.passage_id for hit in given]


def test_trec_eval_sees_the_given_order(tmp_path: Path) -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval")
    write_run(tmp_path / "r", [("q", run_of(*[5.0] * 50))])
    run = {"q": {hit.passage_id: hit.score for hit in read_run(tmp_path / "r")["q"]}}
    relevant = {"q": {"p9997": 1}}  # the fourth
    result = pytrec_eval.RelevanceEvaluator(relevant, {"recip_rank"}).evaluate(run)
    assert result["q"]["recip_rank"] == pytest.approx(1 / 4)


@pytest.mark.parametrize("scores", [(1.0, 2.0), (float("nan"),), (float("inf"),), (1.0, float("nan"))])
def test_scores_that_are_no_ranking(tmp_path: Path, scores: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="descending"):
        write_run(tmp_path / "r", [("q", run_of(*scores))])


@pytest.mark.parametrize(
    ("query_id", "passage_ids", "tag", "message"),
    [
        ("q 1", ["p"], "t", "query id 'q 1'"),
        ("q", ["a b"], "t", "passage id 'a b'"),
        ("q", ["a\u00a0b"], "t", "passage id"),
        ("q", [""], "t", "passage id ''"),
        ("q", ["p"], "a tag", "tag 'a tag'"),
        ("q", ["p", "p"], "t", "'p' appears twice"),
    ],
)
def test_what_a_run_cannot_hold(
    tmp_path: Path, query_id: str, passage_ids: list[str], tag: str, message: str
) -> None:
    (tmp_path / "r").write_text("old")
    with pytest.raises(InputError, match=message) as caught:
        write_run(tmp_path / "r", [(query_id, [ScoredPassage(p, 1.0) for p in passage_ids])], tag)
    assert caught.value.remedy
    assert (tmp_path / "r").read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["r"]


def test_a_repeated_query(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'q' appears twice"):
        write_run(tmp_path / "r", [("q", run_of(1.0)), ("q", run_of(1.0))])


def test_reading_sorts_by_score_and_keeps_ties_in_order(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("q Q0 b 9 1.0 t\nq2 Q0 b 1 1 t\nq  Q0\ta 1 1 t\nq Q0 c 1 2e0 t\n")
    found = read_run(tmp_path / "r")
    assert list(found) == ["q", "q2"]
    assert found["q"] == [("c", 2.0), ("b", 1.0), ("a", 1.0)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q Q0 a 1 1.0", "found 5"),
        ("q Q0 a 1 1.0 t more", "found 7"),
        ("q Q0 a 1 high t", "'high'"),
        ("q Q0 a 1 nan t", "'nan'"),
        ("q Q0 z 1 1.0 t", "'z' appears twice for the query 'q'"),
    ],
)
def test_bad_runs(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "r").write_text(f"q Q0 z 1 1.0 t\n\n{line}\n")
    with pytest.raises(InputError, match=message) as caught:
        read_run(tmp_path / "r")
    assert caught.value.where == f"{tmp_path / 'r'}:3"


@pytest.mark.parametrize("reader", [read_run, read_qrels])
def test_missing_and_empty(tmp_path: Path, reader: object) -> None:
    assert callable(reader)
    with pytest.raises(InputError, match="no such file"):
        reader(tmp_path / "absent")
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(InputError, match="empty file"):
        reader(tmp_path / "empty")


def test_qrels_of_beir_and_of_trec(tmp_path: Path) -> None:
    (tmp_path / "beir").write_text("query-id\tcorpus-id\tscore\nq1\ta b\t1\nq1\tc\t0\nq2\ta\t2\n")
    assert read_qrels(tmp_path / "beir") == {"q1": {"a b": 1, "c": 0}, "q2": {"a": 2}}
    (tmp_path / "trec").write_text("q1 0 a 1\nq1\t0\tc\t-1\nq2 0 a 2\n")
    assert read_qrels(tmp_path / "trec") == {"q1": {"a": 1, "c": -1}, "q2": {"a": 2}}


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        ("q1\ta\t1\n", 1, "missing header"),
        ("query-id\tcorpus-id\tscore\nq1\ta\n", 2, "found 2"),
        ("query-id\tcorpus-id\tscore\nq1\t\t1\n", 2, "found 2"),
        ("query-id\tcorpus-id\tscore\nq1\ta\t0.5\n", 2, "'0.5'"),
        ("q1 0 a 1\nq1 0 a\n", 2, "found 3"),
        ("q1 0 a 1\nq1 0 a 1\n", 2, "appears twice"),
        ("q1 0 a yes\n", 1, "'yes'"),
    ],
)
def test_bad_qrels(tmp_path: Path, content: str, line: int, message: str) -> None:
    (tmp_path / "qrels").write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        read_qrels(tmp_path / "qrels")
    assert caught.value.where == f"{tmp_path / 'qrels'}:{line}"


def test_qrels_with_a_header_only(tmp_path: Path) -> None:
    (tmp_path / "qrels").write_text("query-id\tcorpus-id\tscore\n")
    with pytest.raises(InputError, match="empty file"):
        read_qrels(tmp_path / "qrels")
