"""Queries in OpenSearch's JSON that return the same rankings as the local index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hybrid.opensearch.documents import IMPACTS, POSITION, TEXT
from hybrid.opensearch.query_side import weight_scale
from sparta.base.errors import InputError
from sparta.lucene.packing import composed

NEURAL_SPARSE, RANK_FEATURE = "neural_sparse", "rank_feature"
MOST_CLAUSES = 1024
"""OpenSearch's limit of clauses of a query."""
_NAMED = "term:"
Json = dict[str, Any]


def impacts_query(
    bag: Mapping[str, int], kind: str = NEURAL_SPARSE, *, named: bool = False
) -> tuple[Json, int]:
    """Return the impact query for weighted terms, and the factor that turns its scores into sums of impacts.

    :param bag: the weight of each query term
    :param kind: `neural_sparse` (needs the plugin neural-search) or `rank_feature` (every OpenSearch)
    :param named: name each term's clause, so that hits report the score of each term
    :raises InputError: too many terms for a query, or for `rank_feature` a term with a dot
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
        clauses = [
            {NEURAL_SPARSE: {IMPACTS: {"query_tokens": {term: weight}}}} for term, weight in weights.items()
        ]
    else:
        return {NEURAL_SPARSE: {IMPACTS: {"query_tokens": weights}}}, scale
    if named:
        clauses = [_with_name(clause, term) for clause, term in zip(clauses, weights, strict=True)]
    return {"bool": {"should": clauses}}, scale


def text_query(text: str) -> Json:
    """Return the BM25 query of a text: matches any word; the text gets the documents' Unicode form (NFC)."""
    match = {"query": composed(text), "operator": "or", "auto_generate_synonyms_phrase_query": False}
    return {"match": {TEXT: match}}


def search_body(query: Json, k: int, *, source: Sequence[str] = ()) -> Json:
    """Return the body of a search for the `k` best hits: score descending, then corpus position.

    :param source: fields of the document to return with each hit
    """
    return {
        "query": query,
        "size": k,
        "sort": [{"_score": "desc"}, {POSITION: "asc"}],
        "_source": list(source) or False,
        "track_total_hits": False,
    }


def following(query: Json, size: int, before: Sequence[Json]) -> Json:
    """Return the body of a search for the next `size` hits of a query, after the hits `before`."""
    body = search_body(query, size)
    return {**body, "search_after": before[-1]["sort"]} if before else body


def check_most(k: int, most_hits: int) -> None:
    """Raise InputError unless `k` is from 1 to `most_hits`, OpenSearch's maximum number of hits."""
    if not 1 <= k <= most_hits:
        raise InputError(
            f"k must be from 1 to {most_hits:,}, the maximum of OpenSearch, found {k:,}",
            remedy="lower k, or search the index folder with sparta",
        )


def within(query: Json, *chosen: Json) -> Json:
    """Return a query that matches only documents that all `chosen` queries match; scores do not change."""
    return {"bool": {"must": [query], "filter": list(chosen)}} if chosen else query


def counts_words(query: Json) -> bool:
    """Return whether a query is scored by BM25, which needs word counts over all shards."""
    return "match" in query or any(counts_words(clause) for clause in query.get("bool", {}).get("must", ()))


def named_term(name: str) -> str:
    """Return the term of a clause's name (inverse of `_with_name`)."""
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
