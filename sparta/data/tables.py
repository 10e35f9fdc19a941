"""Rows of tables as passages, with the pages that their cells link to (OTT-QA, HybridQA)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sparta.data.parsing import BadRecordError, string_field

KIND, ROW, LINKS = "kind", "row", "links"
"""Metadata of a row: `kind` is "row", `links` has the titles of pages."""
_REMEDY = 'write {"page_title", "section_title", "header": […], "cells": […], "links": [{"target_title"}]}'


def is_row(record: Mapping[str, Any]) -> bool:
    """Whether this is a row of a table."""
    return "cells" in record and "page_title" in record and not {"text", "contents"} & record.keys()


def row_passage(record: Mapping[str, Any], number: str) -> dict[str, Any]:
    """Return the record of a row's passage, whose text is `section. column is cell. column is cell.`.

    :param number: of the row in its file, which with `table_id` makes its id
    :raises BadRecordError: a row of another form.
    """
    title = string_field(record, "page_title", of="page_title")
    cells, header, links = (record.get(name) or [] for name in ("cells", "header", "links"))
    if not all(isinstance(one, list) for one in (cells, header, links)) or len(cells) != len(header):
        detail = f"expected as many cells as names in the header, found {len(cells)} and {len(header)}"
        raise BadRecordError("broken table row", detail, remedy=_REMEDY)
    if not all(isinstance(one, dict) and isinstance(one.get("target_title"), str) for one in links):
        raise BadRecordError("broken table row", "expected links with a target_title", remedy=_REMEDY)
    if not all(one is None or isinstance(one, str | int | float) for one in (*header, *cells)):
        raise BadRecordError(
            "broken table row", "expected texts or numbers in cells and header", remedy=_REMEDY
        )
    known = [(name, cell) for name, cell in zip(header, cells, strict=True) if cell is not None]
    named = [f"{name} is {cell}." if name else f"{cell}." for name, cell in known]
    section = record.get("section_title")
    table = re.sub(r"\s", "_", str(record.get("table_id") or title))
    return {
        "id": f"{table}:{number}",
        "title": title,
        "text": " ".join([f"{section}.", *named] if section else named),
        KIND: ROW,
        LINKS: list(dict.fromkeys(one["target_title"] for one in links)),
    }
