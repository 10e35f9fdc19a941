"""Combines the reader's spans and the retriever's scores into the answers to one question."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, NamedTuple

from sparta.base.records import Hit
from sparta.data.answers import normalized
from sparta.reader.config import Calibration, ReaderConfig
from sparta.reader.records import Span, Text
from sparta.search.retriever import Retriever


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer and its passage: `text[start:end] == answer`.

    In an index of chunks, `text` is a chunk of the passage, and `text_start` is the chunk's first character
    in the passage's text. Else `text_start` is 0.

    In an index of sentences, `text` is the whole passage, and `passage_id` names the sentence that holds the
    answer. If no retrieved sentence holds the whole answer, `passage_id` names the passage.

    The answers yes and no, which a chain with a reader of paths may give, have no span: their `start` and
    `end` are 0.

    `score` is from 0 to 1. On questions, a channel and a depth like in the reader's tuning, `score` is the
    probability that the answer is correct. `score` combines `reader` and `ranker`. `reader` is the
    probability that the reader gives the answer in this passage (in all passages if mentions add up).
    `ranker` is the passage's score, scaled from 0 (last retrieved passage) to 1 (first).
    """

    answer: str
    score: float
    passage_id: str
    title: str
    text: str
    start: int
    end: int
    reader: float
    ranker: float
    text_start: int = 0

    def around(self, characters: int = 160) -> tuple[str, str, str]:
        """Return the text before the answer, the answer, and the text after the answer.

        The texts before and after have at most `characters` characters and are cut at white space if
        possible.
        """
        before_start, after_end = max(0, self.start - characters), min(len(self.text), self.end + characters)
        before, after = self.text[before_start : self.start], self.text[self.end : after_end]
        if before_start > 0:
            before = "… " + re.sub(r"^\S{0,20}\s+", "", before)
        if after_end < len(self.text):
            after = re.sub(r"\s+\S{0,20}$", "", after) + " …"
        return before, self.answer, after

    def as_dict(self) -> dict[str, Any]:
        """Return the answer's fields as a dictionary for JSON."""
        return {
            "answer": self.answer,
            "score": self.score,
            "passage_id": self.passage_id,
            "start": self.start,
            "end": self.end,
            "title": self.title,
            "text": self.text,
            "text_start": self.text_start,
            "reader": self.reader,
            "ranker": self.ranker,
        }


class AnswerList(list[Answer]):
    """The answers to a question, best first, and whether the answerer abstained.

    :param best_guess: the best answer, also below the threshold; None if there is no answer at all
    :param threshold: the score that every answer of the list reaches
    """

    def __init__(
        self, answers: Iterable[Answer] = (), best_guess: Answer | None = None, threshold: float = 0.0
    ) -> None:
        super().__init__(answers)
        self.best_guess, self.threshold = best_guess, threshold

    @classmethod
    def of(cls, answers: Sequence[Answer], threshold: float) -> AnswerList:
        """Return the answers that reach the threshold; the first answer is the best guess."""
        reaching = [answer for answer in answers if answer.score >= threshold]
        return cls(reaching, answers[0] if answers else None, threshold)

    @property
    def abstained(self) -> bool:
        """Whether no answer reached the threshold. Without a threshold, this is False."""
        return self.threshold > 0 and not self

    def as_dict(self) -> dict[str, Any]:
        """Return threshold, abstention and best guess as a dictionary for JSON, without the answers."""
        guess = self.best_guess.as_dict() if self.abstained and self.best_guess else None
        return {"abstained": self.abstained, "threshold": self.threshold, "best_guess": guess}


def probability(calibration: Calibration, score: float) -> float:
    """Return the probability of a score by Platt scaling: `1 / (1 + exp(-(a·score + b)))`."""
    log_odds = calibration.a * score + calibration.b
    return 1 / (1 + math.exp(-log_odds)) if log_odds > 0 else math.exp(log_odds) / (1 + math.exp(log_odds))


def as_read(retriever: Retriever, hits: Sequence[Hit]) -> list[Hit]:
    """Return hits with the text that a reader reads: sentences with their passage's text.

    The hits stay unchanged if the retriever has no method `in_context`.
    """
    in_context = getattr(retriever, "in_context", list)
    return list(in_context(hits))


def start_of_text(hit: Hit, text: str) -> int:
    """Return the place of a hit's read text in its passage's text: the start of a chunk, else 0."""
    return hit.start if hit.document_id and text == hit.text else 0


def id_of_passage(hit: Hit, text: str, place: tuple[int, int], hits: Sequence[Hit]) -> str:
    """Return the id of the passage that holds an answer.

    The reader reads a sentence's whole passage, so another sentence may hold the answer. The id is then that
    of a hit that holds the answer, else that of the whole passage.

    :param text: the text that the reader read for the hit
    :param place: the start and the end of the answer in `text`; equal for yes and no, which have no span
    """
    start, end = place
    if not hit.document_id or text == hit.text or start == end:
        return hit.passage_id
    sentences = [hit, *(other for other in hits if other.document_id == hit.document_id)]
    ids = (other.passage_id for other in sentences if other.start <= start and end <= other.end)
    return next(ids, hit.document_id)


def folded_texts(texts: Iterable[Text], fold: Callable[[str], str]) -> list[Text]:
    """Return texts and titles, each folded by `fold`, for the reader.

    A folded text has the length of the original text, so that the reader's spans fit both.
    """
    return [Text(fold(text.text), fold(text.title)) for text in texts]


def ranker_scores(scores: Sequence[float]) -> list[float]:
    """Return the scores of one ranking, scaled from 1 (first) to 0 (last); 1 if all scores are equal."""
    if not scores:
        return []
    high, low = max(scores), min(scores)
    return [(score - low) / (high - low) if high > low else 1.0 for score in scores]


RERANK_WEIGHT = 0.1
"""The weight of a cross-encoder's score in the scores of a passage's spans (figures: decision 0046)."""


def rerank_offsets(scores: Sequence[float]) -> list[float]:
    """Return the offset of each passage's span scores: 0 for the best passage, below 0 for the others.

    :param scores: the cross-encoder's score of each passage

    The scores are log odds, as those of spans. If a cross-encoder gives probabilities, the offset hardly
    counts.
    """
    highest = max(scores, default=0.0)
    return [RERANK_WEIGHT * (score - highest) for score in scores]


def with_offset(spans: Sequence[Span], offset: float) -> Sequence[Span]:
    """Return the spans of a passage with an offset added to their scores."""
    return [span._replace(score=span.score + offset) for span in spans] if offset else spans


class SpanProbabilities(NamedTuple):
    """The answer key of a span, the span's probability as a mention, and the probability of its answer."""

    key: str
    mention: float
    answer: float


def span_probabilities(
    config: ReaderConfig, texts: Sequence[Text], spans: Sequence[Sequence[Span]], language: str = "en"
) -> list[list[SpanProbabilities]]:
    """Return the probabilities of each passage's spans: as a mention and as an answer.

    Platt scaling of a span's score gives the probability that the mention is correct in its passage. By
    default this is also the answer's probability, so that the best mention counts, as in SPARTA's code. With
    `sum_mentions`, an answer's odds are the sum of the odds of its best mention in each text, as if the texts
    were independent. With global tokens (FiE), one softmax covers the spans of all passages and "no answer";
    spans with the same answer add up. A text that several hits share counts once.
    """
    keys = [
        [answer_key(text.text[span.start : span.end], language) for span in text_spans]
        for text, text_spans in zip(texts, spans, strict=False)
    ]
    mentions = [[probability(config.passage, span.score) for span in text_spans] for text_spans in spans]
    if not config.combines_mentions:
        return [
            [
                SpanProbabilities(key, mention, mention)
                for key, mention in zip(text_keys, probabilities, strict=True)
            ]
            for text_keys, probabilities in zip(keys, mentions, strict=True)
        ]
    distinct_texts: dict[Text, tuple[list[str], Sequence[Span]]] = {}
    for text, text_keys, text_spans in zip(texts, keys, spans, strict=False):
        distinct_texts.setdefault(text, (text_keys, text_spans))  # of the best hit with this text
    spans_by_text = [
        (text.text, [*zip(*keys_and_spans, strict=True)]) for text, keys_and_spans in distinct_texts.items()
    ]
    if config.global_tokens:
        mentions, answers = _softmax(spans, spans_by_text)
    else:
        answers = _added_odds(config.passage, spans_by_text)
    return [
        [
            SpanProbabilities(key, mention, answers[key])
            for key, mention in zip(text_keys, probabilities, strict=True)
        ]
        for text_keys, probabilities in zip(keys, mentions, strict=True)
    ]


_KeyedSpans = Sequence[tuple[str, Sequence[tuple[str, Span]]]]
"""Texts with their spans: `(text, [(answer key, span), …])`."""


def _softmax(
    spans: Sequence[Sequence[Span]], spans_by_text: _KeyedSpans
) -> tuple[list[list[float]], dict[str, float]]:
    """Return each span's probability and each answer's probability from one softmax over all spans."""
    keyed_spans = [keyed_span for _, text_spans in spans_by_text for keyed_span in text_spans]
    highest = max((0.0, *(2 * span.score for _, span in keyed_spans)))
    sum_by_key: dict[str, float] = defaultdict(float)
    for key, span in keyed_spans:
        sum_by_key[key] += math.exp(2 * span.score - highest)
    total = math.exp(-highest) + math.fsum(sum_by_key.values())
    mentions = [[math.exp(2 * span.score - highest) / total for span in text_spans] for text_spans in spans]
    return mentions, {key: key_sum / total for key, key_sum in sum_by_key.items()}


def _added_odds(calibration: Calibration, spans_by_text: _KeyedSpans) -> dict[str, float]:
    """Return the probability of each answer: its odds add up the odds of its best mention in each text."""
    best_scores: dict[tuple[str, str], float] = {}
    for text, keyed_spans in spans_by_text:
        for key, span in keyed_spans:
            best_scores[key, text] = max(span.score, best_scores.get((key, text), -math.inf))
    logits: dict[str, list[float]] = defaultdict(list)
    for (key, _), score in best_scores.items():
        logits[key].append(calibration.a * score + calibration.b)
    return {key: probability(Calibration(), _log_sum(text_logits)) for key, text_logits in logits.items()}


def _log_sum(logits: Sequence[float]) -> float:
    """Return the logarithm of the sum of exp(logit)."""
    highest = max(logits)
    return highest + math.log(math.fsum(math.exp(logit - highest) for logit in logits))


def answer_key(answer: str, language: str) -> str:
    """Return the normalized form of an answer, which equal answers share in the measure of the language."""
    return normalized(answer, language) or answer


def combine(
    config: ReaderConfig,
    hits: Sequence[Hit],
    texts: Sequence[Text],
    passage_scores: Sequence[float],
    spans: Sequence[Sequence[Span]],
    weight: float,
    n: int,
    language: str = "en",
) -> list[Answer]:
    """Return the `n` best answers, best first, by `(1 - weight) · reader + weight · ranker`.

    Mentions with the same `answer_key` form one answer, shown at the mention with the best score. If mentions
    of different answers overlap in a text, only the mention of the best answer is shown; the other mentions
    still count in `span_probabilities`. Answers with equal scores are ordered by the passage's rank, then by
    the reader's probability, then by position in the text.

    :param spans: the reader's spans of the first passages; later passages may be unread
    """
    estimates = span_probabilities(config, texts, spans, language)
    mentions = [
        ((1 - weight) * estimate.mention + weight * passage_scores[position], position, span, estimate)
        for position, spans_and_estimates in enumerate(zip(spans, estimates, strict=True))
        for span, estimate in zip(*spans_and_estimates, strict=True)
    ]
    # for each answer key: the best mention's score, and the score of that mention's passage
    best_mentions: dict[str, tuple[float, float]] = {}
    for mention_score, position, _, estimate in mentions:
        best_mentions[estimate.key] = max(
            (mention_score, passage_scores[position]), best_mentions.get(estimate.key, (-1.0, 0.0))
        )
    candidates: list[tuple[tuple[float, float, int, float, int], str, Answer]] = []
    for mention_score, position, span, estimate in mentions:
        hit, text, ranker = hits[position], texts[position], passage_scores[position]
        score = (1 - weight) * estimate.answer + weight * ranker
        place = span.start, span.end
        location = id_of_passage(hit, text.text, place, hits), text.title, text.text, *place
        answer = Answer(
            text.text[span.start : span.end],
            score,
            *location,
            estimate.answer,
            ranker,
            start_of_text(hit, text.text),
        )
        best_passage_score = best_mentions[estimate.key][1]
        answer_score = (
            (1 - weight) * estimate.answer + weight * best_passage_score
            if config.combines_mentions
            else score
        )
        order = -answer_score, -mention_score, position, -estimate.mention, span.start
        candidates.append((order, estimate.key, answer))
    best: dict[str, Answer] = {}
    shown_answers: dict[str, list[Answer]] = defaultdict(list)  # by passage text
    for _, key, answer in sorted(candidates, key=itemgetter(0)):
        text_answers = shown_answers[answer.text]
        if any(
            answer.start < shown_answer.end and shown_answer.start < answer.end
            for shown_answer in text_answers
        ):
            continue
        text_answers.append(answer)
        best.setdefault(key, answer)
    answers = sorted(best.values(), key=lambda answer: -answer.score)[:n]
    if config.answer is None:
        return answers
    return [replace(answer, score=probability(config.answer, answer.score)) for answer in answers]
