"""Count the values of metadata fields over all hits of a query."""

from __future__ import annotations

from collections.abc import Sequence

from sparta.base.checks import query_of
from sparta.base.errors import InputError
from sparta.base.filters import Filter, FilterLike
from sparta.index.reader import IndexReader
from sparta.search.ranked import DOCUMENTS
from sparta.search.retriever import Page, Retriever


def count_values(
    retriever: Retriever,
    query: str,
    fields: Sequence[str],
    *,
    filter: FilterLike | None = None,
    hits: str = DOCUMENTS,
) -> dict[str, dict[str, int]]:
    """Return for each field how many hits of a query have each value, the most frequent value first.

    All hits count, not only the best k. A passage with several values counts once for each. Values are texts,
    as in filters; of a value longer than 256 bytes, the result has its first 192 bytes and a hash.

    :param hits: in an index of chunks: count `documents` or `chunks`
    :raises InputError: no passage has a field, a field is not a string, or the retriever searches no index
        folder.
    """
    wrong = [name for name in fields if not isinstance(name, str)]
    if wrong:
        raise InputError(f"fields must be names of metadata fields, found {wrong[0]!r}")
    retriever = retriever.first_stage
    reader = getattr(retriever, "reader", None)
    if not isinstance(reader, IndexReader):
        raise InputError("values can be counted in an index folder only", remedy="open the index folder")
    with reader.snapshot() as snapshot, reader.holding(snapshot):
        snapshot.require_fields(fields)
        depth = max(1, retriever.most_hits)
        [ranking] = retriever.rank([query_of(query)], Page(depth, filter=Filter.of(filter), hits=hits))
        counts = {field: snapshot.lucene.counts(ranking.docids, field) for field in fields}
    return {
        field: dict(sorted(values.items(), key=lambda item: (-item[1], item[0])))
        for field, values in counts.items()
    }
