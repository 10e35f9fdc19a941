"""A reader of a model folder, read without torch: OpenVINO reads its windows on a CPU."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sparta.models.query_encoder import fitting_tokenizer
from sparta.models.resolve import hash_folder
from sparta.neural.stored import check_length, is_plain_bert, read_json
from sparta.reader.config import ReaderConfig, ReaderLayout
from sparta.reader.decode import Scores
from sparta.reader.records import Text
from sparta.reader.windows import Window, readable, windows
from sparta.runtime.calibration import ranges_of
from sparta.runtime.graph import Graph
from sparta.runtime.network import EncoderNetwork, in_threads
from sparta.runtime.processor import pick_arithmetic
from sparta.runtime.weights import StoredWeights, read_encoder


class StoredReader:
    """A reader without global tokens; scores windows as `SpanReader` does.

    :param dtype: int8, bf16, fp32 or auto
    :raises ValueError: the encoder is no BERT, or reads all passages of a question together (global tokens).
    :raises ModelError: the folder holds no reader.
    """

    on_cpu = True

    def __init__(self, folder: Path, dtype: str = "auto") -> None:
        raw = read_json(folder / "config.json")
        self.config = ReaderConfig.from_dict(raw["reader"], str(folder / "config.json"))
        if not is_plain_bert(raw) or self.config.global_tokens:
            raise ValueError("expected a BERT that reads each passage by itself")
        check_length(self.config.layout.max_length, raw, str(folder))
        self.tokenizer = fitting_tokenizer(folder, raw["vocab_size"])
        self._marks_shared = raw["type_vocab_size"] > 3
        stored = StoredWeights(folder)
        encoder = read_encoder(stored, "encoder.", raw)
        # A layer of two rows gains nothing from 8 bits.
        layer = stored.linear("spans", 2, encoder.width)
        if stored.unread:
            raise ValueError("config.json does not describe all weights")
        arithmetic = pick_arithmetic(dtype, encoder.width)

        def build(graph: Graph) -> Any:
            return graph.encoder(encoder, with_segments=True)

        ranges = None
        if arithmetic == "int8":
            ranges = ranges_of(build, self.tokenizer, folder, hash_folder(folder))
        self._network = EncoderNetwork(
            lambda graph: graph.exact(build(graph), layer), arithmetic, ranges, raw["max_position_embeddings"]
        )

    def windows(
        self, question: str, texts: Sequence[Text], layout: ReaderLayout | None = None
    ) -> list[Window]:
        """Return the windows of these texts, in the reader's layout unless `layout` is set."""
        layout = layout or self.config.layout
        return windows(question, texts, self.tokenizer, layout, mark_shared=self._marks_shared)

    def each(self, batches: Sequence[Sequence[Window]]) -> Generator[Scores]:
        """Yield the start and end scores `(2, n, length)` of each batch; -inf where no answer may be."""
        return in_threads(self._score, batches, self._network.streams)

    def _score(self, batch: Sequence[Window]) -> Scores:
        scores: Scores = np.ascontiguousarray(self._network(batch).transpose(2, 0, 1))
        scores[:, ~readable(batch, scores.shape[2])] = -np.inf
        return scores
