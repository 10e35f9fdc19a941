"""Rankings measured by evidence sets, of pages or of passages, as KILT's published evaluation does.

A question has evidence sets, one for each output with provenance: alternatives, each of which needs all of
its units. A unit is a page, or the passages of one provenance. It is found by the first of its ids in a
ranking; what comes later of it takes no place, as KILT counts a page once, whatever is found of it.
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
"""A pattern of what comes after `page` or `passage` in the name of a measure."""
_MEASURE = re.compile(f"(page|passage){NAMES}")
_MISS, _COMPLETE = -1, -2

type Unit = frozenset[str]
"""Ids of pages or passages, any of which is the evidence."""
type EvidenceSets = tuple[frozenset[Unit], ...]


@dataclass(frozen=True, slots=True)
class Gold:
    """The evidence sets of questions, by query id, as pages and as passages of an index.

    A question whose provenance names pages alone is not among `passages`. `cut`: hits are sentences, which
    count for their passages.
    """

    pages: Mapping[str, EvidenceSets]
    passages: Mapping[str, EvidenceSets]
    cut: bool = False

    def of(self, chosen: Collection[str]) -> Gold:
        """The same for some of the questions."""
        pages, passages = (
            {q: sets for q, sets in own.items() if q in chosen} for own in (self.pages, self.passages)
        )
        return Gold(pages, passages, self.cut)

    def page_ids(self) -> set[str]:
        """All pages that are gold for a question."""
        return {page for sets in self.pages.values() for units in sets for unit in units for page in unit}

    def passage(self, hit: str) -> str:
        """The passage that a hit is, or is a sentence of."""
        return passage_of(hit) if self.cut else hit

    def measures(self) -> tuple[str, ...]:
        """What is measured where nothing is chosen."""
        return (*(OF_PAGES if self.pages else ()), *(OF_PASSAGES if self.passages else ()))


def evidence_by_passage(
    gold: Gold | None, qrels: Mapping[str, Mapping[str, int]]
) -> Mapping[str, EvidenceSets]:
    """The evidence sets of questions as passages; without KILT's provenance, all judged passages of each."""
    if gold:
        return gold.passages
    judged = {q: [p for p, relevance in own.items() if relevance > 0] for q, own in qrels.items()}
    return {q: (frozenset(frozenset((p,)) for p in own),) for q, own in judged.items() if own}


def measured(
    run: Run, gold: Gold, measures: Iterable[str], page: Callable[[str], str]
) -> dict[str, dict[str, float]]:
    """Return `{measure: {query id: value}}`; a question that the run does not answer counts 0.

    :param page: the page of a hit
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

    found = {}
    for measure in measures:
        match = _MEASURE.fullmatch(measure)
        if match is None:
            raise ValueError(f"expected a measure of evidence, found {measure!r}")
        level, kind, k = match[1], match[2] or match[3], int(match[4] or 0)
        found[measure] = {query_id: value(query_id, level, kind, k) for query_id in of_level(level)}
    return found


def exact_match(ranking: Sequence[str], gold: EvidenceSets) -> bool:
    """Whether the first of a ranking are those of an evidence set, in any order, and no others."""
    found = distinct(ranking, gold)
    return any(only(found[:n], units) for units in gold for n in range(1, len(units) + 1))


def r_precision(ranking: Sequence[str], gold: EvidenceSets) -> float:
    """Share of the R units of an evidence set among the first R that are found; of several sets, the best."""
    found = distinct(ranking, gold)

    def share(units: frozenset[Unit]) -> float:
        return sum(not unit.isdisjoint(found[: len(units)]) for unit in units) / len(units)

    return max(map(share, gold), default=0.0)


def distinct(ranking: Iterable[str], gold: EvidenceSets) -> list[str]:
    """A ranking without ids that come again, and without what only repeats units found before."""
    units: dict[str, set[Unit]] = {}
    for unit in {unit for one in gold for unit in one}:
        for one_id in unit:
            units.setdefault(one_id, set()).add(unit)
    met: set[Unit] = set()
    found = []
    for one_id in ranking:
        own = units.get(one_id) or {frozenset((one_id,))}
        if not own <= met:
            met |= own
            found.append(one_id)
    return found


def _slots(ranking: Iterable[str], gold: EvidenceSets) -> list[int]:
    """The places that recall and success count: `_MISS`, `_COMPLETE`, or the number of a set partly found.

    A set takes one place, that of its last unit found; what is in no set takes one too.
    """
    pending = [set(units) for units in dict.fromkeys(gold)]
    slots: list[int] = []
    for one_id in distinct(ranking, gold):
        missed = True
        for number, units in enumerate(pending):
            own = {unit for unit in units if one_id in unit}
            if own:
                missed = False
                units -= own
                if number in slots:
                    slots.remove(number)
                slots.append(number if units else _COMPLETE)
        if missed:
            slots.append(_MISS)
    return slots
