"""The right passages and answers of a training file's questions, which must not become negatives."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace
from itertools import chain
from typing import Any

from sparta.base.files import short_hash
from sparta.base.normal_form import normal_form
from sparta.base.records import Passage
from sparta.data.answers import without_labels
from sparta.data.languages import language_of

Key = str | bytes
"""The id of a passage, or the hash of its text."""


def keys_of(passage: Passage) -> tuple[Key, ...]:
    """Return the keys of a passage: a hash of its text, and its id, if it has one.

    Passages with a common key count as equal.
    """
    text = " ".join(passage.text.split()).encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(text, digest_size=12).digest()
    return (digest, passage.passage_id) if passage.passage_id else (digest,)


def question_key(question: str) -> str:
    """Return the same key for a question in other case, white space or Unicode normal form."""
    return normal_form("NFC", " ".join(question.casefold().split()))


def whole_and_truncated(passage: Passage, max_characters: int | None) -> list[Passage]:
    """Return a passage, whole and truncated. Collections hold whole texts, trainings read truncated texts."""
    parts = dict.fromkeys((passage.text, passage.text[:max_characters]))
    return [replace(passage, text=part) for part in parts if part.strip()]


class KnownAnswers:
    """The keys of all right passages, and all answers, of each question of a file.

    Records whose questions have the same `question_key` count together. Questions and texts are folded for
    `language`.
    """

    def __init__(self, language: str = "en") -> None:
        self.language = language
        self._fold = language_of(language).fold
        self._spellings: dict[str, dict[str, None]] = {}  # by `question_key`
        self._right: dict[str, set[Key]] = {}  # by spelling, as the fingerprints of earlier releases are
        self._answers: dict[str, dict[str, dict[str, None]]] = {"string": {}, "regex": {}}

    def add(
        self,
        question: str,
        passages: Iterable[Passage],
        answers: Iterable[str] = (),
        *,
        match: str = "string",
    ) -> None:
        """Add right passages and answers of a question; labels such as yes do not count as answers.

        :param match: how the answers match texts, `string` or `regex`, as in `has_answer`
        """
        question = self._fold(question)
        self._spellings.setdefault(question_key(question), {})[question] = None
        keys = (key for passage in passages for key in self._keys(passage))
        self._right.setdefault(question, set()).update(keys)
        if texts := without_labels(answers):
            self._answers[match].setdefault(question, {}).update(dict.fromkeys(texts))

    def add_record(self, record: Mapping[str, Any], max_characters: int) -> None:
        """Add the right passages and answers of a record, whole and truncated to `max_characters`."""
        positive, passage_id = str(record["positive"]), str(record.get("passage_id") or "")
        context = Passage("", str(record.get("context") or ""))
        right = [Passage(passage_id, positive), context, *record.get("positive_ctxs", ())]
        passages = (
            part
            for passage in right
            for part in whole_and_truncated(replace(passage, text=passage.text.strip()), max_characters)
        )
        match = record.get("match", "string")
        self.add(str(record["question"]), passages, record.get("answers") or (), match=match)

    def _keys(self, passage: Passage) -> tuple[Key, ...]:
        """Return the keys of a passage with its text folded."""
        return keys_of(Passage(passage.passage_id, self._fold(passage.text)))

    def all_right(self) -> Iterator[Key]:
        """Yield the keys of the right passages of all questions."""
        return chain.from_iterable(self._right.values())

    def right(self, question: str) -> Set[Key]:
        """Return the keys of the passages that answer a question."""
        return frozenset().union(*(self._right[spelling] for spelling in self._spellings_of(question)))

    def answers_all(self, questions: Iterable[str], passage: Passage) -> bool:
        """Return whether a passage is known to answer all these questions."""
        keys = self._keys(passage)
        return all(not self.right(question).isdisjoint(keys) for question in questions)

    def answers(self, question: str, match: str = "string") -> Iterator[str]:
        """Yield the answers of a question that match texts as strings, or as regular expressions."""
        answers = self._answers[match]
        return chain.from_iterable(answers.get(spelling, ()) for spelling in self._spellings_of(question))

    def _spellings_of(self, question: str) -> Iterable[str]:
        """Return the spellings in which the file has a question."""
        return self._spellings.get(question_key(self._fold(question)), ())

    def fingerprint(self) -> str:
        """Return a hash of all questions, keys and answers."""
        keys_by_question = (
            (question, sorted(map(repr, keys))) for question, keys in sorted(self._right.items())
        )
        strings, patterns = (
            sorted((q, [*a]) for q, a in self._answers[match].items()) for match in ("string", "regex")
        )
        return short_hash(
            [self.language, *keys_by_question, *strings, *(("regex", *pattern) for pattern in patterns)]
        )
