"""Reading table rows as passages, with the pages that their cells link to (OTT-QA, HybridQA)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sparta.data.parsing import BadRecordError, string_field

KIND, ROW, LINKS = "kind", "row", "links"
"""Metadata fields of a table row: `kind` is "row", and `links` has the titles of the linked pages."""
_REMEDY = 'write {"page_title", "section_title", "header": […], "cells": […], "links": [{"target_title"}]}'


def is_row(record: Mapping[str, Any]) -> bool:
    """Return whether a record is a table row."""
    return "cells" in record and "page_title" in record and not {"text", "contents"} & record.keys()


def row_passage(record: Mapping[str, Any], number: str) -> dict[str, Any]:
    """Return a table row as a corpus record with the text `section. column is cell. column is cell.`.

    :param number: the row's number in its file; `table_id` and the number make the passage id
    :raises BadRecordError: the row has a wrong format.
    """
    title = string_field(record, "page_title", of="page_title")
    cells, header, links = (record.get(name) or [] for name in ("cells", "header", "links"))
    if not all(isinstance(values, list) for values in (cells, header, links)) or len(cells) != len(header):
        detail = f"expected one cell per header name, found {len(cells)} cells and {len(header)} names"
        raise BadRecordError("broken table row", detail, remedy=_REMEDY)
    if not all(isinstance(link, dict) and isinstance(link.get("target_title"), str) for link in links):
        raise BadRecordError(
            "broken table row", "every link needs a target_title, which is a string", remedy=_REMEDY
        )
    if not all(value is None or isinstance(value, str | int | float) for value in (*header, *cells)):
        raise BadRecordError(
            "broken table row", "cells and header must contain only strings and numbers", remedy=_REMEDY
        )
    filled_cells = [(name, cell) for name, cell in zip(header, cells, strict=True) if cell is not None]
    sentences = [f"{name} is {cell}." if name else f"{cell}." for name, cell in filled_cells]
    section = record.get("section_title")
    table = re.sub(r"\s", "_", str(record.get("table_id") or title))
    return {
        "id": f"{table}:{number}",
        "title": title,
        "text": " ".join([f"{section}.", *sentences] if section else sentences),
        KIND: ROW,
        LINKS: list(dict.fromkeys(link["target_title"] for link in links)),
    }
