"""Explain a hit by its terms, with impacts and weights."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from sparta.base.checks import limit, query_of
from sparta.base.filters import Filter, FilterLike
from sparta.base.renames import renamed_attributes
from sparta.data.units import context_of, is_chunk, is_sentence_of_passage, passage_of
from sparta.index.snapshot import IndexSnapshot
from sparta.lucene.packing import Hits
from sparta.search.contexts import whole_texts
from sparta.search.searcher import Searcher, docids_of


@renamed_attributes(share="contribution")
@dataclass(frozen=True, slots=True)
class TermContribution:
    """A query term's contribution to a score: `count · impact`.

    `weight` is the impact converted back to a weight.
    `count` is how often the query contains the term, or the model's weight of the term in steps of the
    quantizer's grid. `word` is the word of the query that the term is from, or a pair of words.
    """

    term: str
    count: int
    impact: int
    weight: float
    word: str = ""

    def as_dict(self) -> dict[str, float | str]:
        """Return the fields as a dictionary for JSON."""
        weight = round(self.weight, 4)
        return {
            "term": self.term,
            "word": self.word or self.term,
            "count": self.count,
            "impact": self.impact,
            "weight": weight,
            "share": self.contribution,
        }

    @property
    def contribution(self) -> int:
        """The term's contribution to the score, in units of impact."""
        return self.count * self.impact

    @property
    def name(self) -> str:
        """The term; of a pair of words, whose term is a hash, the words."""
        return self.word if self.word and " " in self.term else self.term


class WordContribution(NamedTuple):
    """A query word's contribution to a score: that of its terms, which are wordpieces and lexical terms."""

    word: str
    terms: tuple[TermContribution, ...]

    @property
    def contribution(self) -> int:
        """The word's contribution to the score, in units of impact."""
        return sum(term.contribution for term in self.terms)


def by_word(terms: Iterable[TermContribution]) -> list[WordContribution]:
    """Return the contributions of words, the largest first."""
    grouped: dict[str, list[TermContribution]] = {}
    for term in terms:
        grouped.setdefault(term.word or term.term, []).append(term)
    words = [WordContribution(word, tuple(of_word)) for word, of_word in grouped.items()]
    return sorted(words, key=lambda word: -word.contribution)


@dataclass(frozen=True, slots=True)
class Explanation:
    """A passage's impact score for a query, term by term; `rank` is 0 if the passage is not a hit."""

    passage_id: str
    rank: int
    score: int
    terms: tuple[TermContribution, ...]

    @classmethod
    def of(cls, passage_id: str, rank: int, terms: Iterable[TermContribution]) -> Explanation:
        """Return the explanation with these terms of the query; the score is the sum of their contributions.

        A pair of words is left out if the passage lacks the pair.
        """
        shown = largest_first(term for term in terms if term.impact or " " not in term.term)
        return cls(passage_id, rank, sum(term.contribution for term in shown), shown)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary for JSON."""
        terms = [term.as_dict() for term in self.terms]
        return {"id": self.passage_id, "rank": self.rank, "score": self.score, "terms": terms}

    @property
    def words(self) -> list[WordContribution]:
        """The contributions of the query's words, the largest first."""
        return by_word(self.terms)

    def __str__(self) -> str:
        lines = [f"{term.name}: {term.count} x {term.impact} = {term.contribution}" for term in self.terms]
        rank = f"rank {self.rank}" if self.rank else "no hit"
        return "\n".join([f"{self.passage_id}: score {self.score}, {rank}", *lines])


def largest_first(terms: Iterable[TermContribution]) -> tuple[TermContribution, ...]:
    """Return terms in the order of explanations; terms with equal contributions keep their order."""
    return tuple(sorted(terms, key=lambda term: -term.contribution))


def explain(searcher: Searcher, query: str, passage_id: str, filter: FilterLike | None = None) -> Explanation:
    """Explain a passage's impact score for a query, even if the passage is not among the top k.

    Each query term's contribution is its count times the passage's impact (SPARTA, eq. 8 and 9); the largest
    contribution comes first. A split passage has the score of its best part. The rank of a document counts
    documents; the rank of a chunk, such as `d#3`, counts chunks.

    :param filter: rank only among passages that match the filter, and explain a split passage by its best
        part that matches; a passage that does not match has rank 0
    :raises InputError: the index lacks the passage.
    """
    checked_filter = Filter.of(filter)
    with searcher.reader.snapshot() as snapshot:
        snapshot.require_impacts(names_channel=True)
        if checked_filter:
            snapshot.require_fields(checked_filter.fields)
        bag = snapshot.tokenizer.terms(query_of(query))
        words = snapshot.tokenizer.words_of_terms(query)
        docids = docids_of(snapshot, passage_id, checked_filter)
        docid, contributions = _contributions(snapshot, docids, bag, words)
        best_rank = snapshot.lucene.rank(bag, docid, checked_filter)
        search = partial(snapshot.lucene.search_impacts, [bag], filter=checked_filter)
        rank = passage_rank(snapshot, passage_id, best_rank, search)
    return Explanation.of(passage_id, rank, contributions)


def passage_rank(
    snapshot: IndexSnapshot, passage_id: str, best_rank: int, search: Callable[[int], Hits]
) -> int:
    """Return the rank of a passage, from the rank of its best part; 0 if the passage is not a hit.

    The rank of a document of chunks counts documents.

    :param search: returns the best hits of the query, to a depth
    """
    if not best_rank or not is_chunk(snapshot.generation.unit) or passage_of(passage_id) != passage_id:
        return best_rank
    return len(set(map(passage_of, snapshot.lucene.ids(search(best_rank).docids))))


def term_contributions(
    searcher: Searcher, query: str, hits: Iterable[tuple[str, int]], docids: Iterable[int] | None = None
) -> list[tuple[TermContribution, ...]]:
    """Return the contributions of the query's terms to each hit's score, without terms that the hit lacks.

    :param hits: the passage id and the `start` of each hit; a document is explained by its chunk at `start`
    :param docids: the docid of each hit in the current snapshot; None looks at all chunks of each document
    """
    with searcher.reader.snapshot() as snapshot:
        snapshot.require_impacts()
        bag, words = snapshot.tokenizer.terms(query), snapshot.tokenizer.words_of_terms(query)
        if docids is None:
            docids_of_hits = [_docids_of_hit(snapshot, *hit) for hit in hits]
        else:
            docids_of_hits = [[docid] for docid in docids]
        contributions = [
            _contributions(snapshot, part_docids, bag, words)[1] for part_docids in docids_of_hits
        ]
    return [largest_first(term for term in terms if term.impact) for terms in contributions]


def _docids_of_hit(snapshot: IndexSnapshot, passage_id: str, start: int) -> list[int]:
    """Return the docid of a hit; the hit of a document is the document's chunk at `start`."""
    docids = docids_of(snapshot, passage_id)
    if len(docids) == 1:
        return docids
    records = map(json.loads, snapshot.lucene.raws(docids))
    at_start = [docid for docid, record in zip(docids, records, strict=True) if record.get("start") == start]
    return at_start or docids


def _contributions(
    snapshot: IndexSnapshot, docids: Sequence[int], bag: Mapping[str, int], words: Mapping[str, str]
) -> tuple[int, list[TermContribution]]:
    """Return the best-scoring docid, the first one of equal scores, and its contributions."""
    docid, impacts = _best_part(snapshot, docids, bag)
    step = snapshot.quantizer.step
    rows = zip(bag.items(), impacts, strict=True)
    contributions = [
        TermContribution(term, count, int(impact), float(impact * step), words.get(term, term))
        for (term, count), impact in rows
    ]
    return docid, contributions


def _best_part(
    snapshot: IndexSnapshot, docids: Sequence[int], bag: Mapping[str, int]
) -> tuple[int, list[int]]:
    """Return the docid and impacts of the best-scoring part of a passage; the first part wins a tie."""
    rows = [(docid, snapshot.lucene.impacts(docid, list(bag)).tolist()) for docid in docids]
    return max(rows, key=lambda row: sum(c * impact for c, impact in zip(bag.values(), row[1], strict=True)))


class PassageTerm(NamedTuple):
    """A term of a passage; `weight` is the impact converted back to a weight."""

    term: str
    impact: int
    weight: float


def top_terms(searcher: Searcher, passage_id: str, n: int | None = None) -> list[PassageTerm]:
    """Return the strongest terms of a passage (SPARTA, Table 6).

    A split passage takes each term's maximum impact over its parts. A pair of words is named by its words.
    """
    n = limit("n", n)
    with searcher.reader.snapshot() as snapshot:
        snapshot.require_impacts()
        vector: Counter[str] = Counter()
        docids = docids_of(snapshot, passage_id)
        for docid in docids:
            vector |= Counter(snapshot.lucene.vector(docid))
        step = snapshot.quantizer.step
        pairs = _pairs(snapshot, docids)
    order = sorted(vector.items(), key=lambda item: (-item[1], item[0]))[:n]
    return [PassageTerm(pairs.get(term, term), impact, impact * step) for term, impact in order]


def _pairs(snapshot: IndexSnapshot, docids: Sequence[int]) -> dict[str, str]:
    """Return the words of each pair in passages, by the pair's term, as the texts spell the words first."""
    lexical, pairs = snapshot.tokenizer.lexical, dict[str, str]()
    records = [json.loads(raw) for raw in snapshot.lucene.raws(docids)] if lexical else []
    sentences = filter(is_sentence_of_passage, records)
    passages = whole_texts(snapshot.lucene, (record["passage_id"] for record in sentences))
    for record in records:  # the pairs of a sentence are those of its context
        if is_sentence_of_passage(record):
            context = passages[record["passage_id"]]
        else:
            context = context_of(record) or record["contents"]
        text = snapshot.tokenizer.language.fold(f"{record.get('title') or ''} . {context}")
        for term, start, end in lexical.occurrences(text) if lexical else ():
            if " " in term:
                pairs.setdefault(term, " ".join(text[start:end].lower().split()))
    return pairs
