"""Bulk requests of bounded size, sent in parallel; actions that a busy server refuses are sent again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from hybrid.opensearch.documents import Action, batches
from hybrid.opensearch.server import BUSY, Patience, Server, reason_of
from sparta.base.errors import ServerError
from sparta.base.records import Advance

_ANSWER = "errors,items.*._id,items.*.status,items.*.error"


def send_all(
    server: Server,
    index: str,
    actions: Iterable[Action],
    *,
    connections: int = 2,
    advance: Advance | None = None,
) -> int:
    """Send actions in any order, with several simultaneous requests; return the number of actions.

    :raises ServerError: the server refused an action for good
    """
    sent = 0
    waiting: dict[Future[list[str]], int] = {}
    with ThreadPoolExecutor(connections, "bulk") as pool:

        def finish(futures: Iterable[Future[list[str]]]) -> int:
            """Wait for some requests, and return the number of their actions."""
            n_actions = 0
            for future in futures:
                future.result()
                n_actions += waiting.pop(future)
            if advance:
                advance(n_actions)
            return n_actions

        try:
            for batch in batches(actions, server.access.batch_bytes):
                waiting[pool.submit(send, server, index, batch)] = len(batch)
                if len(waiting) > connections:
                    sent += finish(wait(waiting, return_when=FIRST_COMPLETED).done)
            sent += finish(list(waiting))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return sent


def send(server: Server, index: str, batch: Sequence[Action]) -> list[str]:
    """Send one bulk request, repeated while the server is busy; return the ids that the server did not have.

    :raises ServerError: the server refused an action, or stays busy
    """
    patience, remaining = Patience(server.access.patience), list(batch)
    missing: list[str] = []
    while True:
        body = b"".join(action.lines for action in remaining)
        answer = server.request("POST", f"/{index}/_bulk", body, lines=True, filter_path=_ANSWER)
        results = [next(iter(item.values())) for item in answer["items"]]
        missing += [result["_id"] for result in results if result["status"] == 404 and "error" not in result]
        busy = [action for action, result in zip(remaining, results, strict=True) if result["status"] in BUSY]
        _check(server, [result for result in results if "error" in result and result["status"] not in BUSY])
        if not busy:
            return missing
        if not patience.wait():
            _check(server, [result for result in results if result["status"] in BUSY])
        remaining = busy


def _check(server: Server, refused: Sequence[dict[str, Any]]) -> None:
    if refused:
        first = refused[0]
        more = f" and {len(refused) - 1:,} more" if len(refused) > 1 else ""
        raise ServerError(
            f"the server rejects passage {first['_id']!r}{more} ({first['status']}): {reason_of(first)}",
            where=server.where,
            remedy="correct the cause and repeat the command: it continues after the accepted passages",
        )
