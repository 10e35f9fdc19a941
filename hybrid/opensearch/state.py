"""What a server holds under a name: an alias, the index behind it, and what that says of itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from hybrid.opensearch.documents import FORMAT_VERSION, HASH, KIND, POSITION
from hybrid.opensearch.query_side import side_document, side_id, side_of_document
from hybrid.opensearch.server import Server
from sparta.base.errors import IndexStateError, InputError, NewerFormatError
from sparta.base.remedies import Command, Option, remedy
from sparta.lucene.packing import Integers
from sparta.models.query_encoder import QuerySide

MODELS = "sparta-models"
"""The index that keeps query sides, by their hash: searchers need nothing but the server."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,199}")
_PAGE = 5000
_OTHER_NAME = remedy("choose another {}", Option("name"))


class Stored(NamedTuple):
    """A document as a scan tells of it."""

    position: int
    passage_id: str
    hash: str


def check_name(name: str) -> None:
    """Refuse what OpenSearch would not take as a name, or would take as several."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"expected a name of small letters, digits, _, . and -, found {name!r}",
            remedy=_OTHER_NAME,
        )


def indices_of(server: Server, name: str) -> list[str]:
    """Return the indices behind an alias; none where there is no such alias.

    :raises IndexStateError: the name is that of an index itself.
    """
    found = server.request("GET", f"/_alias/{name}", ignore=(404,))
    if found.get("status") != 404 and "error" not in found:
        return sorted(found)
    if mapping_of(server, name) is not None:
        raise IndexStateError(
            f"expected {name!r} to be an alias or unused, found an index of this name",
            where=server.where,
            remedy=_OTHER_NAME,
        )
    return []


def live_index(server: Server, name: str) -> tuple[str, dict[str, Any]]:
    """Return the index behind an alias and what it says of itself.

    :raises IndexStateError: there is none, several, or one that sparta did not push.
    """
    check_name(name)
    found = indices_of(server, name)
    if len(found) != 1:
        raise IndexStateError(
            f"expected one index behind the alias {name!r}, found {', '.join(found) or 'none'}",
            where=server.where,
            remedy=remedy("run: {}", Command.of("sparta push", opensearch="URL", name=name)),
        )
    return found[0], meta_of(server, found[0])


def mapping_of(server: Server, index: str) -> dict[str, Any] | None:
    """Return the mapping of an index; None where there is none."""
    found = server.request("GET", f"/{index}/_mapping", ignore=(404,))
    return found[index]["mappings"] if index in found else None


def meta_of(server: Server, index: str) -> dict[str, Any]:
    """Return what an index of ours says of itself, `_meta`.

    :raises IndexStateError: there is no such index, or sparta did not push it.
    """
    meta = ((mapping_of(server, index) or {}).get("_meta") or {}).get("sparta") or {}
    if meta.get("kind") != KIND:
        raise IndexStateError(
            f"expected an index that sparta pushed, found {index!r}",
            where=server.where,
            remedy=_OTHER_NAME,
        )
    if meta["format_version"] > FORMAT_VERSION:
        raise NewerFormatError(
            f"format version {meta['format_version']} is newer than the newest that this sparta reads,"
            f" {FORMAT_VERSION}",
            where=f"{server.where}/{index}",
            remedy="upgrade sparta, or push again with this version",
        )
    return dict(meta)


def set_meta(server: Server, index: str, meta: Mapping[str, Any]) -> None:
    """Replace what an index says of itself."""
    server.request("PUT", f"/{index}/_mapping", {"_meta": meta})


def refresh(server: Server, index: str) -> None:
    """Make what was written visible."""
    server.request("POST", f"/{index}/_refresh")


def count(server: Server, index: str, query: Mapping[str, Any] | None = None, **more: Any) -> int:
    """Return how many documents match, as of the last refresh; all shards answer, or it is an error."""
    body = {"size": 0, "track_total_hits": True, "query": query or {"match_all": {}}, **more}
    found = server.request("POST", f"/{index}/_search", body, allow_partial_search_results=False)
    return int(found["hits"]["total"]["value"])


def whole_prefix(server: Server, index: str, positions: Integers) -> int:
    """Return how many of the first passages are all there: a push that was interrupted goes on behind them.

    :param positions: `(n_passages,)` ascending corpus positions
    """
    refresh(server, index)

    def whole(n: int) -> bool:
        within = {"range": {POSITION: {"lte": int(positions[n - 1])}}}
        return count(server, index, within) == n

    low, high = 0, len(positions)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if whole(middle) else (low, middle - 1)
    return low


def scan(server: Server, index: str, query: Mapping[str, Any] | None = None) -> Iterator[Stored]:
    """Yield position, id and hash of all documents, or of those that match, by position."""
    body: dict[str, Any] = {
        "size": _PAGE,
        "track_total_hits": False,
        "_source": False,
        "docvalue_fields": [HASH],
        "sort": [{POSITION: "asc"}],
        "query": query or {"match_all": {}},
    }
    while True:
        found = server.request("POST", f"/{index}/_search", body, allow_partial_search_results=False)
        hits = found["hits"]["hits"]
        for hit in hits:
            found_hash = hit.get("fields", {}).get(HASH, [""])[0]  # one that others wrote has none
            yield Stored(int(hit["sort"][0]), hit["_id"], found_hash)
        if len(hits) < _PAGE:
            return
        body["search_after"] = hits[-1]["sort"]


# ---------------------------------------------------------------- query sides


def save_side(server: Server, side: QuerySide) -> None:
    """Keep a query side on the server, unless it is there."""
    settings = {"index": {"number_of_shards": 1, "auto_expand_replicas": "0-1"}}
    body = {"settings": settings, "mappings": {"dynamic": False}}
    made = server.request("PUT", f"/{MODELS}", body, ignore=(400,))
    if "error" in made and made["error"].get("type") != "resource_already_exists_exception":
        raise IndexStateError(f"cannot make the index {MODELS}: {made['error']}", where=server.where)
    server.request("PUT", f"/{MODELS}/_doc/{side_id(side)}", side_document(side))


def load_side(server: Server, meta: Mapping[str, Any]) -> QuerySide:
    """Return the query side of an index.

    :raises IndexStateError: it is not there, or damaged.
    """
    found = server.request("GET", f"/{MODELS}/_doc/{quote(meta['query_side'])}", ignore=(404,))
    if not found.get("found"):
        raise IndexStateError(
            f"expected the tokenizer of the index in {MODELS}/{meta['query_side']}, found none",
            where=server.where,
            remedy="push the index again",
        )
    return side_of_document(found["_source"])
