"""JSON lists of any size, read element by element."""

from __future__ import annotations

import gzip
import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sparta.base.errors import InputError
from sparta.data.corpus import open_corpus
from sparta.data.jsonlist import begins_list, json_list

STRINGS = ["", "größer", "東京", "\U0001f600", 'a "quote", a \\ and ]', "[1, 2", "x" * 50]


def made(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(7 if depth < 3 else 5)
    if kind == 5:
        return [made(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 6:
        return {f"{rng.choice(STRINGS)}{i}": made(rng, depth + 1) for i in range(rng.randrange(4))}
    return [None, rng.random() < 0.5, rng.randrange(-(10**9), 10**9), rng.gauss(), rng.choice(STRINGS)][kind]


@pytest.mark.parametrize("seed", range(40))
def test_a_list_is_what_json_says(seed: int, tmp_path: Path) -> None:
    """However its bytes are cut: within words of UTF-8, numbers, strings, between elements."""
    rng = random.Random(seed)
    block_bytes = rng.choice([1, 2, 3, 7, 64, 1 << 20])
    value = [made(rng) for _ in range(rng.randrange(12))]
    text = json.dumps(value, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 1, 4]))
    data = (
        rng.choice(["", "\ufeff", " \n", "\r\n\t"]).encode() + text.encode() + rng.choice([b"", b"\n \r\n"])
    )
    packed = rng.random() < 0.5
    path = tmp_path / ("a.json.gz" if packed else "a.json")
    path.write_bytes(gzip.compress(data) if packed else data)
    assert begins_list(path)
    assert list(json_list(path, "a list", block_bytes)) == value


@pytest.mark.parametrize("chunk", [1, 5, 1 << 20])
@pytest.mark.parametrize(
    ("data", "before", "message"),
    [
        (b"", 0, "does not begin with"),
        (b'{"data": []}', 0, "does not begin with"),
        (b"[1, 2", 2, "expected , or ]"),
        (b"[1, 2,", 2, "Expecting value"),
        (b"[1 2]", 1, "expected , or ]"),
        (b"[,1]", 0, "Expecting value"),
        (b"[1,]", 1, "Expecting value"),
        (b'[1, {"a": "b]', 1, "Unterminated string"),
        (b"[1] [2]", 1, "text follows the end"),
        (b'[1, "\\ud83d"]', 1, "half a surrogate pair"),
        (b"[" + b"[" * 200_000, 0, "recursion"),
    ],
)
def test_what_is_no_list_is_named(chunk: int, data: bytes, before: int, message: str, tmp_path: Path) -> None:
    if chunk < 100 < len(data):
        chunk = 10_000
    path = tmp_path / "a.json"
    path.write_bytes(data)
    found = []
    with pytest.raises(InputError, match=message) as refused:
        found.extend(json_list(path, "numbers", chunk))
    assert refused.value.message.startswith("invalid format")
    assert refused.value.where == str(path)


def test_a_list_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not end is given up, not read to the end of the file: a byte that is no UTF-8 is not met."""
    monkeypatch.setenv("SPARTA_MAX_LINE_MB", "0.005")
    path = tmp_path / "a.json"
    path.write_bytes(b'[1, {"a": ' + b'"b", ' * 4_000 + b"\xff")
    with pytest.raises(InputError, match=r"after 1 complete elements.* is longer than 0\.005 MB"):
        list(json_list(path, "a list", 1000))
    monkeypatch.undo()
    whole = list(range(100_000))
    path.write_text(json.dumps(whole))
    elements = json_list(path, "a list")
    assert next(elements) == 0
    assert [0, *elements] == whole


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        list(json_list(tmp_path / "none.json", "a list"))
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(json.dumps(list(range(10_000))).encode())[:-20])
    with pytest.raises(InputError, match="damaged or incomplete"):
        list(json_list(path, "a list"))


def test_what_is_no_utf_8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes('{"data": [{"title": "Caf\u00e9"}]}'.encode("latin-1"))
    for read in (begins_list, lambda path: list(json_list(path, "a list"))):
        with pytest.raises(InputError, match=r"invalid UTF-8: .*found byte 0xe9\n") as refused:
            read(path)
        assert refused.value.where == str(path)


def test_a_corpus_that_is_no_utf_8_is_named(tmp_path: Path) -> None:
    """The position of the byte within the buffer would mislead, and `json.tool` does not name its line."""
    path = tmp_path / "a.json"
    path.write_bytes('[{"id": 1, "text": "the moon"}, {"id": 2, "text": "Caf\u00e9"}]'.encode("latin-1"))
    with pytest.raises(InputError, match=r"a\.json: invalid UTF-8: .*found byte 0xe9\n") as refused:
        list(open_corpus(path))
    assert "iconv" in str(refused.value.remedy)
    assert "json.tool" not in str(refused.value)


def test_a_list_on_one_line_has_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARTA_MAX_LINE_MB", "0.001")
    path = tmp_path / "c.json.gz"
    path.write_bytes(gzip.compress(json.dumps([{"id": i, "text": "the moon"} for i in range(99)]).encode()))
    assert len(list(open_corpus(path))) == 99


def test_bad_elements_are_placed_by_their_number(tmp_path: Path) -> None:
    path = tmp_path / "pretty.json"
    records = [{"id": "a", "text": "moon"}, {"id": "b"}, 7, {"id": "a", "text": "sun"}]
    path.write_text(json.dumps(records, indent=1))
    reader = open_corpus(path, skip_invalid=True)
    assert [passage.where for passage in reader] == [f"{path}: element 1"]
    assert [skip.where for skip in reader.counts.first_skips] == [f"{path}: element {n}" for n in (2, 3, 4)]
    assert reader.counts.first_skips[2].reason.endswith(f"was already the id of {path}: element 1")
    path.write_text('[{"id": "a b", "text": NaN}]')
    with pytest.raises(InputError, match="element 1: broken JSON") as refused:
        list(open_corpus(path))
    assert "correct the record" in str(refused.value.remedy)
    path.write_text('[\n{"page_title": "Moon", "header": ["a"], "cells": ["b"]}\n]')
    assert [passage.passage_id for passage in open_corpus(path)] == ["Moon:1"]


def test_bad_rows_of_a_database_are_placed_by_their_number(tmp_path: Path) -> None:
    path = tmp_path / "pages.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("create table pages (id, text)")
        database.executemany("insert into pages values (?, ?)", [("a", "moon"), ("b c", "sun")])
    with pytest.raises(InputError) as refused:
        list(open_corpus(path, query="select * from pages order by id"))
    assert refused.value.where == f"{path}: row 2"
