"""Updates an index in OpenSearch in place: copies the local index's changes, or deletes passages by id."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hybrid.opensearch.bulk import send, send_all
from hybrid.opensearch.check import verify
from hybrid.opensearch.documents import (
    PASSAGE,
    Action,
    Source,
    batches,
    delete_action,
    hash_of,
    index_action,
    opened_source,
)
from hybrid.opensearch.push import SAMPLE, remove, replaced_by
from hybrid.opensearch.server import Server
from hybrid.opensearch.state import Stored, live_index, refresh, scan, set_meta
from sparta.base.errors import IndexStateError
from sparta.base.records import Advance
from sparta.base.remedies import Command, remedy
from sparta.data.units import is_cut, passage_of
from sparta.index.pipeline import DeleteReport
from sparta.search.searcher import Searcher

_IDS_AT_ONCE = 1000
_EDITED = "-edited"


@dataclass(slots=True)
class UpdateReport:
    """Report of an update; `written` passages were new or changed."""

    index: str
    passages: int
    written: int = 0
    deleted: int = 0


def update(
    searcher: Searcher,
    server: Server,
    name: str,
    *,
    connections: int = 2,
    sample: int = SAMPLE,
    advance: Advance | None = None,
) -> UpdateReport:
    """Write the passages that are new or changed since the last push, and delete removed passages.

    The local index and the server's are read once in corpus order and compared by hash, with few passages in
    memory. An interrupted update can be repeated. During the update, searches see some passages changed and
    others not yet.

    :param connections: number of simultaneous bulk requests
    :param advance: called with the number of newly compared passages
    :raises IndexStateError: the alias does not exist, or another model encoded its passages
    :raises ServerError: the server refuses an action, or holds other passages afterwards
    """
    with opened_source(searcher) as source:
        index, meta = live_index(server, name)
        differing = [setting for setting, value in source.form.items() if meta.get(setting) != value]
        if differing:
            raise IndexStateError(
                f"the index behind the alias {name!r} was built with another {', '.join(differing)}",
                where=server.where,
                remedy=remedy(
                    "push the whole index: {}", Command.of("sparta push", opensearch="URL", name=name)
                ),
            )
        report = UpdateReport(index, len(source))
        if meta["identity"] != source.identity:
            refresh(server, index)
            _mark_edited(server, index, meta)
            changes = _changes(source, scan(server, index), report, advance)
            send_all(server, index, changes, connections=connections)
            refresh(server, index)
        verify(server, index, source, sample)
        remove(server, replaced_by(meta))
        set_meta(server, index, source.meta(complete=True, passages=len(source)))
    return report


def _changes(
    source: Source, stored: Iterator[Stored], report: UpdateReport, advance: Advance | None
) -> Iterator[Action]:
    """Yield the actions that make the server's documents equal to the source; both are read by position.

    A passage with a new position is written there and never deleted.
    """
    next_stored = next(stored, None)

    def deletions(end_position: int | None) -> Iterator[Action]:
        """Yield deletions of the server's documents before a position, unless the source has their ids."""
        nonlocal next_stored
        while next_stored is not None and (end_position is None or next_stored.position < end_position):
            if source.contents.lucene.docids([next_stored.passage_id])[0] < 0:
                report.deleted += 1
                yield delete_action(next_stored.passage_id)
            next_stored = next(stored, None)

    for passage, document in source.documents():
        yield from deletions(passage.position)
        is_same_position = next_stored is not None and next_stored.position == passage.position
        stored_document = (
            (next_stored.passage_id, next_stored.hash)
            if is_same_position and next_stored is not None
            else None
        )
        if stored_document != (passage.passage_id, hash_of(document)):
            report.written += 1
            yield index_action(passage.passage_id, document)
        if is_same_position and next_stored is not None and next_stored.passage_id == passage.passage_id:
            next_stored = next(stored, None)
        if advance:
            advance(1)
    yield from deletions(None)


def delete(server: Server, name: str, passage_ids: Sequence[str]) -> DeleteReport:
    """Delete passages by id in OpenSearch; in an index of sentences or chunks, all parts of a passage.

    The index folder keeps the passages: delete them there too, or the next push restores them. If none of the
    passages exists, nothing changes.

    :raises IndexStateError: the alias does not exist
    """
    index, meta = live_index(server, name)
    distinct_ids = list(dict.fromkeys(passage_ids))
    refresh(server, index)
    units = {
        unit
        for block in itertools.batched(distinct_ids, _IDS_AT_ONCE)
        for unit in _units(server, index, block)
    }
    if units:
        _mark_edited(server, index, meta)
        for batch in batches(map(delete_action, sorted(units)), server.access.batch_bytes):
            send(server, index, batch)
        refresh(server, index)
    known_ids = units | set(map(passage_of, units)) if is_cut(meta["unit"]) else units
    missing = tuple(passage_id for passage_id in distinct_ids if passage_id not in known_ids)
    return DeleteReport(len(distinct_ids), len(units), missing, meta["unit"])


def _mark_edited(server: Server, index: str, meta: dict[str, Any]) -> None:
    """Mark in the metadata that an index was changed in place and no longer has its original content."""
    set_meta(
        server, index, {"sparta": {**meta, "identity": meta["identity"].removesuffix(_EDITED) + _EDITED}}
    )


def _units(server: Server, index: str, ids: Sequence[str]) -> list[str]:
    """Return the ids of the documents with these ids, and of the parts of passages with these ids."""
    id_queries = [{"ids": {"values": list(ids)}}, {"terms": {PASSAGE: list(ids)}}]
    return [stored.passage_id for stored in scan(server, index, {"bool": {"should": id_queries}})]
