"""Reading the rows of a query to an SQLite database as records."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

from sparta.base.errors import InputError
from sparta.base.remedies import Option, remedy

MAGIC = b"SQLite format 3\0"
_MOST_TABLES = 8
_MOST_COLUMNS = 3
_STEPS_PER_CHECK = 100_000
"""SQLite calls Python after this many steps of its virtual machine, so that Ctrl-C ends a long query."""


def is_database(stream: BinaryIO) -> bool:
    """Return whether an open file is an SQLite database."""
    stream.seek(0)
    return stream.read(len(MAGIC)) == MAGIC


def stored_files(path: str) -> list[str]:
    """Return a file, and the write-ahead log beside it, which holds the last changes of a database."""
    log = Path(f"{path}-wal")
    return [path, str(log)] if log.is_file() and log.stat().st_size else [path]


def query_rows(path: str, query: str) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a query, by column name. The database is opened read-only.

    :raises InputError: the query fails, it returns no rows, or the database is damaged.
    """
    try:
        with closing(_opened(path)) as database:
            database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)  # `attach` would create files
            database.set_progress_handler(_go_on, _STEPS_PER_CHECK)
            rows = database.execute(query)
            if rows.description is None:
                raise InputError("the query returns no rows", where=path, remedy="write a query: select …")
            names = [column[0] for column in rows.description]
            if len(set(names)) < len(names):
                message = f"the query returns two columns of the same name: {', '.join(names)}"
                raise InputError(message, where=path, remedy="rename a column: select a.id as other …")
            for row in rows:
                yield dict(zip(names, row, strict=True))
    except (sqlite3.Error, sqlite3.Warning) as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            raise KeyboardInterrupt from None
        raise InputError(f"SQLite refuses the query: {error}", where=path, remedy=_example(path)) from error


def _go_on() -> int:
    """Let SQLite continue. Python handles signals in this call; an exception ends the query."""
    return 0


def needs_query(path: str) -> InputError:
    """Return the error for a database without a query, with the names of its tables."""
    return InputError(
        "the corpus is an SQLite database, and no query is named", where=path, remedy=_example(path)
    )


def no_database(source: str) -> InputError:
    """Return the error for a query to a corpus that is no database."""
    return InputError(
        "a query needs an SQLite database, and the corpus is none",
        where=source,
        remedy=remedy("omit {}", Option("query", "…")),
    )


def _example(path: str) -> Any:
    tables = _tables(path)
    table, columns = next(iter(tables.items()), ("TABLE", ["id", "text"]))
    names = ["id", "text"] if {"id", "text"} <= {*columns} else columns[:_MOST_COLUMNS]
    query = f"select {', '.join(names)} from {table}"
    if tables and not _is_valid(path, query):
        query = f"select {', '.join(map(_quoted, names))} from {_quoted(table)}"
    return remedy(
        "name the rows with {}{}",
        Option("query", query),
        f"; the tables are {', '.join(tables)}" if tables else "",
    )


def _quoted(name: str) -> str:
    """Return the name of a table or column as SQL needs it if the name has spaces or is a word of SQL."""
    return '"' + name.replace('"', '""') + '"'


def _is_valid(path: str, query: str) -> bool:
    """Return whether SQLite understands a query. The query is not run."""
    try:
        with closing(_opened(path)) as database:
            database.execute(f"explain {query}")
    except (sqlite3.Error, sqlite3.Warning):
        return False
    return True


def _opened(path: str) -> sqlite3.Connection:
    """Open a database read-only."""
    return sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)


def _tables(path: str) -> dict[str, list[str]]:
    """Return the columns of the first tables and views, by name; empty if the database is damaged."""
    try:
        with closing(_opened(path)) as database:
            found = database.execute(
                "select name from sqlite_master where type in ('table', 'view')"
                " and name not like 'sqlite_%' order by name limit ?",
                (_MOST_TABLES,),
            )
            columns = "select name from pragma_table_info(?)"
            return {
                str(name): [str(column) for (column,) in database.execute(columns, (name,))]
                for (name,) in found.fetchall()
            }
    except sqlite3.Error:
        return {}
