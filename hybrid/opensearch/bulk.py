"""Bulk requests: bounded, side by side, and what a busy server refuses is sent again."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

from hybrid.opensearch.server import BUSY, Server, reason_of
from sparta.base.errors import ServerError
from sparta.base.records import Advance

BATCH_BYTES = 4 << 20
_ANSWER = "errors,items.*._id,items.*.status,items.*.error"
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 10.0


class Action(NamedTuple):
    """What is to be done with one document: the lines of a bulk request."""

    passage_id: str
    lines: bytes


def batches(actions: Iterable[Action], most_bytes: int = BATCH_BYTES) -> Iterator[list[Action]]:
    """Cut actions into requests of at most so many bytes, but at least one action."""
    batch: list[Action] = []
    size = 0
    for action in actions:
        if batch and size + len(action.lines) > most_bytes:
            yield batch
            batch, size = [], 0
        batch.append(action)
        size += len(action.lines)
    if batch:
        yield batch


def send_all(
    server: Server,
    index: str,
    actions: Iterable[Action],
    *,
    connections: int = 2,
    advance: Advance | None = None,
) -> int:
    """Send actions in any order, some requests at once, and return how many there were.

    :raises ServerError: one was refused, and would be again.
    """
    sent = 0
    waiting: dict[Future[list[str]], int] = {}
    with ThreadPoolExecutor(connections, "bulk") as pool:

        def finish(some: Iterable[Future[list[str]]]) -> int:
            n = 0
            for one in some:
                one.result()
                n += waiting.pop(one)
            if advance:
                advance(n)
            return n

        try:
            for batch in batches(actions):
                waiting[pool.submit(send, server, index, batch)] = len(batch)
                if len(waiting) > connections:
                    sent += finish(wait(waiting, return_when=FIRST_COMPLETED).done)
            sent += finish(list(waiting))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return sent


def send(server: Server, index: str, batch: Sequence[Action]) -> list[str]:
    """Send one request, again and again while the server is busy; returns the ids that it did not hold.

    :raises ServerError: an action is refused, or the server stays busy.
    """
    ends, pause = time.monotonic() + server.access.patience, _FIRST_WAIT
    left = list(batch)
    missing: list[str] = []
    while True:
        body = b"".join(action.lines for action in left)
        answer = server.request("POST", f"/{index}/_bulk", body, lines=True, filter_path=_ANSWER)
        results = [next(iter(item.values())) for item in answer["items"]]
        missing += [one["_id"] for one in results if one["status"] == 404 and "error" not in one]
        busy = [a for a, one in zip(left, results, strict=True) if one["status"] in BUSY]
        _check(server, [one for one in results if "error" in one and one["status"] not in BUSY])
        if not busy:
            return missing
        if time.monotonic() + pause > ends:
            _check(server, [one for one in results if one["status"] in BUSY])
        time.sleep(pause)
        left, pause = busy, min(2 * pause, _LONGEST_WAIT)


def _check(server: Server, refused: Sequence[dict[str, Any]]) -> None:
    if refused:
        first = refused[0]
        more = f" and {len(refused) - 1:,} more" if len(refused) > 1 else ""
        raise ServerError(
            f"the server refuses passage {first['_id']!r}{more} ({first['status']}): {reason_of(first)}",
            where=server.where,
            remedy="what was taken stays; the same command goes on from there",
        )
