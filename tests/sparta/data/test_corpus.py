"""Corpora: what is read, and what is refused."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import os
import random
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from sparta.base.errors import InputError
from sparta.base.records import Passage, Skip
from sparta.data.corpus import open_corpus
from sparta.data.formats.fields import Fields
from sparta.shards.store import stored_record
from tests.sparta.data.corpora import jsonl, small, written


def ids_of(source: str | Path, **options: bool) -> list[str]:
    return [passage.passage_id for passage in open_corpus(source, **options)]


def test_a_jsonl_record_keeps_all_its_fields(tmp_path: Path) -> None:
    record = {"_id": "a", "title": "Ä", "text": " some text ", "url": "http://x", "n": [1, {"b": None}]}
    path = written(tmp_path / "c.jsonl", json.dumps(record))
    assert list(open_corpus(path)) == [
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
    passages = [(p.passage_id, p.text, p.title, p.context) for p in open_corpus(path)]
    assert passages == [("7", "seven", "", ""), ("a", "t", "", ""), (str(-(10**30)), "big", "", "")]


def test_an_answer_in_its_context_is_counted_in_characters(tmp_path: Path) -> None:
    context = "Ärger. Zürich 🎉 is a city. End."
    start = context.index("Zürich")
    answer = {"id": 1, "text": "Zürich 🎉 is a city.", "context": context, "start": start, "end": start + 19}
    no_context = {"id": 2, "text": "a", "context": "", "start": 0, "end": 0}
    only_a_field = {"id": 3, "text": "a", "context": "about", "start": "yesterday"}
    first, second, third = open_corpus(written(tmp_path / "c", jsonl(answer, no_context, only_a_field)))
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
    passages = list(open_corpus(written(tmp_path / "c.tsv", dpr(ROWS))))
    assert [(p.passage_id, p.text, p.title) for p in passages] == ROWS
    assert passages[0].record == {"id": "1", "text": ROWS[0][1], "title": "Aaron"}
    assert passages[0].where == f"{tmp_path / 'c.tsv'}:2"


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
        (p.passage_id, p.text, p.title) for p in open_corpus(written(tmp_path / "c.tsv", dpr(rows)))
    ] == rows


def test_a_quote_inside_a_plain_column_is_a_character(tmp_path: Path) -> None:
    path = written(tmp_path / "c.tsv", 'id\ttext\n1\ta 5" disk "here"\n')
    assert [p.text for p in open_corpus(path)] == ['a 5" disk "here"']


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
def test_format_and_gzip_are_recognised_without_a_name(tmp_path: Path, content: str, zipped: bool) -> None:
    stored = gzip.compress(content.encode()) if zipped else content.encode()
    assert ids_of(written(tmp_path / "corpus", stored)) == ["1", "2"]
    reader = open_corpus("-")
    with CliRunner().isolation(input=stored):
        assert [p.where for p in reader][-1].startswith("<stdin>:")
    assert reader.counts.read == 2


def test_a_byte_order_mark_before_a_tsv_header(tmp_path: Path) -> None:
    path = written(tmp_path / "c.tsv", "\ufeffid\ttext\n1\ta\n")
    assert next(iter(open_corpus(path))).record == {"id": "1", "text": "a"}


def test_blank_lines_are_not_counted_and_lines_keep_their_numbers(tmp_path: Path) -> None:
    path = written(tmp_path / "c.jsonl", "\n" + small("a") + "  \n\r\n" + small("b") + "\n")
    reader = open_corpus(path)
    assert [p.where for p in reader] == [f"{path}:2", f"{path}:5"]
    assert (reader.counts.read, reader.counts.used, reader.counts.skipped) == (2, 2, 0)


def test_a_text_of_100_000_words(tmp_path: Path) -> None:
    text = "word " * 100_000
    assert next(iter(open_corpus(written(tmp_path / "c.jsonl", jsonl({"id": 1, "text": text}))))).text == text
    assert next(iter(open_corpus(written(tmp_path / "c.tsv", f'id\ttext\n1\t"{text}"\n')))).text == text


RECORD_ERRORS = [
    ('{"id": 2, "text": "b"', "broken JSON", "expected one JSON object"),
    ('{"id": 2, "text": "b"} {}', "broken JSON", "Extra data"),
    ('{"id": 2, "text": "b", "x": NaN}', "broken JSON", "found NaN"),
    ('{"id": 2, "text": "b", "x": 1e999}', "broken JSON", "found 1e999"),
    ('{"id": 2, "text": "\\ud800"}', "broken JSON", "surrogate"),
    ("[" * 100_000, "JSON nested too deeply", "expected at most 500 levels, found 100,000"),
    (
        '{"id": 2, "text": "]}\\"[", "x": ' + '{"y": [' * 60_000 + "]}" * 60_000 + "}",
        "JSON nested too deeply",
        "expected at most 500 levels, found 120,001",
    ),
    ('{"id": 2, "text": "b", "x": ' + "[" * 500 + "]" * 500 + "}", "JSON nested too deeply", "found 501"),
    ('{"id": ' + "1" * 5000 + "}", "broken JSON", "4300"),
    ('["a"]', "not a JSON object", "found a list"),
    ("7", "not a JSON object", "found a number"),
    ('{"id": 2, "body": "b"}', "missing text", 'expected the field "text" or "contents"'),
    ("{}", "missing text", "found 'no field'"),
    ('{"id": 2, "text": 5}', "text of the wrong type", "expected a string, found a number"),
    ('{"id": 2, "text": "b", "title": ["c"]}', "title of the wrong type", "expected a string, found a list"),
    ('{"id": 2.5, "text": "b"}', "id of the wrong type", "string or an integer, found a number"),
    ('{"id": true, "text": "b"}', "id of the wrong type", "found a boolean"),
    ('{"id": null, "text": "b"}', "id of the wrong type", "found null"),
    ('{"id": {}, "text": "b"}', "id of the wrong type", "found an object"),
    ('{"id": "", "text": "b"}', "invalid id", "the id is empty"),
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
        "start of the wrong type",
        "from 0, found -1",
    ),
    (
        '{"id": 2, "text": "b", "context": "b", "start": 0, "end": "1"}',
        "end of the wrong type",
        "found a string",
    ),
    (
        '{"id": 2, "text": "b", "context": 4, "start": 0, "end": 1}',
        "context of the wrong type",
        "expected a string",
    ),
    (b'{"id": 2, "text": "b\xe4r"}', "invalid UTF-8", "0xe4 at byte 20 of the line"),
    (b'{"id": 2, "text": "\xed\xa0\x80"}', "invalid UTF-8", "0xed at byte 19"),
]


@pytest.mark.parametrize(("line", "reason", "message"), RECORD_ERRORS)
def test_a_bad_record_stops_or_is_skipped(
    tmp_path: Path, line: str | bytes, reason: str, message: str
) -> None:
    bad = line if isinstance(line, bytes) else line.encode()
    path = written(tmp_path / "c.jsonl", small("a").encode() + b"\n" + bad + b"\n" + small("z").encode())
    reader = open_corpus(path)
    found: list[Passage] = []
    with pytest.raises(InputError, match=message) as caught:
        found.extend(reader)
    assert caught.value.message.startswith(f"{reason}: ")
    assert caught.value.where == f"{path}:3"
    assert str(caught.value.remedy).endswith("(for an index: IndexOptions(skip_invalid=True))")
    assert caught.value.exit_code == 2
    assert reader.counts.read == reader.counts.used == 1

    lenient = open_corpus(path, skip_invalid=True)
    assert [p.passage_id for p in lenient] == ["a", "z"]
    assert lenient.counts.as_dict() == {"read": 3, "used": 2, "skipped": 1, "reasons": {reason: 1}}
    assert lenient.counts.first_skips == [Skip(f"{path}:3", caught.value.message)]


def test_what_comes_before_a_bad_record_is_yielded_first(tmp_path: Path) -> None:
    path = written(tmp_path / "c.jsonl", small("a", "b", "a", "c"))
    iterator = iter(open_corpus(path))
    assert [next(iterator).passage_id, next(iterator).passage_id] == ["a", "b"]
    with pytest.raises(InputError, match="duplicate"):
        next(iterator)


TSV_ERRORS = [
    ("2\tb", "wrong number of columns", r"expected 3 columns \(id, text, title\), found 2"),
    ("2\tb\tc\td", "wrong number of columns", "found 4"),
    ('2\t"b" c\td', "column with broken quotes", "inner quotes doubled"),
    ('2\t"b\tc', "column with broken quotes", "at the end of the field"),
    ("\tb\tc", "invalid id", "the id is empty"),
]


@pytest.mark.parametrize(("row", "reason", "message"), TSV_ERRORS)
def test_a_bad_row(tmp_path: Path, row: str, reason: str, message: str) -> None:
    path = written(tmp_path / "c.tsv", f"id\ttext\ttitle\na\tx\ty\n{row}\nz\tx\ty\n")
    with pytest.raises(InputError, match=message) as caught:
        ids_of(path)
    assert caught.value.where == f"{path}:3"
    reader = open_corpus(path, skip_invalid=True)
    assert [p.passage_id for p in reader] == ["a", "z"]
    assert reader.counts.reasons == Counter({reason: 1})


@pytest.mark.parametrize(
    "header",
    ["1\tsome text\ttitle", "id\ttitle", "id\ttext\ttext", "\t", '"id', '"id" \ttext'],
)
def test_a_bad_header_is_always_an_error(tmp_path: Path, header: str) -> None:
    path = written(tmp_path / "c.tsv", f"{header}\n1\ta\tb\n")
    with pytest.raises(InputError, match="expected") as caught:
        ids_of(path, skip_invalid=True)
    assert caught.value.where == f"{path}:1"
    assert "skip" not in str(caught.value.remedy)


@pytest.mark.parametrize("text", ["", " ", "\u00a0\u2003\n\t"])
@pytest.mark.parametrize("skip_invalid", [False, True])
def test_empty_text_is_always_skipped(tmp_path: Path, text: str, skip_invalid: bool) -> None:
    empty = jsonl({"id": "a", "text": text}, {"text": text})
    path = written(tmp_path / "c.jsonl", empty + small("a"))
    reader = open_corpus(path, skip_invalid=skip_invalid)
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
        open_corpus(tmp_path / "absent.jsonl", skip_invalid=True)
    written(tmp_path / "notes.docx", "x")
    with pytest.raises(InputError, match=r"no corpus in this folder: .*notes\.docx \(another format\)"):
        open_corpus(tmp_path)
    (tmp_path / "notes.docx").rename(tmp_path / "questions.md")
    with pytest.raises(InputError, match=r"left out: questions\.md \(queries or judgments\)\n"):
        open_corpus(tmp_path)
    (tmp_path / "questions.md").unlink()
    with pytest.raises(InputError, match=r"no corpus in this folder: no JSONL, TSV"):
        open_corpus(tmp_path)


def test_an_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"unknown format: .*'Once upon a time'") as caught:
        ids_of(written(tmp_path / "book.dat", "Once upon a time"))
    assert caught.value.where == f"{tmp_path / 'book.dat'}:1"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("my lines.dat", "the moon\nit's the sun\n", [("0", "the moon", ""), ("1", "it's the sun", "")]),
    ],
)
def test_the_advice_for_other_formats_works(
    tmp_path: Path, name: str, content: str, expected: list[tuple[str, str, str]], packed: bool
) -> None:
    path = tmp_path / (f"{name}.gz" if packed else name)
    path.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    with pytest.raises(InputError, match="unknown format") as caught:
        ids_of(path)
    what, _, command = str(caught.value.remedy).partition(": ")
    assert what.endswith("convert it to JSONL")
    assert "\n" not in command
    subprocess.run(command, shell=True, check=True, env={**os.environ, "PYTHONUTF8": "1"})
    made = open_corpus(tmp_path / f"{name}.jsonl")
    assert [(p.passage_id, p.text, p.title) for p in made] == expected


def test_an_object_of_several_lines_gets_its_own_advice(tmp_path: Path) -> None:
    cut = written(tmp_path / "cut.jsonl", '{"id": "1", "text": "a",\n{"id": "2", "text": "b"}\n')
    assert [p.passage_id for p in open_corpus(cut, skip_invalid=True)] == ["2"]
    spread = '{\n"id": 1,\n"text": "a"\n}\n'
    with pytest.raises(InputError, match="an object of several lines") as caught:
        list(open_corpus(written(tmp_path / "c.json", spread), skip_invalid=True))
    assert "jq -c ." in str(caught.value.remedy)


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
    reader = open_corpus(path, skip_invalid=True)
    lines = []
    with pytest.raises(InputError, match="damaged or incomplete") as caught:
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
    reader = open_corpus(path)
    assert list(reader) == []
    assert [skip.where for skip in reader.counts.first_skips] == [f"{path}:{n}" for n in range(1, 21)]
    assert reader.counts.skipped == 30


@pytest.mark.parametrize("one", [{"id": "9", "text": "forgotten brackets"}, Passage("9", "the same")])
def test_one_record_is_no_list_of_them(one: Any) -> None:
    with pytest.raises(InputError, match="the corpus is a single record") as caught:
        open_corpus(one)
    assert "[record]" in str(caught.value.remedy)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"id": "a\ud800", "text": "t"}, "half a surrogate pair"),
        ({"id": "a", "text": "t \ud800"}, "half a surrogate pair"),
        ({"id": "a", "text": "t", "n": math.nan}, "a finite number"),
        (
            {"id": "a", "text": "t", "day": complex(1)},
            "value not JSON-serializable: Object of type complex",
        ),
        (Passage("a b", "t"), "one word"),
        (Passage("", "t"), "the id is empty"),
        (Passage("a", cast("Any", None)), "empty text"),
        (Passage("a", " "), "empty text"),
        (Passage("a", "t", context="no such", start=1, end=2), "context mismatch"),
        (Passage("a", "t", record={"day": complex(1)}), "value not JSON-serializable"),
    ],
)
def test_what_a_program_makes_is_held_to_what_a_file_may_hold(bad: Any, words: str) -> None:
    reader = open_corpus([{"id": "1", "text": "first"}, bad, Passage("2", "last")], skip_invalid=True)
    assert [p.passage_id for p in reader] == ["1", "2"]
    (skip,) = reader.counts.first_skips
    assert skip.where == "records:1"
    assert words in skip.reason


def test_passages_from_elsewhere_keep_their_records_and_are_told_apart(tmp_path: Path) -> None:
    """Also where all say that they come from one place."""
    made = list(open_corpus(written(tmp_path / "c.jsonl", '{"id": "a", "text": "t", "year": 1990}\n')))
    again = [*made, replace(made[0], passage_id="b", where="a book"), made[0]]
    found = open_corpus(again, skip_invalid=True)
    assert [(p.passage_id, p.record["year"]) for p in found] == [("a", 1990), ("b", 1990)]
    assert found.counts.reasons == {"duplicate id": 1}


@pytest.mark.parametrize("value", ["T2 phage", 7, ["a", "b"], {"host": "E. coli"}])
def test_a_field_named_vector_is_kept(value: Any) -> None:
    (passage,) = open_corpus([{"id": "a", "text": "b", "vector": value}])
    assert json.loads(stored_record(passage))["vector"] == value


@pytest.mark.parametrize("value", [{"moon": 3, "sun": 0.5}, [0.5, -1]])
def test_a_vector_is_not_stored(value: Any) -> None:
    (passage,) = open_corpus([{"id": "a", "text": "b", "vector": value}])
    assert "vector" not in json.loads(stored_record(passage))


def test_a_passage_is_stored_as_the_same_dictionary_is() -> None:
    fields = {"context": "a b c", "start": 2, "end": 3}
    records = [{"id": "a", "text": "b", **fields, "year": 1990}, {"id": "b", "text": "b"}]
    passages = [Passage("a", "b", record={"year": 1990}, **fields), Passage("b", "b")]  # type: ignore[arg-type]
    ours, theirs = ([json.loads(stored_record(p)) for p in open_corpus(each)] for each in (passages, records))
    assert ours == theirs
    assert ours[0] == {"id": "a", "title": "", "contents": "b", "year": 1990, **fields}


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('{"id": "1", "text": null, "title": "T"}', "T"),
        ('{"id": "1", "text": "", "contents": "real", "title": "T"}', "real"),
        ('{"id": "1", "text": " ", "contents": null, "title": "T"}', "T"),
    ],
)
def test_an_empty_text_is_one_that_is_missing(line: str, text: str, tmp_path: Path) -> None:
    (passage,) = open_corpus(written(tmp_path / "c.jsonl", line + "\n"))
    assert passage.text == text


def test_null_texts_are_counted(tmp_path: Path) -> None:
    lines = '{"id": "1", "text": null}\n{"id": "2", "body": null}\n{"id": "3", "text": "b", "body": "b"}\n'
    reader = open_corpus(written(tmp_path / "c.jsonl", lines))
    with pytest.raises(InputError):
        list(reader)
    named = open_corpus(
        written(tmp_path / "d.jsonl", lines), fields=Fields.of(None, "body", None), skip_invalid=True
    )
    assert [p.passage_id for p in named] == ["3"]
    assert named.counts.reasons == {"missing text": 1, "empty text": 1}


def test_half_a_surrogate_pair_in_a_list_is_one_bad_record(tmp_path: Path) -> None:
    path = written(tmp_path / "c.json", r'[{"id": "1", "text": "\ud800 a"}, {"id": "2", "text": "b"}]')
    reader = open_corpus(path, skip_invalid=True)
    assert [passage.passage_id for passage in reader] == ["2"]
    assert sum(reader.counts.reasons.values()) == 1
