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
from sparta.search.explain import Explanation, TermShare


def explain_remote(
    opened: RemoteIndex, query: str, passage_id: str, filter: FilterLike | None = None
) -> Explanation:
    """Explain a passage's score by impacts for a query, whether or not it is among the first hits.

    :param filter: the rank is that among the passages that it keeps, 0 for another
    :raises InputError: the index holds no such passage.
    """
    server, now = opened.server, opened.now
    chosen = opened.chosen(filter, now)
    bag = now.tokenizer.terms(query)
    own = {"bool": {"should": [{"ids": {"values": [passage_id]}}, {"term": {PASSAGE: passage_id}}]}}
    hit = _best_part(server, now, bag, own)
    if hit is None:
        if not count(server, now.index, own):
            raise InputError(
                f"the index holds no passage with the id {passage_id!r}",
                where=f"{server.where}/{now.index}",
                remedy="take an id from a search",
            )
        hit, rank = {}, 0
    else:
        rank = _rank(opened, now, bag, hit, chosen)
    scale = impacts_query(bag, now.kind)[1]
    added = {named_term(name): round(s * scale) for name, s in hit.get("matched_queries", {}).items()}
    step = now.side.quantizer.step
    shares = [
        TermShare(term, weight, impact, float(impact * step))
        for term, weight in bag.items()
        for impact in [added.get(term, 0) // weight]
    ]
    shares.sort(key=lambda share: -share.share)
    return Explanation(passage_id, rank, sum(share.share for share in shares), tuple(shares))


def _best_part(
    server: Server, now: View, bag: Mapping[str, int], own: dict[str, Any]
) -> dict[str, Any] | None:
    """The passage or, where it was cut, its part with the highest score; None where no term is in it."""
    query, _ = impacts_query(bag, now.kind, named=True)
    body = search_body(within(query, own), 1)
    path = f"/{now.index}/_search"
    found = server.request(
        "POST", path, body, include_named_queries_score=True, allow_partial_search_results=False
    )
    hits = found["hits"]["hits"]
    return hits[0] if hits else None


def _rank(
    opened: RemoteIndex,
    now: View,
    bag: Mapping[str, int],
    hit: Mapping[str, Any],
    chosen: Sequence[dict[str, Any]],
) -> int:
    """The hit's place among the chosen: what scores more stands before it, and of equals what comes first."""
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
    return len({passage_of(one) for one in _first(opened, now, query, rank)})


def _first(opened: RemoteIndex, now: View, query: dict[str, Any], n: int) -> Iterator[str]:
    """The ids of the `n` best, page by page."""
    hits: list[dict[str, Any]] = []
    while n > 0:
        size = min(n, MOST_HITS)
        hits = opened.search([following(query, size, hits)], now)[0]["hits"]["hits"]
        yield from (one["_id"] for one in hits)
        if len(hits) < size:
            return
        n -= size
