"""Measures worked by hand: answer recall, the best ranking, depths, grades, names."""

from __future__ import annotations

import pytest

from hybrid.evaluation.measures import (
    Evaluation,
    against_best,
    evaluate,
    holm,
    parse_measures,
    split_measures,
)
from hybrid.evaluation.rankings import Holds, Retrieved, answer_recall, depth_of
from hybrid.evaluation.testsets import QuestionSet
from hybrid.evidence.measures import Gold
from hybrid.retrieval.fusion import Fusion
from sparta.base.errors import InputError
from sparta.base.records import Hit, Query, ScoredPassage


def ranking(*passage_ids: str) -> list[ScoredPassage]:
    return [ScoredPassage(i, -float(n)) for n, i in enumerate(passage_ids)]


def test_answer_recall_at_its_borders() -> None:
    """Answers at places 1, 2 and 3, in no passage, and of a question that the run lacks."""
    texts = {"yes": "the answer", "no": "nothing"}
    answers = dict.fromkeys(("first", "second", "third", "never", "absent"), ("answer",))
    run = {
        "first": ranking("yes", "no", "no"),
        "second": ranking("no", "yes"),
        "third": ranking("no", "no", "yes"),
        "never": ranking("no"),
    }
    found = answer_recall("x", run, Holds(answers, lambda _, i: texts[i]), ks=(1, 2, 3))
    assert found.per_query["answer_recall@1"] == {q: float(q == "first") for q in answers}
    assert found.per_query["answer_recall@2"] == {q: float(q in ("first", "second")) for q in answers}
    assert found.mean("answer_recall@3") == pytest.approx(3 / 5)


def test_the_best_is_what_has_the_highest_mean() -> None:
    values = {"low": [0.1, 0.2, 0.1, 0.3], "high": [0.9, 0.8, 1.0, 0.7], "middle": [0.5, 0.6, 0.4, 0.5]}
    ran = [Evaluation(name, {"RR": dict(zip("abcd", own, strict=True))}) for name, own in values.items()]
    best, p = against_best(ran, "RR")
    assert best.name == "high"
    assert p.keys() == {"low", "middle"}
    best, p = against_best(ran, "RR", among=ran[::2])
    assert best.name == "middle"
    assert p.keys() == {"low", "high"}


def test_holms_correction() -> None:
    """0.01 · 3, 0.04 · 2, then not below what came before; at most 1."""
    assert holm([0.04, 0.01, 0.05]) == pytest.approx([0.08, 0.03, 0.08])
    assert holm([0.6, 0.9]) == [1.0, 1.0]


@pytest.mark.parametrize(
    ("candidates", "measure", "depth"),
    [(100, "", 100), (300, "", 300), (10, "RR", 100), (10, "nDCG@500", 500)],
)
def test_rankings_are_as_deep_as_what_is_measured(candidates: int, measure: str, depth: int) -> None:
    assert depth_of(Fusion(candidates=candidates), measure) == depth


def test_questions_with_negative_judgments_alone() -> None:
    """As TREC's web tracks have them; pytrec_eval would end the process."""
    measures = ["RR", "RR@3", "nDCG@5", "R@5", "AP", "P@5", "Success@2", "Rprec", "Bpref", "nDCG", "Judged@2"]
    qrels = {"spam": {"d2": -1}, "one": {"d1": 1, "d2": -2}}
    run = {q: [ScoredPassage("d2", 2.0), ScoredPassage("d1", 1.0)] for q in qrels}
    found = evaluate("run", run, qrels, measures).per_query
    assert (found["RR"], found["Success@2"]) == ({"spam": 0.0, "one": 0.5}, {"spam": 0.0, "one": 1.0})
    assert found["Judged@2"] == {"spam": 0.5, "one": 1.0}


def test_evidence_that_the_index_lacks_is_never_found() -> None:
    """In measures of ranks too: questions without any of it in the index count 0, and do not vanish."""
    units = {"1": ("a",), "2": ("gone",), "3": ("a", "gone")}
    sets = {q: (frozenset(frozenset((i, f"{i}, copy")) for i in own),) for q, own in units.items()}
    asked = tuple(Query(q, "who") for q in units)
    questions = QuestionSet("kilt", asked, {"1": {"a": 1}, "3": {"a": 1}}, gold=Gold({}, sets))
    run = {q: [ScoredPassage("a", 1.0)] for q in units}
    retrieved = Retrieved(questions, {"x": run}, Holds({}, lambda *_: ""), lambda _, i: Hit(i, 0.0))
    found = retrieved.measured("x", run, ["RR", "R@20"]).per_query
    assert found == {"RR": {"1": 1.0, "2": 0.0, "3": 1.0}, "R@20": {"1": 1.0, "2": 0.0, "3": 0.5}}


@pytest.mark.parametrize("name", ["NumRet", "NumRel", "NumQ", "Accuracy"])
def test_counts_are_no_shares(name: str) -> None:
    with pytest.raises(InputError, match="unknown or unsupported measure"):
        parse_measures([name])


@pytest.mark.parametrize("measure", ["ERR@10", "nDCG(dcg='exp-log2')@5"])
def test_grades_that_a_measure_refuses(measure: str) -> None:
    run = {"q": [ScoredPassage("p", 1.0)]}
    assert evaluate("x", run, {"q": {"p": 4}}, [measure]).mean(measure) > 0
    with pytest.raises(InputError, match="accepts grades up to 4, found 5") as caught:
        evaluate("x", run, {"other": {"p": 0}, "q": {"p": 5}}, ["RR", measure])
    assert caught.value.where == "judgments of query q"


def test_commas_in_parentheses_belong_to_a_measure() -> None:
    names = ["RR", "P(rel=2,judged_only=True)@5", " nDCG(gains={0:0,1:2},judged_only=True)@10"]
    assert split_measures(",".join(names)) == names
    assert split_measures("RR,") == ["RR", ""]
