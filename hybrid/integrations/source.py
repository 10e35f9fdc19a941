"""Arguments that all adapters share, and the metadata of hits for them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hybrid.integrations.metadata import fields_of_key, filter_on_fields, keys_of, possible_fields
from hybrid.retrieval.searcher import open_retriever
from sparta.base.errors import InputError
from sparta.base.filters import Filter, FilterLike
from sparta.base.records import Hit
from sparta.search.ranked import DOCUMENTS
from sparta.search.retriever import Page, Retriever

_REFRESH_SECONDS = 1.0
"""Seconds between checks for new commits, for retrievers that an application keeps open."""
Source = str | Path | Retriever | None
"""An index folder (None: `$SPARTA_INDEX` or `./sparta-index`) or an open retriever."""


def open_source(index: Source = None, channels: str | None = None, k: int = 10) -> Retriever:
    """Return a retriever that searches an index folder; an open retriever is returned unchanged.

    :param channels: channels of a folder, as in `open_retriever`: `impact`, `bm25`, `dense`,
        `bm25=1.2,impact`
    :param k: number of hits per query
    :raises InputError: channels were named for an open retriever
    """
    if index is None or isinstance(index, str | Path):
        return open_retriever(index, channels, n_hits=k, refresh_seconds=_REFRESH_SECONDS)
    if channels:
        raise InputError(
            f"channels {channels!r} cannot be named for the open retriever {index.channel}",
            remedy="name the channels when you open the retriever, or pass the index folder",
        )
    return index


def filter_on_index(retriever: Retriever, filter: FilterLike | None) -> Filter | None:
    """Return a filter on metadata keys as a filter on the fields of the retriever's index."""
    parsed = Filter.of(filter)
    known = _known_fields(retriever, parsed.fields) if parsed else ()
    return filter_on_fields(parsed, known, foreign=True)


def field_on_index(retriever: Retriever, key: str) -> str:
    """Return the field of the retriever's index that holds the values of a metadata key."""
    return fields_of_key(key, _known_fields(retriever, [key]), foreign=True)[0]


def _known_fields(retriever: Retriever, keys: Iterable[str]) -> list[str]:
    """Return the fields of the retriever's index that may hold the values of these metadata keys."""
    return retriever.fields_among({name for key in keys for name in possible_fields(key)})


def metadata_of(hit: Hit, **more: Any) -> dict[str, Any]:
    """Return a hit's metadata and title, and for a fused hit its rank and score in each channel."""
    record = hit.as_dict()
    channels = {"channels": record["channels"]} if "channels" in record else {}
    metadata = keys_of(record["metadata"])
    return {**metadata, "title": hit.title or metadata.get("title", ""), **more, **channels}


def kind_of_hits(hits: str, *, join: bool) -> dict[str, Any]:
    """Return the arguments of `search` that choose documents or chunks; none for the default.

    :raises InputError: `hits` is neither `documents` nor `chunks`, or documents are to be joined
    """
    Page(hits=hits, join=join)
    return {"hits": hits, "join": join} if hits != DOCUMENTS else {}
