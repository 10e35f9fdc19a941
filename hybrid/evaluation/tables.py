"""Tables that are written as aligned text, Markdown, CSV or JSON."""

from __future__ import annotations

import csv
import io
import itertools
import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

FORMATS = ("text", "markdown", "csv", "json")
WIDTH = 100
"""The largest width of a text table, in characters."""
INTERVAL = "±"
"""The header of a column that belongs to the previous column."""
_WIDEST_NAMES = 60
_WIDEST_CELL = 34
LARGE = 1000
"""`Exact` numbers from this size on are written in Python's form, because 1e300 has 301 digits."""
Cell = str | float | int | None


class Exact(float):
    """A number that is an input (such as a weight), which text tables show with all its digits."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a header; text and Markdown show floats with `digits` digits, CSV and JSON in full.

    The first `n_names` columns name the rows.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    digits: int = 1
    n_names: int = 1

    def write(self, form: str) -> str:
        """Return the table in one of `FORMATS`, without a final line break.

        A text table has at most `WIDTH` characters per line. If all rows of a wider table have the same first
        name, that name becomes a line above the table. If the table is still too wide, long cells take
        several lines, and the columns are split into several tables below each other.
        """
        if form == "json":
            return json.dumps([dict(zip(self._names(), row, strict=True)) for row in self.rows], indent=1)
        if form == "csv":
            out = io.StringIO()
            csv.writer(out, lineterminator="\n").writerows([self._names(), *self.rows])
            return out.getvalue().rstrip("\n")
        texts = [[self._shown(cell) for cell in row] for row in self.rows]
        if form == "markdown":
            escaped = [[cell.replace("|", "\\|") for cell in row] for row in texts]
            lines = [list(self.header), ["---"] * len(self.header), *escaped]
            return "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return "\n".join(self._text_lines([list(self.header), *texts]))

    def _text_lines(self, lines: list[list[str]]) -> Iterator[str]:
        """Yield the lines of the text table, from the header's and the rows' cells."""
        n_names = self.n_names
        is_numeric = [all(not isinstance(row[i], str) for row in self.rows) for i in range(len(self.header))]
        if _total(_widths(lines)) > WIDTH and n_names > 1 and len({row[0] for row in lines[1:]}) == 1:
            yield from _wrapped(f"{self.header[0]}: {lines[1][0]}", WIDTH)
            n_names, is_numeric, lines = n_names - 1, is_numeric[1:], [row[1:] for row in lines]
        widths = _widths(lines)
        if _total(widths) > WIDTH:
            widths = _narrowed(widths, n_names)
        for i, part in enumerate(_parts(widths, n_names, lines[0])):
            if i:
                yield ""
            for row in lines:
                cells = [_wrapped(row[column], widths[column]) for column in part]
                for pieces in itertools.zip_longest(*cells, fillvalue=""):
                    yield "  ".join(
                        piece.rjust(widths[column]) if is_numeric[column] else piece.ljust(widths[column])
                        for piece, column in zip(pieces, part, strict=True)
                    ).rstrip()

    def _names(self) -> list[str]:
        """Return the header; an interval is named after the previous column: `± EM`."""
        previous = ["", *self.header]
        return [f"{name} {previous[i]}" if name == INTERVAL else name for i, name in enumerate(self.header)]

    def _shown(self, cell: Cell) -> str:
        """Return a cell's text."""
        if cell is None:
            return ""
        if isinstance(cell, Exact):
            return f"{cell:.1f}" if cell == round(cell, 1) and abs(cell) < LARGE else repr(float(cell))
        return f"{cell:.{self.digits}f}" if isinstance(cell, float) else str(cell)


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column: the length of its longest cell."""
    return [max(map(len, column)) for column in zip(*lines, strict=True)]


def _wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a text; a text that fits keeps its spaces."""
    return [text] if len(text) <= width else textwrap.wrap(text, width, break_on_hyphens=False)


def _total(widths: Sequence[int]) -> int:
    """Return the width of a line, with two spaces between columns."""
    return sum(widths) + 2 * (len(widths) - 1)


def _narrowed(widths: Sequence[int], n_names: int) -> list[int]:
    """Return widths that leave room for at least one column, and its interval, beside the names."""
    names = list(widths[:n_names])
    while _total(names) > _WIDEST_NAMES:
        names[names.index(max(names))] -= 1
    return [*names, *(min(width, _WIDEST_CELL) for width in widths[n_names:])]


def _parts(widths: Sequence[int], n_names: int, header: Sequence[str]) -> list[list[int]]:
    """Return the columns of each part of a split table: as few parts as fit, with similar widths.

    Each part starts with the names. A column stays in one part with the interval that follows.
    """
    groups = [
        [i, i + 1] if header[i + 1 : i + 2] == [INTERVAL] else [i]
        for i in range(n_names, len(header))
        if header[i] != INTERVAL
    ]
    names = list(range(n_names))

    def split(limit: int) -> list[list[int]]:
        parts = [list(names)]
        for group in groups:
            is_full = _total([widths[i] for i in (*parts[-1], *group)]) > limit
            if is_full and len(parts[-1]) > n_names:
                parts.append(list(names))
            parts[-1] += group
        return parts

    fewest = len(split(WIDTH))
    limit = next(limit for limit in range(1, WIDTH + 1) if len(split(limit)) <= fewest)
    return split(limit)
