"""Tuning, on channels that are made up: every figure is worked out again the slow way."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from statistics import fmean
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from hybrid.evaluation.compare import compare, timed, with_macro
from hybrid.evaluation.measures import can_measure, evaluate
from hybrid.evaluation.results import results_table
from hybrid.evaluation.tables import Table
from hybrid.evaluation.testsets import QuestionSet
from hybrid.evaluation.tune import (
    ALPHAS,
    Fold,
    Setting,
    Tuned,
    best_fusion,
    channel_table,
    cross_validate,
    fold_of,
    fold_table,
    measure_for,
    parse_alphas,
    tune,
    tune_table,
    verdict,
)
from hybrid.retrieval.channels import Channels
from hybrid.retrieval.fusion import Fusion
from sparta.base.errors import InputError
from sparta.base.records import Query, Ranking, ScoredPassage
from sparta.base.remedies import Option
from sparta.rerank.reranked import Reranking

PASSAGES = [f"p{i}" for i in range(30)]


def made_up(
    seed: int, questions: int, answers: bool = False
) -> tuple[QuestionSet, dict[str, dict[str, Any]]]:
    """Questions, and of each channel a noisy guess which passage is the right one."""
    rng = random.Random(seed)
    qrels = {f"q{seed}-{i}": {rng.choice(PASSAGES): 1} for i in range(questions)}
    known = {q: tuple(f"answer of {p}" for p in judged) if answers else () for q, judged in qrels.items()}
    runs: dict[str, dict[str, Any]] = {}
    for name, strength in (("bm25", 1.5), ("impact", 1.2), ("dense", 0.9)):
        runs[name] = {}
        for q, judged in qrels.items():
            scores = {p: rng.gauss(strength if p in judged else 0, 1) for p in rng.sample(PASSAGES, 25)}
            best = sorted(scores, key=lambda p: -scores[p])
            runs[name][q] = [ScoredPassage(p, scores[p]) for p in best]
    asked = QuestionSet(f"set{seed}", tuple(Query(q, f"text of {q}", known[q]) for q in qrels), qrels)
    return asked, runs


class Made(Channels):
    """Channels that have a run for each question; `calls` counts how often each was searched for one."""

    def __init__(self, *sets: Mapping[str, Mapping[str, Any]], names: tuple[str, ...]) -> None:
        self.runs = {n: {q: r for runs in sets for q, r in runs[n].items()} for n in names}
        self.calls = 0
        self.searchers = {
            n: SimpleNamespace(
                search=partial(self._found, n), records=self.records, language="en", unit="passage"
            )
            for n in names
        }

    def _found(self, name: str, text: str, k: int) -> Ranking:
        ranking = self.runs[name][text.removeprefix("text of ")][:k]
        ids = [p.passage_id for p in ranking]
        return Ranking(ids, [int(i[1:]) for i in ids], [p.score for p in ranking])

    def search(self, text: str, k: int, names: Any = None) -> dict[str, Ranking]:
        return {n: self._found(n, text, k) for n in names or self.runs}

    def batch_search(
        self, texts: Any, k: int, threads: int = 1, names: Any = None, **_: Any
    ) -> dict[str, list[Ranking]]:
        self.calls += 1
        return {n: [self._found(n, text, k) for text in texts] for n in names or self.runs}

    def records(self, docids: Any) -> list[dict[str, Any]]:
        return [{"text": f"the answer of p{docid} is here"} for docid in docids]

    def holding(self) -> Any:
        return nullcontext()

    def channels(self) -> Channels:
        return cast(Channels, self)


def slow(
    asked: QuestionSet, runs: Any, weights: dict[str, float], measure: str = "RR", candidates: int = 100
) -> dict[str, float]:
    """The measure of each question, fused anew."""
    own = {n: {q.query_id: runs[n][q.query_id] for q in asked.queries} for n in weights}
    fusion = Fusion(weights, candidates=candidates)
    return dict(evaluate("", fusion.fuse_runs(own), asked.qrels, [measure]).per_query[measure])


def test_the_mean_over_the_sets_decides() -> None:
    (one, runs), (two, others) = made_up(1, 40), made_up(2, 25)
    made = Made(runs, others, names=("impact", "bm25"))
    found = tune(made.channels(), [one, two], Fusion({"impact": 1.0, "bm25": 9.0}), "RR")
    assert made.calls == 2, "each set is searched once"
    means = {}
    for alpha in ALPHAS:
        weights = {"impact": 1.0, "bm25": alpha}
        expected = [fmean(slow(s, r, weights).values()) for s, r in ((one, runs), (two, others))]
        assert list(found.means[Setting((alpha,), 100)]) == pytest.approx(expected)
        means[alpha] = fmean(expected)
    best = max(ALPHAS, key=lambda alpha: (round(means[alpha], 12), -alpha))
    assert found.best == Setting((best,), 100)
    assert found.folds == []
    assert best_fusion(Fusion({"impact": 1.0, "bm25": 9.0}), found).weights == {"impact": 1.0, "bm25": best}
    table = tune_table(found)
    assert list(table.header) == ["weight of bm25", "set1 RR", "set2 RR", "mean", "note"]
    assert [row[3] for row in table.rows[:16]] == pytest.approx([100 * means[alpha] for alpha in ALPHAS])
    assert [row[0] for row in table.rows if row[-1].startswith("best")] == [best]
    alone = {name: [] for name in ("impact", "bm25")}
    for asked, own in ((one, runs), (two, others)):
        for name in alone:
            alone[name].append(100 * fmean(slow(asked, own, {name: 1.0}).values()))
    for row, (name, own) in zip(table.rows[-2:], alone.items(), strict=True):
        assert list(row[1:-1]) == pytest.approx([*own, fmean(own)])
        better = fmean(own) > 100 * max(means.values())
        assert row[-1] == f"{name} alone" + (": better than the best fusion" if better else "")


def test_what_is_said_of_the_best_weight() -> None:
    """At the end of what was tried, another may be better; and so may one channel alone."""

    def notes(values: dict[float, float], alone: float) -> list[str]:
        means = {Setting((alpha,), 100): [value] for alpha, value in values.items()}
        table = tune_table(Tuned(["bm25"], "RR", ["x"], means, singles={"dense": [alone]}))
        return [str(row[-1]) for row in table.rows]

    assert notes({0.5: 0.1, 1.0: 0.3, 2.0: 0.2}, 0.3) == ["", "best", "", "dense alone"]
    assert notes({0.5: 0.4, 1.0: 0.3}, 0.5) == [
        "best (bm25: the lowest value tried)",
        "",
        "dense alone: better than the best fusion",
    ]
    assert notes({0.5: 0.2, 1.0: 0.3}, 0.1)[1] == "best (bm25: the highest value tried)"


def test_cross_validation_by_hand() -> None:
    """Two weights. In each fold counts what the other folds like better."""
    questions = [f"q{i}" for i in range(60)]
    folds = [[q for q in questions if fold_of(q) == f] for f in range(5)]
    assert all(folds), "every fold has some"
    here = folds[0]
    low = {q: 1.0 if q in here else 0.4 for q in questions}
    high = {q: 0.0 if q in here else 0.5 for q in questions}
    mild, strong = Setting((0.5,), 100), Setting((2.0,), 100)
    for_all = {mild: fmean(low.values()), strong: fmean(high.values())}
    found = cross_validate({mild: low, strong: high})
    assert [fold.number for fold in found] == [1, 2, 3, 4, 5]
    assert found[0].setting == strong, "the others know nothing of the first fold"
    assert set(found[0].values.values()) == {0.0}
    share = len(here) / (len(questions) - len(folds[1]))
    second = mild if share * 1.0 + (1 - share) * 0.4 >= (1 - share) * 0.5 else strong
    assert found[1].setting == second
    tuned = Tuned(["bm25"], "RR", ["x"], {s: [m] for s, m in for_all.items()}, found)
    assert tuned.cross_validated == pytest.approx(
        fmean((low if fold.setting == mild else high)[q] for fold in found for q in fold.values)
    )
    assert tuned.cross_validated < max(for_all.values())
    assert sorted(q for fold in found for q in fold.values) == sorted(questions)
    assert cross_validate({mild: {"q0": 1.0}}) == [], "one question is no five folds"


def test_one_set_is_cross_validated() -> None:
    asked, runs = made_up(3, 50)
    made = Made(runs, names=("dense", "bm25"))
    found = tune(made.channels(), [asked], Fusion({"dense": 1.0, "bm25": 1.0}), "nDCG@10")
    by_alpha = {a: slow(asked, runs, {"dense": 1.0, "bm25": a}, "nDCG@10") for a in ALPHAS}
    values = []
    for fold in found.folds:
        inside = [q for q in runs["bm25"] if fold_of(q) == fold.number - 1]
        outside = [q for q in runs["bm25"] if fold_of(q) != fold.number - 1]
        means = {a: fmean(own[q] for q in outside) for a, own in by_alpha.items()}
        assert means[fold.setting.weights[0]] == pytest.approx(max(means.values()))
        assert fold.values == pytest.approx({q: by_alpha[fold.setting.weights[0]][q] for q in inside})
        values += fold.values.values()
    assert len(values) == 50
    rows = tune_table(found).rows
    assert [row[-1] for row in rows[16:22]] == [
        *(f"fold {i} of 5, setting chosen on the other folds" for i in range(1, 6)),
        "cross-validated: mean over the questions of all folds",
    ]
    assert rows[21][1] == pytest.approx(100 * fmean(values))
    assert tune_table(found, only_settings=True).rows == rows[:16], "text shows the other rows below"
    folds = fold_table(found)
    assert list(folds.header) == ["fold", "questions", "weight of bm25", "nDCG@10"]
    assert [row[2:] for row in folds.rows] == [row[:2] for row in rows[16:22]]
    assert [row[0] for row in folds.rows] == [*"12345", "all"]
    sizes = [len(fold.values) for fold in found.folds]
    assert [row[1] for row in folds.rows] == [*sizes, 50]
    assert [row[1] for row in channel_table(found).rows] == [row[1] for row in rows[22:]]


def test_whether_the_best_fusion_is_better() -> None:
    means = {Setting((0.5,), 100): [0.5, 0.7]}
    worse = Tuned(["bm25"], "RR", ["x", "y"], means, singles={"bm25": [0.1, 0.2], "impact": [0.6, 0.6]})
    here = "On the questions that chose its setting, the best fusion is"
    assert verdict(worse) == f"{here} not better than the best channel: mean RR 60.00 against 60.00 (impact)"
    setting = Setting((0.5,), 100)
    better = Tuned(["bm25"], "RR", ["x"], {setting: [0.5]}, singles={"bm25": [0.25]})
    assert verdict(better) == f"{here} better than the best channel: RR 50.00 against 25.00 (bm25)"
    chosen_elsewhere = replace(better, folds=[Fold(1, setting, {"q": 0.2})])
    message = (
        "In cross-validation, the fusion is not better than the best channel: RR 20.00 against 25.00 (bm25)"
    )
    assert verdict(chosen_elsewhere) == message
    assert tune_table(chosen_elsewhere).rows[-1][-1] == "bm25 alone: better than the cross-validated fusion"


def test_as_deep_as_is_measured() -> None:
    """A recall at 200 of rankings of 100 would be one at 100."""
    depths: list[int] = []

    class Measured(Made):
        def batch_search(self, texts: Any, k: int, threads: int = 1) -> Any:
            depths.append(k)
            return super().batch_search(texts, k, threads)

    asked, runs = made_up(4, 20, answers=True)
    made = Measured(runs, names=("dense", "bm25"))
    for measure in ("answer_recall@200", "R@50", "RR"):
        tune(made.channels(), [asked], Fusion({"dense": 1.0, "bm25": 1.0}), measure)
    assert depths == [200, 100, 100]
    tune(made.channels(), [asked], Fusion({"dense": 1.0, "bm25": 1.0}), "RR", candidates=[300, 20])
    assert depths[3:] == [300]


def test_two_weights_each_with_each() -> None:
    asked, runs = made_up(4, 20)
    made = Made(runs, names=("dense", "bm25", "impact"))
    fusion = Fusion({"dense": 1.0, "bm25": 1.0, "impact": 1.0})
    found = tune(made.channels(), [asked], fusion, "RR", ["bm25", "impact"], [0.5, 1.0, 2.0])
    assert len(found.means) == 9
    for ((a, b), _), [mean] in found.means.items():
        assert mean == pytest.approx(
            fmean(slow(asked, runs, {"dense": 1.0, "bm25": a, "impact": b}).values())
        )
    table = tune_table(found)
    assert list(table.header) == ["weight of bm25", "weight of impact", "RR", "note"]
    assert [row[0] for row in table.rows[:3]] == [0.5, 1.0, 2.0]
    for row, a in zip(table.rows[:3], (0.5, 1.0, 2.0), strict=True):
        assert row[2] == pytest.approx(100 * max(m for ((w, _), _), [m] in found.means.items() if w == a))


@pytest.mark.slow
def test_candidates_are_tuned_with_the_weights() -> None:
    """Each number with each weight, of one search; the table names them, and so does what is chosen."""
    asked, runs = made_up(8, 40)
    made = Made(runs, names=("dense", "bm25"))
    fusion = Fusion({"dense": 1.0, "bm25": 1.0})
    found = tune(made.channels(), [asked], fusion, "RR", alphas=[0.5, 1.0], candidates=[20, 3, 20])
    assert made.calls == 1
    assert sorted(found.means) == [((a,), k) for a in (0.5, 1.0) for k in (3, 20)]
    for ((alpha,), k), [mean] in found.means.items():
        expected = slow(asked, runs, {"dense": 1.0, "bm25": alpha}, candidates=k)
        assert mean == pytest.approx(fmean(expected.values()))
    assert len({round(mean, 9) for [mean] in found.means.values()}) == 4, "they differ"
    best = max(found.means, key=lambda setting: found.means[setting][0])
    assert found.best == best
    assert best_fusion(fusion, found) == Fusion(
        {"dense": 1.0, "bm25": best.weights[0]}, candidates=best.candidates
    )
    table = tune_table(found)
    assert list(table.header) == ["weight of bm25", "candidates", "RR", "note"]
    for row, alpha in zip(table.rows[:2], (0.5, 1.0), strict=True):
        expected_row = max((m, k) for ((a,), k), [m] in found.means.items() if a == alpha)
        assert (row[0], row[1]) == (alpha, expected_row[1])
        assert row[2] == pytest.approx(100 * expected_row[0])
    [note] = [str(row[-1]) for row in table.rows if str(row[-1]).startswith("best")]
    end = "lowest" if best.candidates == 3 else "highest"
    assert f"candidates: the {end} value tried" in note
    for fold, row in zip(found.folds, table.rows[2:7], strict=True):
        outside = [q for q in runs["bm25"] if fold_of(q) != fold.number - 1]
        by_setting = {
            (a, k): fmean(slow(asked, runs, {"dense": 1.0, "bm25": a}, candidates=k)[q] for q in outside)
            for (a,), k in found.means
        }
        (alpha,), k = fold.setting
        assert by_setting[alpha, k] == pytest.approx(max(by_setting.values()))
        assert row[1] == k
    alone = tune(made.channels(), [asked], Fusion({"dense": 1.0, "bm25": 1.0}, candidates=7), "RR")
    assert {setting.candidates for setting in alone.means} == {7}, "the fusion's own"


def test_weights_to_try_as_text() -> None:
    assert parse_alphas("0.5:2:0.1") == ALPHAS
    assert parse_alphas("0.1:0.3:0.05") == (0.1, 0.15, 0.2, 0.25, 0.3)
    assert parse_alphas("0.1:0.35:0.1") == (0.1, 0.2, 0.3)
    assert parse_alphas("1:1:1") == parse_alphas("1, 1") == (1.0,)
    assert parse_alphas("2,0.5") == (0.5, 2.0)
    wrong = ["", "a", "0.5:2", "0:1:0", "0:1:-1", "2:1:0.1", "nan", "inf", "0:inf:1", "0:nan:1", "0:1:nan"]
    for text in [*wrong, "0:1:0.0001", "0:1:1e-320", "1:2:3:4", ",".join(map(str, range(1001)))]:
        with pytest.raises(InputError, match="expected up to 1,000 weights"):
            parse_alphas(text)
    assert parse_alphas("0:0.003:0.001") == (0.0, 0.001, 0.002, 0.003)
    assert parse_alphas("1e-10:3e-10:1e-10") == (1e-10, 2e-10, 3e-10)
    means = {Setting((weight,), 100): [0.5] for weight in (0.25, 1.0, 0.1234567, 1e300)}
    table = tune_table(Tuned(["bm25"], "RR", ["x"], means))
    assert [line.split()[0] for line in table.write("text").splitlines()[1:]] == [
        *("0.25", "1.0", "0.1234567", "1e+300")
    ]
    assert [row["weight of bm25"] for row in json.loads(table.write("json"))] == [0.25, 1.0, 0.1234567, 1e300]
    assert [line.split(",")[0] for line in table.write("csv").splitlines()[1:]] == [
        *("0.25", "1.0", "0.1234567", "1e+300")
    ]


def test_of_equal_settings_the_smallest_is_best() -> None:
    means = {Setting((w,), k): [0.5] for w in (1.0, 0.5) for k in (100, 20)}
    assert Tuned(["bm25"], "RR", ["x"], means).best == ((0.5,), 20)


def test_more_settings_than_can_be_measured() -> None:
    asked, runs = made_up(1, 3)
    made = Made(runs, names=("dense", "bm25", "impact"))
    fusion = Fusion({"dense": 1.0, "bm25": 1.0, "impact": 1.0})
    alphas = parse_alphas("0:1:0.01")
    with pytest.raises(InputError, match="the grid has 20,402 settings; at most 20,000 can be measured"):
        tune(made.channels(), [asked], fusion, "RR", ["bm25", "impact"], alphas, candidates=[5, 10])
    assert made.calls == 0


def test_what_is_tuned_for() -> None:
    judged, answered = made_up(1, 3)[0], QuestionSet("x", (Query("1", "q", ("a",)),))
    assert measure_for([judged]) == "RR"
    assert measure_for([judged, answered]) == "answer_recall@20"
    made = Made(made_up(1, 3)[1], names=("impact", "bm25"))
    for sets, measure in (([answered], "RR"), ([answered, judged], "answer_recall@20")):
        with pytest.raises(InputError, match=f"{measure} needs"):
            tune(made.channels(), sets, Fusion(), measure)


def test_tuning_by_answers() -> None:
    asked, runs = made_up(5, 30, answers=True)
    made = Made(runs, names=("impact", "bm25"))
    found = tune(made.channels(), [asked], Fusion(), "answer_recall@3")
    for ((alpha,), _), [mean] in found.means.items():
        assert mean == pytest.approx(
            fmean(slow(asked, runs, {"impact": 1.0, "bm25": alpha}, "Success@3").values())
        ), "the right passage is the one that holds the answer"


def rows_of(table: Table) -> dict[str, dict[str, Any]]:
    return {str(row[1]): dict(zip(table.header, row, strict=True)) for row in table.rows}


def test_the_rows_of_a_comparison() -> None:
    asked, runs = made_up(6, 60, answers=True)
    made = Made(runs, names=("bm25", "impact", "dense"))
    fusions = [Fusion({"dense": 1.0, "bm25": 1.2}), Fusion({"impact": 1.0, "bm25": 1.2})]
    compared = compare(made.channels(), asked, fusions)
    assert not compared.ms
    assert made.calls == 1, "each channel is searched once for all fusions"
    compared = timed(compared, made.channels(), asked, fusions)
    rows = rows_of(results_table([compared]))
    assert list(rows) == ["bm25", "impact", "dense", "dense + 1.2·bm25", "impact + 1.2·bm25"]
    for name, row in rows.items():
        weights = {name: 1.0} if name in runs else {name.split(" ")[0]: 1.0, "bm25": 1.2}
        for measure, column in (("RR", "RR"), ("nDCG@10", "nDCG@10"), ("Success@20", "answer_recall@20")):
            assert row[column] == pytest.approx(100 * fmean(slow(asked, runs, weights, measure).values()))
    best = max(runs, key=lambda name: rows[name]["RR"])
    for name, row in rows.items():
        assert (row["p (RR)"] == "") == (name == best)
        shown = row["p (RR)"]
        way = "↑" if row["RR"] > rows[best]["RR"] else "↓"
        number, star, after = shown.partition("*")
        assert not shown or star + after == ("*" + way if float(number.lstrip("<")) < 0.05 else "")
    assert any("*" in row["p (RR)"] for row in rows.values())
    assert all(row["ms/query"] > 0 for row in rows.values())


def test_macro_and_micro_by_hand() -> None:
    asked, runs = made_up(7, 4, answers=True)
    ids = [q.query_id for q in asked.queries]
    asked = QuestionSet(
        "e", asked.queries, asked.qrels, groups=dict(zip(ids, ["P1", "P2", "P2", "P2"], strict=True))
    )
    made = Made(runs, names=("bm25", "impact"))
    micro, macro = with_macro(compare(made.channels(), asked, [Fusion()]), asked)
    assert (micro.name, macro.name) == ("e (micro)", "e (macro)")
    for own, grouped in zip(micro.evaluations, macro.evaluations, strict=True):
        values = [own.per_query["RR"][q] for q in ids]
        assert own.mean("RR") == pytest.approx(sum(values) / 4)
        assert grouped.per_query["RR"] == pytest.approx({"P1": values[0], "P2": sum(values[1:]) / 3})
        assert grouped.mean("RR") == pytest.approx((values[0] + sum(values[1:]) / 3) / 2)
    assert len(results_table([micro, macro]).rows) == 6


@pytest.mark.parametrize(
    ("measure", "said", "other"),
    [
        ("path_recall@20", "path_recall@20", "passage_Rprec"),
        ("page_Rprec", "page_Rprec needs KILT's provenance", "RR"),
        ("answer_recall@20", "answer_recall@20 needs answers", "RR"),
    ],
)
def test_measures_that_a_set_cannot_be_tuned_for(measure: str, said: str, other: str) -> None:
    one = QuestionSet("set", (Query("1", "who"),), {"1": {"a": 1}})
    no_channels: Any = None
    with pytest.raises(InputError, match=said) as raised:
        tune(no_channels, [one], Fusion(), measure)
    assert raised.value.remedy.options == [Option("measure", other)]


def test_judgments_without_a_right_passage_measure_no_evidence() -> None:
    none = QuestionSet("set", (Query("1", "who"),), {"1": {"a": 0}})
    assert not can_measure(none, "passage_Rprec")
    assert can_measure(none, "RR")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sets": []}, "no set of questions is named"),
        ({"alphas": []}, "no weight to try is named"),
        ({"alphas": ["1"]}, "weights must be numbers"),
        ({"tuned": []}, "no channel to tune is named"),
        ({"tuned": ("nope",)}, "cannot tune the channel 'nope'"),
        ({"tuned": "bm25"}, "a list of channels to tune, found str"),
        ({"candidates": [0]}, "candidates must be at least 1"),
        ({"measure": "foo"}, "unknown or unsupported measure 'foo'"),
        ({"measure": 5}, "a measure must be a string, found 5"),
    ],
)
def test_what_cannot_be_tuned(given: dict[str, Any], said: str) -> None:
    asked, runs = made_up(1, 4)
    usual = {"sets": [asked], "fusion": Fusion(), "measure": "RR"}
    with pytest.raises(InputError, match=said):
        tune(Made(runs, names=("impact", "bm25")).channels(), **{**usual, **given})


@pytest.mark.parametrize("measures", [["foo"], "RR", [None]])
def test_what_cannot_be_compared_by(measures: Any) -> None:
    asked, runs = made_up(1, 4)
    with pytest.raises(
        InputError,
        match=r"(unsupported measure|expected a list of measures|no measure is named|must be a string)",
    ):
        compare(Made(runs, names=("impact", "bm25")).channels(), asked, [], measures=measures)


def test_fusions_that_differ_in_their_candidates_alone() -> None:
    asked, runs = made_up(1, 40)
    fusions = [Fusion(candidates=k) for k in (2, 100)]
    found = compare(Made(runs, names=("impact", "bm25")).channels(), asked, fusions, measures=["RR"])
    names = ["impact + bm25 (2 candidates)", "impact + bm25 (100 candidates)"]
    assert list(found.fused) == names
    values = {one.name: one.per_query["RR"] for one in found.evaluations}
    for name, k in zip(names, (2, 100), strict=True):
        assert values[name] == slow(asked, runs, dict(Fusion().weights), candidates=k)


def test_hits_below_the_measured_ones_are_reranked(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    asked, runs = made_up(1, 20)
    texts = {
        f"text of {q}": f"the answer of {next(iter(judged))} is here" for q, judged in asked.qrels.items()
    }
    reranker = SimpleNamespace(
        scores=lambda queries, read: np.array([texts[q] == t for q, t in zip(queries, read, strict=True)])
    )
    monkeypatch.setattr("sparta.rerank.reranked.open_reranker", lambda _: reranker)
    channels = Made(runs, names=("bm25",)).channels()
    exact = {"exact": lambda k: ({q: own[::-1][:k] for q, own in runs["bm25"].items()}, 1.0)}
    again = Reranking("made", 25)
    cut = compare(channels, asked, [], measures=["R@25"], depth=3, reranking=again, others=exact)
    assert "R@25 needs more than the 3 passages of each ranking: raise -k" in caplog.text
    deep = compare(channels, asked, [], measures=["R@25"], depth=25)
    values = {run.name: run.mean("R@25") for run in cut.evaluations}
    assert list(values) == ["bm25", "exact", "bm25+rerank", "exact+rerank"]
    assert (
        values["bm25"] < values["bm25+rerank"] == values["exact+rerank"] == deep.evaluations[0].mean("R@25")
    )
    assert cut.ms["exact+rerank"] > cut.ms["exact"] == 50
