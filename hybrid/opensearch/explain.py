"""Explains a passage's score in OpenSearch, as the local index would explain it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hybrid.opensearch.documents import PASSAGE, POSITION
from hybrid.opensearch.queries import following, impacts_query, named_term, search_body, within
from hybrid.opensearch.remote import RemoteIndex, View
from hybrid.opensearch.server import Server
from hybrid.opensearch.state import count
from sparta.base.errors import InputError
from sparta.base.filters import FilterLike
from sparta.data.units import is_chunk, passage_of
from sparta.search.explain import Explanation, TermContribution


def explain_remote(
    opened: RemoteIndex, query: str, passage_id: str, filter: FilterLike | None = None
) -> Explanation:
    """Explain a passage's impact score for a query, at any rank.

    :param filter: rank only among passages that pass the filter, and explain a split passage by its best
        part that passes; the rank 0 means that no part passes
    :raises InputError: the index holds no such passage
    """
    server, view = opened.server, opened.view
    filter_queries = opened.chosen(filter, view)
    terms, words = view.tokenizer.terms(query), view.tokenizer.words_of_terms(query)
    term_weights = view.features(query)
    passage_query = {"bool": {"should": [{"ids": {"values": [passage_id]}}, {"term": {PASSAGE: passage_id}}]}}
    passing = within(passage_query, *filter_queries)
    passes = not filter_queries or count(server, view.index, passing) > 0
    hit = _best_part(server, view, term_weights, passing if passes else passage_query)
    if hit is None:
        if not count(server, view.index, passage_query):
            raise InputError(
                f"the index holds no passage with the id {passage_id!r}",
                where=f"{server.where}/{view.index}",
                remedy="take an id from a search",
            )
        hit, rank = {}, 0
    else:
        is_whole, rank = passage_of(passage_id) == passage_id, 0
        if passes:
            rank = _rank(opened, view, term_weights, hit, filter_queries, by_document=is_whole)
    scale = impacts_query(term_weights, view.kind)[1]
    impact_sums = {
        named_term(name): round(score * scale) for name, score in hit.get("matched_queries", {}).items()
    }
    step = view.side.quantizer.step
    contributions = [
        TermContribution(term, weight, impact, float(impact * step), words.get(term, term))
        for (term, weight), feature in zip(terms.items(), term_weights, strict=True)
        for impact in [impact_sums.get(feature, 0) // weight]
    ]
    return Explanation.of(passage_id, rank, contributions)


def _best_part(
    server: Server, view: View, term_weights: Mapping[str, int], passage_query: dict[str, Any]
) -> dict[str, Any] | None:
    """Return the hit of a passage, or of the best part of a split passage; None if no query term matches."""
    query, _ = impacts_query(term_weights, view.kind, named=True)
    body = search_body(within(query, passage_query), 1)
    path = f"/{view.index}/_search"
    answer = server.request(
        "POST", path, body, include_named_queries_score=True, allow_partial_search_results=False
    )
    hits = answer["hits"]["hits"]
    return hits[0] if hits else None


def _rank(
    opened: RemoteIndex,
    view: View,
    term_weights: Mapping[str, int],
    hit: Mapping[str, Any],
    filter_queries: Sequence[dict[str, Any]],
    *,
    by_document: bool,
) -> int:
    """Return the rank of a hit that passes the filter, among the passages that pass.

    :param by_document: the rank counts the documents of chunks, not the chunks

    The rank is 1 plus the number of hits with a higher score, or with an equal score at an earlier position.
    """
    server, (query, scale) = opened.server, impacts_query(term_weights, view.kind)
    query = within(query, *filter_queries)
    score, position = hit["_score"], int(hit["sort"][1])
    earlier_position = {"range": {POSITION: {"lt": position}}}
    higher = count(server, view.index, query, min_score=score + 0.5 / scale)
    earlier_with_least = count(server, view.index, within(query, earlier_position), min_score=score)
    earlier_and_higher = count(
        server, view.index, within(query, earlier_position), min_score=score + 0.5 / scale
    )
    rank = 1 + higher + earlier_with_least - earlier_and_higher
    if not (by_document and is_chunk(view.meta["unit"])):
        return rank
    return len({passage_of(unit_id) for unit_id in _first(opened, view, query, rank)})


def _first(opened: RemoteIndex, view: View, query: dict[str, Any], n_left: int) -> Iterator[str]:
    """Yield the ids of the `n` best hits of a query; the hits are fetched page by page."""
    hits: list[dict[str, Any]] = []
    while n_left > 0:
        size = min(n_left, opened.server.access.most_hits)
        hits = opened.search([following(query, size, hits)], view)[0]["hits"]["hits"]
        yield from (hit["_id"] for hit in hits)
        if len(hits) < size:
            return
        n_left -= size
