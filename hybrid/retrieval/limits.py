"""Limits on the cost of one request or tool call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparta.base.errors import InputError
from sparta.base.filters.json_form import BOUNDS

VALUES_OF_RANGE = 20
"""The number of values that a range counts as: it may read the postings of all values of its field."""
_RANGES = frozenset((*BOUNDS, "exists"))


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one request, and of all waiting requests together.

    Search: `k` is the highest k and `queries` the highest number of queries in a request. `hits` limits
    (offset + k) summed over a request's queries; `explained` limits the hits that a request may explain,
    and `reranked` the hits that a cross-encoder reads for a request.
    `values` limits the values in a filter, `query` the characters of a query. At most `queue` queries wait in
    each queue; the server answers further queries with 429.

    Bytes: `body` limits the body of a search request, `upload` an upload of passages, `line` one passage of
    an upload. An upload has at most `lines` lines and `parts` JSON values; the server refuses an upload after
    `bad_lines` bad lines.

    Seconds: `timeout` limits a search, the reading of a request body, and the wait for the next part of an
    upload. `answer` limits the reader's answer to a question, `upload_timeout` a whole upload. A full queue
    refuses a search after about `refusal` seconds.
    """

    k: int = 1000
    queries: int = 100
    hits: int = 10_000
    explained: int = 100
    reranked: int = 100
    values: int = 1000
    query: int = 1000
    body: int = 1 << 20
    upload: int = 64 << 20
    line: int = 1 << 20
    lines: int = 500_000
    bad_lines: int = 10_000
    parts: int = 2_000_000
    queue: int = 64
    timeout: float = 10.0
    answer: float = 60.0
    upload_timeout: float = 600.0
    refusal: float = 0.5

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if not getattr(self, name) > 0:
                raise InputError(f"the limit {name} must be above 0, found {getattr(self, name)}")

    def check_query(self, query: str) -> None:
        """Raise if the query is too long."""
        if len(query) > self.query:
            raise InputError(f"a query may have at most {self.query} characters, found {len(query)}")

    def check_filter(self, filter: Mapping[str, Any]) -> None:
        """Raise if the filter has too many values or ranges: a large filter would delay other requests."""
        value_count = 0
        waiting: list[Any] = [filter]
        while waiting:
            value = waiting.pop()
            parts = value.values() if isinstance(value, Mapping) else value
            nested = [part for part in parts if isinstance(part, Mapping | list)]
            waiting += nested
            ranged = isinstance(value, Mapping) and not value.keys().isdisjoint(_RANGES)
            value_count += VALUES_OF_RANGE if ranged else len(parts) - len(nested)
        if value_count > self.values:
            raise InputError(
                f"a filter may have at most {self.values} values, found {value_count};"
                f" a range and exists count as {VALUES_OF_RANGE} values"
            )

    def check_rerank(self, queries: Sequence[str], depth: int) -> None:
        """Raise if a request reranks too many hits: a cross-encoder reads some tens of passages a second."""
        if len(queries) * depth > self.reranked:
            raise InputError(
                f"rerank × queries may be at most {self.reranked}, found {len(queries) * depth}",
                remedy="send fewer queries at once, or a smaller rerank; 0 turns reranking off",
            )

    def check_facets(self, queries: Sequence[str], fields: Sequence[str]) -> None:
        """Raise if a request counts the values of too many fields: a count reads all hits of a query."""
        if len(queries) * len(fields) > self.explained:
            raise InputError(
                f"facets × queries may be at most {self.explained}, found {len(queries) * len(fields)}"
            )

    def check_search(self, queries: Sequence[str], k: int, offset: int, *, explain: bool) -> None:
        """Raise if a request has too many queries, a query that is too long, or too many hits.

        :raises InputError: the message names the exceeded limit.
        """
        if not 1 <= len(queries) <= self.queries:
            raise InputError(f"a request may have 1 to {self.queries} queries, found {len(queries)}")
        for query in queries:
            self.check_query(query)
        if k > self.k:
            raise InputError(f"k may be at most {self.k}, found {k}")
        hit_count = (offset + k) * len(queries)
        if hit_count > self.hits:
            raise InputError(f"(offset + k) × queries may be at most {self.hits}, found {hit_count}")
        if explain and k * len(queries) > self.explained:
            raise InputError(f"a request may explain at most {self.explained} hits, found {k * len(queries)}")
