"""Measures rankings of pages or passages by evidence sets, like KILT's published evaluation.

A question has one evidence set for each output with provenance. The sets are alternatives: a ranking needs to
find all units of only one set. A unit is a page, or the passages of one provenance. The first hit of a unit
counts as finding the unit. Later hits of the same unit take no rank: KILT counts a page once, even if the
ranking has several passages of the page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from hybrid.multihop.measures import only
from sparta.base.records import Run
from sparta.data.units import passage_of

R_PRECISION = "Rprec"
PAGE_PRECISION = f"page_{R_PRECISION}"
OF_PAGES = (PAGE_PRECISION, "page_recall@20", "page_success@20")
OF_PASSAGES = ("passage_Rprec", "passage_recall@20", "passage_success@20")
NAMES = r"_(?:Rprec|(EM)|(recall|success)@([1-9]\d{0,5}))"
"""The pattern of a measure's name after `page` or `passage`."""
_MEASURE = re.compile(f"(page|passage){NAMES}")
_MISS, _COMPLETE = -1, -2

type Unit = frozenset[str]
"""Ids of pages or passages. Each id alone is sufficient evidence."""
type EvidenceSets = tuple[frozenset[Unit], ...]


@dataclass(frozen=True, slots=True)
class Gold:
    """The evidence sets of questions, by query id: as pages, and as passages of an index.

    `passages` leaves out questions whose provenance names only pages. `cut` means: hits are sentences, and a
    sentence counts for its passage.
    """

    pages: Mapping[str, EvidenceSets]
    passages: Mapping[str, EvidenceSets]
    cut: bool = False

    def of(self, query_ids: Collection[str]) -> Gold:
        """Return the evidence sets of the chosen questions only."""
        pages, passages = (
            {query_id: sets for query_id, sets in by_query.items() if query_id in query_ids}
            for by_query in (self.pages, self.passages)
        )
        return Gold(pages, passages, self.cut)

    def page_ids(self) -> set[str]:
        """Return the ids of all pages that are gold for at least one question."""
        return {page for sets in self.pages.values() for units in sets for unit in units for page in unit}

    def passage(self, hit: str) -> str:
        """Return the passage id of a hit: the hit's own id, or the passage id of a sentence."""
        return passage_of(hit) if self.cut else hit

    def measures(self) -> tuple[str, ...]:
        """Return the names of the default measures."""
        return (*(OF_PAGES if self.pages else ()), *(OF_PASSAGES if self.passages else ()))


def evidence_by_passage(
    gold: Gold | None, qrels: Mapping[str, Mapping[str, int]]
) -> Mapping[str, EvidenceSets]:
    """Return the evidence sets of questions as passages: from KILT's provenance, else from the qrels.

    With qrels, the evidence set of a question holds all its relevant passages.
    """
    if gold:
        return gold.passages
    relevant = {
        query_id: [passage_id for passage_id, relevance in judgments.items() if relevance > 0]
        for query_id, judgments in qrels.items()
    }
    return {
        query_id: (frozenset(frozenset((passage_id,)) for passage_id in passage_ids),)
        for query_id, passage_ids in relevant.items()
        if passage_ids
    }


def measured(
    run: Run, gold: Gold, measures: Iterable[str], page: Callable[[str], str]
) -> dict[str, dict[str, float]]:
    """Return `{measure: {query id: value}}`; a question that the run lacks counts 0.

    :param page: returns the page of a hit's passage id
    """

    @cache
    def ranking(query_id: str, level: str) -> list[str]:
        ids = [hit.passage_id for hit in run.get(query_id, ())]
        return list(map(page if level == "page" else gold.passage, ids))

    @cache
    def slots(query_id: str, level: str) -> list[int]:
        return _slots(ranking(query_id, level), of_level(level)[query_id])

    def of_level(level: str) -> Mapping[str, EvidenceSets]:
        return gold.pages if level == "page" else gold.passages

    def value(query_id: str, level: str, kind: str | None, k: int) -> float:
        sets = of_level(level)[query_id]
        if kind is None:
            return r_precision(ranking(query_id, level), sets)
        if kind == "EM":
            return float(exact_match(ranking(query_id, level), sets))
        complete = slots(query_id, level)[:k].count(_COMPLETE)
        return complete / len(set(sets)) if kind == "recall" else float(complete > 0)

    values = {}
    for measure in measures:
        match = _MEASURE.fullmatch(measure)
        if match is None:
            raise ValueError(f"unknown evidence measure {measure!r}")
        level, kind, k = match[1], match[2] or match[3], int(match[4] or 0)
        values[measure] = {query_id: value(query_id, level, kind, k) for query_id in of_level(level)}
    return values


def exact_match(ranking: Sequence[str], gold: EvidenceSets) -> bool:
    """Return whether the top of a ranking is exactly one evidence set, in any order."""
    ids = distinct(ranking, gold)
    return any(only(ids[:size], units) for units in gold for size in range(1, len(units) + 1))


def r_precision(ranking: Sequence[str], gold: EvidenceSets) -> float:
    """Return the best R-precision over the evidence sets: the share of R units among the first R ids."""
    ids = distinct(ranking, gold)

    def share(units: frozenset[Unit]) -> float:
        return sum(not unit.isdisjoint(ids[: len(units)]) for unit in units) / len(units)

    return max(map(share, gold), default=0.0)


def distinct(ranking: Iterable[str], gold: EvidenceSets) -> list[str]:
    """Return a ranking without repeated ids and without ids whose units the ranking already covers."""
    units_of: dict[str, set[Unit]] = {}
    for unit in {unit for evidence_set in gold for unit in evidence_set}:
        for passage_id in unit:
            units_of.setdefault(passage_id, set()).add(unit)
    covered: set[Unit] = set()
    distinct_ids = []
    for passage_id in ranking:
        id_units = units_of.get(passage_id) or {frozenset((passage_id,))}
        if not id_units <= covered:
            covered |= id_units
            distinct_ids.append(passage_id)
    return distinct_ids


def _slots(ranking: Iterable[str], gold: EvidenceSets) -> list[int]:
    """Return the ranks that recall and success count: each is `_MISS`, `_COMPLETE` or a set's number.

    A set's number marks a set that is not complete yet. A set takes one rank, the rank of its last found
    unit. An id outside all sets takes one rank too.
    """
    pending = [set(units) for units in dict.fromkeys(gold)]
    slots: list[int] = []
    for passage_id in distinct(ranking, gold):
        is_miss = True
        for number, units in enumerate(pending):
            found_units = {unit for unit in units if passage_id in unit}
            if found_units:
                is_miss = False
                units -= found_units
                if number in slots:
                    slots.remove(number)
                slots.append(number if units else _COMPLETE)
        if is_miss:
            slots.append(_MISS)
    return slots
