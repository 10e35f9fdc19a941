"""Fusion against its formulas, on hand-made and random rankings."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from hybrid.evaluation.rankings import Holds, answer_recall
from hybrid.retrieval.fusion import NORMALIZATIONS, Fusion, formula, named, parse_weights
from sparta.base.errors import InputError
from sparta.base.records import ScoredPassage
from sparta.data.answers import has_answer, tokens


def ranking(**scores: float) -> list[ScoredPassage]:
    return [ScoredPassage(i, s) for i, s in sorted(scores.items(), key=lambda item: -item[1])]


def pairs(found: list[ScoredPassage]) -> list[tuple[str, float]]:
    return [(p.passage_id, round(p.score, 6)) for p in found]


def test_base_plus_alpha_bm25_by_hand() -> None:
    """min-max centred: sparta a .5, b 0, c -.5; bm25 b .5, d -.5; what is missing counts as the least."""
    fusion = Fusion({"impact": 1.0, "bm25": 1.2})
    found = fusion.fuse({"impact": ranking(a=30, b=20, c=10), "bm25": ranking(b=9, d=5)})
    assert pairs(found) == [
        ("b", 0.6),
        ("a", round(0.5 - 0.6, 6)),
        ("c", round(-0.5 - 0.6, 6)),
        ("d", round(-0.5 - 0.6, 6)),
    ]
    assert formula(fusion) == (
        "score = impact + 1.2·bm25; scores min-max normalized and centered (Ma et al., 2021) over each"
        " channel's 100 best passages; a passage missing in a channel gets the channel's lowest score"
    )


def test_equal_scores_are_ordered_by_the_first_channel_then_by_id() -> None:
    fusion = Fusion({"x": 1.0, "y": 1.0})
    assert [p.passage_id for p in fusion.fuse({"x": ranking(b=1, a=1), "y": []})] == ["b", "a"]
    both = {"x": ranking(p=2, q=1), "y": ranking(q=2, p=1)}
    assert pairs(fusion.fuse(both)) == [("p", 0.0), ("q", 0.0)]
    assert pairs(Fusion({"y": 1.0, "x": 1.0}).fuse(both)) == [("q", 0.0), ("p", 0.0)]
    lone = {"x": ranking(z=1), "y": ranking(a=1)}
    assert pairs(fusion.fuse(lone)) == [("z", 0.0), ("a", 0.0)]


def test_the_only_hit_of_a_channel_counts() -> None:
    fusion = Fusion({"impact": 1.0, "bm25": 1.2})
    found = fusion.fuse({"impact": ranking(a=30, b=20), "bm25": ranking(right=9)})
    assert pairs(found) == [("right", 0.1), ("a", -0.1), ("b", -1.1)]
    for normalization in ("minmax", "zscore"):
        one = Fusion({"x": 1.0, "y": 1.0}, normalization=normalization)
        found = one.fuse({"x": ranking(a=1, b=1), "y": ranking(c=2, b=1)})
        assert pairs(found) == [("a", 0.0), ("b", 0.0), ("c", 0.0)], "the upper end here, the lower there"


def test_equal_scores_whose_deviation_is_rounding() -> None:
    """NumPy's deviation of three times 0.1 is 1.4e-17."""
    one = Fusion({"x": 1.0, "y": 1.0}, normalization="zscore")
    found = one.fuse({"x": ranking(a=0.1, b=0.1, c=0.1), "y": ranking(d=2, e=1)})
    assert pairs(found) == [("a", 0.0), ("b", 0.0), ("c", 0.0), ("d", 0.0), ("e", -2.0)]


def test_rrf_by_hand() -> None:
    fusion = Fusion({"x": 1.0, "y": 2.0}, method="rrf")
    found = fusion.fuse({"x": ranking(a=3, b=2), "y": ranking(b=9, c=1)})
    expected = {"a": 1 / 61, "b": 1 / 62 + 2 / 61, "c": 2 / 62}
    assert {p.passage_id: p.score for p in found} == pytest.approx(expected)
    assert [p.passage_id for p in found] == ["b", "c", "a"]
    assert formula(fusion) == "score = 1/(60+rank x) + 2·1/(60+rank y); each channel's 100 best passages"


def random_rankings(rng: random.Random) -> dict[str, list[ScoredPassage]]:
    made = {}
    for name in ("x", "y", "bm25"):
        ids = rng.sample([f"p{i}" for i in range(30)], rng.choice([0, 1, 2, 10, 25]))
        scores = sorted((rng.choice([1.0, 2.0, rng.uniform(-5, 50)]) for _ in ids), reverse=True)
        made[name] = [ScoredPassage(i, s) for i, s in zip(ids, scores, strict=True)]
    return made


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("method", ["linear", "rrf"])
def test_any_rankings(method: str, normalization: str) -> None:
    rng = random.Random(4)
    for _ in range(200):
        found = random_rankings(rng)
        weights = {name: rng.choice([0.0, 0.5, 1.0, -1.0]) for name in found}
        fusion = Fusion(weights, method, normalization, candidates=rng.choice([1, 5, 100]))
        fused = fusion.fuse(found)
        cut = {n: r[: fusion.candidates] for n, r in found.items()}
        assert sorted(p.passage_id for p in fused) == sorted({p.passage_id for r in cut.values() for p in r})
        assert all(math.isfinite(p.score) for p in fused)
        scores = [p.score for p in fused]
        assert scores == sorted(scores, reverse=True)
        assert fusion.fuse(found) == fused
        assert fusion.fuse(found, 3) == fused[:3]
        own, least = {}, {}
        for name, r in cut.items():
            values = np.array([p.score for p in r])
            if method == "rrf":
                own[name] = {p.passage_id: 1 / (61 + i) for i, p in enumerate(r)}
                least[name] = 0.0
            elif r:
                span = values.max() - values.min()
                minmax = (values - values.min()) / span - 0.5 if span else values * 0 + 0.5
                normal = {
                    "none": values,
                    "minmax": minmax,
                    "zscore": (values - values.mean()) / values.std() if span else values * 0 + 1,
                }[normalization]
                own[name] = {p.passage_id: v for p, v in zip(r, normal, strict=True)}
                least[name] = min(normal)
                if not span and normalization != "none":
                    least[name] = -max(normal)
        for p in fused:
            expected = 0.0
            for name, channel in own.items():
                expected += weights[name] * channel.get(p.passage_id, least[name])
            assert p.score == pytest.approx(expected, abs=1e-9)


def test_one_channel_alone_keeps_its_order() -> None:
    rng = random.Random(1)
    for _ in range(50):
        found = random_rankings(rng)
        order = [p.passage_id for p in found["x"]]
        for fusion in (Fusion({"x": 1.0}), Fusion({"x": 1.0}, "rrf"), Fusion({"x": 2.0, "y": 0.0})):
            fused = [p.passage_id for p in fusion.fuse({"x": found["x"]})]
            assert fused == order


def test_runs() -> None:
    runs = {"x": {"1": ranking(a=2, b=1)}, "y": {"1": ranking(b=2, c=1), "2": ranking(c=1)}}
    fused = Fusion({"x": 1.0, "y": 1.0}).fuse_runs(runs, 2)
    assert {q: [p.passage_id for p in r] for q, r in fused.items()} == {"1": ["a", "b"], "2": ["c"]}
    with pytest.raises(InputError, match=r"\bz$"):
        Fusion({"x": 1.0, "z": 1.0}).fuse_runs(runs)


@pytest.mark.parametrize(
    "options",
    [
        {"weights": {}},
        {"weights": {"x": math.nan}},
        {"method": "sum"},
        {"normalization": "softmax"},
        {"candidates": 0},
        {"rrf_k": 0},
        {"weights": ["x", "y"]},
        {"weights": {"x": "1"}},
        {"weights": {"x": None}},
        {"candidates": None},
        {"candidates": 2.5},
    ],
)
def test_impossible_fusions(options: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Fusion(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["linear", "rrf"])
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_three_channels_of_which_some_say_little(method: str, normalization: str) -> None:
    fusion = Fusion({"x": 1.0, "y": 1.0, "z": 1.0}, method, normalization)
    assert fusion.fuse({}) == []
    assert fusion.fuse({"x": [], "y": [], "z": []}) == []
    one = fusion.fuse({"x": [], "y": ranking(a=7), "z": []})
    least = {"minmax": 0.5, "zscore": 1.0, "none": 7.0}[normalization]
    assert one == [ScoredPassage("a", 1 / 61 if method == "rrf" else least)], "an empty channel adds nothing"
    equal = {"x": ranking(b=1, a=1), "y": ranking(c=1, a=1), "z": ranking(a=1, d=1)}
    order = [p.passage_id for p in fusion.fuse({n: sorted(r) for n, r in equal.items()})]
    assert order[0] == "a", "it is in all three"
    if method == "linear":
        assert order == ["a", "b", "c", "d"], "of equal scores, the first channel's, then the next one's"


def test_weighted_rrf_of_three_by_hand() -> None:
    fusion = Fusion({"x": 1.0, "y": 0.5, "z": 2.0}, method="rrf")
    found = fusion.fuse({"x": ranking(a=9, b=8), "y": ranking(b=3, c=2), "z": ranking(c=1)})
    expected = {"a": 1 / 61, "b": 1 / 62 + 0.5 / 61, "c": 0.5 / 62 + 2 / 61}
    assert {p.passage_id: p.score for p in found} == pytest.approx(expected)
    assert [p.passage_id for p in found] == ["c", "b", "a"]
    assert fusion.label == "RRF x + 0.5·y + 2·z"


def test_the_same_ranks_in_other_channels_have_the_same_rrf_score() -> None:
    """Added in the order of the channels, the second score is higher by its last bit."""
    ranks = {"first": (1, 7, 2), "second": (2, 1, 7)}
    rankings = {
        channel: [
            ScoredPassage(next((i for i in ranks if ranks[i][column] == rank), f"{channel}-{rank}"), 1 / rank)
            for rank in range(1, 8)
        ]
        for column, channel in enumerate("xyz")
    }
    fused = Fusion(dict.fromkeys("xyz", 1.0), method="rrf").fuse(rankings, 2)
    assert [p.passage_id for p in fused] == ["first", "second"]
    assert fused[0].score == fused[1].score == pytest.approx(1 / 61 + 1 / 62 + 1 / 67)


def test_candidates_are_gathered_once_for_all_weights() -> None:
    rng = random.Random(2)
    for _ in range(50):
        found = random_rankings(rng)
        gathered = Fusion({"x": 1.0, "y": 1.0, "z": 1.0}).gather(found)
        for weights in ([1.0, 0.5, 2.0], [0.0, 1.0, -1.0]):
            fusion = Fusion(dict(zip("xyz", weights, strict=True)))
            assert gathered.ranked(weights) == fusion.fuse(found)
            assert gathered.ranked(weights, 2) == fusion.fuse(found, 2)


def test_weights_are_read() -> None:
    known = ("bm25", "impact", "dense")
    assert list(parse_weights(" dense=1, bm25=1.2 ", known).items()) == [("dense", 1.0), ("bm25", 1.2)]
    assert parse_weights("bm25,impact=2", known) == {"bm25": 1.0, "impact": 2.0}
    assert parse_weights("sparta=-1e-1", known) == {"impact": -0.1}
    assert parse_weights("a=b=2", ["a=b"]) == {"a=b": 2.0}, "runs are named by their files"


@pytest.mark.parametrize(
    ("weights", "cause"),
    [
        ("", "none"),
        (" , ", "none"),
        ("splade=1", "'splade'"),
        ("=1", "'1'"),
        ("bm25=1,bm25=2", "bm25 twice"),
        ("bm25=", "''"),
        ("bm25=x", "'x'"),
        ("bm25=nan", "'nan'"),
        ("bm25=inf", "'inf'"),
    ],
)
def test_invalid_weights(weights: str, cause: str) -> None:
    with pytest.raises(InputError, match="bm25, impact, dense") as error:
        parse_weights(weights, ("bm25", "impact", "dense"))
    assert cause in str(error.value).splitlines()[0]
    [option] = error.value.remedy.options
    assert (option.name, option.value) == ("weights", "bm25=1,impact=1,dense=1")


# ---------------------------------------------------------------- answers (DPR)


@pytest.mark.parametrize(
    ("text", "answer", "held"),
    [
        ("It was founded by Larry Page.", "larry page", True),  # case
        ("It was founded by Larry Page.", "Larry  Page", True),  # white space
        ("the homepage of Larry", "page", False),  # token boundaries
        ("Larry-Page", "larry page", False),  # a hyphen is a token
        ("Larry-Page", "Larry-Page", True),
        ("in 1998, and later", "1998", True),
        ("in 19980", "1998", False),
        ("Beyonc\u00e9 sang", "Beyonce\u0301", True),  # composed and decomposed
        ("Beyonc\u00e9 sang", "Beyonce", False),  # marks belong to the token
        ("She said \u201cyes\u201d", "\u201cyes\u201d", True),
        ("U.S. dollars", "U.S.", True),
        ("$5 million", "5 million", True),
        ("a b c", "a c", False),  # side by side
        ("anything", "", False),
        ("\u5317\u4eac\u662f\u57ce\u5e02", "\u5317\u4eac", True),  # scripts without spaces: each letter
    ],
)
def test_answers_by_tokens(text: str, answer: str, held: bool) -> None:
    assert has_answer(text, [answer]) is held
    assert has_answer(text, ["nothing of it", answer]) is held


@pytest.mark.parametrize(
    ("text", "pattern", "held"),
    [
        ("born in 1912", "191[0-9]", True),
        ("BORN in London", "born.*london", True),
        ("one\ntwo", "^two", True),  # lines
        ("one", "(", False),  # broken
        ("Beyonc\u00e9", "Beyonce\u0301", True),
    ],
)
def test_answers_by_regular_expression(text: str, pattern: str, held: bool) -> None:
    assert has_answer(text, [pattern], match="regex") is held


def test_tokens_are_dprs() -> None:
    assert tokens("Don't  stop (2\u00bd)!") == ["don", "'", "t", "stop", "(", "2\u00bd", ")", "!"]


def test_answer_recall() -> None:
    texts = {"a": "no", "b": "Larry Page", "c": "x"}
    asked: list[str] = []

    def text_of(query_id: str, passage_id: str) -> str:
        asked.append(passage_id)
        return texts[passage_id]

    run = {"1": ranking(a=3, b=2, c=1), "2": ranking(a=1), "3": []}
    holds = Holds({"1": ["larry page"], "2": ["yes"], "3": ["a"], "4": ["b"]}, text_of)
    found = answer_recall("x", run, holds, (1, 2))
    assert found.mean("answer_recall@1") == 0
    assert found.mean("answer_recall@2") == 0.25
    assert found.per_query["answer_recall@2"] == {"1": 1, "2": 0, "3": 0, "4": 0}
    assert asked == ["a", "b", "a"], "nothing is read behind the first answer"
    assert answer_recall("x", run, holds, (2,)).mean("answer_recall@2") == 0.25
    assert asked == ["a", "b", "a"], "nor twice"
    assert holds("1", "c") is False
    assert answer_recall("x", {"1": ranking(c=1)}, Holds({"1": ["[wxyz]"]}, text_of, match="regex")).mean(
        "answer_recall@20"
    )


def test_a_run_may_be_named_as_a_channel_was_once() -> None:
    """`sparta` is the former name of impact, but not where something else is called so."""
    assert parse_weights("sparta=1,impact=0.5", ["sparta", "impact"]) == {"sparta": 1.0, "impact": 0.5}


@pytest.mark.parametrize("weight", [1e39, -1e9, math.inf, math.nan])
def test_weights_that_no_score_can_hold(weight: float) -> None:
    with pytest.raises(InputError, match=r"1e\+06"):
        Fusion({"impact": weight})


def test_a_fusion_is_a_value() -> None:
    weights = {"impact": 1.0, "bm25": 1.2}
    fusion = Fusion(weights)
    weights["bm25"] = 9.0
    assert fusion.weights["bm25"] == 1.2
    assert {fusion: 1}[Fusion({"impact": 1.0, "bm25": 1.2})]


def test_fusions_are_named_apart() -> None:
    plain, few = Fusion(), Fusion(candidates=10)
    by_rank = [Fusion(method="rrf", rrf_k=k) for k in (60, 1)]
    assert list(named([plain, by_rank[0]])) == ["impact + bm25", "RRF impact + bm25"]
    assert named([plain, few, plain, *by_rank]) == {
        "impact + bm25 (100 candidates)": plain,
        "impact + bm25 (10 candidates)": few,
        "RRF impact + bm25 (k 60, 100 candidates)": by_rank[0],
        "RRF impact + bm25 (k 1, 100 candidates)": by_rank[1],
    }
    with pytest.raises(InputError, match=r"x \+ 0.5·y"):
        named([Fusion({"x": 1.0, "y": 0.5}), Fusion({"x": 1.0, "y": 0.50000001})])


def test_a_repeated_passage_is_refused() -> None:
    rankings = {"impact": [ScoredPassage("a", 3.0), ScoredPassage("a", 1.0)], "bm25": ranking(b=1)}
    with pytest.raises(InputError, match=r"^impact: a ranking has the same passage twice"):
        Fusion().fuse(rankings)
    with pytest.raises(InputError, match=r"^impact, query q: a ranking has the same passage twice"):
        Fusion().fuse_runs({name: {"q": own} for name, own in rankings.items()})


@pytest.mark.parametrize("k", [0, -1, 2.5])
def test_how_many_are_wanted(k: Any) -> None:
    found = {"impact": ranking(a=2, b=1), "bm25": ranking(b=1)}
    with pytest.raises(InputError, match="k must be"):
        Fusion().fuse(found, k)
    with pytest.raises(InputError, match="k must be"):
        Fusion().fuse_runs({name: {"q": own} for name, own in found.items()}, k)
