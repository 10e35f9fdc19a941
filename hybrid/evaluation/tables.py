"""Tables that are written as aligned text, Markdown, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass

FORMATS = ("text", "markdown", "csv", "json")
LARGE = 1000
"""`Exact` numbers from this size on are written in Python's form, because 1e300 has 301 digits."""
Cell = str | float | int | None


class Exact(float):
    """A number that is an input (such as a weight), which text tables show with all its digits."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a header; text and Markdown show floats with `digits` digits, CSV and JSON in full."""

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    digits: int = 1

    def write(self, form: str) -> str:
        """Return the table in one of `FORMATS`, without a final line break."""
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
        widths = [max(map(len, column)) for column in zip(self.header, *texts, strict=True)]
        numeric = [all(not isinstance(row[i], str) for row in self.rows) for i in range(len(widths))]
        return "\n".join(
            "  ".join(
                cell.rjust(width) if is_numeric else cell.ljust(width)
                for cell, width, is_numeric in zip(line, widths, numeric, strict=True)
            ).rstrip()
            for line in [list(self.header), *texts]
        )

    def _names(self) -> list[str]:
        """Return the header; a repeated name gets the name of the previous column appended: `± R@20`."""
        previous = ["", *self.header]
        return [
            f"{name} {previous[i]}" if name in self.header[:i] else name for i, name in enumerate(self.header)
        ]

    def _shown(self, cell: Cell) -> str:
        """Return a cell's text."""
        if cell is None:
            return ""
        if isinstance(cell, Exact):
            return f"{cell:.1f}" if cell == round(cell, 1) and abs(cell) < LARGE else repr(float(cell))
        return f"{cell:.{self.digits}f}" if isinstance(cell, float) else str(cell)
