"""Advice is followed as printed: it names the index and the options that the command has, and it helps."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
from pathlib import Path

import pytest
from click.testing import Result

from sparta.index.folder import IndexFolder
from sparta.index.sync import sync_index
from sparta.training.paragraphs import name_and_weight
from tests.cli.commands import RECORDS, done, remedy_of, written
from tests.programs import dense, hybrid, sparta

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("own_logger")]
BM25 = ("--channels", "bm25")


def follow(command: str, **placeholders: object) -> Result:
    """Run a printed command, with a value for each placeholder."""
    program, *words = shlex.split(command)
    programs = {"sparta": sparta, "dense": dense, "hybrid": hybrid}
    return programs[program](*(placeholders.get(word, word) for word in words))


@pytest.mark.parametrize("damaged", ["manifest.json", "tokenizer-000001/tokenizer.json"])
def test_a_damaged_index_is_rebuilt_and_no_other_index(
    index: Path, corpus: Path, model: tuple[str, ...], damaged: str
) -> None:
    other = Path("sparta-index")
    done(sparta("index", "--corpus", corpus, *BM25))
    before = (other / "manifest.json").read_bytes()
    (index / damaged).write_text("{")
    said = remedy_of(sparta("search", "moon", "--index", index))
    command = said.partition("build it again: ")[2].removesuffix(", with the same options as before")
    assert shlex.split(command) == [
        "sparta",
        "index",
        "--corpus",
        "FILE",
        "--overwrite",
        "--index",
        str(index),
    ]
    done(follow(f"{command} {shlex.join(model)}", FILE=corpus))
    done(sparta("search", "moon", "--index", index))
    assert (other / "manifest.json").read_bytes() == before


@pytest.mark.parametrize(
    "form", [("--chunk", "6", "--overlap", "2"), ("--language", "fr"), ("--unit", "sentence")]
)
def test_impacts_are_added_in_the_form_of_the_index(
    corpus: Path, model: tuple[str, ...], form: tuple[str, ...]
) -> None:
    done(sparta("index", "--corpus", corpus, *BM25, *form, "--index", "ix"))
    said = remedy_of(sparta("search", "moon", "--channel", "impact", "--index", "ix"))
    add, channel = said.partition("add impacts with: ")[2].split("; or use ")
    assert "moon" in done(sparta("search", "moon", *shlex.split(channel), "--index", "ix")).output
    done(follow(add, FOLDER=model[1]))  # the shipped model, or in French the tiny one
    done(sparta("search", "moon", "--channel", "impact", "--index", "ix"))


def test_an_append_whose_input_changed(corpus: Path) -> None:
    """The old passages are not in the input, so `--overwrite` would lose them."""
    done(sparta("index", "--corpus", corpus, *BM25, "--index", "ix"))
    more = [{"id": f"n{number}", "text": f"the sun {number}"} for number in range(2500)]
    records = "".join(json.dumps(record) + "\n" for record in more)
    append = ("index", "--append", "--corpus", "-", *BM25, "--index", "ix", "--commit-seconds", "0")
    broken = records + "{"
    assert sparta(*append, stdin=broken).exit_code
    assert not IndexFolder("ix").require_live().complete, "some batches are committed"
    changed = records.replace('"n', '"m')
    said = remedy_of(sparta(*append, "--resume", stdin=changed))
    assert "--overwrite" not in said
    command = said.partition("write all of the corrected input: ")[2]
    program, *words = shlex.split(command)
    assert [program, *words[:3]] == ["sparta", "update", "--corpus", "-"]
    done(sparta(*words, stdin=records))
    assert f"{len(more) + len(RECORDS):,}\n" in done(sparta("info", "--index", "ix")).output


@pytest.mark.parametrize("form", [("--codec", "lucene"), ("--unit", "sentence")])
def test_a_rebuild_in_another_form(corpus: Path, form: tuple[str, ...]) -> None:
    """The options that differ are those of the new input, all others those of the index."""
    done(sparta("index", "--corpus", corpus, *BM25, "--chunk", "6", "--overlap", "2", "--index", "ix"))
    said = remedy_of(sparta("index", "--append", "--corpus", corpus, *BM25, *form, "--index", "ix"))
    rebuild = said.partition("rebuild the index: ")[2]
    done(follow(rebuild, FILE=corpus))
    index = IndexFolder("ix").require_live()
    values = {"codec": index.codec, "unit": index.unit}
    assert values[form[0].removeprefix("--")] == form[1]
    assert index.channels == "bm25"


def test_a_sync_names_the_skipped_records(tmp_path: Path) -> None:
    file = written(tmp_path / "texts.jsonl", *RECORDS)
    done(sparta("sync", file, *BM25, "--index", "ix"))
    lines = file.read_text("utf-8").splitlines()
    file.write_text("\n".join(['{"id": "google", ', *lines[1:], '{"id": "x", "text": 7}']) + "\n")
    result = done(sparta("sync", file, *BM25, "--index", "ix", "--skip-invalid"))
    assert "1 deleted, 4 passages unchanged; read 6 records = 4 used + 2 skipped" in result.output
    assert f"skipped {file}:1" in result.stderr
    assert f"skipped {file}:6" in result.stderr
    report = sync_index(Path("ix"), written(file, *RECORDS))
    assert (report.added, report.skipped) == (("google",), "")


def test_a_dry_run_of_a_sync_that_deletes_most_passages(tmp_path: Path) -> None:
    command = ("sync", written(tmp_path / "texts.jsonl", *RECORDS), *BM25, "--index", "ix")
    done(sparta(*command))
    written(tmp_path / "texts.jsonl", RECORDS[0])
    result = done(sparta(*command, "--dry-run"))
    assert "would be: 0 added, 0 updated, 4 deleted, 1 passage unchanged" in result.stdout
    assert "more than half of the index" in result.stderr
    assert "--yes" in remedy_of(sparta(*command))
    assert done(sparta(*command, "--dry-run", "--yes")).stderr == ""


def test_options_that_the_command_has(index: Path, model: tuple[str, ...], tmp_path: Path) -> None:
    """`update` has no `--overwrite`, `answer` no `--channels`, and `hybrid search` no `--channel`."""
    more = written(tmp_path / "more.jsonl", {"id": "new", "text": "the sun"})
    said = remedy_of(sparta("update", "--corpus", more, "--index", index, "--model", model[1], "--bits", "4"))
    done(follow(said.partition("rebuild the index: ")[2], FILE=more))
    done(sparta("update", "--corpus", more, "--index", index, "--model", model[1], "--bits", "4"))
    said = remedy_of(sparta("answer", "moon", "--index", index, "--channel", "impakt=1,bm25"))
    assert said.startswith("write, for example, --channel ")
    said = remedy_of(hybrid("search", "moon", "--index", index, "--weights", "impact=1", "--k1", "1.2"))
    assert said == "omit --k1, or search by bm25 too"


def test_a_record_of_texts_that_no_option_can_change(tmp_path: Path) -> None:
    pairs = written(tmp_path / "pairs.jsonl", {"question": "who", "answers": ["a"], "passage_ids": ["1"]})
    texts = written(tmp_path / "texts.jsonl", {"id": "1", "body": "the moon"})
    said = remedy_of(dense("mine", "--dataset", pairs, "--texts", texts, "--output", "out.json"))
    assert "--text-field" not in said
    assert "--skip-invalid" not in said


def test_a_logged_remedy_has_the_syntax_of_commands(corpus: Path) -> None:
    result = done(sparta("index", "--corpus", corpus, "--language", "fr", "--index", "ix"))
    assert "To get impacts: name a model with --model" in result.stderr


def test_several_files_and_names_with_spaces(tmp_path: Path) -> None:
    said = remedy_of(sparta("index", "--corpus", "a.jsonl", "b.jsonl", "--index", "ix", "--language", "fr"))
    assert said == "put several files into one folder, or write a name with spaces in quotes"


def test_a_file_with_an_equals_sign(tmp_path: Path) -> None:
    folder = tmp_path / "lang=en"
    folder.mkdir()
    file = written(folder / "pairs.jsonl", {"question": "q", "answers": ["a"]})
    assert name_and_weight(str(file), "FILE") == (str(file), 1)
    assert name_and_weight(f"{file}=0.5", "FILE") == (str(file), 0.5)
    assert name_and_weight(f"{file}=", "FILE") == (str(file), 1)


@pytest.mark.parametrize(
    ("table", "columns"),
    [("x{}y", "id, text"), ("my pages", "id, text"), ("order", "url, body"), ('a"b', '"a c"')],
)
def test_tables_of_a_database(tmp_path: Path, table: str, columns: str) -> None:
    path = tmp_path / "my pages.db"
    quoted = '"' + table.replace('"', '""') + '"'
    with sqlite3.connect(path) as database:
        database.execute(f"create table {quoted} ({columns})")
        database.execute(
            f"insert into {quoted} values ({', '.join(['?'] * (columns.count(',') + 1))})",
            ["http://moon", "the moon"][: columns.count(",") + 1],
        )
    database.close()
    said = remedy_of(sparta("index", "--corpus", path, *BM25, "--index", "ix"))
    assert table in said
    option = said.removeprefix("name the rows with ").rpartition("; the tables are")[0]
    _, query = shlex.split(option)
    with sqlite3.connect(path) as database:
        assert len(database.execute(query).fetchall()) == 1
    database.close()


def test_an_index_is_rebuilt_with_the_fields_of_its_records(tmp_path: Path) -> None:
    """Without them, ids would be hashes."""
    corpus = written(
        tmp_path / "c.jsonl", {"url": "u1", "text": "the moon"}, {"url": "u2", "text": "the sun"}
    )
    done(sparta("index", "--corpus", corpus, "--id-field", "url", *BM25, "--index", "ix"))
    said = remedy_of(sparta("update", "--corpus", corpus, "--chunk", "50", "--index", "ix"))
    command = said[said.index("sparta index") :]
    assert "--id-field url" in command
    done(follow(command, FILE=corpus))
    assert " u1 " in done(sparta("search", "moon", "--channel", "bm25", "--index", "ix")).output


def test_a_corpus_whose_path_is_not_utf_8(tmp_path: Path) -> None:
    corpus = written(tmp_path / "caf\udce9.jsonl", RECORDS[0])
    done(sparta("index", "--corpus", corpus, *BM25, "--index", "ix"))
    again = done(sparta("index", "--corpus", corpus, *BM25, "--index", "ix"))
    assert "up to date" in again.output


@pytest.mark.parametrize(
    "form",
    [
        (),
        (*BM25, "--unit", "sentence", "--language", "de"),
        (*BM25, "--id-field", "key", "--text-field", "title", "--text-field", "body", "--chunk", "6"),
    ],
)
def test_a_first_build_whose_corpus_was_corrected(
    tmp_path: Path, model: tuple[str, ...], form: tuple[str, ...]
) -> None:
    """The committed passages stay: only the others are written."""
    names = ("key", "body") if "--id-field" in form else ("id", "text")
    records = [dict(zip(names, (f"p{n}", f"The moon. The sun {n}."), strict=True)) for n in range(2500)]
    records = records if form else records[:600]  # a model is slow
    corpus = written(tmp_path / "my texts.jsonl", *(record | {"title": "T"} for record in records))
    right = corpus.read_text("utf-8")
    corpus.write_text(right.removesuffix("}\n") + ",}\n")
    build = ("index", "--corpus", corpus, *form, "--index", "my ix", "--commit-seconds", "0")
    build = build if form else (*build, *model)
    assert "correct the record" in remedy_of(sparta(*build))
    corpus.write_text(right)
    advice = remedy_of(sparta(*build))
    assert advice.startswith("continue with --resume; if the input has changed, keep the committed passages")
    commands = [
        printed.partition("keep the committed passages with: ")[2].partition("; or start again with ")[0]
        for printed in (advice, remedy_of(sparta(*build, "--resume")))
    ]
    assert commands[0] == commands[1]
    output = done(follow(commands[0])).output
    counts = [
        int(number.replace(",", ""))
        for number in re.findall(r"([\d,]+) (?:added|passages unchanged)", output)
    ]
    assert sum(counts) == len(records)
    assert min(counts) > 0
    assert " 0 updated, 0 deleted" in output
    assert "complete" not in done(sparta("info", "--index", "my ix")).stderr
