"""Bi-encoders of a model folder, read without torch: OpenVINO encodes their texts on a CPU."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dense.encoding.bert_folder import has_router, read_config, read_side, vector_length, with_length
from dense.models.batches import OnRead, Places, Vectors, encoded_inputs, first_windows, padded_places
from dense.models.config import PASSAGE
from dense.models.skill_config import SPAN
from dense.models.span_scores import SpanWeights
from sparta.base.extras import optional_packages
from sparta.base.records import Advance, Passage
from sparta.models.folders.tokenizer import fitting_tokenizer
from sparta.models.resolve import check_unchanged, hash_folder
from sparta.neural.batches import CPU_TOKENS, distinct_inputs, pooled_positions
from sparta.neural.inputs import EncoderInput
from sparta.neural.stored import check_length, is_plain_bert
from sparta.runtime.calibration import ranges_of
from sparta.runtime.exported import ExportedEncoder, exported, fits_bf16
from sparta.runtime.graph import Graph, Ranges
from sparta.runtime.network import EncoderNetwork, in_threads
from sparta.runtime.processor import pick_arithmetic
from sparta.runtime.weights import Encoder, Floats, StoredWeights

if TYPE_CHECKING:
    from torch import nn

logger = logging.getLogger(__name__)
_QUESTIONS_PER_BATCH = 16


class StoredDenseModel:
    """A bi-encoder whose texts OpenVINO encodes on a CPU.

    :raises ValueError: the weights do not fit config.json, or another encoder than BERT cannot be exported.
    :raises ModelError: the folder holds no dense model.
    """

    def __init__(self, folder: Path) -> None:
        self._hash = hash_folder(folder)  # before any file is read
        raw, self.config = read_config(folder)
        check_length(max(self.config.layout.max_length, self.config.question_length), raw, folder)
        self.tokenizer = fitting_tokenizer(folder, raw["vocab_size"])
        self.folder, self._raw = folder, raw
        self._stored = StoredWeights(folder)
        self.width = int(raw.get("hidden_size") or raw["dim"])
        self._is_bert = is_plain_bert(raw)
        self._graphs: dict[str, bytes] = {}
        self._codes = (
            self._stored.floats("codes", self.config.codes, self.width) if self.config.codes else None
        )
        self._length = vector_length(self._stored, self.config)
        self._networks: dict[tuple[int, str, str], EncoderNetwork | ExportedEncoder] = {}
        self._lock = threading.Lock()
        self._ranges: dict[str, Ranges] = {}
        self._passage_weights: Encoder | None = None

    def for_passages(self) -> StoredDenseModel:
        """Read the weights of the passage encoder, and return this model.

        :raises ValueError: the weights do not fit config.json.
        :raises ReplacedError: the files have changed since the model was opened.
        """
        if self._is_bert:
            self._passage_weights = self._weights(PASSAGE, "passage")
        else:
            self._network(PASSAGE, "passage", self.arithmetic("auto"))
        check_unchanged(self.folder, self._hash)
        return self

    def encode_questions(self, texts: Sequence[str], task: str = "") -> Vectors:
        """Return the vectors of questions, `(n, width) float32`, computed in the faster of bf16 and float32.

        Narrow encoders compute in float32, as for passages. So do learned routers, which choose between close
        scores.

        :param task: chooses the marker and the expert, if the model knows tasks
        """
        inputs = [self.config.question_input(text, self.tokenizer, task) for text in texts]
        arithmetic = "fp32" if has_router(self.config) else self._float_arithmetic("auto")
        network = self._network(self.config.question_expert(task), "question", arithmetic)
        all_vectors = np.empty((len(inputs), 1, self.width), np.float32)
        order = sorted(range(len(inputs)), key=lambda i: len(inputs[i].ids))
        batches = [order[i : i + _QUESTIONS_PER_BATCH] for i in range(0, len(order), _QUESTIONS_PER_BATCH)]

        def encode(batch: list[int]) -> Vectors:
            return self._pooled(network, [inputs[i] for i in batch], None)

        for batch, vectors in zip(batches, in_threads(encode, batches, network.streams), strict=True):
            all_vectors[batch] = vectors
        return all_vectors[:, 0]

    def arithmetic(self, dtype: str) -> str:
        """Return the arithmetic of `dtype` on this processor: int8, bf16 or fp32.

        Rounding could change the choices of a router, so `auto` means fp32 for a model that has one.
        """
        if dtype == "auto" and has_router(self.config):
            return "fp32"
        if has_router(self.config) or not self._is_bert:
            return self._float_arithmetic(dtype)
        return pick_arithmetic(dtype, self.width)

    def encode_passages(
        self,
        passages: Sequence[Passage],
        dtype: str = "auto",
        *,
        advance: Advance | None = None,
        on_read: OnRead | None = None,
    ) -> Vectors:
        """Return the vectors of passages, `(n, vectors, width) float32`; see `DenseModel.encode_passages`.

        :param dtype: int8, bf16, fp32 or auto
        """
        inputs = first_windows(passages, self.config.layout, self.tokenizer, on_read)
        network = self._network(PASSAGE, "passage", self.arithmetic(dtype))

        def encode(batch: Sequence[EncoderInput]) -> Vectors:
            return self._pooled(network, batch, self._codes)

        return self._each(network, encode, inputs, (max(1, self.config.codes), self.width), advance)

    def encode_inputs(self, expert: int, inputs: Sequence[EncoderInput], dtype: str = "auto") -> Vectors:
        """Return the vectors of texts from this expert, `(n, width) float32`, computed in floats."""
        network = self._network(expert, "passage", self._float_arithmetic(dtype))

        def encode(batch: Sequence[EncoderInput]) -> Vectors:
            return self._pooled(network, batch, None)

        return self._each(network, encode, inputs, (1, self.width))[:, 0]

    def encode_states(
        self, expert: int, inputs: Sequence[EncoderInput], places: Places, dtype: str = "auto"
    ) -> Vectors:
        """Return the states at some positions of each text from this expert, `(n, most, width) float32`.

        :param places: returns the positions of a text; a text with fewer repeats its first state
        """
        network = self._network(expert, "passage", self._float_arithmetic(dtype))
        most = max((len(places(item)) for item in inputs), default=0)

        def encode(batch: Sequence[EncoderInput]) -> Vectors:
            distinct, rows = distinct_inputs(batch)
            return network(distinct)[np.array(rows)[:, None], padded_places(batch, places, most)]

        return self._each(network, encode, inputs, (most, self.width))

    def scaled_vectors(self, vectors: Vectors) -> Vectors:
        """Scale vectors `(…, width)` to the model's length, if it has one."""
        return with_length(vectors, self._length)

    def span_weights(self) -> SpanWeights | None:
        """Return the weights that score entity spans; None without the skill."""
        if self.config.skills is None or SPAN not in self.config.skills.skills:
            return None
        projection = self._stored.linear("spans.projection", self.width, 2 * self.width)
        return SpanWeights(
            projection.weight, projection.bias, self._stored.floats("spans.anchor", self.width)
        )

    def _float_arithmetic(self, dtype: str) -> str:
        """Return the arithmetic of questions and skills, which need more than 8 bits."""
        arithmetic = pick_arithmetic(dtype, self.width, in_floats=True)
        if arithmetic != "bf16" or self._fits_bf16:
            return arithmetic
        if dtype == "bf16":
            logger.warning("%s: computes in float32, because bf16 would change its states", self.folder)
        return "fp32"

    @property
    def _exported_sides(self) -> tuple[str, ...]:
        """The sides whose encoders are exported from torch: none with BERT's encoder."""
        return () if self._is_bert else ("passage",) if self.config.shared else ("passage", "question")

    @cached_property
    def _fits_bf16(self) -> bool:
        """Whether the states of the encoders in bf16 are near those in float32."""
        return all(fits_bf16(self._graph(side), self._longest) for side in self._exported_sides)

    @staticmethod
    def _each(
        network: EncoderNetwork | ExportedEncoder,
        encode: Callable[[Sequence[EncoderInput]], Vectors],
        inputs: Sequence[EncoderInput],
        shape: tuple[int, int],
        advance: Advance | None = None,
    ) -> Vectors:
        """Apply a function to batches of inputs, several at once; return its results, `(n, *shape)`."""

        def encode_batches(batches: Sequence[Sequence[EncoderInput]]) -> Generator[Vectors]:
            return in_threads(encode, batches, network.streams)

        return encoded_inputs(inputs, shape, CPU_TOKENS, encode_batches, advance)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle: everything but the compiled networks.

        Another machine may lack the folder, so the ranges of the passage encoder are included.
        """
        if self.arithmetic("auto") == "int8":
            self._network(PASSAGE, "passage", "int8")
        return {
            **vars(self),
            "_graphs": {side: self._graph(side) for side in self._exported_sides},
            "_stored": self._stored.tensors(),
            "_passage_weights": None,
            "_networks": {},
            "_lock": None,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _stored=StoredWeights(state["_stored"]), _lock=threading.Lock())

    def _weights(self, expert: int, side: str) -> Encoder:
        """Return the weights of a side's encoder with this expert; `for_passages` reads them for one call."""
        if (expert, side) == (PASSAGE, "passage") and self._passage_weights is not None:
            weights, self._passage_weights = self._passage_weights, None
            return weights
        return read_side(self._stored, self.config, self._raw, side, expert)

    def _network(self, expert: int, side: str, arithmetic: str) -> EncoderNetwork | ExportedEncoder:
        """Return the encoder of a side with this expert, compiled at the first call."""
        expert_and_side = expert if self.config.routing else 0, "passage" if self.config.shared else side
        key = *expert_and_side, arithmetic
        with self._lock:
            if key not in self._networks:
                weights = self._weights(expert, side) if self._is_bert else None
                self._passage_weights = None  # another network reads its weights again
                name = f"{expert_and_side[1]}_encoder.{expert_and_side[0]}"
                self._networks[key] = (
                    self._compiled(weights, name, arithmetic)
                    if weights is not None
                    else ExportedEncoder(self._graph(expert_and_side[1]), arithmetic, self._longest)
                )
            return self._networks[key]

    @property
    def _longest(self) -> int:
        return max(self.config.layout.max_length, self.config.question_length)

    def _graph(self, side: str) -> bytes:
        """Return the graph of an encoder of another architecture, which torch exported."""

        def module() -> nn.Module:
            with optional_packages():
                from dense.models.bi_encoder import DenseModel
            model = DenseModel.load(self.folder)
            check_unchanged(self.folder, self._hash)
            return model.passage_encoder if side == "passage" else model.question_encoder

        if side in self._graphs:
            return self._graphs[side]
        return exported(f"{self._hash} {side}_encoder", self._longest, module)

    def _compiled(self, weights: Encoder, name: str, arithmetic: str) -> EncoderNetwork:
        with_segments = self.config.layout.marks_answers
        # A model with skills also reads other positions than [CLS] (`encode_states`).
        only_first = self.config.pooling == "cls" and self.config.skills is None

        def build(graph: Graph) -> Any:
            return graph.encoder(weights, with_segments=with_segments, only_first=only_first)

        def build_all_states(graph: Graph) -> Any:
            return graph.encoder(weights, with_segments=with_segments)

        if arithmetic == "int8" and name not in self._ranges:
            key = f"{self._hash} {name}"
            self._ranges[name] = ranges_of(build_all_states, self.tokenizer, self.folder, key)
        ranges = self._ranges[name] if arithmetic == "int8" else None
        return EncoderNetwork(build, arithmetic, ranges, self._raw["max_position_embeddings"])

    def _pooled(
        self, network: EncoderNetwork | ExportedEncoder, inputs: Sequence[EncoderInput], codes: Floats | None
    ) -> Vectors:
        """Return the vectors of one batch of inputs, `(n, vectors, width)`."""
        distinct, rows = distinct_inputs(inputs)
        states = network(distinct)
        if self.config.pooling == "cls":
            return with_length(states[rows, :1], self._length)
        positions, _ = pooled_positions(inputs, rows, states.shape[1], pool_special=False)
        token_states = states.reshape(-1, self.width)[positions]
        sizes = np.array([max(1, i.lead + i.end - i.start) for i in inputs])
        is_pooled = np.arange(positions.shape[1]) < sizes[:, None]
        if codes is None:
            sums = np.einsum("npw,np->nw", token_states, is_pooled.astype(np.float32))
            return with_length((sums / sizes[:, None]).astype(np.float32)[:, None], self._length)
        scores = np.einsum("cw,npw->ncp", codes, token_states)
        scores = np.where(is_pooled[:, None], scores, -np.inf)
        weights = np.exp(scores - scores.max(2, keepdims=True))
        weights /= weights.sum(2, keepdims=True)
        return with_length((weights @ token_states).astype(np.float32), self._length)
