"""Answers questions with a reader, which is opened at the first question."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import CancelledError
from contextlib import closing
from threading import Event
from typing import TYPE_CHECKING, Any

from hybrid.answering.answerer import Answerer
from hybrid.answering.answers import as_read
from hybrid.answering.open_readers import OpenReaders
from hybrid.service.live.search import BatchSearch, Plan
from sparta.models.resolve import shipped_for

if TYPE_CHECKING:
    from sparta.reader.reader import Reader
    from sparta.reader.records import Span, Text


class Answers:
    """Extracts answers to a question from the passages that a search returns."""

    def __init__(self, readers: OpenReaders) -> None:
        self._readers = readers

    def can_answer(self, language: str) -> bool:
        """Return whether there is a reader for a language."""
        return bool(self._readers.name or shipped_for(language, "reader"))

    def answer(
        self,
        search: BatchSearch,
        query: str,
        plan: Plan,
        n: int,
        stop: Event | None = None,
        *,
        threshold: float | None = None,
    ) -> dict[str, Any]:
        """Return the `n` best answers from the passages that the plan retrieves, and whether it abstained.

        :param threshold: lowest score of an answer; None is the reader's, if it is calibrated for the plan
        :raises CancelledError: `stop` was set before all passages were read
        """
        [hits] = search.hits(plan, [query])
        retriever = search.retriever(plan)
        reader: Any = _Stopped(self._readers.reader(retriever.language), stop or Event())
        answerer = Answerer(retriever, reader, depth=plan.page.k, threshold=threshold)
        answers = answerer.answer_hits(query, as_read(retriever, hits), n)
        return {"answers": [answer.as_dict() for answer in answers], **answers.as_dict()}


class _Stopped:
    """A reader that stops between two passages once an event is set."""

    def __init__(self, reader: Reader, stop: Event) -> None:
        self._reader, self._stop, self.config = reader, stop, reader.config

    def read_each(self, question: str, texts: Sequence[Text], n: int) -> Generator[list[Span]]:
        """Yield the answer spans of each text, best first, at most `n` of a text.

        :raises CancelledError: the event was set
        """
        reading = self._reader.read_each(question, texts, n)
        with closing(reading):
            while not self._stop.is_set():
                try:
                    spans = next(reading)
                except StopIteration:
                    return
                yield spans
        raise CancelledError
