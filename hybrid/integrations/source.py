"""Arguments shared by all adapters, and the fields of a hit in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hybrid.retrieval.fusion import CANDIDATES
from hybrid.retrieval.searcher import open_retriever
from sparta.base.errors import InputError
from sparta.base.records import Hit
from sparta.search.retriever import Retriever

_LOOK_AFTER = 1.0
"""Seconds from one look for new commits to the next, of a retriever that an application holds open."""
Source = str | Path | Retriever | None
"""An index folder (None: `$SPARTA_INDEX` or `./sparta-index`), or a retriever that is open."""


def open_source(index: Source = None, channels: str | None = None, k: int = 10) -> Retriever:
    """Open an index folder for searching, or return the retriever that was given.

    :param channels: of a folder, as in `open_retriever`: `impact`, `bm25`, `dense`, `bm25=1.2,impact`
    :param k: how many hits will be wanted: fusion reads as many candidates, at least 100
    :raises InputError: channels were named for a retriever that is open.
    """
    if index is None or isinstance(index, str | Path):
        return open_retriever(index, channels, candidates=max(CANDIDATES, k), every=_LOOK_AFTER)
    if channels:
        raise InputError(
            f"channels {channels!r} cannot be named for the open retriever {index.channel}",
            remedy="name the channels when you open the retriever, or pass the index folder",
        )
    return index


def metadata_of(hit: Hit, **more: Any) -> dict[str, Any]:
    """Return a hit's metadata and title, and for a fused hit its rank and score in each channel."""
    record = hit.as_dict()
    channels = {"channels": record["channels"]} if "channels" in record else {}
    return {**record["metadata"], "title": hit.title, **more, **channels}
