"""The answers of one question, from what the reader found and where the retriever ranked it."""

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
    """An answer, and the passage in which it stands: `text[start:end] == answer`.

    Yes and no, which a chain that reads its paths may answer, stand nowhere: their `start` and `end` are 0.

    `score` is from 0 to 1: on questions, a channel and a depth like those that the reader was tuned with, the
    probability that it is right. It comes from `reader`, the probability that the reader gives the answer (in
    this passage, or in all where mentions add up), and `ranker`, the passage's score from 0 (the last of
    those retrieved) to 1 (the first).
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


def as_read(retriever: Retriever, hits: Sequence[Hit]) -> list[Hit]:
    """Return what a retriever found as it is read: sentences in their passage, where it can tell that."""
    in_context = getattr(retriever, "in_context", list)
    return list(in_context(hits))


def folded_texts(texts: Iterable[Text], fold: Callable[[str], str]) -> list[Text]:
    """The texts as a reader reads them; what it finds stands at the same place in the texts themselves."""
    return [Text(fold(text.text), fold(text.title)) for text in texts]


def ranker_scores(scores: Sequence[float]) -> list[float]:
    """Scores of one ranking from 1 (its first) to 0 (its last); 1 where all are equal."""
    if not scores:
        return []
    high, low = max(scores), min(scores)
    return [(s - low) / (high - low) if high > low else 1.0 for s in scores]


class Share(NamedTuple):
    """What a span says (`answer_key`), its probability as a mention, and that of its answer."""

    key: str
    mention: float
    answer: float


def reader_shares(
    config: ReaderConfig, texts: Sequence[Text], spans: Sequence[Sequence[Span]], language: str = "en"
) -> list[list[Share]]:
    """The probability of each span as a mention, and that of its answer, by passage.

    Platt scaling gives the probability that a mention is right in its passage. It is that of the answer too
    (the best mention counts, as in SPARTA's own code); with `sum_mentions`, the answer's odds are the sum of
    those of its best mention in each text, as if texts were independent. With global tokens, as FiE has it:
    one softmax over the spans of all passages and "no answer"; spans that say the same add up. A text that
    several hits share counts once.
    """
    keys = [
        [answer_key(text.text[span.start : span.end], language) for span in own]
        for text, own in zip(texts, spans, strict=False)
    ]
    mentions = [[probability(config.passage, span.score) for span in own] for own in spans]
    if not config.adds_up:
        return [
            [Share(key, p, p) for key, p in zip(*own, strict=True)]
            for own in zip(keys, mentions, strict=True)
        ]
    once = dict(zip(texts, zip(keys, spans, strict=True), strict=False))
    read = [(text.text, [*zip(*own, strict=True)]) for text, own in once.items()]
    if config.global_tokens:
        mentions, answers = _softmax(spans, read)
    else:
        answers = _added(config.passage, read)
    return [
        [Share(key, p, answers[key]) for key, p in zip(*own, strict=True)]
        for own in zip(keys, mentions, strict=True)
    ]


_Read = Sequence[tuple[str, Sequence[tuple[str, Span]]]]  # texts with what each span says


def _softmax(spans: Sequence[Sequence[Span]], read: _Read) -> tuple[list[list[float]], dict[str, float]]:
    """The probability of each span, and of each answer, in one space."""
    highest = max((0.0, *(2 * span.score for _, own in read for _, span in own)))
    sums: dict[str, float] = defaultdict(float)
    for key, span in (one for _, own in read for one in own):
        sums[key] += math.exp(2 * span.score - highest)
    total = math.exp(-highest) + math.fsum(sums.values())
    mentions = [[math.exp(2 * span.score - highest) / total for span in own] for own in spans]
    return mentions, {key: one / total for key, one in sums.items()}


def _added(passage: Calibration, read: _Read) -> dict[str, float]:
    """The probability of each answer whose odds are the sum of those of its best mention in each text."""
    best: dict[tuple[str, str], float] = {}
    for text, own in read:
        for key, span in own:
            best[key, text] = max(span.score, best.get((key, text), -math.inf))
    logits: dict[str, list[float]] = defaultdict(list)
    for (key, _), score in best.items():
        logits[key].append(passage.a * score + passage.b)
    return {key: probability(Calibration(), _log_sum(own)) for key, own in logits.items()}


def _log_sum(logits: Sequence[float]) -> float:
    highest = max(logits)
    return highest + math.log(math.fsum(math.exp(one - highest) for one in logits))


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

    Answers that the measure of their language counts as the same are one (`reader_shares`), shown where a
    mention has the best score. Of mentions that overlap in a text, only that of the best answer is shown;
    what the others add to their answers stays. Equal scores: the passage that was ranked higher, in it what
    the reader finds more probable, then what stands first.

    :param spans: those of the first passages; the others are not read yet
    """
    mentions = [
        ((1 - weight) * share.mention + weight * rankers[at], at, span, share)
        for at, own in enumerate(zip(spans, reader_shares(config, texts, spans, language), strict=True))
        for span, share in zip(*own, strict=True)
    ]
    # of each answer, what its best mention has with the ranker's score there, and that score
    shown: dict[str, tuple[float, float]] = {}
    for alone, at, _, share in mentions:
        shown[share.key] = max((alone, rankers[at]), shown.get(share.key, (-1.0, 0.0)))
    found: list[tuple[tuple[float, float, int, float, int], str, Answer]] = []
    for alone, at, span, share in mentions:
        text, ranker = texts[at], rankers[at]
        score = (1 - weight) * share.answer + weight * ranker
        place = hits[at].passage_id, text.title, text.text, span.start, span.end
        answer = Answer(text.text[span.start : span.end], score, *place, share.answer, ranker)
        highest = (1 - weight) * share.answer + weight * shown[share.key][1] if config.adds_up else score
        found.append(((-highest, -alone, at, -share.mention, span.start), share.key, answer))
    best: dict[str, Answer] = {}
    taken: dict[str, list[Answer]] = defaultdict(list)  # by the text they stand in
    for _, key, answer in sorted(found, key=itemgetter(0)):
        others = taken[answer.text]
        if any(answer.start < one.end and one.start < answer.end for one in others):
            continue
        others.append(answer)
        best.setdefault(key, answer)
    first = sorted(best.values(), key=lambda one: -one.score)[:n]
    if config.answer is None:
        return first
    return [replace(one, score=probability(config.answer, one.score)) for one in first]
