"""Printing of commands: visible control characters, tables, JSON, counts."""

from __future__ import annotations

import json
import re
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sparta.base.files import is_standard_output

if TYPE_CHECKING:
    from hybrid.evaluation.tables import Table
    from hybrid.evaluation.testsets import QuestionSet
    from hybrid.retrieval.fusion import Fusion

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
WHITE_SPACE = "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85"
"""The control characters that are white space, for texts whose white space is collapsed after `visible`."""


def visible(text: str, keep: str = "") -> str:
    r"""Escape control characters (`\x1b`), so that texts of a corpus cannot control the terminal.

    :param keep: control characters to leave as they are, such as a line break
    """
    return _CONTROLS.sub(lambda m: m[0] if m[0] in keep else m[0].encode("unicode_escape").decode(), text)


JSON_VERSION = 1
"""Version of the JSON schema of --json, docs/output.schema.json. A new key does not change the version."""


def dumps(value: Mapping[str, Any], *, unicode: bool | None = None) -> str:
    """Return one JSON object with the version of its schema, as --json prints it.

    :param unicode: write characters beyond ASCII as they are [default: if standard output is Unicode]
    """
    if unicode is None:
        unicode = "utf" in (getattr(sys.stdout, "encoding", None) or "").lower()
    text = json.dumps({"version": JSON_VERSION, **value}, ensure_ascii=not unicode)
    return _CONTROLS.sub(lambda m: f"\\u{ord(m[0]):04x}", text)


def is_kept(output: Path) -> bool:
    """Return whether the output is a regular file; if not, messages must go to standard error."""
    return output.is_file() and not is_standard_output(output)


def counted(n: int, noun: str) -> str:
    """Return number and noun: `1 passage`, `2 passages`, `2 queries`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{n:,} {noun if n == 1 else plural}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a text table: the first column is aligned left, all others right."""
    cells = [list(header), *([visible(cell) for cell in row] for row in rows)]
    widths = [max(_width(row[i]) for row in cells) for i in range(len(header))]
    lines = []
    for row in cells:
        first, *others = [
            (cell, " " * (width - _width(cell))) for cell, width in zip(row, widths, strict=True)
        ]
        padded_cells = ["".join(first), *(padding + cell for cell, padding in others)]
        lines.append("  ".join(padded_cells).rstrip())
    return "\n".join(lines)


def _width(text: str) -> int:
    """Return the number of columns that a text fills on a terminal."""
    if text.isascii():
        return len(text)
    shown = [c for c in text if unicodedata.category(c) not in ("Mn", "Me", "Cf")]
    return len(shown) + sum(unicodedata.east_asian_width(c) in "WF" for c in shown)


def notes(query_sets: Sequence[QuestionSet], fusions: Sequence[Fusion]) -> Iterator[str]:
    """Yield the notes below a table: which sets are samples, and the formula of the fusions."""
    from hybrid.evaluation.testsets import SAMPLE_SEED
    from hybrid.retrieval.fusion import formula

    for questions in query_sets:
        if questions.sampled_from:
            size = f"{len(questions.queries):,} of {questions.sampled_from:,}"
            yield f"{questions.name}: a sample of {size} questions (seed {SAMPLE_SEED})"
    if fusions:
        yield formula(*fusions)


def print_table(
    table: Table,
    form: str,
    below: Iterable[str] = (),
    *,
    verdicts: Iterable[str] = (),
    more: Mapping[str, Table] | None = None,
) -> None:
    """Print a table with notes below it; for csv and json the notes go to standard error.

    :param verdicts: the results in words, one line each; printed above the other notes
    :param more: further tables by title, printed below the table
    """
    from hybrid.evaluation.results import LEGEND
    from hybrid.evaluation.tables import WIDTH

    click.echo(table.write(form))
    for title, further in (more or {}).items():
        click.echo(f"\n{title}\n" + "\n" * (form == "markdown") + further.write(form))
    has_stars = any(str(cell).endswith(("*↑", "*↓")) for row in table.rows for cell in row)
    notes_below = [*([LEGEND] if has_stars else []), *below]
    if form == "text":
        notes_below = [
            textwrap.fill(note, WIDTH, subsequent_indent="  ", break_on_hyphens=False) for note in notes_below
        ]
        if more:
            click.echo()
    for note in [*verdicts, *notes_below]:
        click.echo(f"\n{note}" if form == "markdown" else note, err=form in ("csv", "json"))
