"""Duplicate ids: those met so far, on disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from sparta.base.closing import Closing
from sparta.base.errors import FREE_TEMPORARY, StorageError


class SeenIds(Closing):
    """The ids met so far and where, in a temporary database on disk, so that memory does not grow with them.

    The database has no name: it is gone when the process ends, however it ends.
    """

    def __init__(self) -> None:
        self._paths: dict[str, int] = {}
        # isolation_level None and one transaction that is never committed: nothing here needs to last.
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for pragma in ("journal_mode=OFF", "synchronous=OFF", "temp_store=FILE", "cache_size=-16384"):
            self._database.execute(f"PRAGMA {pragma}")
        columns = "id TEXT PRIMARY KEY, path INTEGER, line INTEGER"
        self._database.execute(f"CREATE TABLE ids ({columns}) WITHOUT ROWID")
        self._database.execute("BEGIN")

    def close(self) -> None:
        """Forget them."""
        self._database.close()

    def add(self, batch: Sequence[tuple[str, str]]) -> dict[int, str]:
        """Remember pairs of an id and its `path:line`, where several may stand.

        Returns, for the number of every pair whose id was there before, the first `path:line` of that id.
        """
        before = self._database.total_changes
        rows = [(passage_id, *self._place(where)) for passage_id, where in batch]
        try:
            self._database.executemany("INSERT OR IGNORE INTO ids VALUES (?, ?, ?)", rows)
            if self._database.total_changes - before == len(rows):
                return {}
            firsts = [self._first(passage_id) for passage_id, _ in batch]
        except sqlite3.Error as error:
            raise StorageError(f"the list of ids on disk failed: {error}", remedy=FREE_TEMPORARY) from error
        repeated, own = {}, set[str]()
        for number, ((passage_id, where), first) in enumerate(zip(batch, firsts, strict=True)):
            if first != where or passage_id in own:
                repeated[number] = first
            own.add(passage_id)
        return repeated

    def _place(self, where: str) -> tuple[int, int]:
        path, _, line = where.rpartition(":")
        return self._paths.setdefault(path, len(self._paths)), int(line)

    def _first(self, passage_id: str) -> str:
        query = "SELECT path, line FROM ids WHERE id = ?"
        path, line = self._database.execute(query, (passage_id,)).fetchone()
        return f"{list(self._paths)[path]}:{line}"
