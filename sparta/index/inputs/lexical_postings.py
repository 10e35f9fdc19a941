"""The lexical terms of passages as postings, computed from the texts when a batch is made (decision 0044)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sparta.base.records import Passage
from sparta.data.units import context_of, is_sentence_of_passage, joined
from sparta.models.lexical_terms import LexicalTerms
from sparta.models.prune import SparseRows
from sparta.shards.store import EncodedShard


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


def in_context(shards: Iterable[EncodedShard]) -> Iterator[EncodedShard]:
    """Yield shards with the contexts of their passages; the context of a sentence is its passage's text.

    A passage's sentences may be in several shards, so a shard waits until its last passage ends.
    """
    begun: list[Mapping[str, Any]] = []  # sentences, in earlier shards, of the passage that continues
    waiting: list[EncodedShard] = []
    for shard in itertools.chain(shards, [None]):
        if shard:
            waiting.append(replace(shard, objects=tuple(map(json.loads, shard.records))))
        while waiting and (shard is None or _ends(waiting)):
            records = [*begun, *(record for each in waiting for record in each.objects)]
            first = waiting.pop(0)
            yield replace(first, contexts=_contexts(first.objects, records))
            last = first.objects[-1]
            passage_id = last["passage_id"] if is_sentence_of_passage(last) else None
            read = records[: len(begun) + len(first)]
            begun = [record for record in read if passage_id and record.get("passage_id") == passage_id]


def _ends(shards: Sequence[EncodedShard]) -> bool:
    """Return whether the last passage of the first shard ends within the shards."""
    last, *others = shards[0].objects[-1], *(record for shard in shards[1:] for record in shard.objects)
    return not is_sentence_of_passage(last) or any(
        record.get("passage_id") != last["passage_id"] for record in others
    )


def _contexts(
    records: Sequence[Mapping[str, Any]], neighbors: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    """Return the contexts of records; the sentences of their passages are among the neighbors."""
    sentences: dict[str, list[Mapping[str, Any]]] = {}
    for record in filter(is_sentence_of_passage, neighbors):
        sentences.setdefault(record["passage_id"], []).append(record)
    texts = {
        passage_id: joined(sentences[passage_id])
        for passage_id in {record["passage_id"] for record in records if is_sentence_of_passage(record)}
    }
    return tuple(
        texts[record["passage_id"]] if is_sentence_of_passage(record) else context_of(record)
        for record in records
    )


def lexical_rows(
    passages: Iterable[Passage], pieces: SparseRows, lexical: LexicalTerms
) -> tuple[SparseRows, Sequence[str]]:
    """Return the weights of the passages' lexical terms, and the distinct terms in the order of their ids.

    :param pieces: the network's weights of each passage's wordpieces
    """
    ids: dict[str, int] = {}
    lengths, term_ids, weights = [0], list[int](), list[float]()
    for passage, begin, end in zip(passages, pieces.indptr[:-1], pieces.indptr[1:], strict=True):
        own = lexical.passage_terms(passage, pieces.term_ids[begin:end], pieces.weights[begin:end])
        terms = {term: weight for term, weight in own.items() if weight > 0}
        lengths.append(len(terms))
        term_ids += [ids.setdefault(term, len(ids)) for term in terms]
        weights += terms.values()
    rows = SparseRows(
        np.cumsum(lengths, dtype=np.int64), np.array(term_ids, np.int32), np.array(weights, np.float32)
    )
    return rows, tuple(ids)
