"""Answers to questions: the reader, opened when the first question comes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from hybrid.answering.answerer import Answerer
from hybrid.service.live.search import Plan, hits_of
from hybrid.service.live.snapshot import Snapshot
from sparta.base.extras import optional_packages
from sparta.base.records import Retriever
from sparta.reader.config import reader_folder

if TYPE_CHECKING:
    from sparta.reader.reader import Reader


def can_answer() -> bool:
    """Whether what a reader needs is installed."""
    return find_spec("torch") is not None


class Answers:
    """Reads the passages that a snapshot gives for a question."""

    def __init__(self, reader: str | None = None, device: str | None = None) -> None:
        self._name, self._device = reader, device

    @cached_property
    @optional_packages()
    def _reader(self) -> Reader:
        from sparta.reader.reader import Reader

        return Reader.open(reader_folder(self._name), device=self._device)

    def answer(self, snapshot: Snapshot, query: str, plan: Plan, n: int) -> list[dict[str, Any]]:
        """The `n` best answers from the passages that the plan finds."""
        [hits] = hits_of(snapshot, plan, [query], 1)
        none = cast(Retriever, None)  # the passages are found already
        answerer = Answerer(none, self._reader, depth=plan.k, language=snapshot.lucene.language)
        found: Sequence[Any] = answerer.answer_hits(query, hits, n)
        return [one.as_dict() for one in found]
