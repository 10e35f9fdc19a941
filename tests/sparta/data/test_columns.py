"""Parquet and Arrow files: nested values, wrong columns, and damaged files."""

from __future__ import annotations

import datetime
import decimal
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from sparta.base.errors import InputError, MissingPackageError
from sparta.data.corpus import open_corpus
from sparta.data.formats import limited
from sparta.data.formats.fields import Fields

pyarrow = pytest.importorskip("pyarrow", reason="needs the extra tables")
parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra tables")

DAY = datetime.date(2020, 1, 2)
NESTED: dict[str, list[Any]] = {
    "id": ["a", "b"],
    "text": ["one", "two"],
    "day": [DAY, None],
    "moment": [datetime.datetime(2020, 1, 2, 3, 4, tzinfo=datetime.UTC), None],
    "price": [decimal.Decimal("1.50"), decimal.Decimal("2.00")],
    "author": [{"name": "Ada", "born": DAY}, None],
    "tags": [["x", "y"], []],
}


def write(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    table = pyarrow.table(columns)
    if path.suffix == ".parquet":
        parquet.write_table(table, path, **options)
    else:
        with pyarrow.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    return path


@pytest.mark.parametrize("name", ["c.parquet", "c.arrow"])
def test_values_are_read_as_those_of_a_table_in_memory(tmp_path: Path, name: str) -> None:
    reader = open_corpus(write(tmp_path / name, NESTED))
    records = [passage.record for passage in reader]
    assert records == [passage.record for passage in open_corpus(pyarrow.table(NESTED))]
    assert records[0] == {
        "id": "a",
        "text": "one",
        "day": "2020-01-02",
        "moment": "2020-01-02T03:04:00+00:00",
        "price": 1.5,
        "author": {"name": "Ada", "born": "2020-01-02"},
        "tags": ["x", "y"],
    }
    assert reader.fingerprint() == {**reader.identity(), "source": str(tmp_path / name)}
    assert reader.position <= reader.size[0] == (tmp_path / name).stat().st_size


def test_a_bad_row_is_one_bad_record(tmp_path: Path) -> None:
    columns = {"id": ["a", "b", "c"], "text": ["one", None, "three"], "n": [1.0, 2.0, float("nan")]}
    reader = open_corpus(write(tmp_path / "c.parquet", columns), skip_invalid=True)
    assert [passage.passage_id for passage in reader] == ["a"]
    reasons = [(skip.where, skip.reason) for skip in reader.counts.first_skips]
    assert [where.rpartition(":")[2] for where, _ in reasons] == [" row 2", " row 3"]
    assert "expected a finite number, found NaN" in reasons[1][1]
    binary = write(tmp_path / "b.parquet", {"id": ["a"], "text": ["one"], "data": [b"\xff"]})
    with pytest.raises(InputError, match=r"b.parquet: row 1: value not JSON-serializable: .*bytes"):
        list(open_corpus(binary))


FAR_MS = 253402300799000  # the last second of the year 9999


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pyarrow.timestamp("ms", "Europe/Berlin"), FAR_MS, "9999-12-31T23:59:59.000Z"),
        (pyarrow.timestamp("ms", "Mars/Base"), 60_000, "1970-01-01T00:01:00.000Z"),
        (pyarrow.timestamp("ms"), FAR_MS + 1000, "10000-01-01T00:00:00.000"),
        (pyarrow.date32(), 3_000_000, "10183-09-21"),
        (pyarrow.timestamp("ns"), 1_700_000_000_123_456_789, "2023-11-14T22:13:20.123456789"),
    ],
)
def test_a_time_that_python_cannot_hold_is_an_iso_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, value: int, text: str
) -> None:
    (tmp_path / "pandas.py").write_text("raise ImportError")  # pandas is no part of the extra tables
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    columns = {"id": ["a", "b"], "text": ["one", "two"], "time": pyarrow.array([None, value], kind)}
    records = [passage.record for passage in open_corpus(write(tmp_path / "c.parquet", columns))]
    assert [record["time"] for record in records] == [None, text]


@pytest.mark.parametrize(
    ("kind", "name", "values"),
    [
        (pyarrow.list_(pyarrow.timestamp("ms")), "list<", [[0], [FAR_MS + 1000], None]),
        (pyarrow.timestamp("us"), "timestamp[us]", [0, 2**62, None]),  # pyarrow cannot print it, either
    ],
)
def test_a_row_that_python_cannot_read_is_one_bad_record(
    tmp_path: Path, kind: Any, name: str, values: list[Any]
) -> None:
    times = pyarrow.array(values, kind)
    path = write(tmp_path / "c.parquet", {"id": ["a", "b", "c"], "text": ["one", "two", "three"], "t": times})
    reader = open_corpus(path, skip_invalid=True)
    assert [passage.passage_id for passage in reader] == ["a", "c"]
    (skip,) = reader.counts.first_skips
    assert skip.where == f"{path}: row 2"
    assert f"Python cannot read the {name}" in skip.reason
    assert "column 't'" in skip.reason


def test_other_names_of_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "c.parquet", {"url": ["u"], "body": ["one"], "headline": ["H"]})
    (passage,) = open_corpus(path, fields=Fields("url", ("body",), "headline"))
    assert (passage.passage_id, passage.text, passage.title) == ("u", "one", "H")
    with pytest.raises(InputError, match=r"wrong columns: .*found 'url, body, headline'") as caught:
        list(open_corpus(path, skip_invalid=True))
    assert "text_field" in str(caught.value.remedy)


def test_a_damaged_file_is_an_error_after_its_good_rows(tmp_path: Path) -> None:
    rows = {"id": [str(i) for i in range(4000)], "text": [f"text {i * 7919 % 4001}" for i in range(4000)]}
    path = write(tmp_path / "c.parquet", rows, row_group_size=1000, use_dictionary=False, compression="none")
    content = bytearray(path.read_bytes())
    start = parquet.ParquetFile(path).metadata.row_group(2).column(1).data_page_offset
    content[start : start + 40] = b"\xff" * 40
    path.write_bytes(content)
    passage_ids: list[str] = []
    with pytest.raises(InputError, match="the table cannot be read"):
        passage_ids.extend(passage.passage_id for passage in open_corpus(path))
    assert passage_ids == rows["id"][:2000]


@pytest.mark.parametrize("name", ["c.parquet", "c.arrow", "c.feather"])
@pytest.mark.parametrize("content", [b"", b"PAR1", b"ARROW1\0\0", b"FEA1\0\0\0\0", b"no table" * 9])
def test_a_file_that_is_no_table_is_an_error(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match="the table cannot be read"):
        list(open_corpus(tmp_path / name, skip_invalid=True))


def test_a_table_without_rows_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="empty file"):
        list(open_corpus(write(tmp_path / "c.parquet", {"id": pyarrow.array([], "string"), "text": []})))


def test_a_compressed_table_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "c.parquet.gz").write_bytes(b"\x1f\x8b")
    with pytest.raises(InputError, match="compressed Parquet"):
        list(open_corpus(tmp_path / "c.parquet.gz"))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits memory")
def test_a_table_that_needs_too_much_memory_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dictionary of one long text stands for a thousand copies: 2 GB of text in a small file."""
    monkeypatch.setattr(limited, "MEMORY_BYTES", 600 << 20)
    column = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 1000), ["x" * 2_000_000])
    path = write(tmp_path / "c.parquet", {"id": [str(i) for i in range(1000)], "text": column})
    assert path.stat().st_size < 1_000_000
    with pytest.raises(InputError, match=r"the table cannot be read: .*more than"):
        list(open_corpus(path))


def test_a_row_has_a_maximum_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARTA_MAX_LINE_MB", "0.001")
    path = write(tmp_path / "c.parquet", {"id": ["a", "b"], "text": ["word " * 300, "fine"]})
    reader = open_corpus(path, skip_invalid=True)
    assert [passage.passage_id for passage in reader] == ["b"]
    assert reader.counts.reasons == {"record too long": 1}


def test_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "c.parquet", NESTED)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingPackageError, match="pyarrow is not installed") as caught:
        open_corpus(path, skip_invalid=True)
    assert "[tables]" in str(caught.value.remedy)


def test_null_columns_are_none(tmp_path: Path) -> None:
    """Every row of a table has all columns; a row may have no context, or a title in place of a text."""
    rows = [
        {"id": "1", "text": "b", "context": "a b", "start": 2, "end": 3},
        {"id": "2", "text": "c", "context": None, "start": None, "end": None},
        {"id": "3", "title": "t", "text": None, "context": None, "start": None, "end": None},
    ]
    read = [(p.text, p.context, p.start, p.end) for p in open_corpus(rows)]
    assert read == [("b", "a b", 2, 3), ("c", "", 0, 0), ("t", "", 0, 0)]
    assert [set(p.record) & {"context", "start", "end"} for p in open_corpus(rows)][1:] == [set(), set()]
    (tmp_path / "t.csv").write_text("id,text,context,start,end\n1,b,a b,2,3\n2,c,,,\n")
    from_csv = list(open_corpus(tmp_path / "t.csv"))
    assert [(p.text, p.context, p.start, p.end) for p in from_csv] == read[:2]
    assert [dict(p.record) for p in from_csv] == [rows[0], {"id": "2", "text": "c"}]
