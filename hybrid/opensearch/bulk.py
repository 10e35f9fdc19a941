"""Bulk requests: bounded, side by side, and what a busy server refuses is sent again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from hybrid.opensearch.documents import Action, batches
from hybrid.opensearch.server import BUSY, Patience, Server, reason_of
from sparta.base.errors import ServerError
from sparta.base.records import Advance

BATCH_BYTES = 4 << 20
_ANSWER = "errors,items.*._id,items.*.status,items.*.error"


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
            for batch in batches(actions, BATCH_BYTES):
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
    patience, left = Patience(server.access.patience), list(batch)
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
        if not patience.wait():
            _check(server, [one for one in results if one["status"] in BUSY])
        left = busy


def _check(server: Server, refused: Sequence[dict[str, Any]]) -> None:
    if refused:
        first = refused[0]
        more = f" and {len(refused) - 1:,} more" if len(refused) > 1 else ""
        raise ServerError(
            f"the server refuses passage {first['_id']!r}{more} ({first['status']}): {reason_of(first)}",
            where=server.where,
            remedy="what was taken stays; the same command goes on from there",
        )
