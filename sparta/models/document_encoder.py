"""Encoding passages as rows of term weights: windows, batches, and the maximum for every term.

SPARTA, eq. 4 to 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing

import numpy as np
import numpy.typing as npt

from sparta.base.errors import ModelError
from sparta.base.records import Advance, Passage
from sparta.models.model import SparseModel
from sparta.models.prune import SparseRows, prune
from sparta.models.quantize import Quantizer
from sparta.neural.batches import GPU_TOKENS, LARGEST_BATCH, length_sorted_batches, shared_inputs
from sparta.neural.inputs import EncoderInput


class DocumentEncoder:
    """Encodes passages with one model: cuts them into windows, batches these, and merges their rows.

    :param dtype: int8, bf16, fp16, fp32 or auto
    :param token_budget: the maximum number of tokens in a GPU's batch
    :param max_batch: the maximum number of texts in a batch
    :param top_k: keep only the strongest terms of each passage
    """

    def __init__(
        self,
        model: SparseModel,
        *,
        dtype: str = "auto",
        token_budget: int = GPU_TOKENS,
        max_batch: int = LARGEST_BATCH,
        top_k: int | None = None,
    ) -> None:
        self.model = model
        self.backend = model.backend(dtype, token_budget)
        self.max_batch = max_batch
        self.top_k = top_k

    def encode(self, passages: Sequence[Passage], advance: Advance | None = None) -> tuple[SparseRows, int]:
        """Return one row per passage, in order, and the number of passages that needed several windows.

        :param advance: called with the number of newly finished passages
        """
        windows_by_passage = list(self.model.config.layout.windows_of(passages, self.model.tokenizer))
        windows = [window for passage_windows in windows_by_passage for window in passage_windows]
        per_passage = np.array(
            [len(passage_windows) for passage_windows in windows_by_passage], dtype=np.int64
        )
        owner = np.repeat(np.arange(len(passages)), per_passage)
        rows = self._encode_windows(windows, owner, per_passage, advance)
        merged = merge_windows(rows, owner, len(passages))
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
        lengths = (
            [self.backend.padded_length(len(windows[group[0]].ids)) for group in groups] if windows else []
        )
        group_batches = length_sorted_batches(lengths, self.backend.token_budget, self.max_batch)
        batches = [np.concatenate([groups[i] for i in group_indexes]) for group_indexes in group_batches]

        def encode(batch: npt.NDArray[np.int64]) -> SparseRows:
            keep_all_terms = bool((per_passage[owner[batch]] > 1).any())
            return self.backend.encode([windows[i] for i in batch], None if keep_all_terms else self.top_k)

        with closing(self.backend.each(encode, batches)) as encoded:
            for batch, rows in zip(batches, encoded, strict=True):
                batch_rows.append(rows)
                order += batch.tolist()
                if advance:
                    advance(int(is_first[batch].sum()))
        all_rows = SparseRows.concatenate(batch_rows)
        return all_rows.take(np.argsort(np.array(order, dtype=np.int64), kind="stable"))


def merge_windows(rows: SparseRows, owner: npt.NDArray[np.int64], n_passages: int) -> SparseRows:
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


def fit_quantizer(model: SparseModel, passages: Iterable[Passage]) -> Quantizer:
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
