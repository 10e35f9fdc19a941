"""How commands print: visible characters, tables, JSON, counts."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparta.base.files import is_standard_output

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(text: str, keep: str = "") -> str:
    r"""Show control characters as `\x1b`, but for `keep`: texts of a corpus never steer the terminal."""
    return _CONTROLS.sub(lambda m: m[0] if m[0] in keep else m[0].encode("unicode_escape").decode(), text)


JSON_VERSION = 1
"""Of what the commands print with --json: docs/output.schema.json. Keys may be added without a new one."""


def dumps(value: Mapping[str, Any], *, unicode: bool | None = None) -> str:
    """One JSON object as --json prints it, with the version of its schema; `unicode` by the terminal."""
    if unicode is None:
        unicode = "utf" in (getattr(sys.stdout, "encoding", None) or "").lower()
    text = json.dumps({"version": JSON_VERSION, **value}, ensure_ascii=not unicode)
    return _CONTROLS.sub(lambda m: f"\\u{ord(m[0]):04x}", text)


def is_kept(output: Path) -> bool:
    """Whether an output is a file of its own; elsewhere, what a command says must not stand among it."""
    return output.is_file() and not is_standard_output(output)


def counted(n: int, noun: str) -> str:
    """`1 passage`, `2 passages`, `2 queries`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{n:,} {noun if n == 1 else plural}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns, the first aligned to the left, the others to the right."""
    cells = [list(header), *([visible(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = []
    for row in cells:
        first, *others = zip(row, widths, strict=True)
        parts = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)
