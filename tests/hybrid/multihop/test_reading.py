"""A chain whose last step reads its paths: order, scores, what is read, answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from hybrid.answering.path_answerer import PathAnswerer, answers_of
from hybrid.multihop.chain import Chain, with_reading
from hybrid.multihop.paths import Evidence, EvidencePath
from hybrid.multihop.searcher import ChainSearcher
from hybrid.multihop.steps import Step, ordered, read_chain
from sparta.base.errors import InputError
from sparta.base.records import Hit
from sparta.reader.path_reader import PathReading, PathSpan
from sparta.search.contexts import with_contexts

SEARCH = Step("search", "retrieve", depth=9)
TABLE = Step("table", "retrieve", depth=9, evidence=False)
FIRST = Step("first", "rerank", ("search",), weight=0, keep=9)
READ = Step("read", "read", ("first",), weight=0.5, candidates=3)


class Reading:
    """Finds passages a to e, scores 5 to 1; reads each by its name."""

    def __init__(self, found: str = "abcde") -> None:
        self.found = found
        self.scores = {"a": -8.0, "b": 2.0, "c": 1.0, "d": 9.0, "e": 9.0}
        self.said = {"a": "Rome", "b": "yes", "c": "the Rome"}
        self.tells = True
        self.asked: list[Any] = []

    def check(self, steps: Sequence[Step]) -> None:
        pass

    def retrieve(self, step: Step, question: str) -> list[Hit]:
        return [
            Hit(name, 5.0 - i, "T", f"{name}: {self.said.get(name)}") for i, name in enumerate(self.found)
        ]

    def in_context(self, hits: Sequence[Hit]) -> list[Hit]:
        return [replace(hit, metadata={"context": f"{hit.text}!"}) for hit in hits]

    def read(self, question: str, paths: Sequence[Sequence[Hit]]) -> list[PathReading]:
        self.asked.append([[hit.passage_id for hit in path] for path in paths])
        return [self._of([hit.passage_id for hit in path]) for path in paths]

    def _of(self, ids: list[str]) -> PathReading:
        said = self.said[ids[-1]]
        place = (len(ids) - 1, 3, 3 + len(said))
        answer = PathSpan(said, 0.5) if said == "yes" else PathSpan(said, 0.25, *place)
        sentences = [[(0, 1)] if i == "b" else [] for i in ids] if self.tells else None
        return PathReading([self.scores[i] for i in ids], answer, sentences)


def test_the_best_paths_are_read_and_the_others_stay_behind() -> None:
    tools = Reading()
    found = Chain([SEARCH, FIRST, READ], tools).find_paths("q", 9)
    assert tools.asked == [[["a"], ["b"], ["c"]]]
    # a 5 - 4, b 4 + 1, c 3 + 0.5; the others, 2 and 1, go down by 2 - 1
    assert [(*path.ids, path.score) for path in found.paths] == [
        ("b", 5.0),
        ("c", 3.5),
        ("a", 1.0),
        ("d", 1.0),
        ("e", 0.0),
    ]
    first = found.paths[0]
    assert first.passages[0].scores == {"search": 4.0, "read": 2.0}
    assert first.passages[0].score == first.score
    assert first.passages[0].supporting == ((0, 1),)
    assert [path.answer and path.answer.answer for path in found.paths] == [
        "yes",
        "the Rome",
        "Rome",
        None,
        None,
    ]
    assert set(found.seconds) == {"search", "first", "read"}
    shown = first.as_dict()
    assert shown["answer"] == {"answer": "yes", "score": 0.5, "passage_id": "", "start": 0, "end": 0}
    assert shown["passages"][0]["supporting"] == [[0, 1]]
    printed = found.paths[1].as_dict()
    [answer, passage] = printed["answer"], printed["passages"][0]
    assert passage["context"][answer["start"] : answer["end"]] == "the Rome"
    assert "context" not in found.paths[-1].as_dict()["passages"][0], "an unread passage"
    assert "answer" not in found.paths[-1].as_dict()


@pytest.mark.parametrize(("threshold", "score"), [("passage", 4.25), ("path", 4.625)])
def test_the_threshold_is_taken_off_each_passage_or_once(threshold: str, score: float) -> None:
    """Appendix C adds the two passages' scores and subtracts the threshold: 3 + 1 - 0.75, here times 0.5."""
    hits = [Hit("a", 2.0, "T", "a"), Hit("b", 1.0, "T", "b")]
    path = EvidencePath(tuple(Evidence(hit, {}, hit.score) for hit in hits), 3.0)
    reading = PathReading([3 - 0.75, 1 - 0.75], PathSpan("a", 0.5), None, 0.75)
    step = replace(READ, threshold=threshold)
    assert with_reading(step, path, hits, reading).score == score


def test_a_threshold_has_two_places() -> None:
    with pytest.raises(InputError, match="`threshold` of step 'read' must be passage or path"):
        replace(READ, threshold="never")


def test_without_weight_the_order_stays() -> None:
    steps = [SEARCH, FIRST, replace(READ, weight=0.0)]
    found = Chain(steps, Reading()).find_paths("q", 9).paths
    plain = Chain([SEARCH, FIRST], Reading()).find_paths("q", 9).paths
    assert [(path.ids, path.score) for path in found] == [(path.ids, path.score) for path in plain]


def test_what_leads_to_evidence_is_not_read() -> None:
    tools = Reading("ab")
    found = Chain([TABLE, replace(FIRST, after=("table",)), READ], tools).find_paths("q", 9)
    assert tools.asked == []
    assert [path.answer for path in found.paths] == [None, None]
    assert Chain([SEARCH, FIRST, READ], Reading("")).find_paths("q").paths == []


def test_of_a_row_and_its_page_the_page_is_read() -> None:
    """The row leads to the page: scores, sentences and answers of the reader are the page's."""
    tools = Reading("abc")
    steps = [
        TABLE,
        replace(FIRST, after=("table",)),
        Step("page", "expand", ("first",), by="title"),
        Step("second", "rerank", ("page",), weight=0, keep=9),
        replace(READ, after=("second",)),
    ]
    pages = [Hit(name, 4.0 - i, "T", f"{name}: {tools.said[name]}") for i, name in enumerate("bc")]
    tools.retrieve = lambda _step, _question: [Hit("a", 5.0, "T", "a row")]
    tools.expand = lambda _step, _question, _passages: [pages]
    first, second = Chain(steps, tools).find_paths("q", 9).paths
    assert tools.asked == [[["b"], ["c"]]]
    assert [path.ids for path in (first, second)] == [("a", "b"), ("a", "c")]
    row, page = second.passages
    assert (row.scores, row.supporting) == ({"table": 5.0}, None)
    assert (page.scores, page.supporting) == ({"page": 3.0, "read": 1.0}, ())
    assert second.score == 5 + 3 + 0.5 * 1
    assert second.answer is not None
    place = second.answer
    assert place.passage_id == "c"
    assert page.hit.text[place.start : place.end] == place.answer == "the Rome"
    tools.tells = False
    untold = Chain(steps, tools).find_paths("q", 9).paths[0].as_dict()
    assert "supporting" not in untold["passages"][1]


def test_rounding_lets_no_unread_path_rise() -> None:
    tools = Reading()
    tools.scores |= {"a": -9.4, "b": -7.4, "c": -5.4}
    paths = Chain([SEARCH, FIRST, READ], tools).find_paths("q", 9).paths
    scores = [path.score for path in paths]
    assert scores == sorted(scores, reverse=True)
    assert all(path.answer for path in paths[:3])


def test_an_improbable_answer_hides_no_probable_one() -> None:
    tools = Reading()
    tools.said["b"] = "Rome"
    paths = Chain([SEARCH, FIRST, READ], tools).find_paths("q", 9).paths
    first, second, *others = paths
    assert first.answer is not None
    low = replace(first, answer=replace(first.answer, score=0.1))
    [kept] = answers_of([low, second, *others], threshold=0.2)
    assert kept.passage_id == second.ids[-1]


@pytest.mark.parametrize(("threshold", "answers"), [(0.4, ["yes", "the Rome"]), (0.6, [])])
def test_another_path_answers_only_if_the_best_path_does(threshold: float, answers: list[str]) -> None:
    first, second, *_ = Chain([SEARCH, FIRST, READ], Reading()).find_paths("q", 9).paths
    assert first.answer is not None
    assert second.answer is not None
    likely = replace(second, answer=replace(second.answer, score=0.9))
    chain = Mock(ChainSearcher, reads=True, channel="impact", tools=Mock(language="en"))
    chain.find_paths.return_value.paths = [first, likely]
    answered = PathAnswerer(chain, threshold=threshold).answer("q", 3)
    assert ([answer.answer for answer in answered], answered.abstained) == (answers, not answers)
    assert answered.best_guess is not None
    assert (answered.best_guess.answer, answered.best_guess.score) == ("yes", 0.5)


def test_answers_are_those_of_the_best_paths() -> None:
    paths = Chain([SEARCH, FIRST, READ], Reading()).find_paths("q", 9).paths
    yes, rome = answers_of(paths)
    assert (yes.answer, yes.passage_id, yes.start, yes.end, yes.ranker) == ("yes", "b", 0, 0, 1.0)
    assert (rome.answer, rome.passage_id, rome.text[rome.start : rome.end]) == ("the Rome", "c", "the Rome")
    assert rome.score == rome.reader == 0.25


@pytest.mark.parametrize(
    ("answer", "passage_id"),
    [
        (PathSpan("b.", 0.5, 1, 3, 5), "p#1"),
        (PathSpan("c.", 0.5, 1, 6, 8), "p"),
        (PathSpan("yes", 0.5), "p#1"),
    ],
)
def test_the_passage_of_an_answer_holds_it(answer: PathSpan, passage_id: str) -> None:
    """The answer names the sentence of the path that holds it, or else the passage of the sentences."""
    places = {"q#0": (0, 2), "p#0": (0, 2), "p#1": (3, 5)}
    sentences = [
        Hit(name, 1.0, "T", "a. b. c."[start:end], {"passage_id": name[0], "start": start, "end": end})
        for name, (start, end) in places.items()
    ]
    hits = with_contexts(sentences, lambda ids: dict.fromkeys(ids, "a. b. c."))
    path = EvidencePath(tuple(Evidence(hit, {}, hit.score) for hit in sentences), 3.0)
    [read] = answers_of([with_reading(READ, path, hits, PathReading([1.0] * 3, answer, None))])
    assert (read.passage_id, read.answer) == (passage_id, answer.text)
    assert read.text[read.start : read.end] in (answer.text, "")


def test_the_place_of_the_step() -> None:
    assert read_chain("hop-read")[-1].skill == "read"
    assert ordered(read_chain("hop-read")[:-1]) == read_chain("hop")
    for steps, said in (
        ([SEARCH, READ], "'first'"),
        ([SEARCH, replace(READ, after=("search",))], "rerank, but comes after 'search'"),
        ([SEARCH, FIRST, READ, Step("second", "rerank", ("read",))], "but comes after 'read'"),
        ([SEARCH, FIRST, READ, replace(READ, name="again")], "one last step"),
    ):
        with pytest.raises(InputError, match=said):
            ordered(steps)
    with pytest.raises(InputError, match="'read' \\(read\\) must name 1 steps, found 0"):
        replace(READ, after=())
