"""Training data of all retrievers: paragraphs, their sentences, the questions that these answer."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from sparta.base.errors import InputError
from sparta.base.files import short_hash
from sparta.base.records import Passage
from sparta.base.remedies import Option, remedy
from sparta.data.languages import Language, language_of
from sparta.data.qa_formats import QuestionedText, read_mrqa, read_squad, reported
from sparta.data.sentences import Splitter, sentence_splitter
from sparta.training.formats import form_of, read_records
from sparta.training.known import Context, KnownAnswers

logger = logging.getLogger(__name__)

Span = tuple[int, int]
LAYOUTS = ("pairs", "articles", "passages")
LONGEST_WORDS = 130
LONGEST_CHARACTERS = 1200
GROUP_SIZE = 3
"""Paragraphs of one group: a positive, and two that are hard negatives for its questions."""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A text, the spans of its sentences (those that are candidates), and questions with their sentence.

    A question whose answer is the whole text has sentence -1. `places` says where in the text the answer to
    each question begins, in characters; without any, at the beginning. The id may be empty.
    """

    text: str
    title: str = ""
    sentences: tuple[Span, ...] = ()
    questions: tuple[tuple[str, int], ...] = ()
    places: tuple[int, ...] = ()
    passage_id: str = ""

    def answered_before(self, end: int) -> Paragraph:
        """Return the paragraph without questions whose answer does not begin before this character."""
        if not self.places:
            return self
        kept = [i for i, place in enumerate(self.places) if place < end]
        questions = tuple(self.questions[i] for i in kept)
        return replace(self, questions=questions, places=tuple(self.places[i] for i in kept))

    def folded(self, language: Language) -> Paragraph:
        """Return the paragraph as encoders read it."""
        questions = tuple((language.fold(question), n) for question, n in self.questions)
        return replace(
            self, text=language.fold(self.text), title=language.fold(self.title), questions=questions
        )

    def whole(self) -> Passage:
        """Return the paragraph as a candidate."""
        return Passage(self.passage_id, self.text, self.title)

    def answers(self) -> list[Passage]:
        """Return each sentence as a candidate in its context; a paragraph of one sentence has no other."""
        if self.sentences == ((0, len(self.text)),):
            return [self.whole()]
        return [Passage("", self.text[a:b], self.title, self.text, a, b) for a, b in self.sentences]


@dataclass(frozen=True, slots=True)
class ParagraphSet:
    """One training file: its paragraphs in order, how often batches are drawn from it, and how large.

    `hard_negatives` names, for each paragraph, others that rank high for its questions and do not answer
    them; of the groups in a batch the share `hard_negative_share` has such. `seeds` are the paragraphs with
    questions. A `dev` set is never trained on: it validates. `known` are the right passages and the answers
    of all questions of the file.
    """

    name: str
    paragraphs: tuple[Paragraph, ...]
    weight: float = 1.0
    batch_size: int = 12
    hard_negatives: tuple[tuple[int, ...], ...] = field(default=(), repr=False)
    hard_negative_share: float = 0.5
    dev: bool = False
    known: KnownAnswers = field(default_factory=KnownAnswers, repr=False, compare=False)
    seeds: tuple[int, ...] = field(default=(), init=False, repr=False)

    def __post_init__(self) -> None:
        seeds = tuple(i for i, p in enumerate(self.paragraphs) if p.questions)
        object.__setattr__(self, "seeds", seeds)

    def fingerprint(self) -> str:
        """What the set holds, as a hash."""
        return short_hash([*self.paragraphs, self.known.fingerprint()])

    @property
    def n_questions(self) -> int:
        """How many questions all paragraphs have."""
        return sum(len(p.questions) for p in self.paragraphs)

    def answerable(self, characters_read: Callable[[Paragraph], int]) -> ParagraphSet:
        """Return the set without questions whose answer stands beyond what is read of their text.

        A text without any question left goes too, with the negatives that stand behind it.

        :param characters_read: how many characters of a text the model reads.
        :raises InputError: no question is left.
        """
        kept: list[Paragraph] = []
        positive_kept = True
        for paragraph in self.paragraphs:
            if paragraph.questions:
                if any(paragraph.places):  # the beginning of a text is always read
                    paragraph = paragraph.answered_before(characters_read(paragraph))
                positive_kept = bool(paragraph.questions)
            if positive_kept:
                kept.append(paragraph)
        left = replace(self, paragraphs=tuple(kept))
        if left.n_questions < self.n_questions:
            _warn_left_out(self.name, self.n_questions - left.n_questions, self.n_questions)
            if not left.n_questions:
                raise InputError(
                    "expected answers in what is read of their texts, found all of them beyond it",
                    where=self.name,
                    remedy=remedy("give shorter texts, or name the file with {}", Option("pairs")),
                )
            return replace(left, hard_negatives=())  # their numbers were those of all paragraphs
        return self

    def draw(self, rng: random.Random) -> list[Paragraph]:
        """Return the paragraphs of one batch: groups of positives and hard negatives, drawn at random."""
        chosen: dict[int, None] = {}
        size = min(self.batch_size, len(self.paragraphs))
        for _ in range(20 * size):  # a set with few questions cannot fill every batch
            if len(chosen) == size:
                break
            seed = rng.choice(self.seeds)
            new = [i for i in (seed, *self._group_around(seed, rng)) if i not in chosen]
            chosen.update(dict.fromkeys(new[: size - len(chosen)]))
        return [self.paragraphs[i] for i in chosen]

    def _group_around(self, seed: int, rng: random.Random) -> list[int]:
        """Two more of a group: hard negatives, negatives that the file gives, or neighbours in the file."""
        mined = self.hard_negatives[seed] if self.hard_negatives else ()
        if mined and rng.random() < self.hard_negative_share:
            return rng.sample(mined, min(len(mined), GROUP_SIZE - 1))
        given = seed + 1
        while given < len(self.paragraphs) and not self.paragraphs[given].questions:
            given += 1
        if given > seed + 1:  # negatives that the file gives stand behind their positive
            return rng.sample(range(seed + 1, given), min(given - seed - 1, GROUP_SIZE - 1))
        return [seed + i for i in range(1, GROUP_SIZE) if seed + i < len(self.paragraphs)]


def _warn_left_out(name: str, n: int, of: int) -> None:
    logger.warning("%s: %d of %d questions left out: the answer stands beyond what is read", name, n, of)


def name_and_weight(text: str, what: str) -> tuple[str, float]:
    """Split `NAME` or `NAME=WEIGHT`; without a weight it is 1."""
    name, _, weight = text.partition("=")
    try:
        factor = float(weight) if weight else 1.0
    except ValueError:
        factor = math.nan
    if not 0 < factor < math.inf:
        raise InputError(
            f"expected {what}=WEIGHT with a number above 0, found {text!r}",
            remedy=f"write {name}=0.5, or {name} alone for a weight of 1",
        )
    return name, factor


def longest_text(words: int) -> int:
    """How many characters a training text may have that is cut at so many words."""
    return LONGEST_CHARACTERS * words // LONGEST_WORDS


def open_set(
    name: str | Path, layout: str, batch_size: int, longest: int = LONGEST_WORDS, language: str = "en"
) -> ParagraphSet:
    """Return a training set from `FILE` or `FILE=WEIGHT`.

    :param layout: `pairs`: the answer is the positive, inside its context when the record has one;
        `articles`: the same, and records without context that stand beside each other come from one text,
        so that they are each other's context; `passages`: the answer is the whole context.
    """
    path, factor = name_and_weight(str(name), "FILE")
    known = KnownAnswers(language)
    paragraphs = tuple(read_paragraphs(Path(path), layout, longest=longest, language=language, known=known))
    if len(paragraphs) < batch_size:
        raise InputError(
            f"expected at least {batch_size} different texts, one batch, found {len(paragraphs)}",
            where=path,
            remedy="give more pairs, or a smaller batch size",
        )
    return ParagraphSet(f"{Path(path).name}/{layout}", paragraphs, factor, batch_size, known=known)


def read_paragraphs(
    path: Path,
    layout: str = "pairs",
    *,
    longest: int = LONGEST_WORDS,
    language: str = "en",
    known: KnownAnswers | None = None,
) -> Iterator[Paragraph]:
    """Yield the paragraphs of a training file, in its order; long ones are cut at sentences, and all are
    folded as their language is.

    Pairs are JSONL: `question`, `positive`, maybe `context` with `start` and `end` (what the positive stands
    in), `title`, and `negative` (a text or a list of them). Read too: SQuAD JSON, DPR JSON (a list of
    questions with `positive_ctxs` and `hard_negative_ctxs` or `negative_ctxs`), MRQA JSONL, TSV of triples
    (question, positive, negative), and BEIR folders with `qrels/train.tsv`. Negatives stand behind their
    positive, without questions; those that a record of the same question calls right are left out.

    :param known: gets the right passages and the answers of all questions.
    """
    own, known = language_of(language), known or KnownAnswers(language)
    for one in _paragraphs(path, layout, longest, own, known):
        yield one.folded(own)


def _paragraphs(
    path: Path, layout: str, longest: int, language: Language, known: KnownAnswers
) -> Iterator[Paragraph]:
    form, most, spans = form_of(path), longest_text(longest), sentence_splitter(known.language)
    if form in ("squad", "mrqa"):
        texts = reported(read_squad(path) if form == "squad" else read_mrqa(path), path.name)
        yield from (
            _whole_texts(texts, path, most, known)
            if layout == "passages"
            else _texts_by_sentence(texts, longest, language, spans, known)
        )
        return
    records = read_records(path, form)
    if layout == "passages" or form in ("dpr", "beir"):
        yield from _passages(records, path, most, known)
        return
    texts_of: dict[tuple[str, str], list[tuple[str, Span]]] = {}
    negatives: dict[tuple[str, str], dict[str, None]] = {}
    without_context: list[dict[str, Any]] = []
    for record in records:
        known.add_record(record, most)
        context, span = context_of(record)
        if context:
            key = (str(record.get("title") or ""), context)
            texts_of.setdefault(key, []).append((str(record["question"]), span))
            negatives.setdefault(key, {}).update(dict.fromkeys(_negatives(record, most)))
        else:
            without_context.append(record)
    for (title, context), queries in texts_of.items():
        queries = list(dict.fromkeys(queries))
        for part in cut(
            context, title, _sentences(context, queries, spans(context)), queries, longest, language
        ):
            yield part
            yield from _negatives_of(part, negatives[title, context], known)
    joined = longest if layout == "articles" else 0
    yield from _without_context(without_context, joined, most, language, known)


def _texts_by_sentence(
    texts: Iterable[QuestionedText], longest: int, language: Language, spans: Splitter, known: KnownAnswers
) -> Iterator[Paragraph]:
    """Yield SQuAD's and MRQA's paragraphs; the answer is the sentence in which an answer first begins."""
    for one in texts:
        sentences = spans(one.text)
        answers = [
            (question, next((s for s in sentences if s[0] <= min(begins) < s[1]), None))
            for question, begins in _answered(one, known)
        ]
        queries = [(question, span) for question, span in answers if span]
        yield from cut(one.text, one.title, sentences, queries, longest, language)


def _whole_texts(
    texts: Iterable[QuestionedText], path: Path, most: int, known: KnownAnswers
) -> Iterator[Paragraph]:
    """Yield SQuAD's and MRQA's paragraphs, each the answer to its questions."""
    beyond = n_questions = 0
    for one in texts:
        queries: dict[str, int] = {}
        for question, begins in _answered(one, known, most):
            n_questions += 1
            beyond += min(begins) >= most
            if min(begins) < most:
                queries[question] = min(min(begins), queries.get(question, most))
        if queries:
            yield _whole(one.text[:most], one.title, queries)
    if beyond:
        _warn_left_out(path.name, beyond, n_questions)


def _answered(
    one: QuestionedText, known: KnownAnswers, most: int | None = None
) -> list[tuple[str, tuple[int, ...]]]:
    """Return the questions whose answer stands in the text, and where; all that they know is added."""
    for (_, question, begins), answers in zip(one.questions, one.named, strict=True):
        if question and begins:
            known.add(question, [Context(one.title, one.text[:most])], answers)
    return [(question, begins) for _, question, begins in one.questions if question and begins]


def _whole(text: str, title: str, queries: Mapping[str, int], passage_id: str = "") -> Paragraph:
    return Paragraph(text, title, (), tuple((q, -1) for q in queries), tuple(queries.values()), passage_id)


def context_of(record: dict[str, Any]) -> tuple[str, Span]:
    """Return what the positive stands in, and where; nothing when the record does not say."""
    context, positive = str(record.get("context") or ""), str(record["positive"])
    if not context:
        return "", (0, 0)
    start = record.get("start")
    if not isinstance(start, int) or context[start : start + len(positive)] != positive:
        start = context.find(positive)
    return (context, (start, start + len(positive))) if start >= 0 else ("", (0, 0))


def _sentences(context: str, queries: list[tuple[str, Span]], split: Iterable[Span]) -> list[Span]:
    """Return the sentences of a context; an answer replaces the sentences that it reaches into."""
    answers: list[Span] = []
    for start, end in sorted({span for _, span in queries}):
        if answers and start < answers[-1][1]:
            answers[-1] = (answers[-1][0], max(end, answers[-1][1]))
        else:
            answers.append((start, end))
    rest = [(a, b) for a, b in split if all(b <= start or a >= end for start, end in answers)]
    return sorted(answers + rest)


def cut(
    context: str,
    title: str,
    sentences: Sequence[Span],
    queries: Sequence[tuple[str, Span]],
    longest: int,
    language: Language,
) -> Iterator[Paragraph]:
    """Cut a text at sentences into parts of at most `longest` words; yield those that have questions."""
    chunk: list[Span] = []
    words = 0
    for span in [*sentences, None]:
        length = language.length(context[slice(*span)]) if span else 0
        if chunk and (span is None or words + length > longest):
            start = chunk[0][0]
            text = context[start : chunk[-1][1]]
            inside = tuple((a - start, b - start) for a, b in chunk)
            questions = tuple(
                (question, n)
                for question, (a, b) in queries
                for n, (c, d) in enumerate(chunk)
                if c <= a and b <= d
            )
            if questions:
                yield Paragraph(text, title, inside, questions)
            chunk, words = [], 0
        if span:
            chunk.append(span)
            words += length


def _without_context(
    records: Sequence[dict[str, Any]], longest: int, most: int, language: Language, known: KnownAnswers
) -> Iterator[Paragraph]:
    """Yield answers without context: joined to texts of at most `longest` words, or each for itself."""
    queries: dict[str, list[str]] = {}
    titles: dict[str, str] = {}
    negatives: dict[str, dict[str, None]] = {}
    for record in records:
        positive = str(record["positive"]).strip()[:most]
        queries.setdefault(positive, []).append(str(record["question"]))
        titles.setdefault(positive, str(record.get("title") or ""))
        negatives.setdefault(positive, {}).update(dict.fromkeys(_negatives(record, most)))
    for texts in _joinable(queries, longest, language):
        joined = _join(texts, queries, titles[texts[0]])
        yield joined
        others = (t for text in texts for t in negatives[text] if t not in queries)
        yield from _negatives_of(joined, others, known)


def _joinable(texts: Iterable[str], longest: int, language: Language) -> Iterator[list[str]]:
    """Yield texts that follow each other, of at most `longest` words together, or each for itself."""
    chunk: list[str] = []
    for text in texts:
        if chunk and sum(map(language.length, [*chunk, text])) > longest:
            yield chunk
            chunk = []
        chunk.append(text)
    if chunk:
        yield chunk


def _negatives_of(positive: Paragraph, texts: Iterable[str], known: KnownAnswers) -> Iterator[Paragraph]:
    """Yield texts as negatives, without those that answer all questions of their positive."""
    questions = [question for question, _ in positive.questions]
    for text in texts:
        if not known.answers_all(questions, text):
            yield Paragraph(text, sentences=((0, len(text)),))


def _negatives(record: dict[str, Any], most: int) -> list[str]:
    given = record.get("negative") or ()
    texts = [given] if isinstance(given, str) else list(given)
    return [str(text).strip()[:most] for text in texts if str(text).strip()]


def _join(texts: Sequence[str], queries: dict[str, list[str]], title: str) -> Paragraph:
    ends = np.cumsum([len(t) + 1 for t in texts])
    spans = tuple((int(end) - 1 - len(t), int(end) - 1) for t, end in zip(texts, ends, strict=True))
    questions = tuple((q, n) for n, text in enumerate(texts) for q in dict.fromkeys(queries[text]))
    return Paragraph(" ".join(texts), title, spans, questions)


def _passages(
    records: Iterable[dict[str, Any]], path: Path, most: int, known: KnownAnswers
) -> Iterator[Paragraph]:
    """Yield whole texts with their questions; a text's negatives stand behind it, without questions."""
    queries: dict[tuple[str, str], dict[str, int]] = {}
    negatives: dict[tuple[str, str], dict[Context, None]] = {}
    ids: dict[tuple[str, str], str] = {}
    beyond = n_questions = 0
    for record in records:
        known.add_record(record, most)
        whole, n_questions = str(record.get("context") or record["positive"]).strip(), n_questions + 1
        at = max(0, whole.find(str(record["positive"]).strip()))
        if at >= most:
            beyond += 1
            continue
        key = (str(record.get("title") or ""), whole[:most])
        places, question = queries.setdefault(key, {}), str(record["question"])
        places[question] = min(at, places.get(question, at))
        ids.setdefault(key, str(record.get("passage_id") or ""))
        others = record.get("negative_ctxs") or [Context("", text) for text in _negatives(record, most)]
        cut_alike = (other._replace(text=other.text.strip()[:most]) for other in others)
        negatives.setdefault(key, {}).update(dict.fromkeys(cut_alike))
    if beyond:
        _warn_left_out(path.name, beyond, n_questions)
    for key, questions in queries.items():
        title, text = key
        yield _whole(text, title, questions, ids[key])
        for other in negatives[key]:
            if other[:2] not in queries and not known.answers_all(questions, other.text, other.passage_id):
                yield Paragraph(other.text, other.title, passage_id=other.passage_id)


def hold_out(sets: Sequence[ParagraphSet], questions: int) -> tuple[list[ParagraphSet], list[ParagraphSet]]:
    """Split off the last paragraphs of each set for validation: neighbours stay together.

    Of each set about a tenth of its questions at most, and about `questions` at most; none of a set whose
    questions would be used up. Where there are dev sets, these validate and nothing is split off.
    """
    if dev := [one for one in sets if one.dev]:
        return [one for one in sets if not one.dev], dev
    training, validation = [], []
    for one in sets:
        wanted = min(questions, one.n_questions // 10)
        n = taken = 0
        while taken < wanted and n + 1 < len(one.paragraphs):
            n += 1
            taken += len(one.paragraphs[-n].questions)
        if not any(p.questions for p in one.paragraphs[: len(one.paragraphs) - n]):
            n = 0  # too few texts with questions to spare any
        training.append(replace(one, paragraphs=one.paragraphs[: len(one.paragraphs) - n]))
        if n:
            validation.append(replace(one, paragraphs=one.paragraphs[len(one.paragraphs) - n :]))
    return training, validation
