"""Limits of what a request or a tool call may cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparta.base.errors import InputError


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request, and all of them together, may ask for.

    `hits` are those that a request's queries reach, (offset + k) of each; `explained` are those of them that
    may be explained. `values` are those that a filter names. `body` and `upload` are bytes, of a question and
    of an upload of passages; `line` those of one passage. `queue` queries wait at most; one more is answered
    with 429. `timeout` is how many seconds a search, the body of a request, or the next part of an upload may
    take; `answer` those of an answer by the reader, `upload_timeout` those of a whole upload. An upload has
    at most `lines` lines and `parts` JSON values; after `bad_lines` bad lines it is refused.
    """

    k: int = 1000
    queries: int = 100
    hits: int = 10_000
    explained: int = 100
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

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if not getattr(self, name) > 0:
                raise InputError(f"expected a limit above 0, found {name} = {getattr(self, name)}")

    def check_query(self, query: str) -> None:
        """Refuse a query that is too long."""
        if len(query) > self.query:
            raise InputError(f"expected a query of at most {self.query} characters, found {len(query)}")

    def check_filter(self, filter: Mapping[str, Any]) -> None:
        """Refuse a filter with too many values, which would hold up others while it is read."""
        wanted = [one.get("in") if isinstance(one, Mapping) else one for one in filter.values()]
        found = sum(len(one) if isinstance(one, list) else 1 for one in wanted)
        if found > self.values:
            raise InputError(f"filter: expected at most {self.values} values, found {found}")

    def check_search(self, queries: Sequence[str], k: int, offset: int, *, explain: bool) -> None:
        """Refuse too many or too long queries, and too many hits.

        :raises InputError: says which limit.
        """
        if not 1 <= len(queries) <= self.queries:
            raise InputError(f"expected 1 to {self.queries} queries, found {len(queries)}")
        for query in queries:
            self.check_query(query)
        if k > self.k:
            raise InputError(f"expected k of at most {self.k}, found {k}")
        reached = (offset + k) * len(queries)
        if reached > self.hits:
            raise InputError(f"expected (offset + k) x queries of at most {self.hits}, found {reached}")
        if explain and k * len(queries) > self.explained:
            raise InputError(f"expected at most {self.explained} hits to explain, found {k * len(queries)}")
