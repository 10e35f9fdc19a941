"""Maps KILT's provenance to the gold passages and pages of an index."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hybrid.evidence.measures import EvidenceSets, Gold, Unit
from sparta.base.errors import InputError
from sparta.base.remedies import Option, remedy
from sparta.data.kilt import Evidence, PagePosition, Provenance
from sparta.data.units import is_chunk, is_cut, passage_of
from sparta.search.searcher import BM25, Searcher

logger = logging.getLogger("sparta.hybrid")
WIKIPEDIA_ID = "wikipedia_id"
_BLOCK = 1000
"""The number of passages that are looked up together."""
_PLACES = tuple(f"{side}_{of}" for side in ("start", "end") for of in ("paragraph_id", "character"))
_PASSAGES_PER_STEP = 32
"""The number of passages that each step of the search for a page's passages looks up."""


def gold_of(
    name: str, evidence: Mapping[str, Evidence], index: Path
) -> tuple[Gold, dict[str, dict[str, int]]]:
    """Return the gold pages and passages of the questions in an index, and the gold passages as qrels.

    A passage that the provenance names by id is gold. For a text span, the gold passages are those that
    overlap the span, if the index holds KILT's knowledge source. A page is identified as in the index: by the
    Wikipedia id of its records if they have one, else by the title, else by the passage id. Evidence that the
    index lacks stays in the evidence sets and counts as not found. The qrels leave out evidence that the
    index lacks, and are empty for an index of sentences.

    :param name: name of the evaluation set, for messages
    :param evidence: provenance by query id
    :raises InputError: the provenance names passages by id, and the index has none of these passages.
    """
    with Searcher(index, channel=BM25) as searcher:
        with searcher.reader.snapshot() as snapshot:
            unit, by_id = snapshot.generation.unit, WIKIPEDIA_ID in snapshot.lucene.fields()
        cut = is_cut(unit)
        evidence_index = _EvidenceIndex(searcher, evidence.values(), cut=cut, by_id=by_id)
    passage_sets = {
        query_id: [list(evidence_index.passages(output)) for output in outputs]
        for query_id, outputs in evidence.items()
    }
    passages = {query_id: sets for query_id, outputs in passage_sets.items() if (sets := _sets(outputs))}
    pages = {
        query_id: sets
        for query_id, outputs in evidence.items()
        if (sets := _sets(map(evidence_index.pages, outputs)))
    }
    titled_ids = [query_id for query_id, outputs in evidence.items() if _names_pages_by_title(outputs)]
    if by_id and titled_ids:
        logger.warning(
            "%s: the pages of the index have Wikipedia ids, but %d of %d questions name pages only by title;"
            " these pages count as not found",
            *(name, len(titled_ids), len(evidence)),
        )
    unfindable_ids = [
        query_id for query_id, sets in passages.items() if not any(map(evidence_index.holds, sets))
    ]
    if unfindable_ids and len(unfindable_ids) == len(passages):
        _check_provenance(name, evidence, index)
        passages = {}
    elif unfindable_ids:
        logger.warning(
            "%s: the index lacks all evidence of %d of %d questions; these questions count as not found",
            *(name, len(unfindable_ids), len(passages)),
        )
    judged = {
        query_id: {
            passage_id: 1
            for output in passage_sets[query_id]
            for unit in output
            for passage_id in sorted(unit)
            if passage_id in evidence_index.records
        }
        for query_id in passages
    }
    maps_sentences = cut and not is_chunk(unit)  # in an index of chunks, a hit already is a document
    return Gold(pages, passages, maps_sentences), {} if cut else {
        query_id: judgments for query_id, judgments in judged.items() if judgments
    }


def beginnings_of_pages(
    evidence: Mapping[str, Evidence], index: Path
) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]]:
    """Return two qrels for questions whose provenance names only pages: first passages, and all passages.

    The first qrels hold the first passage of each page, the second qrels all passages of each page. The index
    must hold KILT's knowledge source.

    :param evidence: provenance by query id of questions whose provenance names only pages (entity linking)
    """
    with Searcher(index, channel=BM25) as searcher:
        evidence_index = _EvidenceIndex(searcher, evidence.values(), cut=False, by_id=True)
    pages = {
        query_id: [
            page
            for output in outputs
            for provenance in output
            if (page := evidence_index.of_page(provenance.wikipedia_id))
        ]
        for query_id, outputs in evidence.items()
    }
    first_passages = {
        query_id: {page[0]: 1 for page in query_pages}
        for query_id, query_pages in pages.items()
        if query_pages
    }
    all_passages = {
        query_id: {passage_id: 1 for page in query_pages for passage_id in page}
        for query_id, query_pages in pages.items()
        if query_pages
    }
    return first_passages, all_passages


def names_pages_alone(evidence: Evidence) -> bool:
    """Return whether the provenance names only pages, neither passages nor spans."""
    return not any(
        provenance.passage_ids or (provenance.start and provenance.end)
        for output in evidence
        for provenance in output
    )


def _names_pages_by_title(evidence: Evidence) -> bool:
    """Return whether any page of the provenance has neither a Wikipedia id nor passages, only a title."""
    provenances = [provenance for output in evidence for provenance in output]
    return not all(each.wikipedia_id or each.passage_ids for each in provenances)


def page_of(passage_id: str, record: Mapping[str, Any]) -> str:
    """Return the page of a passage: its Wikipedia id, else its title, else the passage id.

    A sentence without a Wikipedia id and title has the id of its passage as its page.
    """
    for name in (WIKIPEDIA_ID, "title"):
        if (value := record.get(name)) is not None and str(value).strip():
            return str(value).strip()
    whole_id = passage_of(passage_id)
    return whole_id if record.get("passage_id") == whole_id else passage_id


def _check_provenance(name: str, evidence: Mapping[str, Evidence], index: Path) -> None:
    """Raise if the provenance names passages by id, none of which the index has; else log a warning."""
    if any(
        provenance.passage_ids for outputs in evidence.values() for output in outputs for provenance in output
    ):
        raise InputError(
            "the index has none of the passages that the provenance names",
            where=f"{name}, {index}",
            remedy=remedy("choose the index of this evaluation set's corpus: {}", Option("index", "FOLDER")),
        )
    logger.warning(
        "%s: the index has no passage of the provenance, so only pages are measured (by title or"
        " Wikipedia id). To measure passages, index kilt_knowledgesource.json",
        name,
    )


def _sets(outputs: Iterable[Iterable[Unit]]) -> EvidenceSets:
    return tuple(filter(None, map(frozenset, outputs)))


class _EvidenceIndex:
    """The records of an index for the passages and pages that provenance names.

    :param cut: the index holds parts of passages
    :param by_id: the records have Wikipedia ids, which then identify the pages
    """

    def __init__(self, searcher: Searcher, evidence: Iterable[Evidence], *, cut: bool, by_id: bool) -> None:
        provenances = [provenance for outputs in evidence for output in outputs for provenance in output]
        self.records: dict[str, dict[str, Any]] = {}
        self._searcher, self._cut, self._by_id = searcher, cut, by_id
        self._find(
            dict.fromkeys(passage_id for provenance in provenances for passage_id in provenance.passage_ids)
        )
        self._of_page: dict[str, list[str]] = {}
        pages = dict.fromkeys(
            provenance.wikipedia_id
            for provenance in provenances
            if provenance.wikipedia_id and not provenance.passage_ids
        )
        self._find_pages(list(pages))

    def _find(self, passage_ids: Iterable[str]) -> None:
        """Load the records of passages, by id."""
        ids = list(passage_ids)
        for start in range(0, len(ids), _BLOCK):
            block = ids[start : start + _BLOCK]
            docids = self._searcher.docids(block)
            if self._cut:  # a passage with its own context keeps its id; other passages have parts from ID#0
                firsts = self._searcher.docids([f"{passage_id}#0" for passage_id in block])
                docids = [
                    whole_docid if whole_docid >= 0 else first_part_docid
                    for whole_docid, first_part_docid in zip(docids, firsts, strict=True)
                ]
            known_docids = [
                (passage_id, docid) for passage_id, docid in zip(block, docids, strict=True) if docid >= 0
            ]
            records = self._searcher.records([docid for _, docid in known_docids])
            self.records.update(zip((passage_id for passage_id, _ in known_docids), records, strict=True))

    def _find_pages(self, pages: list[str]) -> None:
        """Load all passages of pages: ids of the knowledge source are `PAGE-NUMBER`, with numbers from 0."""
        first = 0
        while pages:
            numbers = range(first, first + _PASSAGES_PER_STEP)
            self._find(f"{page}-{number}" for page in pages for number in numbers)
            for page in pages:
                page_ids = (f"{page}-{number}" for number in numbers)
                self._of_page.setdefault(page, []).extend(
                    passage_id for passage_id in page_ids if self._belongs_to(passage_id, page)
                )
            pages = [page for page in pages if f"{page}-{numbers[-1]}" in self.records]
            first = numbers[-1] + 1

    def _belongs_to(self, passage_id: str, page: str) -> bool:
        return str(self.records.get(passage_id, {}).get("wikipedia_id", "")) == page

    def of_page(self, wikipedia_id: str) -> list[str]:
        """Return the ids of a page's passages, in page order; the index must hold the knowledge source."""
        return self._of_page.get(wikipedia_id, [])

    def holds(self, units: Iterable[Unit]) -> bool:
        """Return whether the index holds a passage of an evidence set."""
        return any(not unit.isdisjoint(self.records) for unit in units)

    def passages(self, output: Sequence[Provenance]) -> Iterator[Unit]:
        """Yield the unit of each provenance that names passages or a span: the ids of the gold passages."""
        for provenance in output:
            if provenance.passage_ids:
                yield frozenset(provenance.passage_ids)
            elif provenance.start and provenance.end:
                page_records = [
                    (passage_id, self.records[passage_id])
                    for passage_id in self._of_page.get(provenance.wikipedia_id, ())
                ]
                placed_records = [
                    (passage_id, record) for passage_id, record in page_records if _is_placed(record)
                ]
                yield frozenset(
                    overlapping(placed_records, provenance.start, provenance.end)
                    or [_stand_in_id(provenance)]
                )

    def pages(self, output: Sequence[Provenance]) -> Iterator[Unit]:
        """Yield the unit of each provenance's page: the names of the page in the index."""
        for provenance in output:
            known_ids = [
                passage_id
                for passage_id in provenance.passage_ids or self._of_page.get(provenance.wikipedia_id, ())
                if passage_id in self.records
            ]
            page_names = {page_of(passage_id, self.records[passage_id]) for passage_id in known_ids}
            if not page_names:  # an index with different passages may still have the same pages
                page_names = {provenance.title, provenance.wikipedia_id if self._by_id else ""} - {""} or {
                    _stand_in_id(provenance)
                }
            yield frozenset(page_names)


def _is_placed(record: Mapping[str, Any]) -> bool:
    """Return whether a record has the position of its text in the page, as in KILT's knowledge source."""
    return all(str(record.get(name, "")).removeprefix("-").isdecimal() for name in _PLACES)


def _stand_in_id(provenance: Provenance) -> str:
    """Return a stand-in id for evidence that the index lacks; no passage id contains spaces."""
    return f"not in the index: {provenance.wikipedia_id or provenance.passage_ids} {provenance.start or ''}"


def overlapping(
    passages: Sequence[tuple[str, Mapping[str, Any]]], start: PagePosition, end: PagePosition
) -> list[str]:
    """Return the ids of the passages of a page that overlap a span.

    A span in a heading overlaps no passage; then the result is the passage after the heading. A span behind
    the last passage gives an empty list.

    :param passages: ids and records of the page's passages, in page order
    """

    def boundary(record: Mapping[str, Any], side: str) -> PagePosition:
        return PagePosition(int(record[f"{side}_paragraph_id"]), int(record[f"{side}_character"]))

    span_end = max(end, start._replace(character=start.character + 1))
    overlapping_ids = [
        passage_id
        for passage_id, record in passages
        if boundary(record, "start") < span_end and start < boundary(record, "end")
    ]
    following_ids = [passage_id for passage_id, record in passages if start < boundary(record, "end")]
    return overlapping_ids or following_ids[:1]
