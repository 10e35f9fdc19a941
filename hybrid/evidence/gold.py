"""KILT's provenance as judgments of an index: which of its passages and pages are the evidence."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hybrid.evidence.measures import EvidenceSets, Gold, Unit
from sparta.base.errors import InputError
from sparta.base.remedies import Option, remedy
from sparta.data.kilt import Evidence, Place, Provenance
from sparta.data.units import is_chunk, is_cut, passage_of
from sparta.search.searcher import BM25, Searcher

logger = logging.getLogger("sparta.hybrid")
WIKIPEDIA_ID = "wikipedia_id"
_AT_ONCE = 1000
_PLACES = tuple(f"{side}_{of}" for side in ("start", "end") for of in ("paragraph_id", "character"))
_PASSAGES_A_PAGE = 32  # that are looked for at first


def gold_of(
    name: str, evidence: Mapping[str, Evidence], index: Path
) -> tuple[Gold, dict[str, dict[str, int]]]:
    """Return the provenance of questions, by query id, in the terms of an index, and its passages as qrels.

    Passages that provenance names are gold as they are, and of a span those that overlap it, in an index of
    the knowledge source. A page goes by what the index calls it: its Wikipedia id if records have one, else
    its title, else the id of the passage. Evidence that is not in the index stays, and is never found; it is
    not among the qrels, and sentences of passages are not either.

    :param name: of the set, for messages
    :raises InputError: the set names passages by their ids, and the index has none of them.
    """
    with Searcher(index, channel=BM25) as searcher:
        with searcher.reader.reading() as snapshot:
            unit, by_id = snapshot.generation.unit, WIKIPEDIA_ID in snapshot.lucene.fields()
        cut = is_cut(unit)
        known = _Known(searcher, evidence.values(), cut=cut, by_id=by_id)
    units = {q: [list(known.passages(output)) for output in own] for q, own in evidence.items()}
    passages = {q: sets for q, own in units.items() if (sets := _sets(own))}
    pages = {q: sets for q, own in evidence.items() if (sets := _sets(map(known.pages, own)))}
    lacking = [q for q, sets in passages.items() if not any(map(known.holds, sets))]
    if lacking and len(lacking) == len(passages):
        _none_there(name, evidence, index)
        passages = {}
    elif lacking:
        logger.warning(
            "%s: the index has none of the evidence of %d of %d questions, which count as not found",
            *(name, len(lacking), len(passages)),
        )
    there = {
        q: {i: 1 for output in units[q] for unit in output for i in sorted(unit) if i in known.records}
        for q in passages
    }
    strips = cut and not is_chunk(unit)  # a hit in an index of chunks is a document
    return Gold(pages, passages, strips), {} if cut else {q: own for q, own in there.items() if own}


def beginnings_of_pages(
    evidence: Mapping[str, Evidence], index: Path
) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]]:
    """Return, as qrels, the first passage and all passages of the pages that a question's provenance names.

    They are those of an index of the knowledge source.

    :param evidence: of questions whose provenance names pages alone (entity linking)
    """
    with Searcher(index, channel=BM25) as searcher:
        known = _Known(searcher, evidence.values(), cut=False, by_id=True)
    pages = {
        q: [page for output in own for one in output if (page := known.of_page(one.wikipedia_id))]
        for q, own in evidence.items()
    }
    first = {q: {page[0]: 1 for page in own} for q, own in pages.items() if own}
    return first, {q: {i: 1 for page in own for i in page} for q, own in pages.items() if own}


def names_pages_alone(evidence: Evidence) -> bool:
    """Whether provenance says no more than the page."""
    return not any(one.passage_ids or (one.start and one.end) for output in evidence for one in output)


def page_of(passage_id: str, record: Mapping[str, Any]) -> str:
    """The page of a passage: its Wikipedia id, else its title, else the passage's own id; a sentence has that
    of its passage.
    """
    for name in (WIKIPEDIA_ID, "title"):
        if (value := record.get(name)) is not None and str(value).strip():
            return str(value).strip()
    whole = passage_of(passage_id)
    return whole if record.get("passage_id") == whole else passage_id


def _none_there(name: str, evidence: Mapping[str, Evidence], index: Path) -> None:
    if any(one.passage_ids for own in evidence.values() for output in own for one in output):
        raise InputError(
            "expected provenance that names passages of the index, found none of them there",
            where=f"{name}, {index}",
            remedy=remedy(
                "name the index of the corpus that this set belongs to: {}", Option("index", "FOLDER")
            ),
        )
    logger.warning(
        "%s: none of its provenance is in the index; pages are compared by their titles (or the records'"
        " Wikipedia ids), and passages are not measured; an index of kilt_knowledgesource.json holds them",
        name,
    )


def _sets(outputs: Iterable[Iterable[Unit]]) -> EvidenceSets:
    return tuple(filter(None, map(frozenset, outputs)))


class _Known:
    """What an index holds of the passages and pages that provenance names.

    :param by_id: records have Wikipedia ids, by which their pages then go
    """

    def __init__(self, searcher: Searcher, evidence: Iterable[Evidence], *, cut: bool, by_id: bool) -> None:
        named = [one for own in evidence for output in own for one in output]
        self.records: dict[str, dict[str, Any]] = {}
        self._searcher, self._cut, self._by_id = searcher, cut, by_id
        self._find(dict.fromkeys(i for one in named for i in one.passage_ids))
        self._of_page: dict[str, list[str]] = {}
        pages = dict.fromkeys(one.wikipedia_id for one in named if one.wikipedia_id and not one.passage_ids)
        self._find_pages(list(pages))

    def _find(self, passage_ids: Iterable[str]) -> None:
        ids = list(passage_ids)
        for start in range(0, len(ids), _AT_ONCE):
            some = ids[start : start + _AT_ONCE]
            docids = self._searcher.docids(some)
            if self._cut:  # what had a context of its own is there as it was given
                firsts = self._searcher.docids([f"{i}#0" for i in some])
                docids = [whole if whole >= 0 else first for whole, first in zip(docids, firsts, strict=True)]
            there = [(i, docid) for i, docid in zip(some, docids, strict=True) if docid >= 0]
            records = self._searcher.records([docid for _, docid in there])
            self.records.update(zip((i for i, _ in there), records, strict=True))

    def _find_pages(self, pages: list[str]) -> None:
        first = 0
        while pages:
            numbers = range(first, first + _PASSAGES_A_PAGE)
            self._find(f"{page}-{n}" for page in pages for n in numbers)
            for page in pages:
                own = (f"{page}-{n}" for n in numbers)
                self._of_page.setdefault(page, []).extend(i for i in own if self._is_of(i, page))
            pages = [page for page in pages if f"{page}-{numbers[-1]}" in self.records]
            first = numbers[-1] + 1

    def _is_of(self, passage_id: str, page: str) -> bool:
        return str(self.records.get(passage_id, {}).get("wikipedia_id", "")) == page

    def of_page(self, wikipedia_id: str) -> list[str]:
        """The passages of a page of the knowledge source, in order."""
        return self._of_page.get(wikipedia_id, [])

    def holds(self, units: Iterable[Unit]) -> bool:
        """Whether the index holds a passage of an evidence set."""
        return any(not unit.isdisjoint(self.records) for unit in units)

    def passages(self, output: Sequence[Provenance]) -> Iterator[Unit]:
        """Yield the passages of each provenance that says more than the page."""
        for one in output:
            if one.passage_ids:
                yield frozenset(one.passage_ids)
            elif one.start and one.end:
                of_page = [(i, self.records[i]) for i in self._of_page.get(one.wikipedia_id, ())]
                own = [(i, record) for i, record in of_page if _is_placed(record)]
                yield frozenset(overlapping(own, one.start, one.end) or [_absent(one)])

    def pages(self, output: Sequence[Provenance]) -> Iterator[Unit]:
        """Yield the page of each provenance, as the index calls it if it is there."""
        for one in output:
            there = [
                i for i in one.passage_ids or self._of_page.get(one.wikipedia_id, ()) if i in self.records
            ]
            named = {page_of(i, self.records[i]) for i in there}
            if not named:  # passages of another making, whose pages may be those all the same
                named = {one.title, one.wikipedia_id if self._by_id else ""} - {""} or {_absent(one)}
            yield frozenset(named)


def _is_placed(record: Mapping[str, Any]) -> bool:
    """Whether a record says where in its page it stands, as those of a knowledge source do."""
    return all(str(record.get(name, "")).removeprefix("-").isdecimal() for name in _PLACES)


def _absent(one: Provenance) -> str:
    """What stands for evidence that is not there: no id has spaces."""
    return f"not in the index: {one.wikipedia_id or one.passage_ids} {one.start or ''}"


def overlapping(passages: Sequence[tuple[str, Mapping[str, Any]]], start: Place, end: Place) -> list[str]:
    """Return the passages of a page (ids and records, in order) that a span overlaps.

    One in a heading, which is in no passage, is of the passage that follows; behind the text there is none.
    """

    def ends(record: Mapping[str, Any], side: str) -> Place:
        return Place(int(record[f"{side}_paragraph_id"]), int(record[f"{side}_character"]))

    last = max(end, start._replace(character=start.character + 1))
    found = [i for i, record in passages if ends(record, "start") < last and start < ends(record, "end")]
    following = [i for i, record in passages if start < ends(record, "end")]
    return found or following[:1]
