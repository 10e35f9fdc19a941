"""Reads the state of a server: an alias, the index behind it, and the index's metadata."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from hybrid.opensearch.documents import FORMAT_VERSION, HASH, KIND, POSITION
from hybrid.opensearch.query_side import side_document, side_id, side_of_document
from hybrid.opensearch.server import Server, reason_of
from sparta.base.errors import IndexStateError, InputError, NewerFormatError
from sparta.base.remedies import Command, Option, remedy
from sparta.lucene.packing import Integers
from sparta.models.query_encoder import QuerySide

MODELS = "sparta-models"
"""The OpenSearch index of query sides, by hash: searchers need nothing but the server."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,199}")
_PAGE = 5000
_OTHER_NAME = remedy("choose another {}", Option("name"))


class Stored(NamedTuple):
    """Position, id and hash of a document."""

    position: int
    passage_id: str
    hash: str


def check_name(name: str) -> None:
    """Raise InputError for a name that OpenSearch would refuse, or read as a pattern or a list."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"the index name may contain lower-case letters, digits, _, . and -, found {name!r}",
            remedy=_OTHER_NAME,
        )


def indices_of(server: Server, name: str) -> list[str]:
    """Return the indices behind an alias; empty if the alias does not exist.

    :raises IndexStateError: an index, not an alias, has this name
    :raises ServerError: the server is not OpenSearch
    """
    answer = server.request("GET", f"/_alias/{name}", ignore=(404,))
    error = answer.get("error")
    if answer.get("status") != 404 or (isinstance(error, str) and not error.startswith("alias")):
        if not all(isinstance(index, Mapping) and "aliases" in index for index in answer.values()):
            raise server.not_opensearch()
        return sorted(answer)
    if mapping_of(server, name) is not None:
        raise IndexStateError(
            f"the name {name!r} must be an alias, but an index already has this name",
            where=server.where,
            remedy=_OTHER_NAME,
        )
    return []


def live_index(server: Server, name: str) -> tuple[str, dict[str, Any]]:
    """Return the index behind an alias and its metadata.

    :raises IndexStateError: the alias has no index, several, or one that sparta did not push
    """
    check_name(name)
    indices = indices_of(server, name)
    if len(indices) != 1:
        raise IndexStateError(
            f"the alias {name!r} must point to one index, found {', '.join(indices) or 'none'}",
            where=server.where,
            remedy=remedy("push the index again: {}", Command.of("sparta push", opensearch="URL", name=name)),
        )
    return indices[0], meta_of(server, indices[0])


def mapping_of(server: Server, index: str) -> dict[str, Any] | None:
    """Return the mapping of an index; None if the index does not exist."""
    answer = server.request("GET", f"/{index}/_mapping", ignore=(404,))
    return answer[index]["mappings"] if index in answer else None


def meta_of(server: Server, index: str) -> dict[str, Any]:
    """Return the metadata (`_meta`) that sparta stored with an index.

    :raises IndexStateError: the index does not exist, or sparta did not push it
    """
    meta = _meta_in(mapping_of(server, index) or {})
    if meta.get("kind") != KIND:
        raise IndexStateError(
            f"the index {index!r} was not created by sparta push",
            where=server.where,
            remedy=_OTHER_NAME,
        )
    if meta["format_version"] > FORMAT_VERSION:
        raise NewerFormatError(
            f"format version {meta['format_version']} is newer than this sparta can read"
            f" (up to {FORMAT_VERSION})",
            where=f"{server.where}/{index}",
            remedy="upgrade sparta, or push again with this version",
        )
    return dict(meta)


def unfinished_indices(server: Server, name: str) -> list[str]:
    """Return the indices that pushes under an alias have not completed."""
    pushed_name = re.compile(rf"{re.escape(name)}-[0-9a-f]{{16}}")
    answer = server.request("GET", f"/{name}-*/_mapping")
    return sorted(
        index
        for index, description in answer.items()
        if pushed_name.fullmatch(index) and _meta_in(description["mappings"]).get("complete") is False
    )


def _meta_in(mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata that sparta stored in a mapping; empty without any."""
    return (mapping.get("_meta") or {}).get("sparta") or {}


def create_index(server: Server, index: str, body: Mapping[str, Any]) -> None:
    """Create an index, unless it exists.

    :raises InputError: OpenSearch refuses the settings of the index
    """
    made = server.request("PUT", f"/{index}", body, ignore=(400,))
    error = made.get("error")
    exists = isinstance(error, Mapping) and error.get("type") == "resource_already_exists_exception"
    if error and not exists:
        raise InputError(
            f"OpenSearch cannot create the index {index!r}: {reason_of(made)}", where=server.where
        )


def set_meta(server: Server, index: str, meta: Mapping[str, Any]) -> None:
    """Replace the metadata (`_meta`) of an index."""
    server.request("PUT", f"/{index}/_mapping", {"_meta": meta})


def refresh(server: Server, index: str) -> None:
    """Make written documents visible to searches."""
    server.request("POST", f"/{index}/_refresh")


def count(server: Server, index: str, query: Mapping[str, Any] | None = None, **more: Any) -> int:
    """Return the number of matching documents as of the last refresh; raises if a shard does not answer."""
    body = {"size": 0, "track_total_hits": True, "query": query or {"match_all": {}}, **more}
    answer = server.request("POST", f"/{index}/_search", body, allow_partial_search_results=False)
    return int(answer["hits"]["total"]["value"])


def whole_prefix(server: Server, index: str, positions: Integers) -> int:
    """Return the largest n for which the server has all of the first n passages, by binary search.

    An interrupted push continues after these passages.

    :param positions: `(n_passages,)` ascending corpus positions
    """
    refresh(server, index)

    def are_first_present(n: int) -> bool:
        up_to_nth = {"range": {POSITION: {"lte": int(positions[n - 1])}}}
        return count(server, index, up_to_nth) == n

    low, high = 0, len(positions)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if are_first_present(middle) else (low, middle - 1)
    return low


def scan(server: Server, index: str, query: Mapping[str, Any] | None = None) -> Iterator[Stored]:
    """Yield position, id and hash of the documents that match a query (None: all), by position."""
    body: dict[str, Any] = {
        "size": _PAGE,
        "track_total_hits": False,
        "_source": False,
        "docvalue_fields": [HASH],
        "sort": [{POSITION: "asc"}],
        "query": query or {"match_all": {}},
    }
    while True:
        answer = server.request("POST", f"/{index}/_search", body, allow_partial_search_results=False)
        hits = answer["hits"]["hits"]
        for hit in hits:
            document_hash = hit.get("fields", {}).get(HASH, [""])[
                0
            ]  # documents of other programs have no hash
            yield Stored(int(hit["sort"][0]), hit["_id"], document_hash)
        if len(hits) < _PAGE:
            return
        body["search_after"] = hits[-1]["sort"]


# ---------------------------------------------------------------- query sides


def save_side(server: Server, side: QuerySide) -> None:
    """Store a query side on the server."""
    settings = {"index": {"number_of_shards": 1, "auto_expand_replicas": "0-1"}}
    create_index(server, MODELS, {"settings": settings, "mappings": {"dynamic": False}})
    server.request("PUT", f"/{MODELS}/_doc/{side_id(side)}", side_document(side))


def load_side(server: Server, meta: Mapping[str, Any]) -> QuerySide:
    """Return the query side (tokenizer and query-term weights) of an index.

    :raises IndexStateError: the query side is missing or damaged
    """
    answer = server.request("GET", f"/{MODELS}/_doc/{quote(meta['query_side'])}", ignore=(404,))
    if not answer.get("found"):
        raise IndexStateError(
            f"the tokenizer of the index is missing from {MODELS}/{meta['query_side']}",
            where=server.where,
            remedy="push the index again (sparta push)",
        )
    return side_of_document(answer["_source"])
