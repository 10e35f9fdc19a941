"""Detecting duplicate ids, with the known ids on disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from sparta.base.closing import Closing
from sparta.base.errors import FREE_TEMPORARY, StorageError
from sparta.data.parsing import split_place


class SeenIds(Closing):
    """The ids met so far and their locations, in a temporary database on disk to save memory.

    The database file has no name, so the system removes it when the process ends in any way.
    """

    def __init__(self) -> None:
        self._paths: dict[str, int] = {}
        # For speed, one transaction that is never committed: the ids are needed only while the process runs.
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for pragma in ("journal_mode=OFF", "synchronous=OFF", "temp_store=FILE", "cache_size=-16384"):
            self._database.execute(f"PRAGMA {pragma}")
        columns = "id TEXT PRIMARY KEY, path INTEGER, line INTEGER"
        self._database.execute(f"CREATE TABLE ids ({columns}) WITHOUT ROWID")
        self._database.execute("BEGIN")

    def close(self) -> None:
        """Delete the database."""
        self._database.close()

    def add(self, batch: Sequence[tuple[str, str]]) -> dict[int, str]:
        """Add pairs of an id and its location, such as `path:line`; several ids may share a location.

        Returns, for the position of each pair with a known id, the location where the id occurred first.
        """
        changes_before = self._database.total_changes
        rows = [(passage_id, *self._place(where)) for passage_id, where in batch]
        try:
            self._database.executemany("INSERT OR IGNORE INTO ids VALUES (?, ?, ?)", rows)
            if self._database.total_changes - changes_before == len(rows):
                return {}
            first_places = [self._first(passage_id) for passage_id, _ in batch]
        except sqlite3.Error as error:
            raise StorageError(
                f"the temporary database of passage ids failed: {error}", remedy=FREE_TEMPORARY
            ) from error
        repeated, batch_ids = {}, set[str]()
        for position, ((passage_id, where), first_place) in enumerate(zip(batch, first_places, strict=True)):
            if first_place != where or passage_id in batch_ids:
                repeated[position] = first_place
            batch_ids.add(passage_id)
        return repeated

    def _place(self, where: str) -> tuple[int, int]:
        path, line = split_place(where)
        return self._paths.setdefault(path, len(self._paths)), line

    def _first(self, passage_id: str) -> str:
        query = "SELECT path, line FROM ids WHERE id = ?"
        path, line = self._database.execute(query, (passage_id,)).fetchone()
        return f"{list(self._paths)[path]}{line}"
