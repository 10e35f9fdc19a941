"""`Reader`: answers in passages, for a question."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from itertools import batched
from pathlib import Path

import torch

from sparta.neural.encoding import each_batch, length_sorted_batches, pick_device, pick_dtype
from sparta.reader.config import ReaderConfig, reader_folder
from sparta.reader.decode import best_spans
from sparta.reader.records import Span, Text
from sparta.reader.span_reader import SpanReader
from sparta.reader.windows import Window, padded

TOKEN_BUDGET = 4096
_AT_ONCE = 4
_Owned = tuple[int, Window]  # the number of the question, and one of its windows


class Reader:
    """Reads passages and finds answers; it knows nothing of how the passages were found.

        reader = Reader.open()
        spans = reader.read("who founded google", [Text("Google was founded by Larry Page.", "Google")])

    :param dtype: what the encoder computes in; None leaves the model as it is
    """

    def __init__(self, model: SpanReader, dtype: torch.dtype | None = None) -> None:
        self.model = model.eval()
        self.config: ReaderConfig = model.config
        if dtype is not None:
            model.encoder.to(dtype)

    @classmethod
    def open(
        cls, name: str | Path | None = None, *, device: str | None = None, dtype: str = "auto"
    ) -> Reader:
        """Open a reader's folder; None is the reader that ships with sparta.

        :param dtype: fp32, bf16, fp16, or auto: bf16 where the device multiplies it fast
        :raises ModelError: there is none, or a model of another layout.
        """
        place = pick_device(device)
        return cls(SpanReader.load(reader_folder(name)).to(place), pick_dtype(dtype, place))

    def read(self, question: str, texts: Sequence[Text], n: int = 5) -> list[list[Span]]:
        """Return the `n` best spans of each text, best first; an empty text has none."""
        return self.read_all([question], [texts], n)[0]

    def read_each(self, question: str, texts: Sequence[Text], n: int = 5) -> Generator[list[Span]]:
        """The same, text by text, as soon as each is read; closing the iterator leaves the rest unread."""
        if self.model.device.type != "cpu" or self.config.global_tokens:
            at_once = len(texts) if self.config.adds_up else _AT_ONCE
            for number, some in enumerate(batched(texts, max(at_once, 1))):
                for spans in self.read(question, some, n):
                    yield [span._replace(passage=span.passage + number * at_once) for span in spans]
            return
        made = self.model.windows(question, texts)
        with closing(self._scores([[(0, window)] for window in made])) as scores:
            for number in range(len(texts)):
                own = [window for window in made if window.passage == number]
                found = [best_spans(next(scores), [w], n, self.config.layout.longest_answer) for w in own]
                yield _distinct([span for spans in found for span in spans])[:n]

    def read_all(
        self, questions: Sequence[str], texts: Sequence[Sequence[Text]], n: int = 5
    ) -> list[list[list[Span]]]:
        """The same for the texts of many questions: by question, by text."""
        layout = self.config.layout
        found: list[list[list[Span]]] = [[[] for _ in own] for own in texts]
        made = [
            (q, window)
            for q, (question, own) in enumerate(zip(questions, texts, strict=True))
            for window in self.model.windows(question, own)
        ]
        batches = self._batches(made)
        for batch, scores in zip(batches, self._scores(batches), strict=True):
            for q in dict.fromkeys(owner for owner, _ in batch):
                rows = [i for i, (owner, _) in enumerate(batch) if owner == q]
                own = [batch[i][1] for i in rows]
                for span in best_spans(scores[:, rows], own, n, layout.longest_answer):
                    found[q][span.passage].append(span)
        return [[_distinct(spans)[:n] for spans in own] for own in found]

    def _batches(self, made: Sequence[_Owned]) -> list[list[_Owned]]:
        """Windows of similar length together; with global tokens, those of one question together.

        A CPU reads each window alone, the longest first: what a layer computes of it stays in the cache.
        """
        if self.config.global_tokens:
            owners = dict.fromkeys(q for q, _ in made)
            return [[one for one in made if one[0] == q] for q in owners]
        if self.model.device.type == "cpu":
            return [[one] for one in sorted(made, key=lambda one: -len(one[1].ids))]
        lengths = [len(window.ids) for _, window in made]
        return [[made[i] for i in batch] for batch in length_sorted_batches(lengths, TOKEN_BUDGET, 64)]

    def _scores(self, batches: Sequence[Sequence[_Owned]]) -> Generator[torch.Tensor]:
        """Each batch's start and end scores; on a CPU every thread reads windows of its own."""
        if self.config.global_tokens:
            yield from map(self._score, batches)
            return
        yield from each_batch(self._score, batches, self.model.device)

    @torch.inference_mode()
    def _score(self, batch: Sequence[_Owned]) -> torch.Tensor:
        tensors = (t.to(self.model.device) for t in padded([window for _, window in batch]))
        scores: torch.Tensor = self.model(*tensors).cpu()
        return scores


def _distinct(spans: Sequence[Span]) -> list[Span]:
    """Best first, each place once: two windows may have seen it."""
    best: dict[tuple[int, int], Span] = {}
    for span in sorted(spans, key=lambda s: (-s.score, s.start, s.end)):
        best.setdefault((span.start, span.end), span)
    return list(best.values())
