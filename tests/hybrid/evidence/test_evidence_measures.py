"""R-precision, recall and success of evidence sets, worked by hand, and against the published rule."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from hybrid.evaluation.answering import half_width
from hybrid.evaluation.measures import PAGES, PASSAGES, Evaluation, kind_of
from hybrid.evaluation.results import SetResults, results_table
from hybrid.evidence.measures import (
    EvidenceSets,
    Gold,
    distinct,
    measured,
    r_precision,
)
from sparta.base.records import ScoredPassage


def pages(*outputs: str) -> EvidenceSets:
    """Evidence sets of pages of one letter each: `pages("ab", "c")`."""
    return tuple(frozenset(frozenset(page) for page in output) for output in outputs)


def recall_and_success(ranking: Sequence[str], gold: EvidenceSets, k: int) -> tuple[float, float]:
    run, names = {"q": [ScoredPassage(i, 0.0) for i in ranking]}, (f"page_recall@{k}", f"page_success@{k}")
    found = measured(run, Gold({"q": gold}, {}), names, str)
    return found[names[0]]["q"], found[names[1]]["q"]


@pytest.mark.parametrize(
    ("ranking", "gold", "expected"),
    [
        ("abc", pages("a"), 1.0),
        ("bac", pages("a"), 0.0),  # R = 1: the first place only
        ("axb", pages("ab"), 0.5),  # R = 2: a of a, x
        ("bax", pages("ab"), 1.0),  # in any order
        ("aaab", pages("ab"), 1.0),  # a page counts once, at its first passage
        ("xxab", pages("ab"), 0.5),  # one that is not gold, too
        ("xc", pages("ab", "c"), 0.0),  # the second output has R = 1
        ("cab", pages("ab", "c"), 1.0),  # the best of the outputs
        ("axc", pages("abc", "xb"), 2 / 3),  # a and c of three; of the other, x of two
        ("", pages("a"), 0.0),
        ("a", (), 0.0),
    ],
)
def test_r_precision(ranking: str, gold: EvidenceSets, expected: float) -> None:
    """KILT: |gold among the first R| / R, R of each output, the best output."""
    assert r_precision(ranking, gold) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("ranking", "gold", "k", "recalled", "succeeds"),
    [
        ("xab", pages("ab"), 1, 0.0, 0.0),
        ("xab", pages("ab"), 2, 1.0, 1.0),  # a and b are one place, that of b: x, {a, b}
        ("axb", pages("ab"), 2, 1.0, 1.0),  # the place of a alone is given up: x, {a, b}
        ("axyb", pages("ab"), 2, 0.0, 0.0),
        ("ac", pages("ab", "c"), 2, 0.5, 1.0),
        ("cab", pages("ab", "c"), 2, 1.0, 1.0),
        ("cab", pages("ab", "c", "c", "ba"), 2, 1.0, 1.0),  # equal sets are one
        ("ab", pages("ab", "ac"), 2, 0.5, 1.0),  # a begins both; the second stays incomplete
        ("aaxb", pages("ab"), 2, 1.0, 1.0),
    ],
)
def test_recall_and_success(
    ranking: str, gold: EvidenceSets, k: int, recalled: float, succeeds: float
) -> None:
    assert recall_and_success(ranking, gold, k) == pytest.approx((recalled, succeeds))


def test_any_passage_of_a_unit_finds_it_once() -> None:
    """p and q are copies; after p, q takes no place, and s comes third without r."""
    gold: EvidenceSets = (frozenset({frozenset("pq"), frozenset("s")}),)
    assert distinct("pqxs", gold) == ["p", "x", "s"]
    assert r_precision("qps", gold) == 1.0
    assert r_precision("qxps", gold) == 0.5


def test_a_passage_of_two_units_finds_both() -> None:
    gold: EvidenceSets = (frozenset({frozenset("pq"), frozenset("qr")}),)
    assert r_precision("qx", gold) == 1.0
    assert r_precision("pxr", gold) == 0.5
    assert distinct("qpr", gold) == ["q"]


def published(ranking: Sequence[str], outputs: Sequence[Sequence[str]], k: int) -> tuple[float, float, float]:
    """KILT's rule as its paper words it, for pages, on lists: the oracle.

    R-precision, recall@k, success@k.
    """
    guess = list(dict.fromkeys(ranking))
    precision = max(len(set(guess[: len(set(own))]) & set(own)) / len(set(own)) for own in outputs)
    sets = list(dict.fromkeys(frozenset(own) for own in outputs))
    # A place for each (page, set) pair, and for each page in no set; then a set keeps the last of its places.
    places = [(page, own) for page in guess for own in ([s for s in sets if page in s] or [None])]
    kept = [
        (page, own)
        for i, (page, own) in enumerate(places)
        if own is None or all(later != own for _, later in places[i + 1 :])
    ]
    seen = set(guess)

    def complete(own: frozenset[str] | None) -> bool:
        return own is not None and own <= seen

    return (
        precision,
        sum(complete(own) for _, own in kept[:k]) / len(sets),
        float(any(complete(own) for _, own in kept[:k])),
    )


def test_equal_to_the_published_rule_on_random_rankings() -> None:
    rng = random.Random(4)
    for _ in range(3000):
        outputs = [rng.choices("abcdef", k=rng.randint(1, 3)) for _ in range(rng.randint(1, 3))]
        ranking, k = rng.choices("abcdefuvw", k=rng.randint(0, 9)), rng.randint(1, 5)
        gold = pages(*("".join(own) for own in outputs))
        found = r_precision(ranking, gold), *recall_and_success(ranking, gold, k)
        assert found == pytest.approx(published(ranking, outputs, k)), (outputs, ranking, k)


@pytest.mark.parametrize(
    ("ranking", "gold", "expected"),
    [
        ("bax", pages("a", "b"), 1.0),  # one of them will do
        ("bax", (frozenset(map(frozenset, "ab")),), 1.0),
        ("bxa", (frozenset(map(frozenset, "ab")),), 0.0),
        ("bxa", (frozenset(map(frozenset, ("ab", "bc"))),), 1.0),  # one passage of both, and what follows
        ("xba", (frozenset(map(frozenset, ("ab", "bc"))),), 0.0),
        ("", pages("a"), 0.0),
    ],
)
def test_exact_match(ranking: str, gold: EvidenceSets, expected: float) -> None:
    run = {"q": [ScoredPassage(i, 0.0) for i in ranking]}
    assert measured(run, Gold({}, {"q": gold}), ["passage_EM"], str) == {"passage_EM": {"q": expected}}


def test_levels_of_a_run() -> None:
    """Two passages of page A are one page; the passages are two, and q2 has no run."""
    page = {"a1": "A", "a2": "A", "b1": "B"}
    gold = Gold(
        {"q1": pages("B"), "q2": pages("A")},
        {"q1": (frozenset({frozenset(["b1"])}),)},
    )
    run = {"q1": [ScoredPassage(i, 0.0) for i in page]}
    names = ["page_success@1", "page_success@2", "page_recall@2", "passage_success@2", "passage_success@3"]
    assert measured(run, gold, names, page.__getitem__) == {
        "page_success@1": {"q1": 0.0, "q2": 0.0},
        "page_success@2": {"q1": 1.0, "q2": 0.0},
        "page_recall@2": {"q1": 1.0, "q2": 0.0},
        "passage_success@2": {"q1": 0.0},
        "passage_success@3": {"q1": 1.0},
    }


def test_sentences_count_for_their_passages() -> None:
    gold = Gold({}, {"q": (frozenset({frozenset(["p"])}),)}, cut=True)
    run = {"q": [ScoredPassage(i, 0.0) for i in ("x#0", "x#3", "p#7")]}
    found = measured(run, gold, ["passage_success@1", "passage_success@2"], str)
    assert found == {"passage_success@1": {"q": 0.0}, "passage_success@2": {"q": 1.0}}
    assert gold.measures() == ("passage_Rprec", "passage_recall@20", "passage_success@20")
    assert gold.of(["other"]).passages == {}


def test_the_table_of_several_tasks() -> None:
    """p is of the R-precision of pages; it has an interval; the last rows are the means over the tasks."""
    good, bad = [1.0] * 9 + [0.0], [0.0, 1.0] * 5
    sets = [
        SetResults(
            name,
            [
                Evaluation(ranking, {"answer_recall@20": values(own), "page_Rprec": values(own)})
                for ranking, own in (("good", good), ("bad", bad))
            ],
        )
        for name in ("fever", "trex")
    ]
    table = results_table(sets)
    assert table.header == ["set", "channel", "answer_recall@20", "page_Rprec", "±", "p (page_Rprec)"]
    assert [row[:2] for row in table.rows[-2:]] == [["mean", "good"], ["mean", "bad"]]
    assert [row[3] for row in table.rows] == [90.0, 50.0] * 3
    assert table.rows[0][4] == pytest.approx(100 * half_width(sets[0].evaluations[0], "page_Rprec"))
    from scipy.stats import ttest_1samp

    p = ttest_1samp([b - g for g, b in zip(good, bad, strict=True)], 0.0).pvalue
    assert table.rows[1][5] == f"{p:.3f}" + ("*↓" if p < 0.05 else "")


def values(own: Sequence[float]) -> dict[str, float]:
    return {str(number): value for number, value in enumerate(own)}


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("page_Rprec", True),
        ("passage_recall@5", True),
        ("page_success@100", True),
        ("page_success@0", False),
        ("page_recall", False),
        ("page_Rprec@5", False),
        ("Rprec", False),
    ],
)
def test_names(name: str, known: bool) -> None:
    assert (kind_of(name) in (PAGES, PASSAGES)) is known
    if not known:
        with pytest.raises(ValueError, match=f"'{name}'"):
            measured({}, Gold({}, {}), [name], str)
