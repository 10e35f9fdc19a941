"""A corpus is read as a stream, strictly, and its counts add up."""

import csv
import gzip
import hashlib
import io
import json
import os
import random
import sqlite3
import subprocess
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparta.base.errors import InputError, StorageError
from sparta.base.records import Passage, Skip
from sparta.data.corpus import CorpusReader, SeenIds, source_fingerprint


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def jsonl(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def small(*ids: str) -> str:
    return jsonl(*({"id": i, "text": f"text of {i}"} for i in ids))


def ids_of(source: str | Path, **options: bool) -> list[str]:
    return [passage.passage_id for passage in CorpusReader(source, **options)]


# What is read


def test_a_jsonl_record_keeps_all_its_fields(tmp_path: Path) -> None:
    record = {"_id": "a", "title": "Ä", "text": " some text ", "url": "http://x", "n": [1, {"b": None}]}
    path = written(tmp_path / "c.jsonl", json.dumps(record))
    assert list(CorpusReader(path)) == [
        Passage("a", " some text ", "Ä", record=record, where=f"{path}:1"),
    ]


def test_names_of_fields(tmp_path: Path) -> None:
    path = written(
        tmp_path / "c.jsonl",
        jsonl(
            {"id": 7, "contents": "seven"},
            {"id": "a", "_id": "b", "text": "t", "contents": "c", "title": None},
            {"id": -(10**30), "text": "big", "title": ""},
        ),
    )
    found = [(p.passage_id, p.text, p.title, p.context) for p in CorpusReader(path)]
    assert found == [("7", "seven", "", ""), ("a", "t", "", ""), (str(-(10**30)), "big", "", "")]


def test_an_answer_in_its_context_is_counted_in_characters(tmp_path: Path) -> None:
    context = "Ärger. Zürich 🎉 is a city. End."
    start = context.index("Zürich")
    answer = {"id": 1, "text": "Zürich 🎉 is a city.", "context": context, "start": start, "end": start + 19}
    no_context = {"id": 2, "text": "a", "context": "", "start": 0, "end": 0}
    only_a_field = {"id": 3, "text": "a", "context": "about", "start": "yesterday"}
    first, second, third = CorpusReader(written(tmp_path / "c", jsonl(answer, no_context, only_a_field)))
    assert (first.context, first.start, first.end) == (context, 7, 26)
    assert first.context[first.start : first.end] == first.text
    assert (second.context, second.start, second.end) == ("", 0, 0)
    assert (third.context, third.start, third.end) == ("", 0, 0)


ROWS = [
    ("1", 'Aaron (or "Ahärôn") is a prophet.', "Aaron"),
    ("2", '"quoted" first and "last"', 'The "Title"'),
    ("3", "a\ttab inside", ""),
    ("4", "plain", "5 inch"),
    ("5", '"', '""'),
]


def dpr(rows: list[tuple[str, str, str]]) -> str:
    stream = io.StringIO()
    csv.writer(stream, delimiter="\t", lineterminator="\n").writerows([("id", "text", "title"), *rows])
    return stream.getvalue()


def test_dpr_tsv_reads_back_what_the_csv_module_wrote(tmp_path: Path) -> None:
    found = list(CorpusReader(written(tmp_path / "c.tsv", dpr(ROWS))))
    assert [(p.passage_id, p.text, p.title) for p in found] == ROWS
    assert found[0].record == {"id": "1", "text": ROWS[0][1], "title": "Aaron"}
    assert found[0].where == f"{tmp_path / 'c.tsv'}:2"


def test_tsv_quotes_agree_with_the_csv_module_on_random_rows(tmp_path: Path) -> None:
    rng = random.Random(3)
    rows = [
        (
            str(i),
            "x" + "".join(rng.choices('ab"\t ', k=rng.randint(0, 12))),
            "".join(rng.choices('a"\t', k=3)),
        )
        for i in range(300)
    ]
    assert [
        (p.passage_id, p.text, p.title) for p in CorpusReader(written(tmp_path / "c.tsv", dpr(rows)))
    ] == rows


def test_a_quote_inside_a_plain_column_is_a_character(tmp_path: Path) -> None:
    path = written(tmp_path / "c.tsv", 'id\ttext\n1\ta 5" disk "here"\n')
    assert [p.text for p in CorpusReader(path)] == ['a 5" disk "here"']


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path: Path) -> None:
    written(tmp_path / "b.tsv", "id\ttext\ttitle\nb\tx\ty\n")
    written(tmp_path / "a.jsonl.gz", gzip.compress(small("a").encode()))
    written(tmp_path / "c.tsv.gz", gzip.compress(b"id\ttext\nc\tx\n"))
    written(tmp_path / "d.jsonl", small("d"))
    written(tmp_path / ".hidden.jsonl", small("hidden"))
    written(tmp_path / "notes.txt", "not a corpus")
    (tmp_path / "deeper.jsonl").mkdir()
    written(tmp_path / "deeper.jsonl" / "e.jsonl", small("e"))
    assert ids_of(tmp_path) == ["a", "b", "c", "d"]


CONTENTS = [small("1", "2"), "id\ttext\ttitle\n1\tx\ty\n2\tx\ty\n", "\ufeff" + small("1", "2")]


@pytest.mark.parametrize("content", [*CONTENTS, "\n \n" + CONTENTS[0], CONTENTS[1].replace("\n", "\r\n")])
@pytest.mark.parametrize("zipped", [False, True])
def test_format_and_gzip_are_recognised_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, zipped: bool
) -> None:
    stored = gzip.compress(content.encode()) if zipped else content.encode()
    assert ids_of(written(tmp_path / "corpus", stored)) == ["1", "2"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stored)))
    reader = CorpusReader("-")
    assert [p.where for p in reader][-1].startswith("<stdin>:")
    assert reader.counts.read == 2


def test_a_byte_order_mark_before_a_tsv_header(tmp_path: Path) -> None:
    path = written(tmp_path / "c.tsv", "\ufeffid\ttext\n1\ta\n")
    assert next(iter(CorpusReader(path))).record == {"id": "1", "text": "a"}


def test_blank_lines_are_not_counted_and_lines_keep_their_numbers(tmp_path: Path) -> None:
    path = written(tmp_path / "c.jsonl", "\n" + small("a") + "  \n\r\n" + small("b") + "\n")
    reader = CorpusReader(path)
    assert [p.where for p in reader] == [f"{path}:2", f"{path}:5"]
    assert (reader.counts.read, reader.counts.used, reader.counts.skipped) == (2, 2, 0)


def test_a_text_of_100_000_words(tmp_path: Path) -> None:
    text = "word " * 100_000
    assert (
        next(iter(CorpusReader(written(tmp_path / "c.jsonl", jsonl({"id": 1, "text": text}))))).text == text
    )
    assert next(iter(CorpusReader(written(tmp_path / "c.tsv", f'id\ttext\n1\t"{text}"\n')))).text == text


# What is refused

RECORD_ERRORS = [
    ('{"id": 2, "text": "b"', "broken JSON", "expected one JSON object"),
    ('{"id": 2, "text": "b"} {}', "broken JSON", "Extra data"),
    ('{"id": 2, "text": "b", "x": NaN}', "broken JSON", "found NaN"),
    ('{"id": 2, "text": "b", "x": 1e999}', "broken JSON", "found 1e999"),
    ('{"id": 2, "text": "\\ud800"}', "broken JSON", "surrogate"),
    ("[" * 100_000, "broken JSON", "recursion"),
    ('{"id": ' + "1" * 5000 + "}", "broken JSON", "4300"),
    ('["a"]', "not an object", "found a list"),
    ("7", "not an object", "found a number"),
    ('{"text": "b", "title": "c"}', "missing id", 'expected the field "id" or "_id", found \'text, title\''),
    ('{"id": 2, "body": "b"}', "missing text", 'expected the field "text" or "contents"'),
    ("{}", "missing text", "found 'no field'"),
    ('{"id": 2, "text": 5}', "wrong type", "expected a string as text, found a number"),
    ('{"id": 2, "text": null}', "wrong type", "found null"),
    ('{"id": 2, "text": "b", "title": ["c"]}', "wrong type", "a string as title, found a list"),
    ('{"id": 2.5, "text": "b"}', "wrong type", "string or an integer as id, found a number"),
    ('{"id": true, "text": "b"}', "wrong type", "found a boolean"),
    ('{"id": null, "text": "b"}', "wrong type", "found null"),
    ('{"id": {}, "text": "b"}', "wrong type", "found an object"),
    ('{"id": "", "text": "b"}', "invalid id", "at least one character"),
    ('{"id": "a\\tb", "text": "b"}', "invalid id", "one word without white space"),
    ('{"id": "a\\nb", "text": "b"}', "invalid id", "one word without white space"),
    (json.dumps({"id": "ä" * 257, "text": "b"}), "invalid id", "at most 512 bytes, found 514"),
    ('{"id": "a", "text": "b"}', "duplicate id", r"'a' was already the id of .*c\.jsonl:1"),
    (
        '{"id": 2, "text": "b", "context": "a b", "start": 0, "end": 1}',
        "context mismatch",
        r"'b' at \[0:1\].* 'a'",
    ),
    (
        '{"id": 2, "text": "b", "context": "a b", "start": -1, "end": 3}',
        "wrong type",
        "from 0 as start, found -1",
    ),
    (
        '{"id": 2, "text": "b", "context": "b", "start": 0, "end": "1"}',
        "wrong type",
        "as end, found a string",
    ),
    ('{"id": 2, "text": "b", "context": 4, "start": 0, "end": 1}', "wrong type", "a string as context"),
    (b'{"id": 2, "text": "b\xe4r"}', "invalid UTF-8", "0xe4 at byte 20 of the line"),
    (b'{"id": 2, "text": "\xed\xa0\x80"}', "invalid UTF-8", "0xed at byte 19"),
]


@pytest.mark.parametrize(("line", "reason", "message"), RECORD_ERRORS)
def test_a_bad_record_stops_or_is_skipped(
    tmp_path: Path, line: str | bytes, reason: str, message: str
) -> None:
    bad = line if isinstance(line, bytes) else line.encode()
    path = written(tmp_path / "c.jsonl", small("a").encode() + b"\n" + bad + b"\n" + small("z").encode())
    reader = CorpusReader(path)
    found: list[Passage] = []
    with pytest.raises(InputError, match=message) as caught:
        found.extend(reader)
    assert caught.value.message.startswith(f"{reason}: ")
    assert caught.value.where == f"{path}:3"
    assert "--skip-invalid" in caught.value.remedy
    assert caught.value.exit_code == 2
    assert reader.counts.read == reader.counts.used == 1

    lenient = CorpusReader(path, skip_invalid=True)
    assert [p.passage_id for p in lenient] == ["a", "z"]
    assert lenient.counts.as_dict() == {"read": 3, "used": 2, "skipped": 1, "reasons": {reason: 1}}
    assert lenient.counts.first_skips == [Skip(f"{path}:3", caught.value.message)]


def test_what_comes_before_a_bad_record_is_yielded_first(tmp_path: Path) -> None:
    path = written(tmp_path / "c.jsonl", small("a", "b", "a", "c"))
    iterator = iter(CorpusReader(path))
    assert [next(iterator).passage_id, next(iterator).passage_id] == ["a", "b"]
    with pytest.raises(InputError, match="duplicate"):
        next(iterator)


TSV_ERRORS = [
    ("2\tb", "wrong number of columns", r"expected 3 \(id, text, title\), found 2"),
    ("2\tb\tc\td", "wrong number of columns", "found 4"),
    ('2\t"b" c\td', "broken quotes", "inner quotes doubled"),
    ('2\t"b\tc', "broken quotes", "on this line"),
    ("\tb\tc", "invalid id", "found none"),
]


@pytest.mark.parametrize(("row", "reason", "message"), TSV_ERRORS)
def test_a_bad_row(tmp_path: Path, row: str, reason: str, message: str) -> None:
    path = written(tmp_path / "c.tsv", f"id\ttext\ttitle\na\tx\ty\n{row}\nz\tx\ty\n")
    with pytest.raises(InputError, match=message) as caught:
        ids_of(path)
    assert caught.value.where == f"{path}:3"
    reader = CorpusReader(path, skip_invalid=True)
    assert [p.passage_id for p in reader] == ["a", "z"]
    assert reader.counts.reasons == Counter({reason: 1})


@pytest.mark.parametrize(
    "header",
    ["1\tsome text\ttitle", "id\ttitle", "text\ttitle", "id\ttext\ttext", "\t", '"id', '"id" \ttext'],
)
def test_a_bad_header_is_always_an_error(tmp_path: Path, header: str) -> None:
    path = written(tmp_path / "c.tsv", f"{header}\n1\ta\tb\n")
    with pytest.raises(InputError, match="expected") as caught:
        ids_of(path, skip_invalid=True)
    assert caught.value.where == f"{path}:1"
    assert "skip" not in caught.value.remedy


@pytest.mark.parametrize("text", ["", " ", "\u00a0\u2003\n\t"])
@pytest.mark.parametrize("skip_invalid", [False, True])
def test_empty_text_is_always_skipped(tmp_path: Path, text: str, skip_invalid: bool) -> None:
    empty = jsonl({"id": "a", "text": text}, {"text": text})
    path = written(tmp_path / "c.jsonl", empty + small("a"))
    reader = CorpusReader(path, skip_invalid=skip_invalid)
    assert [p.where for p in reader] == [f"{path}:3"]  # an id that was skipped is free
    assert reader.counts.first_skips == [Skip(f"{path}:1", "empty text"), Skip(f"{path}:2", "empty text")]
    assert reader.counts.reasons == Counter({"empty text": 2})


@pytest.mark.parametrize("name", ["c.jsonl", "c.tsv", "c", "c.jsonl.gz"])
@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf", b"id\ttext\ttitle\n"])
def test_an_empty_file(tmp_path: Path, name: str, content: bytes) -> None:
    header_as_json = name.startswith("c.jsonl") and content.startswith(b"id")
    path = written(tmp_path / name, gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(InputError, match="broken JSON" if header_as_json else "empty file"):
        ids_of(path)


def test_a_file_of_zero_bytes_named_gz(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="empty file"):
        ids_of(written(tmp_path / "c.jsonl.gz", b""), skip_invalid=True)


def test_an_empty_file_among_others(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl", small("a"))
    written(tmp_path / "b.jsonl", "")
    with pytest.raises(InputError, match="empty file") as caught:
        ids_of(tmp_path, skip_invalid=True)
    assert caught.value.where == str(tmp_path / "b.jsonl")


def test_missing_sources_are_said_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        CorpusReader(tmp_path / "absent.jsonl", skip_invalid=True)
    written(tmp_path / "notes.pdf", "x")
    with pytest.raises(InputError, match="no corpus in this folder"):
        CorpusReader(tmp_path)


def test_an_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"unknown format: .*'Once upon a time'") as caught:
        ids_of(written(tmp_path / "book.txt", "Once upon a time"))
    assert caught.value.where == f"{tmp_path / 'book.txt'}:1"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "my corpus.csv",
            'id,text,title\na,"the moon, \nand ""more""",Moon\nb,der Fluß,\n',
            [("a", 'the moon, \nand "more"', "Moon"), ("b", "der Fluß", "")],
        ),
        ("lines.txt", "the moon\nit's the sun\n", [("0", "the moon", ""), ("1", "it's the sun", "")]),
    ],
)
def test_the_advice_for_other_formats_works(
    tmp_path: Path, name: str, content: str, expected: list[tuple[str, str, str]], packed: bool
) -> None:
    path = tmp_path / (f"{name}.gz" if packed else name)
    path.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    with pytest.raises(InputError, match="unknown format") as caught:
        ids_of(path)
    what, _, command = caught.value.remedy.partition(": ")
    assert what == "make JSONL of it"
    assert "\n" not in command
    subprocess.run(command, shell=True, check=True, env={**os.environ, "PYTHONUTF8": "1"})
    made = CorpusReader(tmp_path / f"{name}.jsonl")
    assert [(p.passage_id, p.text, p.title) for p in made] == expected


def test_a_json_array_gets_its_own_advice(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found a list") as caught:
        ids_of(written(tmp_path / "c.json", '[{"id": 1, "text": "a"}]'))
    assert "jq" in caught.value.remedy


def incompressible(count: int) -> str:
    rng = random.Random(1)
    return jsonl(*({"id": i, "text": f"{rng.getrandbits(4000):x}"} for i in range(count)))


@pytest.mark.parametrize("damage", ["cut", "no trailer", "flipped", "garbage after"])
def test_broken_gzip_yields_what_is_whole_and_then_fails(tmp_path: Path, damage: str) -> None:
    stored = bytearray(gzip.compress(incompressible(3000).encode()))
    if damage == "cut":
        del stored[len(stored) // 2 :]
    elif damage == "no trailer":
        del stored[-4:]
    elif damage == "flipped":
        stored[-6] ^= 0xFF  # the checksum
    else:
        stored += b"garbage"
    path = written(tmp_path / "c.jsonl.gz", bytes(stored))
    reader = CorpusReader(path, skip_invalid=True)
    lines = []
    with pytest.raises(InputError, match="broken compression") as caught:
        lines.extend(p.where for p in reader)
    line = int(caught.value.where.removeprefix(f"{path}:"))
    assert 0 < reader.counts.used == line - 1
    assert reader.counts.used < 3000 or damage != "cut"


def test_duplicates_across_the_files_of_a_folder(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl", small(*map(str, range(1500))))
    written(tmp_path / "b.jsonl", small("x", "7"))
    with pytest.raises(InputError, match="'7' was already the id of") as caught:
        ids_of(tmp_path)
    assert caught.value.where == f"{tmp_path / 'b.jsonl'}:2"
    assert f"{tmp_path / 'a.jsonl'}:8" in caught.value.message


def test_only_the_first_twenty_skips_are_kept(tmp_path: Path) -> None:
    path = written(tmp_path / "c.jsonl", '{"id": 1, "text": ""}\n' * 30)
    reader = CorpusReader(path)
    assert list(reader) == []
    assert [skip.where for skip in reader.counts.first_skips] == [f"{path}:{n}" for n in range(1, 21)]
    assert reader.counts.skipped == 30


# Counts add up


def random_line(rng: random.Random, used: set[str]) -> tuple[str, str]:
    """A line, and what must become of it."""
    kind = rng.choice(["good", "good", "good", "blank", "empty", "duplicate", "broken", "no id", "list"])
    fresh = f"{len(used)}-{rng.getrandbits(40)}"
    if kind == "good" or (kind == "duplicate" and not used):
        used.add(fresh)
        return json.dumps({"id": fresh, "text": "t" * rng.randint(1, 50)}), "good"
    lines = {
        "blank": " " * rng.randint(0, 3),
        "empty": json.dumps({"id": fresh, "text": " "}),
        "duplicate": json.dumps({"_id": rng.choice(sorted(used)) if used else "", "contents": "again"}),
        "broken": '{"id": "' + fresh,
        "no id": '{"text": "t"}',
        "list": "[]",
    }
    return lines[kind], kind


@pytest.mark.parametrize("seed", range(8))
def test_counts_add_up_at_every_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr("sparta.data.corpus._BATCH_RECORDS", rng.randint(1, 40))
    monkeypatch.setattr("sparta.data.corpus._BATCH_BYTES", rng.choice([1, 200, 1 << 20]))
    used: set[str] = set()
    lines = [random_line(rng, used) for _ in range(rng.randint(50, 300))]
    fates = [fate for _, fate in lines]
    reader = CorpusReader(
        written(tmp_path / "c.jsonl", "\n".join(line for line, _ in lines)), skip_invalid=True
    )
    for count, passage in enumerate(reader, 1):
        number = int(passage.where.rpartition(":")[2])
        before = Counter(fates[:number])
        assert fates[number - 1] == "good"
        assert reader.counts.used == count == before["good"]
        assert reader.counts.read == number - before["blank"]
        assert reader.counts.read == reader.counts.used + reader.counts.skipped
    names = {
        "empty": "empty text",
        "duplicate": "duplicate id",
        "broken": "broken JSON",
        "no id": "missing id",
    }
    expected = Counter(names.get(fate, "not an object") for fate in fates if fate not in ("good", "blank"))
    assert reader.counts.reasons == expected
    assert reader.counts.used == len(used)
    assert reader.counts.read == len(fates) - fates.count("blank")


def test_a_second_iteration_starts_anew(tmp_path: Path) -> None:
    reader = CorpusReader(written(tmp_path / "c.jsonl", small("a", "b")))
    next(iter(reader))
    assert len(list(reader)) == len(list(reader)) == reader.counts.used == 2


# The fingerprint


def test_the_fingerprint_is_of_the_bytes_as_stored(tmp_path: Path) -> None:
    first = gzip.compress(small("a").encode())
    second = b"\xef\xbb\xbf\r\n" + small("b").encode()
    written(tmp_path / "a.jsonl.gz", first)
    written(tmp_path / "b.jsonl", second)
    reader = CorpusReader(tmp_path)
    assert len(list(reader)) == 2
    assert reader.fingerprint() == {
        "source": str(tmp_path),
        "bytes": len(first + second),
        "sha256": hashlib.sha256(first + second).hexdigest(),
    }
    assert source_fingerprint(tmp_path) == reader.fingerprint()


def test_the_fingerprint_waits_for_the_end(tmp_path: Path) -> None:
    reader = CorpusReader(written(tmp_path / "c.jsonl", small("a", "b")))
    next(iter(reader))
    with pytest.raises(ValueError, match="to its end"):
        reader.fingerprint()


def test_standard_input_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(small("a").encode())))
    reader = CorpusReader("-")
    assert len(list(reader)) == 1
    assert reader.fingerprint() == {"source": "-", "bytes": None, "sha256": None}
    assert source_fingerprint("-") == reader.fingerprint()


# The stream


class Endless(io.RawIOBase):
    """A corpus without end, made while it is read."""

    def __init__(self, text: str = "some text") -> None:
        self.records = 0
        self._text = text

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        line = json.dumps({"id": self.records, "text": self._text}).encode() + b"\n"
        buffer[: len(line)] = line
        self.records += 1
        return len(line)


def endless(monkeypatch: pytest.MonkeyPatch, text: str = "some text") -> tuple[Endless, Iterator[Passage]]:
    raw = Endless(text)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(raw, 1 << 16)))
    return raw, iter(CorpusReader("-"))


def test_the_reader_looks_ahead_by_at_most_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    raw, passages = endless(monkeypatch)
    for count in range(1, 3501):
        assert next(passages).passage_id == str(count - 1)
        assert raw.records <= count + 1000
    assert raw.records == 4000


def test_a_batch_of_long_lines_is_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    raw, passages = endless(monkeypatch, "x" * 60_000)
    next(passages)
    assert raw.records * 60_000 < 9 << 20


def test_a_pipe_is_read_while_it_is_written(tmp_path: Path) -> None:
    pipe = tmp_path / "corpus.jsonl"
    os.mkfifo(pipe)
    read_some = threading.Event()

    def write() -> None:
        with pipe.open("w") as stream:
            stream.write(small(*map(str, range(1000))))
            stream.flush()
            assert read_some.wait(10)
            stream.write(small("last"))

    writer = threading.Thread(target=write)
    writer.start()
    passages = iter(CorpusReader(pipe))
    assert next(passages).passage_id == "0"  # the writer waits: no end of file is needed
    read_some.set()
    assert [p.passage_id for p in passages][-1] == "last"
    writer.join(10)


def test_memory_does_not_grow_with_the_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    _, passages = endless(monkeypatch, "some text " * 20)
    tracemalloc.start()
    for _ in range(2_000):
        next(passages)
    tracemalloc.reset_peak()
    start = tracemalloc.get_traced_memory()[0]
    for _ in range(50_000):
        next(passages)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak - start < 4 << 20  # a batch or two; the texts alone are 10 MB


def test_seen_ids_name_the_first_place() -> None:
    with SeenIds() as seen:
        assert seen.add([("a", "x:y:1"), ("b", "x:y:2")]) == {}
        assert seen.add([("c", "z:1"), ("a", "z:2"), ("c", "z:3")]) == {"z:2": "x:y:1", "z:3": "z:1"}
        assert seen.add([("a", "z:9"), ("A", "z:10"), ("a ", "z:11")]) == {"z:9": "x:y:1"}
        assert seen.add([]) == {}


def test_seen_ids_agree_with_a_dictionary() -> None:
    rng = random.Random(2)
    known: dict[str, str] = {}
    line = 0
    with SeenIds() as seen:
        for _ in range(60):
            batch = [(str(rng.randint(0, 3000)), f"f:{line + i}") for i in range(rng.randint(0, 80))]
            line += len(batch)
            expected = {where: known[i] for i, where in batch if known.setdefault(i, where) != where}
            assert seen.add(batch) == expected


def test_a_full_temporary_disk_is_a_storage_error() -> None:
    with SeenIds() as seen:
        seen._database.execute("PRAGMA max_page_count = 10")
        with pytest.raises(StorageError, match="full") as caught:
            seen.add([(f"{i:0500d}", f"f:{i}") for i in range(1000)])
    assert "TMPDIR" in caught.value.remedy
    assert isinstance(caught.value.__cause__, sqlite3.Error)
