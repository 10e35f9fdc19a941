"""Answers to questions: the reader, opened when the first question comes."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from hybrid.answering.answerer import Answerer
from hybrid.answering.answers import as_read
from hybrid.service.live.search import Plan, hits_of
from hybrid.service.live.snapshot import Snapshot
from sparta.base.extras import optional_packages
from sparta.models.resolve import shipped_for
from sparta.reader.config import reader_folder

if TYPE_CHECKING:
    from sparta.reader.reader import Reader


class Answers:
    """Reads the passages that a snapshot gives for a question."""

    def __init__(self, reader: str | None = None, device: str | None = None) -> None:
        self._name, self._device = reader, device
        self._opened: dict[str, Reader] = {}

    def can_answer(self, language: str) -> bool:
        """Whether there is a reader for a language, and what it needs is installed."""
        return find_spec("torch") is not None and bool(self._name or shipped_for(language, "reader"))

    @optional_packages()
    def _reader(self, language: str) -> Reader:
        if language not in self._opened:
            from sparta.reader.reader import Reader

            folder = reader_folder(self._name, language)
            self._opened[language] = Reader.open(folder, device=self._device)
        return self._opened[language]

    def answer(self, snapshot: Snapshot, query: str, plan: Plan, n: int) -> list[dict[str, Any]]:
        """The `n` best answers from the passages that the plan finds."""
        [hits] = hits_of(snapshot, plan, [query], 1)
        searcher = snapshot.lucene
        answerer = Answerer(searcher, self._reader(searcher.language), depth=plan.k)
        found: Sequence[Any] = answerer.answer_hits(query, as_read(searcher, hits), n)
        return [one.as_dict() for one in found]
