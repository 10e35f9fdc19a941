"""From spans and rankings to answers, worked by hand; and that reading stops early only where it may."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from unittest.mock import Mock

import pytest

from hybrid.answering.answerer import Answerer
from hybrid.answering.answers import (
    Answer,
    combine,
    probability,
    ranker_scores,
    rerank_offsets,
    span_probabilities,
    with_offset,
)
from hybrid.answering.path_answerer import PathAnswerer
from sparta.api import Index
from sparta.base.errors import InputError
from sparta.base.records import Hit
from sparta.reader.config import Abstention, Calibration, ReaderConfig
from sparta.reader.records import Span, Text, text_of

CONFIG = ReaderConfig(passage=Calibration(1.0, 0.0))


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def hit(passage_id: str, text: str, score: float = 1.0, **metadata: Any) -> Hit:
    return Hit(passage_id, score, "Title", text, metadata)


def test_reader_and_ranker_by_hand() -> None:
    hits = [hit("a", "Larry Page did", 30), hit("b", "the larry page.", 20), hit("c", "Sergey", 10)]
    texts = [text_of(one) for one in hits]
    spans = [[Span(0, 0, 10, 0.0)], [Span(1, 0, 14, 2.0)], [Span(2, 0, 6, 2.5)]]
    rankers = ranker_scores([one.score for one in hits])
    assert rankers == [1.0, 0.5, 0.0]
    first, second = combine(CONFIG, hits, texts, rankers, spans, 0.2, 5)
    # mentions of one answer: the best of 0.8·σ(0) + 0.2 = 0.6 and 0.8·σ(2) + 0.1 = 0.80
    assert (first.answer, first.passage_id) == ("the larry page", "b")
    assert first.score == pytest.approx(0.8 * sigmoid(2) + 0.1)
    assert (first.reader, first.ranker) == (pytest.approx(sigmoid(2)), 0.5)
    assert (second.answer, second.score) == ("Sergey", pytest.approx(0.8 * sigmoid(2.5)))
    assert first.text[first.start : first.end] == first.answer
    [only] = combine(CONFIG, hits, texts, rankers, spans, 0.0, 1)
    assert only.answer == "Sergey"  # the reader's own order


def test_equal_scores_keep_the_rankers_order() -> None:
    hits = [hit("a", "one two"), hit("b", "three")]
    spans = [[Span(0, 4, 7, 1.0), Span(0, 0, 3, 1.0)], [Span(1, 0, 5, 1.0)]]
    found = combine(CONFIG, hits, [text_of(h) for h in hits], [1.0, 1.0], spans, 0.5, 3)
    assert [one.answer for one in found] == ["one", "two", "three"]


def test_calibrated_answers_are_probabilities() -> None:
    config = ReaderConfig(answer=Calibration(4.0, -1.0))
    [one] = combine(config, [hit("a", "x")], [Text("x")], [1.0], [[Span(0, 0, 1, 0.0)]], 0.2, 1)
    assert one.score == pytest.approx(sigmoid(4 * 0.6 - 1))
    assert probability(Calibration(1.0, 0.0), -800.0) == 0.0
    assert probability(Calibration(1.0, 0.0), 800.0) == 1.0


def test_fusion_in_encoder_adds_up_what_says_the_same() -> None:
    config = ReaderConfig(global_tokens=2)
    texts = [Text("the Moon"), Text("moon or Mars")]
    spans = [[Span(0, 0, 8, 0.5)], [Span(1, 0, 4, 1.0), Span(1, 8, 12, 0.7)]]
    total = 1 + math.exp(1.0) + math.exp(2.0) + math.exp(1.4)
    moon = (math.exp(1.0) + math.exp(2.0)) / total
    estimates = span_probabilities(config, texts, spans)
    shares = [[estimate.answer for estimate in of_text] for of_text in estimates]
    assert shares == [[pytest.approx(moon)], [pytest.approx(moon), pytest.approx(math.exp(1.4) / total)]]


def test_a_text_that_two_hits_share_adds_up_once() -> None:
    config = ReaderConfig(global_tokens=2)
    text, other = Text("the Moon"), Text("Mars")
    one, two = [Span(0, 0, 8, 0.5)], [Span(0, 0, 4, 0.5)]
    [[alone], *_] = span_probabilities(config, [text, other], [one, two])
    [[first], [second], _] = span_probabilities(config, [text, text, other], [one, one, two])
    assert alone == first == second


def test_odds_of_mentions_add_up() -> None:
    """An answer's best mention of each text; it is shown where it is most probable."""
    config = ReaderConfig(passage=Calibration(0.5, -1.0), sum_mentions=True)
    hits = [hit("a", "moon or Mars or the Moon"), hit("b", "the Moon!"), hit("c", "moon or Mars or the Moon")]
    texts = [text_of(one) for one in hits]
    first = [Span(0, 0, 4, 1.0), Span(0, 8, 12, 2.5), Span(0, 16, 24, 0.5)]
    spans = [first, [Span(1, 0, 8, 2.0)], first]
    moon = math.exp(0.5 * 1.0 - 1) + math.exp(0.5 * 2.0 - 1)  # odds; the text that two hits share counts once
    mars = math.exp(0.5 * 2.5 - 1)
    found = combine(config, hits, texts, [1.0, 0.5, 0.0], spans, 0.0, 5)
    assert [(one.answer, one.passage_id) for one in found] == [("the Moon", "b"), ("Mars", "a")]
    assert [one.score for one in found] == [
        pytest.approx(moon / (1 + moon)),
        pytest.approx(mars / (1 + mars)),
    ]
    assert [one.reader for one in found] == [one.score for one in found]
    by_best = combine(ReaderConfig(passage=config.passage), hits, texts, [1.0, 0.5, 0.0], spans, 0.0, 5)
    assert [one.answer for one in by_best] == ["Mars", "the Moon"]
    # with the ranker: of the mention that is shown
    [one, other] = combine(config, hits, texts, [1.0, 0.5, 0.0], spans, 0.4, 5)
    assert (one.answer, one.passage_id, one.ranker) == ("moon", "a", 1.0)
    assert one.score == pytest.approx(0.6 * moon / (1 + moon) + 0.4)
    assert other.score == pytest.approx(0.6 * mars / (1 + mars) + 0.4)


def test_an_answer_has_the_rankers_score_of_the_passage_that_is_shown() -> None:
    """ "New York" has its best mention within "New York City", and is shown in another passage."""
    config = ReaderConfig(passage=Calibration(1.0, 0.0), sum_mentions=True)
    hits = [hit("a", "New York City"), hit("b", "in New York")]
    texts, spans = (
        [text_of(one) for one in hits],
        [[Span(0, 0, 13, 4.0), Span(0, 0, 8, 3.0)], [Span(1, 3, 11, -2.0)]],
    )
    city, york = combine(config, hits, texts, [1.0, 0.0], spans, 0.3, 5)
    assert (city.answer, city.passage_id, city.ranker) == ("New York City", "a", 1.0)
    assert (york.answer, york.passage_id, york.ranker) == ("New York", "b", 0.0)
    odds = math.exp(3.0) + math.exp(-2.0)
    assert york.score == pytest.approx(0.7 * odds / (1 + odds))


def test_one_text_under_two_titles_adds_up_once() -> None:
    config = ReaderConfig(passage=Calibration(1.0, 0.0), sum_mentions=True)
    texts = [Text("the Moon", "one"), Text("the Moon", "two")]
    probabilities = span_probabilities(config, texts, [[Span(0, 0, 8, 0.0)], [Span(1, 0, 8, 1.0)]])
    assert [span.answer for of_text in probabilities for span in of_text] == [pytest.approx(sigmoid(1.0))] * 2


def test_where_mentions_add_up_all_passages_are_read() -> None:
    hits = [hit(str(i), f"text {i}", 10.0 - i) for i in range(6)]
    spans = {one.text: [Span(0, 0, 4, 30.0)] for one in hits}
    for sums in (False, True):
        reader = FixedReader(spans, ReaderConfig(weight=0.5, sum_mentions=sums))
        answerer = Answerer(FixedRetriever(hits), reader)
        answerer.answer("?")
        assert answerer.counts.read == (6 if sums else 1)


def test_ranker_scores() -> None:
    assert ranker_scores([]) == []
    assert ranker_scores([3.0, 3.0]) == [1.0, 1.0]


def test_the_text_around_an_answer() -> None:
    text = "one two three four five six seven"
    answer = Answer("four", 1.0, "a", "", text, text.index("four"), text.index("four") + 4, 1.0, 1.0)
    assert answer.around(9) == ("… three ", "four", " five …")
    chinese = Answer("北京", 1.0, "a", "", "中国的首都是北京。" * 30, 60, 62, 1.0, 1.0)
    assert [len(part) for part in chinese.around(10)] == [12, 2, 12]
    assert answer.around() == ("one two three ", "four", " five six seven")


@dataclass
class FixedReader:
    """Gives the spans it is told, by text."""

    spans: dict[str, list[Span]]
    config: ReaderConfig = CONFIG
    texts: list[str] = field(default_factory=list)

    def read_each(self, question: str, texts: Sequence[Text], n: int = 5) -> Generator[list[Span]]:
        for text in texts:
            self.texts.append(text.text)
            yield self.spans[text.text][:n]


@dataclass
class FixedRetriever:
    """Gives the hits it is told."""

    hits: list[Hit]
    channel: str = "fixed"
    ranking_name: str = "fixed"
    language: str = "en"
    rerank_depth: int = 0

    def search(self, query: str, k: int = 10) -> list[Hit]:
        return self.hits[:k]

    def batch_search(
        self, queries: Any, query_ids: Any, k: int = 10, threads: int = 1
    ) -> dict[str, list[Hit]]:
        return dict.fromkeys(query_ids, self.hits[:k])

    def close(self) -> None:
        self.hits = []


@pytest.mark.parametrize("sums", [False, True])
def test_after_reranking_a_tenth_of_the_passages_score_counts(sums: bool) -> None:
    hits = [hit("a", "Sergey", 4.0), hit("b", "Larry Page", -2.0), hit("c", "Sergey", -7.0)]
    spans = {"Sergey": [Span(0, 0, 6, 1.0)], "Larry Page": [Span(0, 0, 10, 1.5)]}
    reader = FixedReader(spans, replace(CONFIG, weight=0.0, sum_mentions=sums))
    plain = Answerer(FixedRetriever(hits), reader)
    assert [one.answer for one in plain.answer("?", 2)] == ["Larry Page", "Sergey"]
    reranked = Answerer(FixedRetriever(hits, rerank_depth=3), reader).answer("?", 2)
    assert [(one.answer, one.passage_id) for one in reranked] == [("Sergey", "a"), ("Larry Page", "b")]
    # the best passage keeps its score; 4 − (−2) = 6 lowers the other one by 0.6
    assert [one.score for one in reranked] == [pytest.approx(sigmoid(s)) for s in (1.0, 1.5 - 0.6)]


def test_all_reranked_passages_are_read_unless_a_depth_is_named() -> None:
    hits = [hit(str(i), f"text {i}", 10.0 - i) for i in range(30)]
    reader = FixedReader({one.text: [Span(0, 0, 4, 1.0)] for one in hits})
    for rerank_depth, depth, expected in ((0, None, 10), (4, None, 10), (25, None, 25), (25, 7, 7)):
        answerer = Answerer(FixedRetriever(hits, rerank_depth=rerank_depth), reader, depth=depth)
        answerer.answer("?")
        assert answerer.counts.retrieved == expected


def made(seed: int) -> tuple[list[Hit], dict[str, list[Span]]]:
    draw = random.Random(seed)
    texts = [f"w{draw.randint(0, 6)} x{i // 2}" for i in range(20)]  # some texts are there twice
    scores = sorted((draw.uniform(0, 100) for _ in texts), reverse=True)
    hits = [hit(f"p{i}", text, score) for i, (text, score) in enumerate(zip(texts, scores, strict=True))]
    spans = {
        text: [Span(0, 0, 2, draw.gauss(0, 3)), Span(0, 3, len(text), draw.gauss(-1, 3))] for text in texts
    }
    return hits, {text: sorted(own, key=lambda s: -s.score) for text, own in spans.items()}


@pytest.mark.parametrize("answer", [None, Calibration(5.0, -2.0)])
@pytest.mark.parametrize("weight", [0.0, 0.2, 0.5, 1.0])
def test_stopping_early_changes_no_answer(weight: float, answer: Calibration | None) -> None:
    early = 0
    for seed in range(60):
        hits, spans = made(seed)
        config = ReaderConfig(answer=answer, weight=weight)
        reader = FixedReader(spans, config)
        for n, rerank_depth in ((1, 0), (3, 0), (1, 20), (3, 20)):
            answerer = Answerer(
                FixedRetriever(hits, rerank_depth=rerank_depth), reader, depth=20, weight=weight
            )
            found = answerer.answer("?", n)
            texts, scores = [text_of(one) for one in hits], [one.score for one in hits]
            offsets = rerank_offsets(scores) if rerank_depth else [0.0] * 20
            all_spans = [with_offset(spans[t.text], offset) for t, offset in zip(texts, offsets, strict=True)]
            everything = combine(config, hits, texts, ranker_scores(scores), all_spans, weight, n)
            assert found == everything
            assert answerer.counts.retrieved == 20
            early += answerer.counts.read < 20
    assert early > 60 or (weight == 0.0 and early == 0)  # a reader alone is never sure


@dataclass
class TitleReader(FixedReader):
    """Gives the spans it is told, by title and text."""

    def read_each(self, question: str, texts: Sequence[Text], n: int = 5) -> Generator[list[Span]]:
        for text in texts:
            yield self.spans[f"{text.title}|{text.text}"][:n]


@pytest.mark.slow
@pytest.mark.parametrize("weight", [0.2, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("falling", [True, False])
def test_stopping_early_with_ties_shared_texts_and_hits_in_any_order(weight: float, falling: bool) -> None:
    """Few scores and few words, so that most are equal; a text may stand there under several titles."""
    early = 0
    for seed in range(100):
        draw = random.Random(seed)
        few = [Text(f"w{i} x{j} y", f"t{k}") for i in range(3) for j in range(2) for k in range(2)]
        texts = draw.choices(few, k=12)
        scores = [float(draw.randint(0, 6)) for _ in texts]
        scores = sorted(scores, reverse=True) if falling else scores
        hits = [
            Hit(f"p{i}", s, t.title, t.text, {}) for i, (t, s) in enumerate(zip(texts, scores, strict=True))
        ]
        places = [(0, 2), (0, 5), (3, 5), (3, 7)]
        spans = {
            f"{t.title}|{t.text}": sorted(
                (Span(0, *place, draw.choice([-2.0, 0.0, 2.0, 9.0])) for place in places),
                key=lambda s: -s.score,
            )
            for t in few
        }
        config = ReaderConfig(answer=draw.choice([None, Calibration(300.0, 0.0)]), weight=weight)
        own = [spans[f"{t.title}|{t.text}"] for t in texts]
        for n in (1, 2, 5):
            answerer = Answerer(FixedRetriever(hits), TitleReader(spans, config), depth=12)
            rankers = ranker_scores(scores)
            assert answerer.answer("?", n) == combine(config, hits, texts, rankers, own, weight, n)
            early += answerer.counts.read < 12
    assert early > 30


def test_what_stops_reading_is_not_worked_out_anew_with_each_passage(
    calls: Callable[..., list[tuple[str, dict[str, Any]]]],
) -> None:
    combined = calls(combine)
    hits = [hit(f"p{i}", f"w{i} x", 100.0 - i) for i in range(50)]
    reader = FixedReader({one.text: [Span(0, 0, 2, 0.0)] for one in hits})
    Answerer(FixedRetriever(hits), reader, depth=50, weight=0.0).answer("?")
    assert [len(given["spans"]) for _, given in combined] == [1] * 50 + [50]


def test_by_the_ranker_alone_the_first_passage_gives_its_best_span() -> None:
    hits = [hit("a", "one two", 2.0), hit("b", "three", 1.0)]
    reader = FixedReader(
        {"one two": [Span(0, 4, 7, 1.0), Span(0, 0, 3, -1.0)], "three": [Span(0, 0, 5, 9.0)]}
    )
    [found] = Answerer(FixedRetriever(hits), reader, weight=1.0).answer("?")
    assert found.answer == "two"


def test_a_text_is_read_once() -> None:
    hits, spans = made(2)
    reader = FixedReader(spans)
    Answerer(FixedRetriever(hits), reader, depth=20, weight=0.0).answer("?")
    assert sorted(reader.texts) == sorted({one.text for one in hits})


def test_with_another_weight_no_probability_is_shown() -> None:
    hits, spans = made(4)
    reader = FixedReader(spans, ReaderConfig(answer=Calibration(9.0, -9.0), weight=0.2))
    tuned, other = (
        Answerer(FixedRetriever(hits), reader, weight=weight).answer("?")[0] for weight in (0.2, 0.3)
    )
    assert tuned.score == pytest.approx(sigmoid(9 * (0.8 * tuned.reader + 0.2 * tuned.ranker) - 9))
    assert other.score == pytest.approx(0.7 * other.reader + 0.3 * other.ranker)


def test_many_questions_are_as_one_by_one() -> None:
    hits, spans = made(3)
    answerer = Answerer(FixedRetriever(hits), FixedReader(spans))
    found = dict(answerer.batch_answer(["a", "b"], ["1", "2"], n=2))
    assert found == {"1": answerer.answer("a", 2), "2": answerer.answer("b", 2)}


def test_thresholds_and_nothing_found() -> None:
    hits, spans = made(5)
    reader = FixedReader(spans)
    assert Answerer(FixedRetriever([]), reader).answer("?") == []
    sure = Answerer(FixedRetriever(hits), reader, threshold=1.0)
    assert sure.answer("?") == []
    for wrong in (0, None, 2.5):
        with pytest.raises(InputError, match="n must be"):
            Answerer(FixedRetriever(hits), reader).answer("?", wrong)
    for options in ({"depth": 0}, {"depth": 2.5}, {"weight": 1.5}, {"threshold": -0.1}, {"threshold": 1.5}):
        with pytest.raises(InputError, match=r"depth must be|expected a (weight|threshold) from 0 to 1"):
            Answerer(FixedRetriever(hits), reader, **options)


def test_an_answerer_abstains_where_the_reader_is_calibrated() -> None:
    hits, spans = made(5)
    config = replace(CONFIG, answer=CONFIG.answer or Calibration(1.0, 0.0))
    best = Answerer(FixedRetriever(hits), FixedReader(spans, config)).answer("?")[0]
    above, below = (best.score + 1) / 2, best.score / 2
    for threshold, channel, depth, abstains in (
        (above, "fixed", 10, True),
        (below, "fixed", 10, False),
        (above, "bm25", 10, False),
        (above, "fixed", 5, False),
    ):
        tuned = replace(config, abstention=Abstention(threshold, channel, depth))
        found = Answerer(FixedRetriever(hits), FixedReader(spans, tuned)).answer("?")
        assert (found.abstained, found == [], found.best_guess) == (abstains, abstains, best)
        always = Answerer(FixedRetriever(hits), FixedReader(spans, tuned), threshold=0).answer("?")
        assert (always.abstained, always) == (False, [best])
        other_weight = Answerer(FixedRetriever(hits), FixedReader(spans, tuned), weight=0.9)
        assert other_weight.threshold == 0
        assert ReaderConfig.from_dict(asdict(tuned), "here") == tuned


def test_the_order_and_the_old_names_of_channels_do_not_matter() -> None:
    from hybrid.retrieval.channels import CHANNELS
    from hybrid.retrieval.fusion import parse_weights, weights_name

    typed = ("impact,bm25", "bm25,impact", "sparta=1,bm25", "bm25=1.0,impact")
    assert {weights_name(parse_weights(text, CHANNELS)) for text in typed} == {"bm25,impact"}
    assert weights_name(parse_weights("impact,bm25=0.5", CHANNELS)) == "bm25=0.5,impact"


@pytest.mark.parametrize(("queries", "ids"), [(["a", "b"], ["1"]), ("a", ["1"]), ({"1": "a"}, ["1"])])
def test_what_is_no_list_of_questions(queries: Any, ids: Any) -> None:
    hits, spans = made(3)
    with pytest.raises(InputError, match="queries"):
        next(Answerer(FixedRetriever(hits), FixedReader(spans)).batch_answer(queries, ids))


def test_what_retrieves_and_what_reads() -> None:
    hits, spans = made(3)
    index = Mock(Index)
    index.retriever.return_value = FixedRetriever(hits)
    answerer = Answerer(index, FixedReader(spans))
    assert answerer.answer("?", 2) == Answerer(FixedRetriever(hits), FixedReader(spans)).answer("?", 2)
    with pytest.raises(InputError, match=r"str\n.*index.retriever"):
        Answerer("ix", FixedReader(spans))
    with pytest.raises(InputError, match="str"):
        Answerer(FixedRetriever(hits), "reader")
    with pytest.raises(InputError, match="'hop-read'"):
        PathAnswerer("hop-read")


def test_of_answers_that_overlap_in_a_passage_the_best_is_shown() -> None:
    text = "Mercury is a silvery metal"
    hits = [hit("a", text), hit("b", text + "."), hit("c", "Gallium is a silvery metal")]
    spans = [
        [Span(0, 0, 7, 3.0), Span(0, 0, 20, 2.0), Span(0, 13, 26, 0.5)],
        [Span(1, 0, 7, 1.5), Span(1, 0, 20, 1.0)],  # a lesser mention of Mercury, and what overlaps it
        [Span(2, 0, 7, 0.0), Span(2, 11, 26, -1.0)],
    ]
    found = combine(CONFIG, hits, [text_of(one) for one in hits], [1.0] * 3, spans, 0.2, 5)
    assert [one.answer for one in found] == ["Mercury", "silvery metal", "Gallium"]
    assert found[0].score == pytest.approx(0.8 * sigmoid(3) + 0.2)
