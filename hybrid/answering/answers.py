"""The answers of one question, from what the reader found and where the retriever ranked it."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sparta.base.records import Hit
from sparta.data.answers import normalized
from sparta.reader.config import Calibration, ReaderConfig
from sparta.reader.records import Span, Text


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, and the passage in which it stands: `text[start:end] == answer`.

    `score` is from 0 to 1: on questions, a channel and a depth like those that the reader was tuned with, the
    probability that it is right. It comes from `reader`, the probability that the reader gives the answer in
    this passage, and `ranker`, the passage's score from 0 (the last of those retrieved) to 1 (the first).
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

    def around(self, characters: int = 160) -> tuple[str, str, str]:
        """The text before the answer, the answer, and the text after it, cut at white space if possible."""
        left, right = max(0, self.start - characters), min(len(self.text), self.end + characters)
        before, after = self.text[left : self.start], self.text[self.end : right]
        if left > 0:
            before = "… " + re.sub(r"^\S{0,20}\s+", "", before)
        if right < len(self.text):
            after = re.sub(r"\s+\S{0,20}$", "", after) + " …"
        return before, self.answer, after

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "answer": self.answer,
            "score": self.score,
            "passage_id": self.passage_id,
            "start": self.start,
            "end": self.end,
            "title": self.title,
            "text": self.text,
            "reader": self.reader,
            "ranker": self.ranker,
        }


def probability(calibration: Calibration, score: float) -> float:
    """Platt scaling: `1 / (1 + exp(-(a·score + b)))`."""
    odds = calibration.a * score + calibration.b
    return 1 / (1 + math.exp(-odds)) if odds > 0 else math.exp(odds) / (1 + math.exp(odds))


def text_of(hit: Hit) -> Text:
    """What the reader reads of a hit: its context, where the passage is a sentence of one, else its text."""
    context = hit.metadata.get("context")
    return Text(context if isinstance(context, str) and context else hit.text, hit.title)


def folded_texts(texts: Iterable[Text], fold: Callable[[str], str]) -> list[Text]:
    """The texts as a reader reads them; what it finds stands at the same place in the texts themselves."""
    return [Text(fold(text.text), fold(text.title)) for text in texts]


def ranker_scores(scores: Sequence[float]) -> list[float]:
    """Scores of one ranking from 1 (its first) to 0 (its last); 1 where all are equal."""
    if not scores:
        return []
    high, low = max(scores), min(scores)
    return [(s - low) / (high - low) if high > low else 1.0 for s in scores]


def reader_probabilities(
    config: ReaderConfig, texts: Sequence[Text], spans: Sequence[Sequence[Span]], language: str = "en"
) -> list[list[float]]:
    """How probable each span is as the answer, by passage.

    Of a reader without global tokens: that the span is right in its passage (Platt scaling). With global
    tokens, as FiE has it: one softmax over the spans of all passages and "no answer"; spans that
    say the same add up.
    """
    if not config.global_tokens:
        return [[probability(config.passage, span.score) for span in own] for own in spans]
    once = dict(zip(texts, spans, strict=False))  # a text that several hits share counts once
    highest = max((0.0, *(2 * span.score for own in once.values() for span in own)))
    total, sums = math.exp(-highest), dict[str, float]()
    for text, own in once.items():
        for span in own:
            name = answer_key(text.text[span.start : span.end], language)
            share = math.exp(2 * span.score - highest)
            total += share
            sums[name] = sums.get(name, 0.0) + share
    return [
        [sums[answer_key(text.text[span.start : span.end], language)] / total for span in own]
        for text, own in zip(texts, spans, strict=False)
    ]


def answer_key(answer: str, language: str) -> str:
    """What answers have in common that the measure of their language counts as the same."""
    return normalized(answer, language) or answer


def combine(
    config: ReaderConfig,
    hits: Sequence[Hit],
    texts: Sequence[Text],
    rankers: Sequence[float],
    spans: Sequence[Sequence[Span]],
    weight: float,
    n: int,
    language: str = "en",
) -> list[Answer]:
    """The `n` best answers, best first, by `(1 - weight) · reader + weight · ranker`.

    Answers that the measure of their language counts as the same are one, with the best score of its
    mentions (the maximum, as in SPARTA's own code). Of mentions that overlap in a text, only the best counts.
    Equal scores: the passage that was ranked higher, in it what the reader finds more probable, then what
    stands first.

    :param spans: those of the first passages; the others are not read yet
    """
    found: list[tuple[tuple[float, int, float, int], Answer]] = []
    readers = reader_probabilities(config, texts, spans, language)
    for at, (own, probabilities) in enumerate(zip(spans, readers, strict=True)):
        hit, text, ranker = hits[at], texts[at], rankers[at]
        for span, reader in zip(own, probabilities, strict=True):
            score = (1 - weight) * reader + weight * ranker
            answer = Answer(
                text.text[span.start : span.end],
                probability(config.answer, score) if config.answer else score,
                hit.passage_id,
                text.title,
                text.text,
                span.start,
                span.end,
                reader,
                ranker,
            )
            found.append(((-score, at, -reader, span.start), answer))
    best: dict[str, Answer] = {}
    taken: dict[str, list[Answer]] = defaultdict(list)  # by the text they stand in
    for _, answer in sorted(found, key=lambda one: one[0]):
        others = taken[answer.text]
        if any(answer.start < one.end and one.start < answer.end for one in others):
            continue
        others.append(answer)
        best.setdefault(answer_key(answer.answer, language), answer)
    return list(best.values())[:n]
