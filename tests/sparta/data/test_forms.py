"""The same fifty passages in every form: the same ids, texts, titles and metadata, and the same hits."""

from __future__ import annotations

import csv
import datetime
import gzip
import html
import json
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from sparta import Index, IndexOptions
from sparta.base.disk.streams import Tally
from sparta.base.errors import InputError
from sparta.data.corpus import open_corpus
from sparta.data.formats.fields import Fields
from sparta.data.readers.corpus_reader import CorpusReader
from tests.documents import pdf

WORDS = ["moon", "river", "town", "mill", "wind", "wheel", "stone", "bread", "water", "light"]
RECORDS = [
    {
        "id": f"p{number:02d}",  # files in a folder are read in this order, which decides ties
        "title": f"{WORDS[number % 10].title()} {number}",
        "text": f'The {WORDS[number % 10]} of "{WORDS[number * 7 % 10]}",\nand\tthe {WORDS[number * 3 % 9]}.',
        "kind": WORDS[number % 4],
        "day": f"2020-01-{number % 28 + 1:02d}",
    }
    for number in range(50)
]
NAMES = {"id": "url", "title": "headline", "text": "body"}
QUERIES = [f"the {first} {second}" for first in WORDS[:5] for second in WORDS[5:9]]


def jsonl(path: Path, records: Iterable[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def table(path: Path, delimiter: str) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(RECORDS[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(RECORDS)
    return path


def zipped(path: Path) -> Path:
    packed = path.with_name(f"{path.name}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    return packed


def json_list(path: Path) -> Path:
    path.write_text(json.dumps(RECORDS, indent=2))
    return path


def database(path: Path) -> Path:
    with sqlite3.connect(path) as connection:
        connection.execute("create table pages (id text, title text, text text, kind text, day text)")
        connection.executemany("insert into pages values (:id, :title, :text, :kind, :day)", RECORDS)
    connection.close()
    return path


def markdown(folder: Path) -> Path:
    folder.mkdir()
    for record in RECORDS:
        front = "".join(f"{name}: {record[name]}\n" for name in ("title", "kind", "day"))
        (folder / f"{record['id']}.md").write_text(f"---\n{front}---\n{record['text']}\n")
    return folder


def renamed() -> list[dict[str, Any]]:
    return [{NAMES.get(name, name): value for name, value in record.items()} for record in RECORDS]


def dated() -> list[dict[str, Any]]:
    return [{**record, "day": datetime.date.fromisoformat(record["day"])} for record in RECORDS]


def columnar(path: Path) -> Path:
    """Write a Parquet or Arrow file, in two batches."""
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra tables")
    table = pyarrow.table({name: [record[name] for record in dated()] for name in RECORDS[0]})
    if path.suffix == ".parquet":
        pytest.importorskip("pyarrow.parquet").write_table(table, path, row_group_size=30)
        return path
    new_writer = pyarrow.ipc.new_stream if path.stem == "stream" else pyarrow.ipc.new_file
    with new_writer(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=30)
    return path


def parquet_folder(folder: Path) -> Path:
    pytest.importorskip("pyarrow", reason="needs the extra tables")
    from pyarrow import parquet

    whole = parquet.read_table(columnar(folder / "whole.parquet"))
    (folder / "parts").mkdir()
    for number, start in enumerate(range(0, len(RECORDS), 20)):
        parquet.write_table(whole.slice(start, 20), folder / "parts" / f"part-{number}.parquet")
    return folder / "parts"


class Document(NamedTuple):
    doc_id: str
    title: str
    text: str
    kind: str
    day: str


def irds(folder: Path) -> str:
    """Register a dataset of ir_datasets with a local file, and return its source."""
    ir_datasets = pytest.importorskip("ir_datasets", reason="needs the extra irds")
    renamed_ids = ({"doc_id": record["id"], **record} for record in RECORDS)
    local = ir_datasets.util.LocalDownload(jsonl(folder / "c.jsonl", renamed_ids))
    documents = ir_datasets.formats.JsonlDocs(local, doc_cls=Document, lang="en")
    name = f"test-forms-{folder.name}"
    ir_datasets.registry.register(name, ir_datasets.Dataset(documents))
    return f"irds:{name}"


class Frame:
    """What pandas, polars and pyarrow have in common with their tables, by kind."""

    def __init__(self, kind: str) -> None:
        if kind == "polars":
            self.columns = list(RECORDS[0])
            self.iter_rows = lambda named: iter(dated()) if named else None
        elif kind == "pyarrow":
            self.schema = SimpleNamespace(names=list(RECORDS[0]))
            halves = RECORDS[:25], RECORDS[25:]
            self.to_batches = lambda: [SimpleNamespace(to_pylist=lambda half=half: half) for half in halves]
        else:
            self.columns = [*RECORDS[0], "missing"]
            self.itertuples = lambda index, name: (
                (*record.values(), float("nan")) for record in dated() if not index and name is None
            )


def sqlite_rows(folder: Path) -> Iterator[sqlite3.Row]:
    connection = sqlite3.connect(database(folder / "rows.db"))
    connection.row_factory = sqlite3.Row
    rows = connection.execute("select * from pages").fetchall()
    connection.close()
    return iter(rows)


class Split(list[dict[str, Any]]):
    features = "those of a Hugging Face data set"


def langchain() -> list[Any]:
    return [
        SimpleNamespace(
            id=record["id"],
            page_content=record["text"],
            metadata={name: record[name] for name in ("title", "kind", "day")},
        )
        for record in RECORDS
    ]


def llamaindex() -> list[Any]:
    return [
        SimpleNamespace(
            node_id=record["id"],
            get_content=lambda record=record: record["text"],
            metadata={name: record[name] for name in ("title", "kind", "day")},
        )
        for record in RECORDS
    ]


FIELDS = Fields("url", ("body",), "headline")
FORMS: dict[str, Callable[[Path], CorpusReader]] = {
    "JSONL": lambda folder: open_corpus(jsonl(folder / "c.jsonl", RECORDS)),
    "JSONL, zipped": lambda folder: open_corpus(zipped(jsonl(folder / "c.jsonl", RECORDS))),
    "JSON list": lambda folder: open_corpus(json_list(folder / "c.json")),
    "JSON list, zipped": lambda folder: open_corpus(zipped(json_list(folder / "c.json"))),
    "JSON list named .jsonl": lambda folder: open_corpus(json_list(folder / "c.jsonl")),
    "TSV": lambda folder: open_corpus(table(folder / "c.tsv", "\t")),
    "CSV": lambda folder: open_corpus(table(folder / "c.csv", ",")),
    "CSV with semicolons": lambda folder: open_corpus(table(folder / "c.csv", ";")),
    "CSV, zipped": lambda folder: open_corpus(zipped(table(folder / "c.csv", ","))),
    "folder of CSV": lambda folder: open_corpus(table(folder / "c.csv", ",").parent),
    "SQLite": lambda folder: open_corpus(
        database(folder / "c.db"), query="select * from pages order by rowid"
    ),
    "Parquet": lambda folder: open_corpus(columnar(folder / "c.parquet")),
    "Arrow": lambda folder: open_corpus(columnar(folder / "c.arrow")),
    "Arrow stream": lambda folder: open_corpus(columnar(folder / "stream.arrow")),
    "Feather": lambda folder: open_corpus(columnar(folder / "c.feather")),
    "folder of Parquet": lambda folder: open_corpus(parquet_folder(folder)),
    "ir_datasets": lambda folder: open_corpus(irds(folder)),
    "Markdown": lambda folder: open_corpus(markdown(folder / "texts")),
    "other names": lambda folder: open_corpus(jsonl(folder / "c.jsonl", renamed()), fields=FIELDS),
    "dictionaries": lambda _: open_corpus(RECORDS),
    "dictionaries, other names": lambda _: open_corpus(renamed(), fields=FIELDS),
    "generator": lambda _: open_corpus(record for record in RECORDS),
    "dates": lambda _: open_corpus(dated()),
    "pandas": lambda _: open_corpus(Frame("pandas")),  # type: ignore[arg-type]
    "polars": lambda _: open_corpus(Frame("polars")),  # type: ignore[arg-type]
    "pyarrow": lambda _: open_corpus(Frame("pyarrow")),  # type: ignore[arg-type]
    "DatasetDict": lambda _: open_corpus({"train": Split(RECORDS[:30]), "test": Split(RECORDS[30:])}),
    "sqlite3.Row": lambda folder: open_corpus(sqlite_rows(folder)),  # type: ignore[arg-type]
    "LangChain": lambda _: open_corpus(langchain()),
    "LlamaIndex": lambda _: open_corpus(llamaindex()),
}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_passages(tmp_path: Path, form: str) -> None:
    passages = list(FORMS[form](tmp_path))
    expected = {record["id"]: record for record in RECORDS}
    assert len(passages) == len(expected)
    for passage in passages:
        record = expected[passage.passage_id.removesuffix(".md")]
        assert (passage.text, passage.title) == (record["text"], record["title"])
        metadata = {name: passage.record[name] for name in passage.record.keys() - {"id", "text", "title"}}
        assert metadata == {"kind": record["kind"], "day": record["day"]}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    folder = tmp_path_factory.mktemp("expected")
    with Index.create(folder / "index", RECORDS, options=IndexOptions(channels="bm25")) as index:
        yield index


def ranked(index: Index, k: int) -> list[list[tuple[str, float]]]:
    """Return ids, without the suffix of a file, and scores of the best hits of all queries."""
    return [[(hit[0].partition(".")[0], hit[1]) for hit in hits] for hits in index.run(QUERIES, k=k).values()]


@pytest.mark.slow
@pytest.mark.jvm
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_hits(tmp_path: Path, expected: Index, form: str) -> None:
    options = IndexOptions(channels="bm25")
    with Index.create(tmp_path / "index", FORMS[form](tmp_path), options=options) as index:
        assert ranked(index, 10) == ranked(expected, 10)
        assert len(index.search("moon", filter={"kind": "moon"})) == len(
            expected.search("moon", filter={"kind": "moon"})
        )


def html_page(record: dict[str, str]) -> bytes:
    menu = "<nav><a href=/>the moon</a></nav>"
    body = f"{menu}<main><p>{html.escape(record['text'])}</main><footer>the river</footer>"
    return f"<!doctype html><title>{record['title']}</title><body>{body}".encode()


DOCUMENTS: dict[str, tuple[str, Callable[[dict[str, str]], bytes]]] = {
    "html": ("resiliparse", html_page),
    "htm": ("resiliparse", html_page),
    "pdf": ("pypdfium2", lambda record: pdf([record["text"].replace("\t", " ")], record["title"])),
}


@pytest.mark.slow
@pytest.mark.jvm
@pytest.mark.parametrize("form", DOCUMENTS)
def test_documents_give_the_same_first_hits(tmp_path: Path, expected: Index, form: str) -> None:
    package, written = DOCUMENTS[form]
    pytest.importorskip(package, reason="needs the extra documents")
    for record in RECORDS:
        (tmp_path / f"{record['id']}.{form}").write_bytes(written(record))
    passages = list(open_corpus(tmp_path))
    records = {record["id"]: record for record in RECORDS}
    assert {passage.passage_id for passage in passages} == {f"{name}.{form}" for name in records}
    for passage in passages:
        record = records[passage.passage_id.partition(".")[0]]
        assert passage.title == record["title"]
        assert passage.text.split() == record["text"].split()
    with Index.create(tmp_path / "index", passages, options=IndexOptions(channels="bm25")) as index:
        assert ranked(index, 5) == ranked(expected, 5)


def test_texts_of_several_fields_are_joined() -> None:
    records = [{"id": 1, "a": "one", "b": None, "c": "three"}, {"id": 2, "b": "two"}]
    passages = list(open_corpus(records, fields=Fields(text=("a", "b", "c"))))
    assert [passage.text for passage in passages] == ["one\n\nthree", "two"]
    with pytest.raises(InputError, match='missing text: expected the field "a" or "b", found \'id, c\''):
        list(open_corpus([{"id": 1, "c": "three"}], fields=Fields(text=("a", "b"))))


def test_without_an_id_the_content_is_the_id(tmp_path: Path) -> None:
    texts = [{"text": "one"}, {"text": "two"}, {"text": "two", "title": "other"}]
    ids = [passage.passage_id for passage in open_corpus(texts)]
    assert len(set(ids)) == 3
    assert ids[::-1] == [
        passage.passage_id for passage in open_corpus(jsonl(tmp_path / "c.jsonl", texts[::-1]))
    ]
    with pytest.raises(InputError, match="duplicate id"):
        list(open_corpus([{"text": "one"}, {"text": "one"}]))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (None, "no query is named"),
        ("select * from absent", "no such table"),
        ("delete from pages", "readonly"),
        ("select id from pages", 'missing text: expected the field "text"'),
        ("select 1; select 2", "one statement"),
        ("attach database 'other.db' as other", "attached"),
    ],
)
def test_a_wrong_query_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str | None, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = database(tmp_path / "c.db")
    with pytest.raises(InputError, match=words):
        list(open_corpus(path, query=query))
    with sqlite3.connect(path) as connection:
        assert connection.execute("select count(*) from pages").fetchone() == (50,)
    connection.close()
    assert [each.name for each in tmp_path.iterdir()] == ["c.db"]


def test_ctrl_c_ends_a_long_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = "with recursive n(i) as (select 1 union all select i + 1 from n limit 100000000)"
    reader = open_corpus(database(tmp_path / "c.db"), query=f"{count} select i as id from n where i < 0")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            list(reader)
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)


def test_nested_dates_and_arrays_of_real_tables() -> None:
    numpy, pandas = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "id": ["a", "b"],
            "text": ["one", "two"],
            "count": [1, None],
            "day": [pandas.Timestamp("2020-01-02"), pandas.NaT],
            "days": [[datetime.date(2020, 1, 2)], []],
            "numbers": [numpy.array([1, 2]), numpy.array([], dtype=int)],
            "times": [numpy.array(["2020-01-02"], dtype="datetime64[ns]"), numpy.array([], dtype="M8[ns]")],
        }
    )
    assert [passage.record for passage in open_corpus(frame)] == [
        {
            "id": "a",
            "text": "one",
            "count": 1.0,
            "day": "2020-01-02T00:00:00",
            "days": ["2020-01-02"],
            "numbers": [1, 2],
            "times": ["2020-01-02T00:00:00"],
        },
        {"id": "b", "text": "two", "days": [], "numbers": [], "times": []},
    ]


@pytest.mark.parametrize("package", ["pandas", "polars", "polars, lazy", "pyarrow", "datasets"])
def test_tables_of_the_real_packages(package: str) -> None:
    module = pytest.importorskip(package.partition(",")[0])
    columns = {name: [record[name] for record in RECORDS] for name in RECORDS[0]}
    if package == "pyarrow":
        table = module.table(columns)
    elif package == "datasets":
        table = module.DatasetDict(
            train=module.Dataset.from_list(RECORDS[:30]), test=module.Dataset.from_list(RECORDS[30:])
        )
    else:
        table = module.LazyFrame(columns) if "lazy" in package else module.DataFrame(columns)
    reader = open_corpus(table)
    assert [passage.record for passage in reader] == RECORDS
    assert reader.size == (None if "lazy" in package else 50, False)


def test_the_write_ahead_log_belongs_to_a_database(tmp_path: Path) -> None:
    path, query = database(tmp_path / "c.db"), "select * from pages order by rowid"
    connection = sqlite3.connect(path)
    connection.execute("pragma journal_mode = wal")
    before = open_corpus(path, query=query).identity()
    connection.execute("update pages set text = 'new' where id = 'p00'")
    connection.commit()
    reader = open_corpus(path, query=query)
    identity = reader.identity()
    assert identity["sha256"] != before["sha256"]
    assert next(iter(reader)).text == "new"
    list(reader)
    assert reader.fingerprint()["sha256"] == reader.identity()["sha256"] == identity["sha256"]
    connection.close()


def test_a_file_that_a_library_reads_is_hashed_once(tmp_path: Path, calls: Any) -> None:
    hashed = calls(Tally.add_file)
    reader = open_corpus(database(tmp_path / "c.db"), query="select * from pages order by rowid")
    identity = reader.identity()
    assert len(hashed) == 1
    assert len(list(reader)) == 50
    assert len(hashed) == 1
    assert reader.fingerprint()["sha256"] == identity["sha256"]


def test_a_list_that_is_nested_too_deeply_is_an_error(tmp_path: Path) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    (tmp_path / "c.json").write_text(f'[{{"id": 1, "text": "a"}}, {{"id": 2, "text": "b", "deep": {deep}}}]')
    with pytest.raises(InputError, match="JSON nested too deeply after 1 complete elements") as caught:
        list(open_corpus(tmp_path / "c.json"))
    assert "at most 500 levels" in caught.value.message


@pytest.mark.slow
def test_documents_of_the_real_packages() -> None:
    langchain = pytest.importorskip("langchain_core.documents")
    llamaindex = pytest.importorskip("llama_index.core.schema")
    metadata = {"title": "Moon", "day": datetime.date(2020, 1, 2)}
    documents = [
        langchain.Document(id="a", page_content="one", metadata=metadata),
        llamaindex.TextNode(id_="b", text="two", metadata=metadata),
    ]
    assert [passage.record for passage in open_corpus(documents)] == [
        {"id": passage_id, "text": text, "title": "Moon", "day": "2020-01-02"}
        for passage_id, text in (("a", "one"), ("b", "two"))
    ]


def test_a_query_needs_a_database(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs an SQLite database"):
        open_corpus(jsonl(tmp_path / "c.jsonl", RECORDS), query="select 1")


def test_a_damaged_database_is_an_error(tmp_path: Path) -> None:
    path = database(tmp_path / "c.db")
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(InputError, match="SQLite refuses the query"):
        list(open_corpus(path, query="select * from pages"))


@pytest.mark.parametrize("delimiter", ["\t", ","])
def test_a_missing_quote_makes_one_row_bad(tmp_path: Path, delimiter: str) -> None:
    rows = ["id,text", '1,"open', "2,fine", '3,"also fine"', '4,"open again', '5,"two\n\nlines"', '6,""']
    path = tmp_path / ("c.csv" if delimiter == "," else "c.tsv")
    path.write_text("\n".join(rows).replace(",", delimiter) + "\n")
    reader = open_corpus(path, skip_invalid=True)
    assert [(passage.passage_id, passage.text) for passage in reader] == [
        ("2", "fine"),
        ("3", "also fine"),
        ("5", "two\n\nlines"),
    ]
    assert [skip.where.rpartition(":")[2] for skip in reader.counts.first_skips] == ["2", "5", "9"]


@pytest.mark.slow
def test_many_missing_quotes_take_linear_time(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text("id,text\n" + "".join(f'{number},"open {number}\n' for number in range(20_000)))
    reader = open_corpus(path, skip_invalid=True)
    assert list(reader) == []
    assert reader.counts.reasons == {"column with broken quotes": 20_000}


@pytest.mark.parametrize(("name", "title"), [("one.md", "Moon"), ("one.txt", "one")])
@pytest.mark.parametrize("begin", ["", "[1] The sun.\n", "{The sun}\n", "The\tsun\n"])
def test_a_single_text_file_is_a_passage(tmp_path: Path, name: str, title: str, begin: str) -> None:
    (tmp_path / name).write_text(f"{begin}# Moon\n\nThe moon is round.\n")
    (passage,) = open_corpus(tmp_path / name)
    assert (passage.passage_id, passage.title) == (name, title)


def test_a_text_file_may_hold_records(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "c.txt").write_text('{"id": 1, "text": "a"}\n{"id": 2, "text": "b"}\n')
    assert [passage.passage_id for passage in open_corpus(tmp_path / "c.txt")] == ["1", "2"]
    assert not caplog.messages
    (tmp_path / "c.txt").write_text("1\ta\n2\tb\n")
    assert [passage.text for passage in open_corpus(tmp_path / "c.txt")] == ["1\ta\n2\tb"]
    assert "rename the file to .tsv" in caplog.text


@pytest.mark.parametrize(
    "content", ["[", '[{"id": 1, "text": "a"}', '[{"id": 1, "text": "a"}] x', "[]", "[NaN]"]
)
def test_a_broken_list_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "c.json").write_text(content)
    with pytest.raises(InputError):
        list(open_corpus(tmp_path / "c.json"))
