"""One table, written as one likes it: aligned text, Markdown, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass

FORMATS = ("text", "markdown", "csv", "json")
LARGE = 1000
"""From here on a number that was given is shown as it is: one decimal of 1e300 has three hundred digits."""
Cell = str | float | int | None


class Exact(float):
    """A number that people, too, see in full: what was given, not what was measured."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a header; floats are shown with `digits` digits where people read, in full elsewhere."""

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    digits: int = 1

    def write(self, form: str) -> str:
        """Return the table in one of `FORMATS`, without a last line break."""
        if form == "json":
            return json.dumps([dict(zip(self._names(), row, strict=True)) for row in self.rows], indent=1)
        if form == "csv":
            out = io.StringIO()
            csv.writer(out, lineterminator="\n").writerows([self._names(), *self.rows])
            return out.getvalue().rstrip("\n")
        shown = [[self._shown(cell) for cell in row] for row in self.rows]
        if form == "markdown":
            escaped = [[cell.replace("|", "\\|") for cell in row] for row in shown]
            lines = [list(self.header), ["---"] * len(self.header), *escaped]
            return "\n".join(f"| {' | '.join(line)} |" for line in lines)
        widths = [max(map(len, column)) for column in zip(self.header, *shown, strict=True)]
        numeric = [all(not isinstance(row[i], str) for row in self.rows) for i in range(len(widths))]
        return "\n".join(
            "  ".join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(line, widths, numeric, strict=True)
            ).rstrip()
            for line in [list(self.header), *shown]
        )

    def _names(self) -> list[str]:
        """The header; a name that came before is followed by that of the column before it: `± R@20`."""
        before = ["", *self.header]
        return [f"{n} {before[i]}" if n in self.header[:i] else n for i, n in enumerate(self.header)]

    def _shown(self, cell: Cell) -> str:
        if cell is None:
            return ""
        if isinstance(cell, Exact):
            return f"{cell:.1f}" if cell == round(cell, 1) and abs(cell) < LARGE else repr(float(cell))
        return f"{cell:.{self.digits}f}" if isinstance(cell, float) else str(cell)
