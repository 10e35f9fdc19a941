"""All tables of the papers that have a command, and the page that compares them with our figures."""

from __future__ import annotations

from pathlib import Path

from hybrid.evaluation.tables import Cell, Table
from hybrid.replications.tables import cos_chains, cos_experts, cos_open, multi, sparta, taser
from hybrid.replications.tables.experiment import state_of
from hybrid.replications.tables.sources import SOURCES
from hybrid.replications.tables.table import PaperTable
from sparta.base.errors import InputError

_COS = sorted(
    (*cos_open.TABLES, *cos_chains.TABLES, *cos_experts.TABLES),
    key=lambda table: (table.number.startswith("A"), table.number),
)
TABLES = {table.name: table for table in (*sparta.TABLES, *taser.TABLES, *multi.TABLES, *_COS)}


def table_named(name: str) -> PaperTable:
    """Return a table of the papers by its name.

    :raises InputError: no table has the name
    """
    if name not in TABLES:
        raise InputError(f"no table has the name {name!r}", remedy=f"name one of {', '.join(TABLES)}")
    return TABLES[name]


def listed(data: Path | None, output: Path) -> Table:
    """Return all tables, with the data that each needs, and its state."""
    rows: list[list[Cell]] = []
    for table in TABLES.values():
        needed = [SOURCES[name].title for name in table.sources]
        if table.any_of:
            needed.append("one of " + ", ".join(SOURCES[name].title for name in table.any_of))
        needed += ["an encoder"] if table.trains else []
        rows.append(
            [table.name, table.title, "; ".join(needed) or "none", state_of(table, data, output / table.name)]
        )
    return Table(["table", "experiment", "data", "state"], rows)
