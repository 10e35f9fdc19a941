"""A chain of two hops, worked by hand: scores, paths, order, what was linked to what."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from hybrid.multihop.chain import Chain, Linked
from hybrid.multihop.paths import Evidence, EvidencePath, distinct_evidence
from hybrid.multihop.steps import Step, read_chain
from sparta.base.errors import InputError
from sparta.base.records import ChannelPlace, Hit

ONE = [Step("search", "retrieve", depth=9), Step("first", "rerank", ("search",), weight=0, keep=9)]


def hits(**scores: float) -> list[Hit]:
    return [Hit(name, score, name.upper(), f"text of {name}") for name, score in scores.items()]


class Made:
    """Answers that are written down; `asked` are the calls."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.retrieved = hits(a=10, b=8, c=2)
        self.links = {"which": [("Bee", hits(b=20, d=5))], "text of b": [("Eve", hits(e=6, b=3))]}
        self.expanded = {"a": hits(e=7, a=6), "b": hits(f=9, e=4), "d": hits(f=1)}
        self.rows = {"a": (4, 0, 0), "b": (2, 2, 0), "c": (0, 0, 0), "d": (0, 0, 1), "e": (1, 3, 3)}
        self.reranks = {"a": 1.0, "b": 3.0, "c": 0.0, "d": 4.0, "e": 2.0, "f": 0.5}

    def check(self, steps: Sequence[Step]) -> None:
        self.asked.append([step.name for step in steps])

    def retrieve(self, step: Step, question: str) -> list[Hit]:
        self.asked.append((question, step.channel, step.depth))
        return self.retrieved[: step.depth]

    def expand(self, step: Step, question: str, passages: Sequence[Hit]) -> list[list[Hit]]:
        self.asked.append(("expand", [p.passage_id for p in passages], step.depth))
        return [self.expanded.get(p.passage_id, [])[: step.depth] for p in passages]

    def link(self, step: Step, passages: Sequence[Hit]) -> list[list[Linked]]:
        texts = [hit.text for hit in passages]
        self.asked.append(("link", texts, step.depth))
        own = [self.links.get(text, []) for text in texts]
        return [[Linked(h, span) for span, found in one for h in found[: step.depth]] for one in own]

    def rerank(self, step: Step, question: str, passages: Sequence[Hit]) -> list[float]:
        self.asked.append(("rerank", [p.passage_id for p in passages]))
        return [self.reranks[p.passage_id] for p in passages]

    def terms(self, step: Step, question: str, passages: Sequence[Hit]) -> npt.NDArray[np.float32]:
        self.asked.append(("terms", [p.passage_id for p in passages]))
        return np.array([self.rows[p.passage_id] for p in passages], np.float32)


def test_scores_of_paths_never_rise() -> None:
    """Sums that are the same but for rounding are in the order of what is stored."""
    rng, tools = random.Random(1), Made()

    def tenths(names: str) -> dict[str, float]:
        return {name: rng.randint(1, 9) / 10 for name in names}

    steps = [replace(step, weight=1.0, promote=1.0) for step in read_chain("hotpot")]
    for _ in range(300):
        tools.retrieved, tools.reranks = hits(**tenths("abc")), tenths("abcdef")
        tools.expanded = {name: hits(**tenths("def")) for name in "abc"}
        scores = [path.score for path in Chain(steps, tools).find_paths("which").paths]
        assert scores == sorted(scores, reverse=True)


def test_a_chunk_of_a_path_keeps_its_place() -> None:
    chunk = Hit("d", 3.0, "D", "text", {"n": 1}, {"bm25": ChannelPlace(1, 3.0, 1.0)}, "d", 800, 804)
    paths = [EvidencePath((Evidence(chunk, {}, 2.0),), 2.0)]
    assert distinct_evidence(paths, 1) == [replace(chunk, score=2.0, channels={})]


def test_two_hops_by_hand() -> None:
    chosen = {"first": {"keep": 3, "weight": 1.5}, "second": {"promote": 1.1, "weight": 1.0}}
    steps = [replace(step, **chosen.get(step.name, {})) for step in read_chain("hotpot")]  # type: ignore[arg-type]
    tools = Made()
    found = Chain(steps, tools).find_paths("which")
    # hop 1: links b 20, d 5 become 10, 2.5 (eq. 6); b was found by both: max(10, 8) (eq. 7, α 1)
    # eq. 8: a 10 + 1.5, b 10 + 4.5, d 2.5 + 6, c 2 + 0; three are kept
    first = {"a": 11.5, "b": 14.5, "d": 8.5}
    # hop 2, from a: e 7, and not a again: 7 + 2
    # from b: retrieved f 9, e 4; linked e 6 (b is in the path); e by both: 6 × 1.1; f 9 + 0.5, e 6.6 + 2
    # from d: f 1 + 0.5
    expected = [
        (("b", "f"), first["b"] + 9.5),
        (("b", "e"), first["b"] + 8.6),
        (("a", "e"), first["a"] + 9.0),
        (("d", "f"), first["d"] + 1.5),
    ]
    assert [path.ids for path in found.paths] == [ids for ids, _ in expected]
    assert [path.score for path in found.paths] == pytest.approx([score for _, score in expected])
    assert tools.asked[-1] == ("rerank", ["f", "e"]), "each passage once"
    assert ("expand", ["b", "a", "d"], 50) in tools.asked
    assert ("link", ["text of b", "text of a", "text of d"], 2) in tools.asked
    b, e = found.paths[1].passages
    assert (b.scores, b.span) == ({"search": 8, "links": 20, "first": 3.0}, "Bee")
    assert (e.scores, e.span) == ({"expand": 4, "links-of-first": 6, "second": 2.0}, "Eve")
    assert e.score == pytest.approx(8.6)
    assert list(found.seconds) == [step.name for step in read_chain("hotpot")]
    assert found.paths[1].as_dict()["passages"][1]["span"] == "Eve"
    assert [h.passage_id for h in distinct_evidence(found.paths, 3)] == ["b", "f", "e"]
    assert len(Chain(steps, tools).find_paths("which", 2).paths) == 2


def test_one_hop_by_hand() -> None:
    """Links b 20, d 5 become 10, 2.5 (eq. 6); b is max(10, 8); eq. 8 with the β of the chain that ships."""
    found = Chain(read_chain("single"), Made()).find_paths("which").paths
    expected = {"b": 10 + 0.5 * 3, "a": 10 + 0.5 * 1, "d": 2.5 + 0.5 * 4, "c": 2 + 0.5 * 0}
    assert [path.ids for path in found] == [(name,) for name in expected]
    assert [path.score for path in found] == pytest.approx(list(expected.values()))


def test_links_are_aligned_with_all_that_was_retrieved() -> None:
    """Eq. 6: also with the passage that the path ends in, though it does not come twice."""
    tools = Made()
    tools.retrieved, tools.links["which"] = hits(b=10), []
    tools.links["text of b"], tools.expanded = [("Eve", hits(e=20))], {"b": hits(b=12, f=9)}
    steps = [replace(step, weight=0) if step.skill == "rerank" else step for step in read_chain("hotpot")]
    found = Chain(steps, tools).find_paths("which").paths
    assert [(path.ids, path.score) for path in found] == [(("b", "e"), 22), (("b", "f"), 19)]


def test_links_to_the_path_itself_scale_no_others() -> None:
    """A passage names itself best; eq. 6 is of the links that can go on from it."""
    tools = Made()
    tools.links = {"text of a": [("A", hits(a=40)), ("Bee", hits(b=5))]}
    steps = [
        *ONE,
        Step("links", "link", ("first",), depth=9),
        Step("expand", "expand", ("first",), depth=9),
        Step("second", "rerank", ("links", "expand"), weight=0, keep=9),
    ]
    scores = {path.ids: path.score for path in Chain(steps, tools).find_paths("which").paths}
    assert scores["a", "b"] == 10 + 5


def test_only_the_best_candidates_are_reranked() -> None:
    """The best two of hop 1 before reranking, a and b with 10 each (b after eq. 6); c and d are left out."""
    steps = [replace(s, candidates=2) if s.name == "first" else s for s in read_chain("hotpot")]
    tools = Made()
    Chain(steps, tools).find_paths("which")
    assert next(asked for asked in tools.asked if asked[0] == "rerank") == ("rerank", ["a", "b"])


TERMS = [
    Step("search", "retrieve", weight=0),
    Step("named", "link", by="titles", weight=0.5),
    Step("first", "rerank", ("search", "named"), by="terms", keep=2),
    Step("linked", "link", ("first",), by="titles", weight=1, evidence=False),
    Step("second", "rerank", ("search", "linked"), by="terms"),
]


def test_a_path_covers_the_terms_of_the_question_by_hand() -> None:
    """The most that each term scores in a, b, c, d is 4, 2, 1: 7 in all. Links are worth 0.5 and 1."""
    tools = Made()
    tools.links = {"which": [("Bee", hits(b=1, d=1))], "text of b": [("Eve", hits(e=1))]}
    found = Chain(TERMS, tools).find_paths("which").paths
    # hop 1: a 4/7, b 4/7 + 0.5, c 0, d 1/7 + 0.5: b and d are kept
    b, d = 4 / 7 + 0.5, 1 / 7 + 0.5
    # hop 2 from b (2, 2, 0): a adds 2, c 0, and the linked e 1 + 3; from d (0, 0, 1): a 4, b 4, c 0
    # what was found for the question goes on from b and d; b with d is found from d alone
    expected = {
        ("b", "e"): b + 4 / 7 + 1,
        ("b", "a"): b + 2 / 7,
        ("d", "b"): d + 4 / 7,
        ("d", "a"): d + 4 / 7,
        ("b", "c"): b,
        ("d", "c"): d,
    }
    assert {path.ids: path.score for path in found} == pytest.approx(expected)
    assert [path.score for path in found] == pytest.approx(sorted(expected.values(), reverse=True))
    assert found[0].passages[1].scores == pytest.approx({"linked": 1, "second": 4 / 7})
    assert ("terms", ["e"]) in tools.asked, "the others are known"
    assert found[0].evidence_ids == ("b",), "what is linked here only leads on"
    assert "e" not in [h.passage_id for h in distinct_evidence(found, 9)]
    assert found[0].as_dict()["passages"][1]["steps"] == found[0].passages[1].scores


def test_terms_may_count_in_the_second_hop_alone() -> None:
    """The first passages are kept by their scores; e adds to b what b does not cover."""
    tools = Made()
    tools.expanded = {"b": hits(e=0)}
    steps = [
        Step("search", "retrieve"),
        Step("first", "rerank", ("search",), weight=0, keep=2),
        Step("more", "expand", ("first",)),
        Step("second", "rerank", ("more",), by="terms"),
    ]
    [path] = Chain(steps, tools).find_paths("which").paths
    # e and b are rated together: the most of each term is 2, 3, 3
    assert (path.ids, path.score) == (("b", "e"), pytest.approx(8 + 4 / 8))


def test_paths_of_the_same_passages_count_once() -> None:
    steps = [
        Step("search", "retrieve"),
        Step("first", "rerank", ("search",), weight=0),
        Step("second", "rerank", ("search", "more"), weight=0),
        Step("more", "expand", ("first",)),
    ]
    tools = Made()
    tools.expanded = {}
    found = Chain(steps, tools).find_paths("which").paths
    assert [path.ids for path in found] == [("a", "b"), ("a", "c"), ("b", "c")]


def test_without_reranking_it_is_retrieval() -> None:
    found = Chain(ONE, Made()).find_paths("which").paths
    assert [(path.ids, path.score) for path in found] == [(("a",), 10), (("b",), 8), (("c",), 2)]


def test_links_alone() -> None:
    """Without retrieval nothing is aligned; of two entities that mean the same, the higher score counts."""
    tools = Made()
    tools.links["which"].append(("the bee", hits(b=30)))
    steps = [Step("links", "link", depth=5), Step("first", "rerank", ("links",), weight=0)]
    [b, d] = Chain(steps, tools).find_paths("which").paths
    assert (b.ids, b.score, b.passages[0].span) == (("b",), 30, "the bee")
    assert (d.ids, d.score) == (("d",), 5)


def test_nothing_is_found() -> None:
    tools = Made()
    tools.retrieved, tools.links = [], {}
    assert Chain(read_chain("hotpot"), tools).find_paths("which").paths == []
    tools = Made()
    tools.expanded, tools.links = {}, {}
    assert Chain(read_chain("hotpot"), tools).find_paths("which").paths == []
    with pytest.raises(InputError, match="at least 1"):
        Chain(ONE, tools).find_paths("which", 0)
