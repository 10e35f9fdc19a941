"""Why a passage in OpenSearch has its score: the explanation that the index here would give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hybrid.opensearch.documents import PASSAGE, POSITION
from hybrid.opensearch.queries import MOST_HITS, following, impacts_query, named_term, search_body, within
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

    :param filter: the rank counts only passages that pass the filter; 0 means the passage does not pass
    :raises InputError: the index holds no such passage
    """
    server, view = opened.server, opened.now
    chosen = opened.chosen(filter, view)
    bag = view.tokenizer.terms(query)
    passage_query = {"bool": {"should": [{"ids": {"values": [passage_id]}}, {"term": {PASSAGE: passage_id}}]}}
    hit = _best_part(server, view, bag, passage_query)
    if hit is None:
        if not count(server, view.index, passage_query):
            raise InputError(
                f"the index holds no passage with the id {passage_id!r}",
                where=f"{server.where}/{view.index}",
                remedy="take an id from a search",
            )
        hit, rank = {}, 0
    else:
        rank = _rank(opened, view, bag, hit, chosen)
    scale = impacts_query(bag, view.kind)[1]
    added = {named_term(name): round(s * scale) for name, s in hit.get("matched_queries", {}).items()}
    step = view.side.quantizer.step
    contributions = [
        TermContribution(term, weight, impact, float(impact * step))
        for term, weight in bag.items()
        for impact in [added.get(term, 0) // weight]
    ]
    contributions.sort(key=lambda term: -term.contribution)
    score = sum(term.contribution for term in contributions)
    return Explanation(passage_id, rank, score, tuple(contributions))


def _best_part(
    server: Server, now: View, bag: Mapping[str, int], passage_query: dict[str, Any]
) -> dict[str, Any] | None:
    """Return the passage, or the best part of a split passage; None if it has no query term."""
    query, _ = impacts_query(bag, now.kind, named=True)
    body = search_body(within(query, passage_query), 1)
    path = f"/{now.index}/_search"
    answer = server.request(
        "POST", path, body, include_named_queries_score=True, allow_partial_search_results=False
    )
    hits = answer["hits"]["hits"]
    return hits[0] if hits else None


def _rank(
    opened: RemoteIndex,
    now: View,
    bag: Mapping[str, int],
    hit: Mapping[str, Any],
    chosen: Sequence[dict[str, Any]],
) -> int:
    """Return the rank of a hit among the passages that pass the filter; 0 if the hit does not pass.

    Hits with a higher score count, and hits with the same score at an earlier position.
    """
    server, (query, scale) = opened.server, impacts_query(bag, now.kind)
    if chosen and not count(server, now.index, within({"ids": {"values": [hit["_id"]]}}, *chosen)):
        return 0
    query = within(query, *chosen)
    score, position = hit["_score"], int(hit["sort"][1])
    before = {"range": {POSITION: {"lt": position}}}
    more = count(server, now.index, query, min_score=score + 0.5 / scale)
    equal = count(server, now.index, within(query, before), min_score=score)
    above = count(server, now.index, within(query, before), min_score=score + 0.5 / scale)
    rank = 1 + more + equal - above
    if not is_chunk(now.meta["unit"]):
        return rank
    return len({passage_of(unit_id) for unit_id in _first(opened, now, query, rank)})


def _first(opened: RemoteIndex, now: View, query: dict[str, Any], n: int) -> Iterator[str]:
    """Yield the ids of the `n` best hits, page by page."""
    hits: list[dict[str, Any]] = []
    while n > 0:
        size = min(n, MOST_HITS)
        hits = opened.search([following(query, size, hits)], now)[0]["hits"]["hits"]
        yield from (hit["_id"] for hit in hits)
        if len(hits) < size:
            return
        n -= size
