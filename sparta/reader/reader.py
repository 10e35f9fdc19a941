"""`Reader`: finds the answers to a question in passages."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from itertools import batched
from pathlib import Path
from typing import Protocol

from sparta.base.extras import optional_packages
from sparta.neural.batches import length_sorted_batches
from sparta.reader.config import ReaderConfig, ReaderLayout, reader_folder
from sparta.reader.decode import Scores, best_spans, check_scores
from sparta.reader.records import Span, Text
from sparta.reader.stored_reader import StoredReader
from sparta.reader.windows import Window
from sparta.runtime.fallback import opened_on

TOKEN_BUDGET, CPU_BUDGET = 4096, 512
"""The maximum number of wordpieces in a batch, on a GPU and on a CPU."""
_TEXTS_PER_CALL = 4


class ReadingModel(Protocol):
    """Cuts texts into windows and scores them."""

    config: ReaderConfig

    @property
    def on_cpu(self) -> bool:
        """Whether the model computes on a CPU."""

    def windows(
        self, question: str, texts: Sequence[Text], layout: ReaderLayout | None = None
    ) -> list[Window]:
        """Return the windows of these texts."""

    def each(self, batches: Sequence[Sequence[Window]]) -> Generator[Scores]:
        """Yield the start and end scores `(2, n, length)` of each batch."""


_QuestionWindow = tuple[int, Window]  # a question's number and one of the question's windows


class Reader:
    """Reads passages and finds answers, independent of the retrieval of the passages.

        reader = Reader.open()
        spans = reader.read("who founded google", [Text("Google was founded by Larry Page.", "Google")])

    :param model: scores windows: a `StoredReader` on a CPU, or a `SpanReader` in torch
    """

    def __init__(self, model: ReadingModel, where: str = "") -> None:
        self.model, self.where = model, where
        self.config: ReaderConfig = model.config

    @classmethod
    def open(
        cls, name: str | Path | None = None, *, device: str | None = None, dtype: str = "auto"
    ) -> Reader:
        """Open a reader's folder; None means the reader that ships with sparta.

        :param device: `cpu`, `cuda:0` or another device of torch; None means a GPU if there is one
        :param dtype: int8 (on a CPU), fp32, bf16, fp16, or auto: the fastest that the device supports
        :raises ModelError: there is no such reader, or the model has another layout.
        """
        folder = reader_folder(name)
        model = opened_on(
            folder,
            device,
            lambda: StoredReader(folder, dtype),
            lambda device: _span_reader(folder, device, dtype),
        )
        return cls(model, str(folder))

    def read(self, question: str, texts: Sequence[Text], n: int = 5) -> list[list[Span]]:
        """Return the `n` best spans of each text, best first; an empty text has no span."""
        return self.read_all([question], [texts], n)[0]

    def read_each(self, question: str, texts: Sequence[Text], n: int = 5) -> Generator[list[Span]]:
        """Yield the `n` best spans of each text as soon as the text is read.

        Closing the iterator skips the remaining texts.
        """
        if not self.model.on_cpu or self.config.global_tokens:
            chunk_size = len(texts) if self.config.combines_mentions else _TEXTS_PER_CALL
            for number, chunk in enumerate(batched(texts, max(chunk_size, 1))):
                for spans in self.read(question, chunk, n):
                    yield [span._replace(passage=span.passage + number * chunk_size) for span in spans]
            return
        all_windows = self.model.windows(question, texts)
        with closing(self._scores([[(0, window)] for window in all_windows])) as scores:
            for number in range(len(texts)):
                text_windows = [window for window in all_windows if window.passage == number]
                window_spans = [
                    best_spans(next(scores), [w], n, self.config.layout.longest_answer) for w in text_windows
                ]
                yield _distinct([span for spans in window_spans for span in spans])[:n]

    def read_all(
        self, questions: Sequence[str], texts: Sequence[Sequence[Text]], n: int = 5
    ) -> list[list[list[Span]]]:
        """Return the `n` best spans of each text of many questions: by question, then by text."""
        layout = self.config.layout
        spans_by_question: list[list[list[Span]]] = [[[] for _ in question_texts] for question_texts in texts]
        owned_windows = [
            (q, window)
            for q, (question, question_texts) in enumerate(zip(questions, texts, strict=True))
            for window in self.model.windows(question, question_texts)
        ]
        batches = self._batches(owned_windows)
        for batch, scores in zip(batches, self._scores(batches), strict=True):
            for q in dict.fromkeys(owner for owner, _ in batch):
                rows = [i for i, (owner, _) in enumerate(batch) if owner == q]
                windows = [batch[i][1] for i in rows]
                for span in best_spans(scores[:, rows], windows, n, layout.longest_answer):
                    spans_by_question[q][span.passage].append(span)
        return [[_distinct(spans)[:n] for spans in text_spans] for text_spans in spans_by_question]

    def _batches(self, owned_windows: Sequence[_QuestionWindow]) -> list[list[_QuestionWindow]]:
        """Return batches of windows of similar length; with global tokens, a batch is one question's windows.

        On a CPU a batch has few windows, longest first, so that the states of a layer stay in the cache.
        """
        if self.config.global_tokens:
            owners = dict.fromkeys(q for q, _ in owned_windows)
            return [[pair for pair in owned_windows if pair[0] == q] for q in owners]
        lengths = [len(window.ids) for _, window in owned_windows]
        budget = CPU_BUDGET if self.model.on_cpu else TOKEN_BUDGET
        return [[owned_windows[i] for i in batch] for batch in length_sorted_batches(lengths, budget, 64)]

    def _scores(self, batches: Sequence[Sequence[_QuestionWindow]]) -> Generator[Scores]:
        """Yield each batch's start and end scores. On a CPU, every thread reads different batches."""
        with closing(self.model.each([[window for _, window in batch] for batch in batches])) as all_scores:
            for scores in all_scores:
                check_scores(scores, self.where)
                yield scores


def _span_reader(folder: Path, device: str, dtype: str) -> ReadingModel:
    with optional_packages():
        from sparta.reader.span_reader import SpanReader
    return SpanReader.open(folder, device, dtype)


def _distinct(spans: Sequence[Span]) -> list[Span]:
    """Return the spans best first, without duplicates: two overlapping windows may contain the same span."""
    best: dict[tuple[int, int], Span] = {}
    for span in sorted(spans, key=lambda candidate: (-candidate.score, candidate.start, candidate.end)):
        best.setdefault((span.start, span.end), span)
    return list(best.values())
