"""Passages become rows of weights: windows, batches, the maximum over the whole vocabulary (eq. 4 to 6)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from sparta.base.errors import ModelError
from sparta.base.records import Advance, Passage
from sparta.base.remedies import Option, remedy
from sparta.models.prune import SparseRows, prune
from sparta.models.quantize import Quantizer
from sparta.models.sparse import SparseEncoder
from sparta.neural.encoding import (
    GPU_TOKENS,
    LARGEST_BATCH,
    OTHER_TOKENS,
    each_batch,
    length_sorted_batches,
    pick_dtype,
    tokens_at_once,
    with_halving,
)
from sparta.neural.inputs import EncoderInput
from sparta.neural.pooling import (
    mixed,
    occurrences,
    pad_inputs,
    pooled_positions,
    shared_inputs,
    surroundings,
)

TERM_CHUNK = 4096
VECTOR = 16


class DocumentEncoder:
    """Encodes many passages with one model on one device: batches, vocabulary chunks, top-K on the device."""

    def __init__(
        self,
        model: SparseEncoder,
        *,
        dtype: str = "auto",
        token_budget: int = GPU_TOKENS,
        max_batch: int = LARGEST_BATCH,
        top_k: int | None = None,
    ) -> None:
        self.model = model.eval()
        self.device = model.device
        self.dtype = pick_dtype(dtype, self.device)
        self.token_budget = token_budget
        self.pooled_at_once = token_budget if self.device.type == "cuda" else min(token_budget, OTHER_TOKENS)
        self.max_batch = max_batch
        self.top_k = top_k
        self._allowed = ~model.excluded_terms().to(self.device)
        self._bias = model.term_bias().detach().float()
        self._terms = model.term_matrix().detach().to(self.dtype)
        gains = model.lexical_gains()
        self._gains = None if gains is None else gains.detach()
        self._scale = float(getattr(model, "scale", torch.tensor(1.0)).detach())

    def encode(self, passages: Sequence[Passage], advance: Advance | None = None) -> tuple[SparseRows, int]:
        """One row a passage, in order, and how many were longer than one window.

        `advance(n)` is called as texts are done.
        """
        cut = self.model.config.layout.windows_of(passages, self.model.tokenizer)
        windows = [window for own in cut for window in own]
        per_passage = np.array([len(own) for own in cut], dtype=np.int64)
        owner = np.repeat(np.arange(len(passages)), per_passage)
        rows = self._encode_windows(windows, owner, per_passage, advance)
        merged = _merge_windows(rows, owner, len(passages))
        return prune(merged, top_k=self.top_k), int((per_passage > 1).sum())

    def _encode_windows(
        self,
        windows: list[EncoderInput],
        owner: npt.NDArray[np.int64],
        per_passage: npt.NDArray[np.int64],
        advance: Advance | None,
    ) -> SparseRows:
        """One row a window; a window that will be merged with others keeps all its terms.

        Neighbours of the same tokens are encoded together. Passages, not windows, are reported to `advance`:
        each with its first window.
        """
        first = np.diff(owner, prepend=-1) > 0
        order: list[int] = []
        parts: list[SparseRows] = []
        ends = np.cumsum(np.bincount(shared_inputs(windows))) if windows else np.zeros(0, dtype=np.int64)
        groups = np.split(np.arange(len(windows)), ends[:-1])
        lengths = [self._padded(len(windows[group[0]].ids)) for group in groups] if windows else []
        budget = tokens_at_once(self.token_budget, self.device)
        cut = length_sorted_batches(lengths, budget, self.max_batch)
        batches = [np.concatenate([groups[i] for i in chosen]) for chosen in cut]

        def encode(batch: npt.NDArray[np.int64]) -> list[SparseRows]:
            whole = bool((per_passage[owner[batch]] > 1).any())
            return with_halving(partial(self._encode_batch, whole=whole), [windows[i] for i in batch])

        with closing(each_batch(encode, batches, self.device)) as encoded:
            for batch, rows in zip(batches, encoded, strict=True):
                parts += rows
                order += batch.tolist()
                if advance:
                    advance(int(first[batch].sum()))
        everything = SparseRows.concatenate(parts)
        return everything.take(np.argsort(np.array(order, dtype=np.int64), kind="stable"))

    def _padded(self, length: int) -> int:
        """Return the length that a text is padded to when it is the longest of its batch.

        In 16 bits, attention over a whole number of vectors gives the same bits whatever the padding; over
        any other length, its sums are rounded in another order. The longest window stays the limit.
        """
        if self.dtype == torch.float32:
            return length
        return max(length, min(-(-length // VECTOR) * VECTOR, self.model.config.layout.max_length))

    @torch.inference_mode()
    def _encode_batch(self, inputs: Sequence[EncoderInput], whole: bool) -> list[SparseRows]:
        """One row an input, in order; inputs are pooled a few at a time, those of like length together."""
        rows = shared_inputs(inputs)
        distinct = [item for i, item in enumerate(inputs) if i == 0 or rows[i] != rows[i - 1]]
        length = self._padded(max(len(i.ids) for i in distinct))
        ids, mask, segments = (t.to(self.device) for t in pad_inputs(distinct, length))
        with torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32):
            hidden = self.model.hidden_states(ids, mask, segments).to(self.dtype)
        flat = hidden.flatten(0, 1)
        share = self.model.config.context_share
        contexts, index = surroundings(inputs) if share else ([], [-1] * len(inputs))
        row_of = dict(zip(index, rows, strict=True))
        around = self._weights(flat, contexts, [row_of[i] for i in range(len(contexts))], length)
        sizes = [item.lead + item.end - item.start for item in inputs]
        parts: list[SparseRows] = []
        order: list[int] = []
        for batch in length_sorted_batches(sizes, max(self.pooled_at_once, length), len(inputs)):
            own = self._weights(flat, [inputs[i] for i in batch], [rows[i] for i in batch], length)
            weights = mixed(own, around, [index[i] for i in batch], share)
            parts.append(self._sparse(weights, None if whole else self.top_k))
            order += batch
        return [SparseRows.concatenate(parts).take(np.argsort(order, kind="stable"))]

    def _weights(
        self, flat: torch.Tensor, inputs: Sequence[EncoderInput], rows: Sequence[int], length: int
    ) -> torch.Tensor:
        """Weights of every term, `(n, vocabulary) float32`: eq. 4 to 6, and what occurrences add.

        `flat (n_rows * length, width)` are the states that inputs are read from, `rows` which of them.
        """
        if not inputs:
            return torch.zeros(0, len(self._terms), device=self.device)
        positions, any_at_all = pooled_positions(
            inputs, rows, length, pool_special=self.model.config.pool_special
        )
        lexical = self._lexical(inputs)
        return self._pool(flat[positions.to(self.device)], any_at_all.to(self.device), lexical)

    def _lexical(self, inputs: Sequence[EncoderInput]) -> tuple[torch.Tensor, ...] | None:
        """Inputs, terms, and what is added for them."""
        lexical = self.model.config.lexical
        if lexical is None or self._gains is None:
            return None
        rows, terms, counts = (t.to(self.device) for t in occurrences(inputs, lexical))
        return rows, terms, self._gains[terms] * counts

    def _pool(
        self, pooled: torch.Tensor, any_at_all: torch.Tensor, lexical: tuple[torch.Tensor, ...] | None
    ) -> torch.Tensor:
        """Eq. 4 to 6 for every term, from `(n, longest, width)` states: `(n, vocabulary) float32`.

        What is `lexical` is added to it: inputs, terms, and how much. Where no position takes part, there are
        no terms. Bias, ReLU and log are monotone and come after the maximum.
        """
        n, longest, width = pooled.shape
        flat = pooled.reshape(n * longest, width)
        best = torch.empty(n, self._terms.shape[0], device=self.device)
        by_bits = flat.dtype == torch.bfloat16 and flat.device.type == "cpu" and bool(flat.isfinite().all())
        for start in range(0, self._terms.shape[0], TERM_CHUNK):
            chunk = self._terms[start : start + TERM_CHUNK]
            logits = self._product(flat, chunk).view(n, longest, -1)
            best[:, start : start + TERM_CHUNK] = greatest(logits, by_bits=by_bits)
        weights = torch.relu(best * self._scale + self._bias)
        for _ in range(self.model.config.log_count):
            weights = torch.log1p(weights)
        if lexical is not None:
            rows, terms, added = lexical
            weights[rows, terms] += added
        kept = self._allowed & any_at_all[:, None]
        return torch.where(kept, weights, torch.zeros_like(weights))

    def _product(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """`left @ right.T`, in float32 where the device can give it for 16-bit factors."""
        if self.device.type == "cuda" and self.dtype != torch.float32:
            return torch.mm(left, right.T, out_dtype=torch.float32)
        return left @ right.T

    @staticmethod
    def _sparse(weights: torch.Tensor, top_k: int | None) -> SparseRows:
        """Return the non-zero entries; with `top_k`, chosen on the device so that only they leave it."""
        if top_k is not None and top_k < weights.shape[1]:
            least = weights.topk(top_k, dim=1).values[:, -1:]
            weights = torch.where(weights >= least, weights, torch.zeros_like(weights))
        row, column = torch.nonzero(weights, as_tuple=True)
        values = weights[row, column].cpu().numpy().astype(np.float32)
        if not np.isfinite(values).all():
            raise ModelError(
                "expected finite weights, found infinite ones: the arithmetic overflowed",
                remedy=remedy("encode with {} or {}", Option("dtype", "bf16"), Option("dtype", "fp32")),
            )
        lengths = torch.bincount(row, minlength=len(weights)).cpu().numpy()
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return SparseRows(indptr, column.cpu().numpy().astype(np.int32), values)


def greatest(logits: torch.Tensor, *, by_bits: bool) -> torch.Tensor:
    """`(n, positions, terms)` to `(n, terms)`: the maximum over the positions.

    With `by_bits`, which is twice as fast for bf16 on a CPU, 16 bits are compared as the integers that they
    also are: those of positive numbers are in order, those of negative ones in reverse and below them. NaN
    has no place in that order.
    """
    if not by_bits:
        return logits.amax(dim=1)
    bits = logits.view(torch.int16)
    highest = bits.amax(dim=1)
    return torch.where(highest < 0, bits.amin(dim=1), highest).view(logits.dtype)


def _merge_windows(rows: SparseRows, owner: npt.NDArray[np.int64], n_passages: int) -> SparseRows:
    """Windows of one passage become one row: the maximum of each term."""
    windows = np.bincount(owner, minlength=n_passages)
    if (windows == 1).all():
        return rows
    alone = windows[owner] == 1
    parts, passages = [rows.take(np.flatnonzero(alone))], [owner[alone]]
    starts = np.cumsum(windows) - windows
    for passage in np.flatnonzero(windows != 1):
        begin, end = rows.indptr[starts[passage]], rows.indptr[starts[passage] + windows[passage]]
        order = np.lexsort((-rows.weights[begin:end], rows.term_ids[begin:end]))
        terms, weights = rows.term_ids[begin:end][order], rows.weights[begin:end][order]
        first = np.diff(terms, prepend=-1) > 0
        parts.append(SparseRows(np.array([0, first.sum()], np.int64), terms[first], weights[first]))
        passages.append(np.array([passage]))
    return SparseRows.concatenate(parts).take(np.argsort(np.concatenate(passages)))


def fit_quantizer(model: SparseEncoder, passages: Iterable[Passage]) -> Quantizer:
    """Return the model's scale: a little above the largest weight that these passages have."""
    rows, _ = DocumentEncoder(model, dtype="fp32").encode(list(passages))
    if not rows.weights.size:
        raise ModelError(
            "expected positive weights for the calibration texts, found none: the model writes no terms",
            remedy="train the model, or check that the folder holds a sparse encoder",
        )
    return Quantizer(float(f"{rows.weights.max() * 1.1:.3g}"))  # few digits: the same on every machine
