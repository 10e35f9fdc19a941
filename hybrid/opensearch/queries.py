"""Queries in OpenSearch's JSON that give the same rankings as one machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hybrid.opensearch.documents import IMPACTS, POSITION, TEXT
from hybrid.opensearch.query_side import weight_scale
from sparta.base.errors import InputError
from sparta.lucene.packing import composed

NEURAL_SPARSE, RANK_FEATURE = "neural_sparse", "rank_feature"
MOST_CLAUSES = 1024
MOST_HITS = 10_000
"""OpenSearch's own limits: clauses of a query, and hits of a search."""
_NAMED = "term:"
Json = dict[str, Any]


def impacts_query(
    bag: Mapping[str, int], kind: str = NEURAL_SPARSE, *, named: bool = False
) -> tuple[Json, int]:
    """Return the query of a bag of terms, and by what its scores are to be multiplied.

    :param kind: `neural_sparse`, which the plugin neural-search gives, or `rank_feature`, which all have
    :param named: with a name for each term, under which a hit tells what the term added
    :raises InputError: more terms than one query may have, or for `rank_feature` one with a dot.
    """
    if len(bag) > MOST_CLAUSES:
        raise InputError(
            f"the query has {len(bag):,} distinct terms; OpenSearch accepts at most {MOST_CLAUSES:,}",
            remedy="search with a shorter query",
        )
    scale = weight_scale(bag)
    weights = {term: weight / scale for term, weight in bag.items() if weight > 0}
    if not weights:
        return {"match_none": {}}, 1
    if kind == RANK_FEATURE:
        _refuse_dots(weights)
        clauses = [_rank_feature(term, weight) for term, weight in weights.items()]
    elif named:
        clauses = [{NEURAL_SPARSE: {IMPACTS: {"query_tokens": {t: w}}}} for t, w in weights.items()]
    else:
        return {NEURAL_SPARSE: {IMPACTS: {"query_tokens": weights}}}, scale
    if named:
        clauses = [_with_name(clause, term) for clause, term in zip(clauses, weights, strict=True)]
    return {"bool": {"should": clauses}}, scale


def text_query(text: str) -> Json:
    """Return the BM25 query of a text: matches any of its words, in the normal form of the documents."""
    match = {"query": composed(text), "operator": "or", "auto_generate_synonyms_phrase_query": False}
    return {"match": {TEXT: match}}


def search_body(query: Json, k: int, *, source: Sequence[str] = ()) -> Json:
    """Return a search for the `k` best: score descending, then corpus position.

    :raises InputError: more hits than OpenSearch gives.
    """
    check_most(k)
    return {
        "query": query,
        "size": k,
        "sort": [{"_score": "desc"}, {POSITION: "asc"}],
        "_source": list(source) or False,
        "track_total_hits": False,
    }


def following(query: Json, size: int, before: Sequence[Json]) -> Json:
    """Return a search for the `size` best after the hits that were found before."""
    body = search_body(query, size)
    return {**body, "search_after": before[-1]["sort"]} if before else body


def check_most(k: int) -> None:
    """Refuse to search for more hits than OpenSearch gives at once.

    :raises InputError: it is no number from 1 to 10,000.
    """
    if not 1 <= k <= MOST_HITS:
        raise InputError(
            f"k must be from 1 to {MOST_HITS:,}, the maximum of OpenSearch, found {k:,}",
            remedy="lower k, or search the index folder with sparta",
        )


def within(query: Json, *chosen: Json) -> Json:
    """Return a query among the documents that all of `chosen` match; what they score is not changed."""
    return {"bool": {"must": [query], "filter": list(chosen)}} if chosen else query


def counts_words(query: Json) -> bool:
    """Return whether the query is scored by BM25 and so needs word counts over all shards."""
    return "match" in query or any(counts_words(part) for part in query.get("bool", {}).get("must", ()))


def named_term(name: str) -> str:
    """Return the term that a clause was named after."""
    return name.removeprefix(_NAMED)


def _with_name(clause: Json, term: str) -> Json:
    """Name a clause of any kind after its term."""
    return {"bool": {"must": [clause], "_name": f"{_NAMED}{term}"}}


def _rank_feature(term: str, weight: float) -> Json:
    return {RANK_FEATURE: {"field": f"{IMPACTS}.{term}", "boost": weight, "linear": {}}}


def _refuse_dots(terms: Mapping[str, float]) -> None:
    dotted = [term for term in terms if "." in term]
    if dotted:
        raise InputError(
            f"the term {dotted[0]!r} contains a dot, which a {RANK_FEATURE} query cannot match",
            remedy="install the plugin neural-search on the nodes",
        )
