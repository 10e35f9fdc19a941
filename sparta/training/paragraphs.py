"""The training data of all retrievers: paragraphs, their sentences, and the questions that they answer."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
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
from sparta.training.known import KnownAnswers, keys_of, question_key, whole_and_truncated
from sparta.training.options import TRAIN_LENGTH

logger = logging.getLogger(__name__)

Span = tuple[int, int]
TitledText = tuple[str, str]
"""A title, and a text under it. Equal texts under different titles are different paragraphs."""
LAYOUTS = ("pairs", "articles", "passages")
LONGEST_WORDS = 130
LONGEST_CHARACTERS = 1200
NEGATIVES = 2
"""The number of hard negatives that a batch has for each positive."""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A text, the spans of its candidate sentences, and its questions with their sentence's number.

    A question that the whole text answers has sentence -1. `places` holds the character at which each
    question's answer begins; empty means 0 for all questions. The id may be empty.
    """

    text: str
    title: str = ""
    sentences: tuple[Span, ...] = ()
    questions: tuple[tuple[str, int], ...] = ()
    places: tuple[int, ...] = ()
    passage_id: str = ""

    def answered_before(self, end: int) -> Paragraph:
        """Return the paragraph with only the questions whose answer begins before this character."""
        if not self.places:
            return self
        return self._with_numbers([i for i, place in enumerate(self.places) if place < end])

    def without(self, questions: Set[str]) -> Paragraph:
        """Return the paragraph without the questions that have one of these `question_key`s."""
        return self._with_numbers(
            [i for i, (question, _) in enumerate(self.questions) if question_key(question) not in questions]
        )

    def _with_numbers(self, numbers: Sequence[int]) -> Paragraph:
        """Return the paragraph with only the questions of these numbers."""
        places = tuple(self.places[i] for i in numbers) if self.places else ()
        return replace(self, questions=tuple(self.questions[i] for i in numbers), places=places)

    def folded(self, language: Language) -> Paragraph:
        """Return the paragraph folded (normalized) for an encoder of this language."""
        questions = tuple((language.fold(question), n) for question, n in self.questions)
        return replace(
            self, text=language.fold(self.text), title=language.fold(self.title), questions=questions
        )

    def whole(self) -> Passage:
        """Return the paragraph as a candidate."""
        return Passage(self.passage_id, self.text, self.title)

    def answers(self) -> list[Passage]:
        """Return each sentence as a candidate in its context; a single sentence has no context."""
        if self.sentences == ((0, len(self.text)),):
            return [self.whole()]
        return [Passage("", self.text[a:b], self.title, self.text, a, b) for a, b in self.sentences]


@dataclass(frozen=True, slots=True)
class ParagraphSet:
    """One training file: its paragraphs in order, its weight in drawing batches, and its batch size.

    `hard_negatives` holds, for each paragraph, the numbers of paragraphs that rank high for its questions
    without answering them. A share `hard_negative_share` of a batch's groups uses hard negatives. A group has
    at most `negatives` negatives beside its positive. `seeds` are the paragraphs with questions. A `dev` set
    is used for validation only. Validation ranks a held-out set together with its `distractors`, which are
    training paragraphs. `known` holds the right passages and the answers of all questions of the file.
    """

    name: str
    paragraphs: tuple[Paragraph, ...]
    weight: float = 1.0
    batch_size: int = 12
    hard_negatives: tuple[tuple[int, ...], ...] = field(default=(), repr=False)
    hard_negative_share: float = 0.5
    negatives: int = NEGATIVES
    dev: bool = False
    distractors: tuple[Paragraph, ...] = field(default=(), repr=False, compare=False)
    known: KnownAnswers = field(default_factory=KnownAnswers, repr=False, compare=False)
    seeds: tuple[int, ...] = field(default=(), init=False, repr=False)

    def __post_init__(self) -> None:
        seeds = tuple(i for i, paragraph in enumerate(self.paragraphs) if paragraph.questions)
        object.__setattr__(self, "seeds", seeds)

    def fingerprint(self) -> str:
        """Return a hash of the set's content."""
        return short_hash([*self.paragraphs, self.known.fingerprint()])

    @property
    def n_questions(self) -> int:
        """The number of questions of all paragraphs."""
        return sum(len(paragraph.questions) for paragraph in self.paragraphs)

    def answerable(self, characters_read: Callable[[Paragraph], int]) -> ParagraphSet:
        """Return the set without questions whose answer lies beyond the model's first window.

        :param characters_read: returns how many characters of a text the model reads.
        :raises InputError: no question is left.
        """

        def answered(paragraph: Paragraph) -> Paragraph:
            if not any(paragraph.places):  # the beginning of a text is always read
                return paragraph
            return paragraph.answered_before(characters_read(paragraph))

        answerable_set = self._with_questions(answered)
        if answerable_set.n_questions < self.n_questions:
            _warn_left_out(self.name, self.n_questions - answerable_set.n_questions, self.n_questions)
            if not answerable_set.n_questions:
                raise InputError(
                    "all answers lie beyond the part of the text that the model reads",
                    where=self.name,
                    remedy=remedy("shorten the texts, or name the file with {}", Option("pairs")),
                )
        return answerable_set

    def without(self, questions: Set[str]) -> ParagraphSet:
        """Return the set without the questions that have one of these `question_key`s."""
        return self._with_questions(lambda paragraph: paragraph.without(questions))

    def _with_questions(self, kept: Callable[[Paragraph], Paragraph]) -> ParagraphSet:
        """Return the set with the questions that `kept` leaves in each paragraph.

        A text that loses all its questions is dropped, together with the negatives that follow it.
        """
        paragraphs: list[Paragraph] = []
        positive_kept = True
        for paragraph in self.paragraphs:
            if paragraph.questions:
                paragraph = kept(paragraph)
                positive_kept = bool(paragraph.questions)
            if positive_kept:
                paragraphs.append(paragraph)
        kept_set = replace(self, paragraphs=tuple(paragraphs))
        if kept_set.n_questions == self.n_questions:
            return self
        return replace(kept_set, hard_negatives=())  # the numbers of paragraphs have changed

    def draw(self, rng: random.Random) -> list[Paragraph]:
        """Return the paragraphs of one batch: random groups of positives and hard negatives."""
        chosen: dict[int, None] = {}
        size = min(self.batch_size, len(self.paragraphs))
        for _ in range(20 * size):  # a set with few questions cannot fill every batch
            if len(chosen) == size:
                break
            seed = rng.choice(self.seeds)
            group = [i for i in (seed, *self._group_around(seed, rng)) if i not in chosen]
            chosen.update(dict.fromkeys(group[: size - len(chosen)]))
        return [self.paragraphs[i] for i in chosen]

    def _group_around(self, seed: int, rng: random.Random) -> list[int]:
        """Return the other members of a group: mined negatives, the file's negatives, or neighbors."""
        mined = self.hard_negatives[seed] if self.hard_negatives else ()
        if mined and rng.random() < self.hard_negative_share:
            return rng.sample(mined, min(len(mined), self.negatives))
        next_positive = seed + 1
        while next_positive < len(self.paragraphs) and not self.paragraphs[next_positive].questions:
            next_positive += 1
        if next_positive > seed + 1:  # the file's negatives follow their positive
            n = min(next_positive - seed - 1, self.negatives)
            return rng.sample(range(seed + 1, next_positive), n)
        return [seed + i for i in range(1, 1 + self.negatives) if seed + i < len(self.paragraphs)]


def _warn_left_out(name: str, n: int, of: int) -> None:
    logger.warning(
        "%s: left out %d of %d questions: their answers lie beyond the part of the text that the model reads",
        name,
        n,
        of,
    )


def name_and_weight(text: str, what: str) -> tuple[str, float]:
    """Return the name and the weight of `NAME` or `NAME=WEIGHT`; the default weight is 1.

    An existing file or folder may have `=` in its name.
    """
    name, has_weight, weight = text.rpartition("=")
    if not has_weight or "/" in weight or Path(text).exists():
        return text, 1.0
    try:
        factor = float(weight) if weight else 1.0
    except ValueError:
        factor = math.nan
    if not 0 < factor < math.inf:
        raise InputError(
            f"expected {what}=WEIGHT with a number above 0, found {text!r}",
            remedy=f"write {name}=0.5, or only {name} for a weight of 1",
        )
    return name, factor


def longest_words(train_length: int) -> int:
    """Return the largest number of words of a training text, for inputs of this many wordpieces."""
    return LONGEST_WORDS * train_length // TRAIN_LENGTH


def longest_text(words: int) -> int:
    """Return the largest number of characters for a training text of at most this many words."""
    return LONGEST_CHARACTERS * words // LONGEST_WORDS


def open_set(
    name: str | Path, layout: str, batch_size: int, longest: int = LONGEST_WORDS, language: str = "en"
) -> ParagraphSet:
    """Return the training set of `FILE` or `FILE=WEIGHT`.

    :param layout: `pairs`: the answer is the positive, inside its context if the record has one; `articles`:
        like `pairs`, but adjacent records without context and of one title form one text and are each other's
        context; `passages`: the answer is the whole context.
    """
    path, factor = name_and_weight(str(name), "FILE")
    known = KnownAnswers(language)
    paragraphs = tuple(read_paragraphs(Path(path), layout, longest=longest, language=language, known=known))
    if (different := len(distinct(paragraphs))) < batch_size:
        raise InputError(
            f"a batch needs at least {batch_size} different texts, found {different}",
            where=path,
            remedy=remedy("add pairs, or set a smaller {}", Option("batch_size")),
        )
    return ParagraphSet(f"{Path(path).name}/{layout}", paragraphs, factor, batch_size, known=known)


def distinct(paragraphs: Sequence[Paragraph], others: Iterable[Paragraph] = ()) -> tuple[Paragraph, ...]:
    """Return the paragraphs in order, without those that equal another paragraph.

    Of equal paragraphs, those with questions stay; if none has questions, the first paragraph stays.

    :param others: further paragraphs; a paragraph that equals one of them is dropped, even with questions
    """
    keys = [keys_of(paragraph.whole()) for paragraph in paragraphs]
    keys_of_others = {key for paragraph in others for key in keys_of(paragraph.whole())}
    seen, different = set(keys_of_others), []
    for paragraph, paragraph_keys in zip(paragraphs, keys, strict=True):
        if paragraph.questions:
            seen.update(paragraph_keys)
    for paragraph, paragraph_keys in zip(paragraphs, keys, strict=True):
        if not (keys_of_others if paragraph.questions else seen).intersection(paragraph_keys):
            different.append(paragraph)
            seen.update(paragraph_keys)
    return tuple(different)


def read_paragraphs(
    path: Path,
    layout: str = "pairs",
    *,
    longest: int = LONGEST_WORDS,
    language: str = "en",
    known: KnownAnswers | None = None,
) -> Iterator[Paragraph]:
    """Yield the paragraphs of a training file, in order, split at sentences if too long, and folded.

    Pairs are JSONL: `question`, `positive`, and optionally `context` with `start` and `end` (the text that
    contains the positive), `title`, and `negative` (a text or a list of texts). Other formats: SQuAD JSON,
    DPR JSON (a list of questions with `positive_ctxs` and `hard_negative_ctxs` or `negative_ctxs`), MRQA
    JSONL, TSV of triples (question, positive, negative), and BEIR folders with `qrels/train.tsv`. Negatives
    follow their positive and have no questions. A negative is dropped if another record of the same question
    calls it right.

    :param known: collects the right passages and the answers of all questions.
    """
    language_settings, known = language_of(language), known or KnownAnswers(language)
    for paragraph in _paragraphs(path, layout, longest, language_settings, known):
        yield paragraph.folded(language_settings)


def _paragraphs(
    path: Path, layout: str, longest: int, language: Language, known: KnownAnswers
) -> Iterator[Paragraph]:
    form, max_characters, spans = form_of(path), longest_text(longest), sentence_splitter(known.language)
    if form in ("squad", "mrqa"):
        texts = reported(read_squad(path) if form == "squad" else read_mrqa(path), path.name)
        yield from (
            _whole_texts(texts, path, max_characters, known)
            if layout == "passages"
            else _texts_by_sentence(texts, longest, language, spans, known)
        )
        return
    records = read_records(path, form)
    if layout == "passages" or form in ("dpr", "beir"):
        yield from _passages(records, path, max_characters, known)
        return
    texts_of: dict[TitledText, list[tuple[str, Span]]] = {}
    negatives: dict[TitledText, dict[str, None]] = {}
    without_context: list[dict[str, Any]] = []
    for record in records:
        known.add_record(record, max_characters)
        context, span = positive_in_context(record)
        if context:
            key = (str(record.get("title") or ""), context)
            texts_of.setdefault(key, []).append((str(record["question"]), span))
            negatives.setdefault(key, {}).update(dict.fromkeys(_negatives(record, max_characters)))
        else:
            without_context.append(record)
    if lost := sum(bool(record.get("context")) for record in without_context):
        logger.warning(
            "%s: %d contexts do not contain their positive letter for letter, so their positives are trained"
            " without context",
            path.name,
            lost,
        )
    for (title, context), queries in texts_of.items():
        queries = list(dict.fromkeys(queries))
        for paragraph in cut(
            context, title, _sentences(context, queries, spans(context)), queries, longest, language
        ):
            yield paragraph
            yield from _negatives_of(paragraph, negatives[title, context], known)
    joined = longest if layout == "articles" else 0
    yield from _without_context(without_context, joined, max_characters, language, known)


def _texts_by_sentence(
    texts: Iterable[QuestionedText], longest: int, language: Language, spans: Splitter, known: KnownAnswers
) -> Iterator[Paragraph]:
    """Yield SQuAD's and MRQA's paragraphs; the first sentence in which an answer begins is the positive.

    The other sentences and pieces in which an answer begins are added to `known`: they are no negatives.
    """
    for document in texts:
        sentences = spans(document.text)
        queries: list[tuple[str, Span]] = []
        answered = _answered(document, known)
        for question, begins in answered:
            right = [(a, b) for a, b in sentences if any(a <= begin < b for begin in begins)]
            queries += [(question, span) for span in right[:1]]
            known.add(question, [Passage("", document.text[a:b]) for a, b in right])
        for piece in cut(document.text, document.title, sentences, queries, longest, language):
            first = document.text.index(piece.text)
            for question, begins in answered:
                if any(first <= begin < first + len(piece.text) for begin in begins):
                    known.add(question, [Passage("", piece.text)])
            yield piece


def _whole_texts(
    texts: Iterable[QuestionedText], path: Path, max_characters: int, known: KnownAnswers
) -> Iterator[Paragraph]:
    """Yield SQuAD's and MRQA's paragraphs; the whole paragraph answers its questions."""
    beyond = n_questions = 0
    for document in texts:
        queries: dict[str, int] = {}
        for question, begins in _answered(document, known, max_characters):
            n_questions += 1
            beyond += min(begins) >= max_characters
            if min(begins) < max_characters:
                queries[question] = min(min(begins), queries.get(question, max_characters))
        if queries:
            yield _whole_paragraph(document.text[:max_characters], document.title, queries)
    if beyond:
        _warn_left_out(path.name, beyond, n_questions)


def _answered(
    document: QuestionedText, known: KnownAnswers, max_characters: int | None = None
) -> list[tuple[str, tuple[int, ...]]]:
    """Return the questions with an answer in the text, and the answers' offsets; add both to `known`."""
    whole = Passage("", document.text, document.title)
    for (_, question, begins), answers in zip(document.questions, document.named, strict=True):
        if question and begins:
            known.add(question, whole_and_truncated(whole, max_characters), answers)
    return [(question, begins) for _, question, begins in document.questions if question and begins]


def _whole_paragraph(text: str, title: str, queries: Mapping[str, int], passage_id: str = "") -> Paragraph:
    return Paragraph(text, title, (), tuple((q, -1) for q in queries), tuple(queries.values()), passage_id)


def positive_in_context(record: dict[str, Any]) -> tuple[str, Span]:
    """Return a record's context and the positive's span in it; empty if no context contains the positive.

    If they differ, their line ends are made equal, as files of Windows may have others.
    """
    context, positive = str(record.get("context") or ""), str(record["positive"])
    if not context:
        return "", (0, 0)
    start = record.get("start")
    if positive not in context:
        if isinstance(start, int):
            start -= context.count("\r\n", 0, start)
        context, positive = context.replace("\r\n", "\n"), positive.replace("\r\n", "\n")
    if not isinstance(start, int) or context[start : start + len(positive)] != positive:
        start = context.find(positive)
    return (context, (start, start + len(positive))) if start >= 0 else ("", (0, 0))


def _sentences(context: str, queries: list[tuple[str, Span]], split: Iterable[Span]) -> list[Span]:
    """Return the sentences of a context; an answer replaces every sentence that it overlaps."""
    answers: list[Span] = []
    for start, end in sorted({span for _, span in queries}):
        if answers and start < answers[-1][1]:
            answers[-1] = (answers[-1][0], max(end, answers[-1][1]))
        else:
            answers.append((start, end))
    other_sentences = [(a, b) for a, b in split if all(b <= start or a >= end for start, end in answers)]
    return sorted(answers + other_sentences)


def cut(
    context: str,
    title: str,
    sentences: Sequence[Span],
    queries: Sequence[tuple[str, Span]],
    longest: int,
    language: Language,
) -> Iterator[Paragraph]:
    """Split a text at sentences into pieces of at most `longest` words; yield pieces with questions."""
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
    records: Sequence[dict[str, Any]],
    longest: int,
    max_characters: int,
    language: Language,
    known: KnownAnswers,
) -> Iterator[Paragraph]:
    """Yield answers without context, joined to texts of at most `longest` words, or as separate texts."""
    queries: dict[TitledText, list[str]] = {}
    negatives: dict[TitledText, dict[str, None]] = {}
    for record in records:
        key = (str(record.get("title") or ""), str(record["positive"]).strip()[:max_characters])
        queries.setdefault(key, []).append(str(record["question"]))
        negatives.setdefault(key, {}).update(dict.fromkeys(_negatives(record, max_characters)))
    for keys in _joinable(queries, longest, language):
        joined = _join(keys, queries)
        yield joined
        yield from _negatives_of(joined, (text for key in keys for text in negatives[key]), known)


def _joinable(keys: Iterable[TitledText], longest: int, language: Language) -> Iterator[list[TitledText]]:
    """Yield groups of adjacent texts with the same title and at most `longest` words together."""
    chunk: list[TitledText] = []
    for key in keys:
        too_long = sum(language.length(text) for _, text in [*chunk, key]) > longest
        if chunk and (too_long or key[0] != chunk[0][0]):
            yield chunk
            chunk = []
        chunk.append(key)
    if chunk:
        yield chunk


def _negatives_of(positive: Paragraph, texts: Iterable[str], known: KnownAnswers) -> Iterator[Paragraph]:
    """Yield texts as negatives, except texts that answer all questions of their positive."""
    questions = [question for question, _ in positive.questions]
    for text in texts:
        if not known.answers_all(questions, Passage("", text)):
            yield Paragraph(text, sentences=((0, len(text)),))


def _negatives(record: dict[str, Any], max_characters: int) -> list[str]:
    stored = record.get("negative") or ()
    texts = [stored] if isinstance(stored, str) else list(stored)
    return [str(text).strip()[:max_characters] for text in texts if str(text).strip()]


def _join(keys: Sequence[TitledText], queries: Mapping[TitledText, Sequence[str]]) -> Paragraph:
    texts = [text for _, text in keys]
    ends = np.cumsum([len(t) + 1 for t in texts])
    spans = tuple((int(end) - 1 - len(t), int(end) - 1) for t, end in zip(texts, ends, strict=True))
    questions = tuple((q, n) for n, key in enumerate(keys) for q in dict.fromkeys(queries[key]))
    return Paragraph(" ".join(texts), keys[0][0], spans, questions)


def _passages(
    records: Iterable[dict[str, Any]], path: Path, max_characters: int, known: KnownAnswers
) -> Iterator[Paragraph]:
    """Yield whole texts with their questions; a text's negatives follow it, without questions."""
    queries: dict[tuple[str, str], dict[str, int]] = {}
    negatives: dict[tuple[str, str], dict[Passage, None]] = {}
    ids: dict[tuple[str, str], str] = {}
    beyond = n_questions = 0
    for record in records:
        known.add_record(record, max_characters)
        whole_text, n_questions = str(record.get("context") or record["positive"]).strip(), n_questions + 1
        answer_start = max(0, whole_text.find(str(record["positive"]).strip()))
        if answer_start >= max_characters:
            beyond += 1
            continue
        key = (str(record.get("title") or ""), whole_text[:max_characters])
        answer_starts, question = queries.setdefault(key, {}), str(record["question"])
        answer_starts[question] = min(answer_start, answer_starts.get(question, answer_start))
        ids.setdefault(key, str(record.get("passage_id") or ""))
        stored_negatives = record.get("negative_ctxs") or [
            Passage("", text) for text in _negatives(record, max_characters)
        ]
        truncated = (
            Passage(negative.passage_id, negative.text.strip()[:max_characters], negative.title)
            for negative in stored_negatives
        )
        negatives.setdefault(key, {}).update(dict.fromkeys(truncated))
    if beyond:
        _warn_left_out(path.name, beyond, n_questions)
    for key, questions in queries.items():
        title, text = key
        yield _whole_paragraph(text, title, questions, ids[key])
        for negative in negatives[key]:
            if not known.answers_all(questions, negative):
                yield Paragraph(negative.text, negative.title, passage_id=negative.passage_id)
