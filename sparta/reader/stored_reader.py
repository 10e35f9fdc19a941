"""Readers of model folders, read without torch: OpenVINO scores their inputs on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sparta.models.folders.tokenizer import fitting_tokenizer
from sparta.models.resolve import check_unchanged, hash_folder
from sparta.neural.batches import Tokens
from sparta.neural.stored import check_length, is_plain_bert, read_json
from sparta.reader.config import ReaderConfig, ReaderLayout
from sparta.reader.decode import PathScores, Scores
from sparta.reader.path_inputs import PathInput, PathInputs, PathLayout, Sentences
from sparta.reader.records import Text
from sparta.reader.windows import ReaderInput, Window, answer_mask, windows
from sparta.runtime.calibration import ranges_of
from sparta.runtime.graph import AFTER_ATTENTION, BEFORE_ATTENTION, Graph
from sparta.runtime.network import EncoderNetwork, in_threads
from sparta.runtime.processor import pick_arithmetic
from sparta.runtime.weights import Floats, Linear, StoredWeights, read_encoder


class _TokenScorer:
    """A BERT with one small linear layer, which gives each wordpiece of an input `rows` scores.

    :param layer: returns the linear layer from the stored weights and the encoder's width
    :param in_floats: never compute in 8 bits
    :param global_tokens: the number of global tokens that the inputs of a call share
    :raises ValueError: the encoder is no BERT, or config.json does not describe all weights.
    """

    def __init__(
        self,
        folder: Path,
        raw: dict[str, Any],
        layer: Callable[[StoredWeights, int], Linear],
        dtype: str,
        *,
        in_floats: bool = False,
        global_tokens: int = 0,
    ) -> None:
        if not is_plain_bert(raw):
            raise ValueError("expected a BERT")
        arithmetic = pick_arithmetic(dtype, raw["hidden_size"], in_floats=in_floats)
        identity = hash_folder(folder) if arithmetic == "int8" else ""
        self.tokenizer = fitting_tokenizer(folder, raw["vocab_size"])
        stored = StoredWeights(folder)
        encoder = read_encoder(stored, "encoder.encoder." if global_tokens else "encoder.", raw)
        shared = (
            stored.floats("encoder.global_states", global_tokens, encoder.width) if global_tokens else None
        )
        # A layer of a few rows gains nothing from 8 bits.
        scoring = layer(stored, encoder.width)
        stored.check_all_read()

        def build(graph: Graph) -> Any:
            if shared is not None:
                return graph.fused_encoder(encoder, shared)
            return graph.encoder(encoder, with_segments=True)

        ranges = None
        if arithmetic == "int8":
            needs_floats = partial(_needs_floats, len(encoder.layers))
            check_unchanged(folder, identity)
            ranges = ranges_of(build, self.tokenizer, folder, identity, needs_floats)
        self._network = EncoderNetwork(
            lambda graph: graph.exact(build(graph), scoring),
            arithmetic,
            ranges,
            raw["max_position_embeddings"],
            1 if global_tokens else None,  # all threads share a question, whose windows are one call
        )

    def __call__(self, inputs: Sequence[Tokens]) -> Floats:
        """Return the scores of each wordpiece, `(n, length, rows)`."""
        return self._network(inputs)

    def each[T: Tokens, R](
        self, score: Callable[[Sequence[T]], R], batches: Sequence[Sequence[T]]
    ) -> Generator[R]:
        """Yield `score(batch)` for each batch in order, computing several at once."""
        return in_threads(score, batches, self._network.streams)


class StoredReader:
    """A reader; scores windows as `SpanReader` does.

    :param dtype: int8 (not with global tokens), bf16, fp32 or auto
    :raises ValueError: the encoder is no BERT.
    :raises ModelError: the folder holds no reader.
    """

    on_cpu = True

    def __init__(self, folder: Path, dtype: str = "auto") -> None:
        raw = read_json(folder / "config.json")
        self.config = ReaderConfig.from_dict(raw["reader"], str(folder / "config.json"))
        check_length(self.config.layout.max_length, raw, folder)
        n_global = self.config.global_tokens
        self._scorer = _TokenScorer(
            folder, raw, _span_scores, dtype, in_floats=n_global > 0, global_tokens=n_global
        )
        self._marks_shared = raw["type_vocab_size"] > 3

    def windows(
        self, question: str, texts: Sequence[Text], layout: ReaderLayout | None = None
    ) -> list[Window]:
        """Return the windows of these texts, in the reader's layout unless `layout` is set."""
        layout = layout or self.config.layout
        return windows(question, texts, self._scorer.tokenizer, layout, mark_shared=self._marks_shared)

    def each(self, batches: Sequence[Sequence[Window]]) -> Generator[Scores]:
        """Yield the start and end scores `(2, n, length)` of each batch; -inf where no answer may be."""
        return self._scorer.each(self._score, batches)

    def _score(self, batch: Sequence[Window]) -> Scores:
        return _readable_scores(self._scorer(batch), batch)


class StoredPathReader:
    """A path reader; scores inputs as `PathModel` does.

    Rounding to 8 bits would change the order of close paths, so it computes in floats.

    :param dtype: bf16, fp32 or auto: the faster of the two
    :raises ValueError: the encoder is no BERT.
    :raises ModelError: the folder holds no path reader.
    """

    on_cpu = True

    def __init__(self, folder: Path, dtype: str = "auto") -> None:
        raw = read_json(folder / "config.json")
        self.layout = PathLayout.from_config(raw, str(folder / "config.json"))
        check_length(self.layout.max_length, raw, folder)
        self._scorer = _TokenScorer(folder, raw, _path_scores, dtype, in_floats=True)
        self._inputs = PathInputs(self._scorer.tokenizer, self.layout)

    def make_input(self, question: str, texts: Sequence[Text], sentences: Sentences = ()) -> PathInput:
        """Return the input for a path; see `PathInputs.make`."""
        return self._inputs.make(question, texts, sentences)

    def each(self, batches: Sequence[Sequence[PathInput]]) -> Generator[PathScores[Scores]]:
        """Yield the scores of each batch; -inf where no score applies."""
        return self._scorer.each(self._score, batches)

    def _score(self, inputs: Sequence[PathInput]) -> PathScores[Scores]:
        scores = self._scorer(inputs)
        return PathScores(
            _readable_scores(scores[..., :2], inputs),
            _means(scores[..., 2], [path_input.passage_spans() for path_input in inputs]),
            _means(scores[..., 3], [path_input.sentence_spans() for path_input in inputs]),
        )


def _needs_floats(depth: int, name: str) -> bool:
    """Return whether a layer is computed in floats: the products that cause most of the error.

    These are the products after the attention, and those before it in the lower half.
    """
    in_lower_half = int(name.split(".")[1]) < depth // 2
    return name.endswith(AFTER_ATTENTION) or (in_lower_half and name.endswith(BEFORE_ATTENTION))


def _span_scores(stored: StoredWeights, width: int) -> Linear:
    return stored.linear("spans", 2, width)


def _path_scores(stored: StoredWeights, width: int) -> Linear:
    """Return the layers of a path reader as one: starts, ends, passages, sentences."""
    spans = stored.linear("spans", 2, width)
    others = [stored.floats(f"{name}.weight", 1, width) for name in ("passages", "sentences")]
    return Linear(np.concatenate([spans.weight, *others]), np.append(spans.bias, [0, 0]).astype(np.float32))


def _readable_scores(scores: Floats, inputs: Sequence[ReaderInput]) -> Scores:
    """Return scores `(n, length, 2)` as `(2, n, length)`; -inf where no answer may start or end."""
    readable_scores: Scores = np.ascontiguousarray(scores.transpose(2, 0, 1))
    readable_scores[:, ~answer_mask(inputs, scores.shape[1])] = -np.inf
    return readable_scores


def _means(scores: Floats, spans_by_input: Sequence[Sequence[tuple[int, int]]]) -> Scores:
    """Return the mean score of each span, `(n, most)`; -inf if an input has fewer spans.

    The mean of the scores is the score of the mean state, because the layer has no bias.
    """
    means: Scores = np.full((len(scores), max(map(len, spans_by_input))), -np.inf, np.float32)
    for row, spans in enumerate(spans_by_input):
        for number, (start, end) in enumerate(spans):
            means[row, number] = scores[row, start:end].mean()
    return means
