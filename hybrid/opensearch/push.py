"""Pushes an index to OpenSearch: fills a new index beside the live one, verifies it, then moves the alias.

Only the server keeps the progress. The new index is named after the alias and the content's identity, so a
repeated push of the same content finds it and continues after the passages that arrived. A document's id is
the passage's id, so a passage that is sent twice is stored once.
"""

from __future__ import annotations

import itertools
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
    create_index,
    indices_of,
    mapping_of,
    meta_of,
    refresh,
    save_side,
    set_meta,
    unfinished_indices,
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
    """Options of a push.

    :param shards: number of primary shards; None means one for each data node
    :param replicas: maximum number of copies of each shard, limited by the number of nodes
    :param connections: number of simultaneous bulk requests
    :param keep_old: keep the indices that had the alias before
    :param sample: number of passages whose content is compared at the end
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
    """Push an index to a server under an alias, or finish an interrupted push.

    :param name: the alias
    :param advance: called with the number of passages that are newly on the server
    :raises InputError: OpenSearch cannot represent the index, or the index has another number of shards
    :raises IndexStateError: another index has this name
    :raises ServerError: the server cannot be reached, or refuses a request
    """
    push_options, started = options or PushOptions(), time.monotonic()
    check_name(name)
    with opened_source(searcher) as source:
        live = {index: meta_of(server, index) for index in indices_of(server, name)}
        same_content = [index for index, meta in live.items() if meta["identity"] == source.identity]
        index = same_content[0] if same_content else f"{name}-{source.identity}"
        others = [other for other in live if other != index]
        left_over = itertools.chain.from_iterable(map(replaced_by, live.values()))
        replaced = tuple(other for other in dict.fromkeys([*others, *left_over]) if other != index)
        _check_shards(server, index, push_options.shards, is_live=index in live)
        save_side(server, source.side)
        n_kept, n_sent = len(source), 0
        if not same_content:
            _make(server, index, source, push_options)
            n_kept = whole_prefix(server, index, source.positions)
            if advance:
                advance(n_kept)
            actions = source.actions(n_kept)
            n_sent = send_all(server, index, actions, connections=push_options.connections, advance=advance)
            refresh(server, index)
        verify(server, index, source, push_options.sample)
        if list(live) == [index]:
            server.request("PUT", f"/{index}/_settings", served_settings(push_options.replicas))
        else:
            _serve(server, index, source, push_options, replaced)
            _swap(server, name, index, others)
        is_marked = not replaced and live.get(index, {}).get("complete")
        if push_options.keep_old:
            replaced = ()
        remove(server, replaced)
        if not is_marked:
            set_meta(server, index, source.meta(complete=True, passages=len(source)))
    _warn_of_unfinished(server, name)
    seconds = time.monotonic() - started
    return PushReport(index, n_kept + n_sent, n_sent, n_kept, replaced, seconds, bool(same_content))


def _check_shards(server: Server, index: str, shards: int | None, *, is_live: bool) -> None:
    """Raise InputError if the index exists with another number of primary shards than `shards`.

    :param is_live: the alias points to the index, so searches fail without the index
    """
    answer = server.request("GET", f"/{index}/_settings", ignore=(404,)) if shards else {}
    if index not in answer:
        return
    n_shards = int(answer[index]["settings"]["index"]["number_of_shards"])
    if n_shards != shards:
        raise InputError(
            f"the index {index!r} already exists with {n_shards} primary shards, expected {shards}",
            where=server.where,
            remedy=remedy(
                "omit {}, or push with another {} (without this index, searches fail)",
                Option("shards"),
                Option("name"),
            )
            if is_live
            else remedy(
                "omit {}, or push again after this request to OpenSearch: {}",
                Option("shards"),
                _deletion(server, index),
            ),
        )


def _warn_of_unfinished(server: Server, name: str) -> None:
    """Warn of indices that interrupted pushes of other content left; another push may be filling them."""
    try:
        indices = unfinished_indices(server, name)
    except SpartaError:  # some users have no permission for this request
        return
    for index in indices:
        logger.warning(
            "%s/%s: a push of other content is unfinished. If no push is running, delete its index: %s",
            server.where,
            index,
            _deletion(server, index),
        )


def _deletion(server: Server, index: str) -> str:
    """Return the request that deletes an index, for messages."""
    return f"DELETE {server.access.hosts()[0]}/{index}"


def _make(server: Server, index: str, source: Source, options: PushOptions) -> None:
    """Create the index, unless an interrupted push of the same content already created it."""
    if mapping_of(server, index) is None:
        shards = options.shards or _data_nodes(server)
        create_index(server, index, index_body(source, shards=shards))
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
    except SpartaError:  # some users have no permission for this request
        return 1


def _serve(server: Server, index: str, source: Source, options: PushOptions, old: Sequence[str]) -> None:
    """Turn on replicas and refreshes of the index, and wait up to 5 minutes for the copies.

    Until the replaced indices are deleted, the new index names them, so that the next push can delete them.
    Until then, it also stays incomplete: if it never gets the alias, a push of other content reports it.
    """
    server.request("PUT", f"/{index}/_settings", served_settings(options.replicas))
    replaces = {} if options.keep_old or not old else {_REPLACES: list(old)}
    set_meta(server, index, source.meta(complete=False, passages=len(source), **replaces))
    if not wait_until_green(server, index):
        logger.warning(
            "%s/%s: some replicas of the index are not allocated yet (its health is not green)",
            server.where,
            index,
        )


def wait_until_green(server: Server, index: str) -> bool:
    """Wait until all copies of an index exist; return whether they do."""
    deadline = time.monotonic() + _GREEN_SECONDS
    try:
        while server.request("GET", f"/_cluster/health/{index}")["status"] != "green":
            if time.monotonic() > deadline:
                return False
            time.sleep(0.5)
    except SpartaError as error:  # not every user may read it
        logger.warning("%s: the health of the index cannot be read: %s", server.where, error)
    return True


def _swap(server: Server, name: str, index: str, old: Sequence[str]) -> None:
    """Move the alias from the old indices to the new one in a single request."""
    actions = [{"remove": {"index": old_index, "alias": name}} for old_index in old]
    server.request("POST", "/_aliases", {"actions": [*actions, {"add": {"index": index, "alias": name}}]})


def replaced_by(meta: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the indices that an interrupted push of this index should have deleted."""
    return tuple(meta.get(_REPLACES, ()))


def remove(server: Server, indices: Sequence[str]) -> None:
    """Delete the indices that exist."""
    for index in indices:
        server.request("DELETE", f"/{index}", ignore=(404,))
