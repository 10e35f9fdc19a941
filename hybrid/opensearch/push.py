"""An index goes to OpenSearch: filled beside the live one, verified, and then given the alias.

Nothing but the server keeps the progress: a push of the same content finds the index it began, whose name is
that of the alias and the content's identity, and goes on behind the passages that are all there. Documents
have the passages' ids, so what is sent twice is there once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hybrid.opensearch.bulk import send_all
from hybrid.opensearch.check import verify
from hybrid.opensearch.documents import Source, index_body, opened_source, served_settings
from hybrid.opensearch.server import Server
from hybrid.opensearch.state import (
    check_name,
    indices_of,
    mapping_of,
    meta_of,
    refresh,
    save_side,
    set_meta,
    whole_prefix,
)
from sparta.base.errors import IndexStateError, InputError, SpartaError
from sparta.base.records import Advance
from sparta.base.remedies import Option, remedy
from sparta.search.searcher import Searcher

SAMPLE = 100
_REPLACES = "replaces"
_GREEN_SECONDS = 300.0
logger = logging.getLogger("sparta.hybrid")


@dataclass(frozen=True, slots=True)
class PushOptions:
    """How an index is pushed.

    :param shards: primary shards; None is one for each data node
    :param replicas: copies of each shard, as far as there are nodes for them
    :param connections: bulk requests at once
    :param keep_old: leave the indices that had the alias
    :param sample: how many passages are compared after the count
    """

    shards: int | None = None
    replicas: int = 1
    connections: int = 2
    keep_old: bool = False
    sample: int = SAMPLE


@dataclass(frozen=True, slots=True)
class PushReport:
    """Report of a push: `kept` passages came from an interrupted push, `replaced` indices are deleted."""

    index: str
    passages: int
    sent: int
    kept: int
    replaced: tuple[str, ...]
    seconds: float
    unchanged: bool = False


def push(
    searcher: Searcher,
    server: Server,
    name: str,
    options: PushOptions | None = None,
    *,
    advance: Advance | None = None,
) -> PushReport:
    """Bring an index to a server under an alias, or finish a push that was interrupted.

    :param advance: told of passages that are on the server
    :raises InputError: OpenSearch cannot say what the index holds.
    :raises IndexStateError: the name is that of another index.
    :raises ServerError: the server cannot be reached, or refuses.
    """
    chosen, started = options or PushOptions(), time.monotonic()
    check_name(name)
    with opened_source(searcher) as source:
        old = indices_of(server, name)
        for index in old:
            meta = meta_of(server, index)
            if meta["identity"] == source.identity:
                verify(server, index, source, chosen.sample)
                left = () if chosen.keep_old else replaced_by(meta)
                if replaced_by(meta):
                    remove(server, left)
                    _say_whole(server, index, source)
                took = time.monotonic() - started
                return PushReport(index, len(source), 0, len(source), left, took, unchanged=True)
        index = f"{name}-{source.identity}"
        _make(server, index, source, chosen)
        kept = whole_prefix(server, index, source.positions)
        if advance:
            advance(kept)
        actions = source.actions(kept)
        sent = send_all(server, index, actions, connections=chosen.connections, advance=advance)
        refresh(server, index)
        verify(server, index, source, chosen.sample)
        _serve(server, index, source, chosen, old)
        _swap(server, name, index, old)
        if old and not chosen.keep_old:
            remove(server, old)
            _say_whole(server, index, source)
    return PushReport(index, kept + sent, sent, kept, tuple(old), time.monotonic() - started)


def _make(server: Server, index: str, source: Source, options: PushOptions) -> None:
    """Create the index, unless an interrupted push of the same content already created it."""
    save_side(server, source.side)
    if mapping_of(server, index) is None:
        shards = options.shards or _data_nodes(server)
        made = server.request("PUT", f"/{index}", index_body(source, shards=shards), ignore=(400,))
        if "error" in made and made["error"].get("type") != "resource_already_exists_exception":
            raise InputError(
                f"OpenSearch cannot create the index: {made['error'].get('reason')}", where=server.where
            )
    meta = meta_of(server, index)
    if meta["identity"] != source.identity:
        raise IndexStateError(
            f"the index {index!r} was changed after it was pushed",
            where=server.where,
            remedy=remedy("push with {}, which writes only the differences", Option("update", True)),
        )


def _data_nodes(server: Server) -> int:
    try:
        return max(1, int(server.request("GET", "/_cluster/health")["number_of_data_nodes"]))
    except SpartaError:  # not everybody may ask
        return 1


def _serve(server: Server, index: str, source: Source, options: PushOptions, old: Sequence[str]) -> None:
    """Turn on replicas and refreshes of the index, and wait for the copies.

    Until the replaced indices are deleted, the new index names them, so that the same command can delete
    them.
    """
    server.request("PUT", f"/{index}/_settings", served_settings(options.replicas))
    replaces = {} if options.keep_old or not old else {_REPLACES: list(old)}
    _say_whole(server, index, source, **replaces)
    if not wait_until_green(server, index):
        logger.warning(
            "%s/%s: some replicas of the index are not allocated yet (its health is not green)",
            server.where,
            index,
        )


def wait_until_green(server: Server, index: str, seconds: float = _GREEN_SECONDS) -> bool:
    """Wait until all copies of an index exist; return whether they do."""
    ends = time.monotonic() + seconds
    while server.request("GET", f"/_cluster/health/{index}")["status"] != "green":
        if time.monotonic() > ends:
            return False
        time.sleep(0.5)
    return True


def _swap(server: Server, name: str, index: str, old: Sequence[str]) -> None:
    """Move the alias from the old indices to the new one in a single request."""
    actions = [{"remove": {"index": old_index, "alias": name}} for old_index in old]
    server.request("POST", "/_aliases", {"actions": [*actions, {"add": {"index": index, "alias": name}}]})


def _say_whole(server: Server, index: str, source: Source, **more: Any) -> None:
    """Have an index say that all passages are in it."""
    set_meta(server, index, source.meta(complete=True, passages=len(source), **more))


def replaced_by(meta: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the indices that an interrupted push of this index should have deleted."""
    return tuple(meta.get(_REPLACES, ()))


def remove(server: Server, indices: Sequence[str]) -> None:
    """Delete the indices that exist."""
    for index in indices:
        server.request("DELETE", f"/{index}", ignore=(404,))
