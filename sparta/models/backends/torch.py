"""The torch backend of sparse encoders, for GPUs and training (SPARTA, eq. 4 to 6)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial

import numpy as np
import torch
from torch import nn

from sparta.base.errors import ModelError
from sparta.base.remedies import Option, remedy
from sparta.models.backends.base import Indexes
from sparta.models.prune import SparseRows
from sparta.models.sparse import SparseEncoder
from sparta.neural.batches import (
    GPU_TOKENS,
    OTHER_TOKENS,
    distinct_inputs,
    length_sorted_batches,
    occurrences,
    pooled_positions,
    rounded_length,
    surroundings,
)
from sparta.neural.encoding import each_batch, pick_dtype, tokens_at_once, with_halving
from sparta.neural.inputs import EncoderInput
from sparta.neural.pooling import mixed, pad_inputs, tensors


class TorchBackend:
    """Computes term weights with a torch model on its device, `chunk` terms of the vocabulary at once."""

    def __init__(
        self, model: SparseEncoder, dtype: str = "auto", token_budget: int = GPU_TOKENS, chunk: int = 4096
    ) -> None:
        self.model, self._chunk = model.eval(), chunk
        self.device = model.device
        self.dtype = pick_dtype(dtype, self.device)
        self.token_budget = tokens_at_once(token_budget, self.device)
        self.pooled_at_once = token_budget if self.device.type == "cuda" else min(token_budget, OTHER_TOKENS)
        self._allowed = ~model.excluded_terms().to(self.device)
        self._scale = float(getattr(model, "scale", torch.tensor(1.0)).detach())
        terms, self._bias = model.term_matrix().detach(), model.term_bias().detach().float()
        if (norm := model.last_norm()) is not None:
            terms, shared = without_shared(terms.float(), norm)
            self._bias = self._bias + self._scale * shared
        self._terms = terms.to(self.dtype)
        self._offset: torch.Tensor | None = None  # most of the bias, added before a result is rounded
        if self.device.type == "cpu" and self.dtype == torch.bfloat16 and self._scale > 0:
            bias = (self._bias / self._scale).expand(len(terms))
            self._offset = bias.to(self.dtype)
            self._bias = (bias - self._offset) * self._scale
        gains = model.lexical_gains()
        self._gains = None if gains is None else gains.detach()

    def each[R](self, encode: Callable[[Indexes], R], batches: Sequence[Indexes]) -> Generator[R]:
        """Yield `encode(batch)` for each batch in order; on a CPU, each thread computes a different batch."""
        return each_batch(encode, batches, self.device)

    def encode(self, inputs: Sequence[EncoderInput], top_k: int | None) -> SparseRows:
        """Return one row per input, in order; if memory runs out, the halves are encoded separately."""
        return SparseRows.concatenate(with_halving(partial(self._encode_batch, top_k=top_k), inputs))

    def padded_length(self, length: int) -> int:
        """Return the padded length of the longest text in a batch; float32 needs no multiple."""
        if self.dtype == torch.float32:
            return length
        return rounded_length(length, self.model.config.layout.max_length)

    @torch.inference_mode()
    def _encode_batch(self, inputs: Sequence[EncoderInput], top_k: int | None) -> list[SparseRows]:
        """Return one row per input, in order. Inputs are pooled in small groups of similar length."""
        encoder_inputs, rows = distinct_inputs(inputs)
        length = self.padded_length(max(len(i.ids) for i in encoder_inputs))
        ids, mask, segments = (t.to(self.device) for t in pad_inputs(encoder_inputs, length))
        with torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32):
            hidden = self.model.hidden_states(ids, mask, segments).to(self.dtype)
        flat_states = hidden.flatten(0, 1)
        share = self.model.config.context_share
        contexts, context_indexes = surroundings(inputs) if share else ([], [-1] * len(inputs))
        row_of = dict(zip(context_indexes, rows, strict=True))
        context_weights = self._weights(
            flat_states, contexts, [row_of[i] for i in range(len(contexts))], length
        )
        sizes = [item.lead + item.end - item.start for item in inputs]
        group_rows: list[SparseRows] = []
        order: list[int] = []
        for batch in length_sorted_batches(sizes, max(self.pooled_at_once, length), len(inputs)):
            answer_weights = self._weights(
                flat_states, [inputs[i] for i in batch], [rows[i] for i in batch], length
            )
            weights = mixed(answer_weights, context_weights, [context_indexes[i] for i in batch], share)
            group_rows.append(self._sparse(weights, top_k))
            order += batch
        return [SparseRows.concatenate(group_rows).take(np.argsort(order, kind="stable"))]

    def _weights(
        self, flat_states: torch.Tensor, inputs: Sequence[EncoderInput], rows: Sequence[int], length: int
    ) -> torch.Tensor:
        """Return the weights of all terms, `(n, vocabulary) float32`: eq. 4 to 6, plus term occurrences.

        :param flat_states: `(n_rows * length, width)`, the encoder states
        :param rows: the encoder row of each input
        """
        if not inputs:
            return torch.zeros(0, len(self._terms), device=self.device)
        positions, has_positions = tensors(
            pooled_positions(inputs, rows, length, pool_special=self.model.config.pool_special)
        )
        lexical = self._lexical(inputs)
        return self._pool(flat_states[positions.to(self.device)], has_positions.to(self.device), lexical)

    def _lexical(self, inputs: Sequence[EncoderInput]) -> tuple[torch.Tensor, ...] | None:
        """Return three tensors for the term occurrences: input index, term id, and added weight."""
        lexical = self.model.config.lexical
        if lexical is None or self._gains is None:
            return None
        rows, terms, counts = (t.to(self.device) for t in tensors(occurrences(inputs, lexical)))
        return rows, terms, self._gains[terms] * counts

    def _pool(
        self, pooled: torch.Tensor, has_positions: torch.Tensor, lexical: tuple[torch.Tensor, ...] | None
    ) -> torch.Tensor:
        """Compute eq. 4 to 6 for all terms from `(n, longest, width)` states: `(n, vocabulary) float32`.

        Bias, ReLU and log are monotone, so they come after the maximum. Inputs without positions get no
        terms.

        :param has_positions: `(n,) bool`, whether an input has positions
        :param lexical: input indexes, term ids and added weights, or None
        """
        n, longest, width = pooled.shape
        flat_states = pooled.reshape(n * longest, width)
        best = torch.empty(n, self._terms.shape[0], device=self.device)
        by_bits = (
            flat_states.dtype == torch.bfloat16
            and flat_states.device.type == "cpu"
            and bool(flat_states.isfinite().all())
        )
        for start in range(0, self._terms.shape[0], self._chunk):
            logits = self._product(flat_states, start).view(n, longest, -1)
            best[:, start : start + self._chunk] = greatest(logits, by_bits=by_bits)
        weights = torch.relu(best * self._scale + self._bias)
        for _ in range(self.model.config.log_count):
            weights = torch.log1p(weights)
        if lexical is not None:
            rows, terms, added = lexical
            weights[rows, terms] += added
        is_kept = self._allowed & has_positions[:, None]
        return torch.where(is_kept, weights, torch.zeros_like(weights))

    def _product(self, flat_states: torch.Tensor, start: int) -> torch.Tensor:
        """Return the dot products of states and a chunk of terms, `(n_states, chunk)`.

        16-bit factors have float32 results if the device supports it. CPUs do not: there, the sum of a
        product and the bias is rounded, so the error of a weight is relative to the weight.
        """
        chunk = slice(start, start + self._chunk)
        terms = self._terms[chunk].T
        if self.device.type == "cuda" and self.dtype != torch.float32:
            return torch.mm(flat_states, terms, out_dtype=torch.float32)
        if self._offset is not None:
            return torch.addmm(self._offset[chunk], flat_states, terms)
        return flat_states @ terms

    @staticmethod
    def _sparse(weights: torch.Tensor, top_k: int | None) -> SparseRows:
        """Return the non-zero weights; with `top_k`, only the strongest weights of each row.

        The device selects them, so that fewer weights are copied.

        :raises ModelError: a weight is infinite.
        """
        if top_k is not None and top_k < weights.shape[1]:
            lowest_kept = weights.topk(top_k, dim=1).values[:, -1:]
            weights = torch.where(weights >= lowest_kept, weights, torch.zeros_like(weights))
        row, column = torch.nonzero(weights, as_tuple=True)
        values = weights[row, column].cpu().numpy().astype(np.float32)
        if not np.isfinite(values).all():
            raise ModelError(
                "the model gave infinite term weights: the number format overflowed",
                remedy=remedy("encode with {} or {}", Option("dtype", "bf16"), Option("dtype", "fp32")),
            )
        lengths = torch.bincount(row, minlength=len(weights)).cpu().numpy()
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return SparseRows(indptr, column.cpu().numpy().astype(np.int32), values)


@torch.no_grad()
def without_shared(terms: torch.Tensor, norm: nn.LayerNorm) -> tuple[torch.Tensor, torch.Tensor]:
    """Return terms `(vocabulary, width)` without a part whose product is the same for all states.

    A LayerNorm with scale γ and shift β gives states s with (1/γ) · (s - β) = 0. So with the unit vector u
    along 1/γ, t · s = (t - (t · u) u) · s + (t · u) (u · β) for a term t. The last part is the second
    result, `(vocabulary,)`. If (t · u) u is most of t, as in models that start from late interaction, 16
    bits round the rest more finely without it.
    """
    scale = norm.weight.float()
    inverse = 1 / torch.copysign(scale.abs().clamp_min(1e-6), scale)
    unit = inverse / inverse.norm()
    lengths = terms @ unit
    return terms - lengths[:, None] * unit, lengths * (unit @ norm.bias.float())


def greatest(logits: torch.Tensor, *, by_bits: bool) -> torch.Tensor:
    """Return the maximum over the positions: `(n, positions, terms)` to `(n, terms)`.

    With `by_bits`, 16-bit floats are compared as 16-bit integers, which is twice as fast for bf16 on a CPU.
    The integers of positive floats have the same order; those of negative floats have the reverse order and
    are smaller. NaN is not supported.
    """
    if not by_bits:
        return logits.amax(dim=1)
    bits = logits.view(torch.int16)
    highest = bits.amax(dim=1)
    return torch.where(highest < 0, bits.amin(dim=1), highest).view(logits.dtype)
