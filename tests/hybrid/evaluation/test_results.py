"""Tables fit a terminal, and the result of a fusion is said in words."""

from __future__ import annotations

import pytest

from hybrid.evaluation.measures import Evaluation
from hybrid.evaluation.results import SetResults, results_table, verdict
from hybrid.evaluation.tables import Table


def test_a_wide_table_is_split_and_its_rows_keep_their_names() -> None:
    measures = [f"answer_recall@{10**i}" for i in range(6)]
    header = ["set", "channel", *(name for measure in measures for name in (measure, "±"))]
    rows = [[name, channel, *[12.5, 1.0] * 6] for name in ("a", "b") for channel in ("bm25", "impact")]
    table = Table(header, rows, n_names=2)
    first, second = (part.splitlines() for part in table.write("text").split("\n\n"))
    assert max(map(len, [*first, *second])) <= 100
    assert [line.split()[:2] for line in first] == [line.split()[:2] for line in second]
    assert [*first[0].split(), *second[0].split()[2:]] == header, "an interval follows its measure"
    assert first[0].endswith("±")
    assert second[0].endswith("±")
    assert len(table.write("csv").splitlines()) == 5
    same = Table(header, rows[:2], n_names=2).write("text").splitlines()
    assert (same[0], same[1].split()[0]) == ("set: a", "channel"), "the only set is named once"


def test_long_names_and_notes_take_several_lines() -> None:
    runs = [f"/home/somebody/{'runs/' * 20}{name}.trec" for name in "ab"]
    table = Table(
        ["set", "run", "RR", "note"], [["s", run, 1.0, "many words " * 9] for run in runs], n_names=2
    )
    lines = table.write("text").splitlines()
    assert max(map(len, lines)) <= 100
    assert "a.trec" in "".join(lines)
    assert sum(line.count("many") for line in lines) == 18
    assert Table(["set", "RR"], []).write("text") == "set  RR"


def test_whether_a_fusion_is_better_in_words() -> None:
    def ranking(name: str, first: float, others: float = 0.5) -> Evaluation:
        return Evaluation(name, {"RR": {str(i): others + i / 1000 if i else first for i in range(50)}})

    single, bad, lucky, good, great = (
        ranking("impact", 0.5),
        ranking("dense + bm25", 0.5, 0.4),
        ranking("dense + impact", 0.9),
        ranking("impact + bm25", 0.5, 0.6),
        ranking("dense + impact + bm25", 0.5, 0.7),
    )

    def words(*fusions: Evaluation) -> str:
        names = [fusion.name for fusion in fusions]
        return verdict(SetResults("s", [single, *fusions], fused=[*names, "chain"]), names)

    assert words(bad) == (
        "The fusion is not better than the best channel: RR 42.65 (dense + bm25) against 52.45 (impact)"
    )
    assert words(bad, ranking("dense + impact", 0.5)).startswith(
        "No fusion is better than the best channel: RR"
    )
    assert words(bad, lucky) == (
        "No fusion is significantly better than the best channel: RR 53.25 (dense + impact)"
        " against 52.45 (impact)"
    )
    assert words(lucky, good, bad).startswith(
        "A fusion is significantly better than the best channel: RR 62.25 (impact + bm25) against"
    )
    assert words(good, great).startswith("2 fusions are significantly better than the best channel: RR 72.05")
    assert words() == ""


def test_means_are_over_the_sets_that_have_the_ranking() -> None:
    """A ranking that a set lacks has a mean over the other sets, which the row names."""

    def results(name: str, **means: float) -> SetResults:
        return SetResults(name, [Evaluation(model, {"RR": {"q": value}}) for model, value in means.items()])

    sets = [results("a", bm25=0.5, few=0.2), results("b", bm25=0.7, few=0.6), results("zsre", bm25=0.9)]
    rows = [row[:3] for row in results_table(sets, ["RR"]).rows[-2:]]
    assert rows == [["mean", "bm25", pytest.approx(70.0)], ["mean of a, b", "few", pytest.approx(40.0)]]
