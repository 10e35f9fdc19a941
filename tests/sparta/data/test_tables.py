"""Rows of tables as passages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparta.base.errors import InputError
from sparta.data.corpus import open_corpus
from sparta.data.parsing import BadRecordError
from sparta.data.tables import row_passage

ROW: dict[str, Any] = {
    "page_title": "Ada Lovelace",
    "section_title": "Works",
    "header": ["Year", "", "With"],
    "cells": ["1843", "Notes", "Babbage"],
    "links": [{"anchor": "Babbage", "column": 2, "target_title": "Charles Babbage"}] * 2,
    "table_id": "Ada Lovelace_0",
}


def read(path: Path, *rows: dict[str, Any]) -> list[Any]:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return list(open_corpus(path))


def test_a_row_is_a_passage(tmp_path: Path) -> None:
    bare = {name: ROW[name] for name in ("page_title", "header", "cells")}
    first, second = read(tmp_path / "rows.jsonl", ROW, bare)
    assert (first.passage_id, first.title) == ("Ada_Lovelace_0:1", "Ada Lovelace")
    assert first.text == "Works. Year is 1843. Notes. With is Babbage."
    assert (first.record["kind"], first.record["links"]) == ("row", ["Charles Babbage"])
    assert (second.passage_id, second.text) == ("Ada_Lovelace:2", "Year is 1843. Notes. With is Babbage.")
    assert second.record["links"] == []


def test_ids_have_no_white_space(tmp_path: Path) -> None:
    [passage] = read(tmp_path / "rows.jsonl", {**ROW, "table_id": "A\u00a0b\tc d"})
    assert passage.passage_id == "A_b_c_d:1"


def test_what_has_a_text_is_no_row(tmp_path: Path) -> None:
    [passage] = read(tmp_path / "rows.jsonl", {"id": "1", "text": "a text", **ROW})
    assert (passage.passage_id, passage.text) == ("1", "a text")


@pytest.mark.parametrize(
    "change",
    [{"cells": ["1843"]}, {"header": "Year"}, {"links": ["Charles Babbage"]}, {"links": [{"anchor": "x"}]}],
)
def test_broken_rows(change: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="broken table row") as raised:
        read(tmp_path / "rows.jsonl", {**ROW, **change})
    assert "rows.jsonl:1" in str(raised.value)


def test_a_cell_without_a_value_says_nothing() -> None:
    row = {"page_title": "P", "section_title": "S", "header": ["a", "b"], "cells": ["1", None]}
    assert row_passage(row, "1")["text"] == "S. a is 1."
    with pytest.raises(BadRecordError, match="only strings and numbers"):
        row_passage({**row, "cells": ["1", ["x"]]}, "1")
