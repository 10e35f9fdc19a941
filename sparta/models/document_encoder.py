"""Encoding passages as rows of term weights: windows, batches, and the maximum for every term (eq.

4 to 6).
"""

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
    """Encodes passages with one model on one device, in batches and vocabulary chunks."""

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
        """Return one row per passage, in order, and the number of passages that needed several windows.

        :param advance: called with the number of newly finished passages
        """
        windows_by_passage = self.model.config.layout.windows_of(passages, self.model.tokenizer)
        windows = [window for passage_windows in windows_by_passage for window in passage_windows]
        per_passage = np.array(
            [len(passage_windows) for passage_windows in windows_by_passage], dtype=np.int64
        )
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
        """Return one row per window.

        A window of a passage with several windows keeps all its terms for merging. Neighboring windows with
        the same tokens are encoded together. `advance` counts passages, not windows: a passage counts with
        its first window.
        """
        is_first = np.diff(owner, prepend=-1) > 0
        order: list[int] = []
        batch_rows: list[SparseRows] = []
        ends = np.cumsum(np.bincount(shared_inputs(windows))) if windows else np.zeros(0, dtype=np.int64)
        groups = np.split(np.arange(len(windows)), ends[:-1])
        lengths = [self._padded(len(windows[group[0]].ids)) for group in groups] if windows else []
        budget = tokens_at_once(self.token_budget, self.device)
        group_batches = length_sorted_batches(lengths, budget, self.max_batch)
        batches = [np.concatenate([groups[i] for i in group_indexes]) for group_indexes in group_batches]

        def encode(batch: npt.NDArray[np.int64]) -> list[SparseRows]:
            keep_all_terms = bool((per_passage[owner[batch]] > 1).any())
            return with_halving(
                partial(self._encode_batch, keep_all_terms=keep_all_terms), [windows[i] for i in batch]
            )

        with closing(each_batch(encode, batches, self.device)) as encoded:
            for batch, rows in zip(batches, encoded, strict=True):
                batch_rows += rows
                order += batch.tolist()
                if advance:
                    advance(int(is_first[batch].sum()))
        all_rows = SparseRows.concatenate(batch_rows)
        return all_rows.take(np.argsort(np.array(order, dtype=np.int64), kind="stable"))

    def _padded(self, length: int) -> int:
        """Return the padded length of the longest text in a batch.

        In 16 bits, attention over a whole number of vectors gives the same bits for any padding. Other
        lengths change the order of its sums and their rounding. The length never exceeds the model's
        maximum.
        """
        if self.dtype == torch.float32:
            return length
        return max(length, min(-(-length // VECTOR) * VECTOR, self.model.config.layout.max_length))

    @torch.inference_mode()
    def _encode_batch(self, inputs: Sequence[EncoderInput], keep_all_terms: bool) -> list[SparseRows]:
        """Return one row per input, in order. Inputs are pooled in small groups of similar length."""
        rows = shared_inputs(inputs)
        encoder_inputs = [item for i, item in enumerate(inputs) if i == 0 or rows[i] != rows[i - 1]]
        length = self._padded(max(len(i.ids) for i in encoder_inputs))
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
            group_rows.append(self._sparse(weights, None if keep_all_terms else self.top_k))
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
        positions, has_positions = pooled_positions(
            inputs, rows, length, pool_special=self.model.config.pool_special
        )
        lexical = self._lexical(inputs)
        return self._pool(flat_states[positions.to(self.device)], has_positions.to(self.device), lexical)

    def _lexical(self, inputs: Sequence[EncoderInput]) -> tuple[torch.Tensor, ...] | None:
        """Return three tensors for the term occurrences: input index, term id, and added weight."""
        lexical = self.model.config.lexical
        if lexical is None or self._gains is None:
            return None
        rows, terms, counts = (t.to(self.device) for t in occurrences(inputs, lexical))
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
        for start in range(0, self._terms.shape[0], TERM_CHUNK):
            chunk = self._terms[start : start + TERM_CHUNK]
            logits = self._product(flat_states, chunk).view(n, longest, -1)
            best[:, start : start + TERM_CHUNK] = greatest(logits, by_bits=by_bits)
        weights = torch.relu(best * self._scale + self._bias)
        for _ in range(self.model.config.log_count):
            weights = torch.log1p(weights)
        if lexical is not None:
            rows, terms, added = lexical
            weights[rows, terms] += added
        is_kept = self._allowed & has_positions[:, None]
        return torch.where(is_kept, weights, torch.zeros_like(weights))

    def _product(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Return `left @ right.T`, in float32 if the device supports float32 results for 16-bit factors."""
        if self.device.type == "cuda" and self.dtype != torch.float32:
            return torch.mm(left, right.T, out_dtype=torch.float32)
        return left @ right.T

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


def _merge_windows(rows: SparseRows, owner: npt.NDArray[np.int64], n_passages: int) -> SparseRows:
    """Merge the windows of each passage into one row: each term keeps its maximum weight."""
    window_counts = np.bincount(owner, minlength=n_passages)
    if (window_counts == 1).all():
        return rows
    is_single = window_counts[owner] == 1
    merged_rows, passages = [rows.take(np.flatnonzero(is_single))], [owner[is_single]]
    starts = np.cumsum(window_counts) - window_counts
    for passage in np.flatnonzero(window_counts != 1):
        begin, end = rows.indptr[starts[passage]], rows.indptr[starts[passage] + window_counts[passage]]
        order = np.lexsort((-rows.weights[begin:end], rows.term_ids[begin:end]))
        terms, weights = rows.term_ids[begin:end][order], rows.weights[begin:end][order]
        is_highest = np.diff(terms, prepend=-1) > 0
        merged_rows.append(
            SparseRows(np.array([0, is_highest.sum()], np.int64), terms[is_highest], weights[is_highest])
        )
        passages.append(np.array([passage]))
    return SparseRows.concatenate(merged_rows).take(np.argsort(np.concatenate(passages)))


def fit_quantizer(model: SparseEncoder, passages: Iterable[Passage]) -> Quantizer:
    """Return a quantizer whose scale is slightly above the largest weight of the given passages.

    :raises ModelError: the model gives no passage a positive weight.
    """
    rows, _ = DocumentEncoder(model, dtype="fp32").encode(list(passages))
    if not rows.weights.size:
        raise ModelError(
            "the model gives no term of the calibration texts a positive weight",
            remedy="train the model first, or name the folder of a trained sparse encoder",
        )
    # Rounding to three digits gives the same scale on every machine.
    return Quantizer(float(f"{rows.weights.max() * 1.1:.3g}"))
