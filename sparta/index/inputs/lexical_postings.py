"""The lexical terms of passages as postings, computed from the texts when a batch is made (decision 0044)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparta.base.records import Passage
from sparta.models.lexical_terms import LexicalTerms
from sparta.models.prune import SparseRows


@dataclass(frozen=True, slots=True)
class Postings:
    """The postings of n passages: passage i has the postings `[indptr[i], indptr[i + 1])`.

    `indptr (n + 1,) int64`, `term_ids (m,) int32`, `impacts (m,) int32`.
    """

    indptr: npt.NDArray[np.int64]
    term_ids: npt.NDArray[np.int32]
    impacts: npt.NDArray[np.int32]

    def beside(self, other: Postings) -> Postings:
        """Return the postings of the same passages in both: first the passage's postings here, then there."""
        total = self.indptr + other.indptr
        owners = [np.repeat(np.arange(len(part.indptr) - 1), np.diff(part.indptr)) for part in (self, other)]
        places = (
            np.arange(len(self.term_ids)) + other.indptr[owners[0]],
            np.arange(len(other.term_ids)) + self.indptr[owners[1] + 1],
        )
        merged = Postings(total, np.empty(total[-1], np.int32), np.empty(total[-1], np.int32))
        for part, place in zip((self, other), places, strict=True):
            merged.term_ids[place] = part.term_ids
            merged.impacts[place] = part.impacts
        return merged


def lexical_rows(
    passages: Iterable[Passage], network: SparseRows, lexical: LexicalTerms
) -> tuple[SparseRows, Sequence[str]]:
    """Return the weights of the passages' lexical terms, and the distinct terms in the order of their ids.

    :param network: the network's weights of the passages' wordpieces
    """
    ids: dict[str, int] = {}
    lengths, term_ids, weights = [0], list[int](), list[float]()
    for i, passage in enumerate(passages):
        row = slice(network.indptr[i], network.indptr[i + 1])
        weighted = lexical.passage_terms(passage, network.term_ids[row], network.weights[row])
        terms = {term: weight for term, weight in weighted.items() if weight > 0}
        lengths.append(len(terms))
        term_ids += [ids.setdefault(term, len(ids)) for term in terms]
        weights += terms.values()
    rows = SparseRows(
        np.cumsum(lengths, dtype=np.int64), np.array(term_ids, np.int32), np.array(weights, np.float32)
    )
    return rows, tuple(ids)
