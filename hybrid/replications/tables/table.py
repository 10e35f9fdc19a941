"""A table of a paper: the paper's figures, the data that it needs, and the rows that were measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from hybrid.evaluation.tables import Cell, Table

PAPERS = {
    "sparta": "SPARTA (Zhao et al., 2020)",
    "taser": "TASER (Cheng et al., 2022)",
    "multi": "Multi-task Retrieval (Maillard et al., 2021)",
    "cos": "Chain-of-Skills (Ma et al., 2023)",
}
"""The papers, by the first part of a table's name."""
Figures = Mapping[str, Cell]
"""The figures of a row by column: percent, a number, or words."""


class Row(NamedTuple):
    """A measured row: its figures, and how they were measured.

    `data` names the questions and passages, `cut` what was left out of them. `seconds` and `megabytes` are
    the time and the highest memory of the process.
    """

    name: str
    figures: Figures
    data: str = ""
    cut: str = ""
    seconds: float = 0.0
    megabytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The limits that make an experiment small: questions per set, passages, training steps."""

    questions: int | None = None
    passages: int | None = None
    steps: int | None = None

    def __str__(self) -> str:
        return ", ".join(f"{n:,} {name}" for name, n in asdict(self).items() if n is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperTable:
    """A table of a paper, and the function that measures it.

    `name` is the command's argument, such as `sparta-7`; `number` is the paper's, such as `7` or `A3`.
    `figures` has the paper's rows. `sources` are the names in `SOURCES` of the data that the experiment
    needs; of `any_of` it needs one. With `trains`, it trains models from the encoder that the user names.
    `gaps` says which rows or columns cannot be measured offline.
    """

    name: str
    number: str
    title: str
    figures: Mapping[str, Figures]
    measure: Callable[[Any], None] = field(repr=False)
    sources: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()
    trains: bool = False
    gaps: tuple[str, ...] = ()

    @property
    def paper(self) -> str:
        """The paper, as in `PAPERS`."""
        return PAPERS[self.name.partition("-")[0]]

    def columns(self, rows: Sequence[Row] = ()) -> list[str]:
        """Return the paper's columns, then the columns that only measured rows have."""
        all_figures = [*self.figures.values(), *(row.figures for row in rows)]
        return list(dict.fromkeys(column for figures in all_figures for column in figures))

    def compared(self, rows: Sequence[Row]) -> Table:
        """Return the paper's rows, each followed by our row of the same name, then our other rows."""
        columns, by_name = self.columns(rows), merged(rows)
        lines: list[list[Cell]] = []
        for name in dict.fromkeys([*self.figures, *by_name]):
            if name in self.figures:
                lines.append([name, "paper", *_cells(self.figures[name], columns), "", ""])
            if name in by_name:
                row = by_name[name]
                cost = f"{row.seconds:,.0f} s, {row.megabytes:,} MB"
                data = f"{row.data}; {row.cut}" if row.cut else row.data
                lines.append([name, "ours", *_cells(row.figures, columns), data, cost])
            else:
                lines.append([name, "ours", *["not measured", *[None] * (len(columns) - 1)], "", ""])
        return Table(["row", "source", *columns, "data and cut", "cost"], lines, n_names=2)


def rows_of(columns: str, rows: Mapping[str, Sequence[Cell]]) -> dict[str, Figures]:
    """Return a paper's rows; None is a figure that the paper does not have.

    :param columns: the names of the columns, separated by commas
    """
    names = [name.strip() for name in columns.split(",")]
    return {
        row: {name: value for name, value in zip(names, values, strict=True) if value is not None}
        for row, values in rows.items()
    }


def _cells(figures: Figures, columns: Sequence[str]) -> list[Cell]:
    return [figures.get(column) for column in columns]


def merged(rows: Sequence[Row]) -> dict[str, Row]:
    """Return one row for each name: rows of several data have their figures side by side."""
    by_name: dict[str, Row] = {}
    for row in rows:
        first = by_name.get(row.name, row)
        by_name[row.name] = Row(
            row.name,
            {**first.figures, **row.figures},
            _both(first.data, row.data),
            _both(first.cut, row.cut),
            seconds=row.seconds if first is row else first.seconds + row.seconds,
            megabytes=max(first.megabytes, row.megabytes),
        )
    return by_name


def _both(*texts: str) -> str:
    """Return different texts, separated by semicolons."""
    return "; ".join(dict.fromkeys(filter(None, texts)))
