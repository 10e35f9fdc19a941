"""The names of fields: names that no record has, other spellings of usual names, records without an id."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparta.base.errors import InputError
from sparta.data.corpus import open_corpus
from sparta.data.formats.fields import Fields
from sparta.data.formats.rows import check_columns

ROWS = [
    {"url": "a", "body": "the moon", "headline": "Moon"},
    {"url": "b", "body": "a sun", "headline": "Sun"},
]
TYPED = Fields("url", ("body",), "headline")


def delimited(path: Path, rows: list[dict[str, str]], delimiter: str) -> Path:
    lines = [delimiter.join(row) for row in ([*rows[0]], *(row.values() for row in rows))]
    path.write_text("\n".join(lines) + "\n")
    return path


def frame(rows: list[dict[str, str]]) -> Any:
    return pytest.importorskip("pandas").DataFrame(rows)


TABLES: dict[str, Callable[[Path, list[dict[str, str]]], Any]] = {
    "CSV": lambda folder, rows: delimited(folder / "c.csv", rows, ","),
    "TSV": lambda folder, rows: delimited(folder / "c.tsv", rows, "\t"),
    "pandas": lambda _, rows: frame(rows),
}


@pytest.mark.parametrize("form", TABLES)
def test_a_table_has_every_column_that_the_user_names(tmp_path: Path, form: str) -> None:
    table = TABLES[form](tmp_path, ROWS)
    assert [passage.title for passage in open_corpus(table, fields=TYPED)] == ["Moon", "Sun"]
    for fields, option in (
        (Fields("url", ("body",), "headlin"), "title_field"),
        (Fields("url", ("body", "teaser"), "headline"), "text_field"),
        (Fields("link", ("body",), "headline"), "id_field"),
    ):
        with pytest.raises(InputError, match=r"expected the column '(headlin|teaser|link)'") as caught:
            next(iter(open_corpus(table, fields=fields)))
        assert [each.name for each in caught.value.remedy.options] == [option]
    inherited = Fields().or_those_of({"id_field": "url", "text_field": ["body"], "title_field": "headlin"})
    assert [passage.title for passage in open_corpus(table, fields=inherited)] == ["", ""]


def test_a_missing_text_is_null_in_a_table_of_pandas() -> None:
    rows = [{"id": "1", "body": "a", "text": "one", "day": "x"}, {"id": "2", "title": "Moon", "text": None}]
    for fields in (Fields(), Fields(text=("text",))):
        first, second = open_corpus(frame(rows), fields=fields)
        assert (first.text, second.text) == ("one", "Moon")
        assert second.record.keys() <= {"id", "title", "text"}
    empty = [{"id": "1", "text": "one"}, {"id": "2", "text": None}]
    assert [passage.passage_id for passage in open_corpus(frame(empty), skip_invalid=True)] == ["1"]


def test_parquet_has_every_column_that_the_user_names() -> None:
    with pytest.raises(InputError, match="expected the column 'headlin', found 'id, text'"):
        check_columns("c.parquet", ["id", "text"], Fields(title="headlin"))


def test_a_query_has_every_column_that_the_user_names(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "c.db")) as connection:
        connection.execute("create table pages (id text)")
    reader = open_corpus(
        tmp_path / "c.db", fields=Fields(title="headlin"), query="select 1 as id, 'a' as text"
    )
    with pytest.raises(InputError, match="expected the column 'headlin', found 'id, text'"):
        list(reader)


def test_a_field_that_no_record_has_is_named_before_any_passage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    for corpus in (tmp_path / "c.jsonl", ROWS):
        reader = open_corpus(corpus, fields=Fields("url", ("body", "teaser"), "headlin"))
        caplog.clear()
        next(iter(reader))
        assert [record.args[2] for record in caplog.records] == ["headlin", "teaser"]  # type: ignore[index]
        list(reader)
        assert len(caplog.records) == 2
    caplog.clear()
    list(open_corpus(ROWS, fields=TYPED))
    assert not caplog.records


@pytest.mark.parametrize("name", ["a.md", "a.txt", "."])
def test_texts_have_no_fields_to_name(tmp_path: Path, name: str) -> None:
    for text in ("a.md", "a.txt"):
        (tmp_path / text).write_text("The moon.\n")
    with pytest.raises(InputError, match="has no fields that an option could name") as caught:
        open_corpus(tmp_path / name, fields=Fields(id="url", title="headline"))
    assert str(caught.value.remedy) == "omit id_field and title_field"
    for fields in (Fields(), Fields("url")):  # a printed command repeats the names of the index
        assert list(open_corpus(tmp_path / name, fields=fields.or_those_of({"id_field": "url"})))


@pytest.mark.parametrize(
    "record",
    [
        {"page_title": "Moon", "header": ["a"], "cells": ["b"]},
        {"wikipedia_id": "1", "wikipedia_title": "Moon", "text": ["Moon\n", "The moon is round.\n"]},
    ],
)
def test_rows_and_pages_have_fixed_fields(record: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="fixed fields") as caught:
        list(open_corpus([record], fields=Fields(title="headline")))
    assert "omit title_field" in str(caught.value.remedy)
    inherited = Fields().or_those_of({"title_field": "headline"})
    assert [passage.title for passage in open_corpus([record], fields=inherited)] == ["Moon"]


@pytest.mark.parametrize("form", TABLES)
@pytest.mark.parametrize(
    ("columns", "options"),
    [
        (("docid", "text", "title"), {"id_field": "docid"}),
        (("ID", "text", "Title"), {"id_field": "ID", "title_field": "Title"}),
        (("id", "text", "TITLE"), {"title_field": "TITLE"}),
    ],
)
def test_another_spelling_of_a_usual_name_is_told(
    tmp_path: Path,
    form: str,
    columns: tuple[str, ...],
    options: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = TABLES[form](tmp_path, [dict(zip(columns, ("a", "the moon", "Moon"), strict=True))])
    reader = open_corpus(table)
    for _ in range(2):  # the second time, it is known
        (passage,) = reader
    assert passage.text == "the moon"
    assert [message.partition("add ")[2].replace("'", "") for message in caplog.messages] == [
        f"{option}={name}" for option, name in options.items()
    ]
    caplog.clear()
    fields = Fields.of(options.get("id_field"), None, options.get("title_field"))
    (passage,) = open_corpus(table, fields=fields)
    assert (passage.passage_id, passage.title) == ("a", "Moon")
    assert not caplog.messages


def test_a_header_may_have_blanks_around_its_names(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("text, id , title\nthe moon,a,Moon\n")
    (passage,) = open_corpus(tmp_path / "c.csv")
    assert (passage.passage_id, passage.title) == ("a", "Moon")


def test_ids_that_are_hashes_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    reader = open_corpus([{"id": "0" * 20, "text": "a"}, {"text": "b"}, {"text": "c"}])
    list(reader)
    assert reader.counts.as_dict()["hashed"] == 2
    assert not caplog.records
    list(open_corpus([{"docid": "a", "text": "b"}, {"docid": "b", "text": "c"}]))
    assert ["if docid holds it" in each for each in caplog.messages] == [True]


@pytest.mark.parametrize("drop", [True, False])
def test_a_named_index_of_pandas_is_a_column(drop: bool) -> None:
    rows = [{"id": "a", "text": "the moon"}, {"id": "b", "text": "the sun"}]
    table = frame(rows).set_index("id", drop=drop)
    assert [passage.record for passage in open_corpus(table)] == rows
    two_levels = frame(rows).assign(year=1990).set_index(["id", "year"])
    assert [passage.record["year"] for passage in open_corpus(two_levels)] == [1990, 1990]


def test_two_columns_of_pandas_with_one_name_are_refused() -> None:
    table = frame([{"id": "a", "text": "the moon", "other": "the sun"}])
    table.columns = ["id", "text", "text"]
    with pytest.raises(InputError, match="expected different column names, found 'id, text, text'"):
        list(open_corpus(table))


def test_a_usual_field_keeps_its_role_if_no_other_field_has_it() -> None:
    record = {"id": "a", "title": "Moon", "text": "the moon"}
    read = [next(iter(open_corpus([record], fields=each))) for each in (Fields("title"), Fields(title="id"))]
    assert [(passage.passage_id, passage.title) for passage in read] == [("Moon", "Moon"), ("a", "a")]
    (passage,) = open_corpus([record], fields=Fields(text=("title", "text")))
    assert (passage.passage_id, passage.title, passage.text) == ("a", "", "Moon\n\nthe moon")


def test_a_comma_in_a_quoted_name_is_no_delimiter(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text('"id";"text";"title, long"\n1;the moon;Moon\n')
    assert [(p.passage_id, p.text, p.record["title, long"]) for p in open_corpus(path)] == [
        ("1", "the moon", "Moon")
    ]


def test_a_table_header_has_no_zero_bytes(tmp_path: Path) -> None:
    path = tmp_path / "c.tsv"
    path.write_bytes(b"id\0\0\ttext\n1\tthe moon\n")
    with pytest.raises(InputError, match="found zero bytes"):
        list(open_corpus(path, skip_invalid=True))
