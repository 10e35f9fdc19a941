"""Folders and compressed files as corpora: what is read, what is left out, and that it is said."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import json
import lzma
import os
import sys
import tarfile
import time
from pathlib import Path

import pytest

from sparta.base.disk.streams import Tally
from sparta.base.errors import InputError
from sparta.base.manifest import INDEX_KIND
from sparta.base.records import Passage
from sparta.data import files
from sparta.data.corpus import open_corpus
from sparta.data.formats.reading import text_file
from sparta.data.parsing import BadRecordError
from sparta.data.qa_formats import read_mrqa


def record(passage_id: str, text: str = "the moon", **more: str) -> str:
    return json.dumps({"_id": passage_id, "text": text, **more}) + "\n"


def ids(source: Path) -> list[str]:
    return [passage.passage_id for passage in open_corpus(source)]


def test_a_beir_folder_is_its_corpus(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "qrels").mkdir()
    (tmp_path / "corpus.jsonl.gz").write_bytes(gzip.compress(record("d1").encode()))
    (tmp_path / "queries.jsonl").write_text(record("q1"))
    (tmp_path / "other.jsonl").write_text(record("o1"))
    open_corpus(tmp_path)  # a look at the path alone says nothing
    assert ids(tmp_path) == ["d1"]
    assert caplog.text.count("reading corpus.jsonl.gz") == 1
    assert "reading corpus.jsonl.gz; not reading other.jsonl (beside corpus.jsonl)" in caplog.text
    assert "queries" not in caplog.text, "what belongs to the layout is no news"
    (tmp_path / "other.jsonl").unlink()
    caplog.clear()
    assert ids(tmp_path) == ["d1"]
    assert not caplog.text


def test_queries_and_judgments_are_no_passages(tmp_path: Path) -> None:
    (tmp_path / "wiki.jsonl").write_text(record("w1"))
    (tmp_path / "questions.jsonl").write_text(record("q1"))
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\tw1\t1\n")
    assert ids(tmp_path) == ["w1"]


def test_texts_and_markdown_are_passages_of_a_folder_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "a moon.txt").write_text("The moon\nis round.\n")
    (tmp_path / "sun.md").write_text("intro\n\n## The Sun ##\n\nIt is hot.\n")
    read = {p.passage_id: (p.title, p.text) for p in open_corpus(tmp_path)}
    assert read == {
        "a_moon.txt": ("a moon", "The moon\nis round."),
        "sun.md": ("The Sun", "intro\n\n## The Sun ##\n\nIt is hot."),
    }
    (tmp_path / "records.tsv").write_text("id\ttext\nr\tthe moon\n")
    assert ids(tmp_path) == ["r"], "a README beside records is no passage"


def test_texts_that_are_read_are_named_by_their_paths(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "moon.txt").write_text("The moon.")
    (tmp_path / "s" / "moon.png").write_bytes(b"")
    assert ids(tmp_path) == ["s/moon.txt"]
    assert "reading s/moon.txt; not reading s/moon.png (another format)" in caplog.text


def test_what_is_no_text_is_told(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"\x93NUMPY\1\0v\0")
    with pytest.raises(InputError, match="binary, not text"):
        open_corpus(path)


def test_a_heading_ends_before_a_carriage_return(tmp_path: Path) -> None:
    (tmp_path / "sun.md").write_bytes(b"intro\r\n## \r\n# Win head #\r\nIt is hot.\r\n")
    (tmp_path / "moon.md").write_bytes(b"# \r\nIt is round.")
    assert {p.passage_id: p.title for p in open_corpus(tmp_path)} == {
        "sun.md": "Win head",
        "moon.md": "moon",
    }


def tar(name: str, content: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content.encode()))
    return stream.getvalue()


UNREAD = [
    (tar("psgs.tsv", "id\ttext\ttitle\n1\tthe moon\tMoon\n"), "a tar archive", "unpack it: tar -xf "),
    (lzma.compress(record("a").encode()), "a file compressed with xz", "xz -dk "),
    (b"PK\3\4\n\0\0\0", "a zip archive", "unzip "),
    (b"PAR1\x15\x04", "a Parquet file", "rename a corpus: mv "),
    (record("a").encode("utf-16"), "text in UTF-16", "iconv -f UTF-16 -t UTF-8 "),
    (b"\xfe\xff" + record("a").encode("utf-16-be"), "text in UTF-16", "iconv -f UTF-16 -t UTF-8 "),
    (record("a").encode("utf-32"), "text in UTF-32", "iconv -f UTF-32 -t UTF-8 "),
]


@pytest.mark.parametrize(("content", "found", "remedy"), UNREAD)
@pytest.mark.parametrize("name", ["c.jsonl", "c.jsonl.xz", "c.tsv", "c.jsonl.gz"])
def test_another_encoding_or_compression_is_named(
    tmp_path: Path, name: str, content: bytes, found: str, remedy: str
) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(InputError, match=f"plain or in gzip, bzip2 or zstd, found {found}") as caught:
        list(open_corpus(path, skip_invalid=True))
    assert f"{remedy}{path}" in str(caught.value.remedy)
    assert "skip" not in str(caught.value.remedy)


@pytest.mark.parametrize(("name", "line", "byte"), [("a.txt", 3, 3), ("rows.tsv", 4, 2)])
def test_a_byte_that_is_not_utf_8_has_its_line(tmp_path: Path, name: str, line: int, byte: int) -> None:
    (tmp_path / "a.txt").write_bytes(b"The\nmoon\ncaf\xe9 is\n")  # read only without records
    if name == "rows.tsv":
        (tmp_path / name).write_bytes(b'id\ttext\n1\tmoon\n2\t"the\nca\xe9"\n')
    with pytest.raises(BadRecordError, match=f"0xe9 at byte {byte} of the line") as caught:
        ids(tmp_path)
    assert caught.value.where == f"{tmp_path / name}:{line}"


@pytest.mark.parametrize("names", [["a b.txt", "a_b.txt"], ["a\x1b.txt"], [f"{'x' * 200}/" * 3 + "a.txt"]])
def test_a_file_name_that_is_no_id_is_to_be_changed(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("The moon.")
    with pytest.raises(BadRecordError) as caught:
        ids(tmp_path)
    assert str(caught.value.remedy).startswith("rename ")


def test_a_folder_that_cannot_be_read_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(InputError, match="the file cannot be read: Permission denied"):
        open_corpus(tmp_path)


def test_an_index_below_a_folder_of_texts_is_no_news(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, kind in (("ix", INDEX_KIND), ("other", "Pod")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(json.dumps({"kind": kind}))
        (tmp_path / name / "a.txt").write_text("The moon.")
    assert ids(tmp_path) == ["other/a.txt"]
    assert "other/manifest.json" in caplog.text
    assert "ix" not in caplog.text


def test_such_a_text_among_others_can_be_skipped(tmp_path: Path) -> None:
    (tmp_path / "moon.txt").write_text("The moon is round.")
    (tmp_path / "sun.txt").write_bytes("The sun is hot.".encode("utf-16"))
    with pytest.raises(BadRecordError, match="found text in UTF-16") as caught:
        ids(tmp_path)
    assert f"iconv -f UTF-16 -t UTF-8 {tmp_path}/sun.txt" in str(caught.value.remedy)
    reader = open_corpus(tmp_path, skip_invalid=True)
    assert [passage.passage_id for passage in reader] == ["moon.txt"]


def test_a_long_window_of_zstd_is_named(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    parameters = zstandard.ZstdCompressionParameters(window_log=28)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    path = tmp_path / "c.jsonl.zst"
    path.write_bytes(compressor.compress(record("a").encode()) + compressor.flush())
    with pytest.raises(InputError, match="a window of more than 128 MB") as caught:
        ids(path)
    assert str(caught.value.remedy).endswith(f"zstd -dc -M2048MB {path} > NEW_FILE")


def test_bzip2_and_zstd(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    for name, compress in (("c.jsonl.bz2", bz2.compress), ("c.jsonl.zst", zstandard.compress)):
        whole = compress("".join(record(f"d{i}", f"text {i}") for i in range(1000)).encode())
        path = tmp_path / name
        path.write_bytes(whole)
        assert ids(path) == [f"d{i}" for i in range(1000)]
        plain = tmp_path / "named-otherwise"
        plain.write_bytes(whole)
        assert len(ids(plain)) == 1000
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(InputError, match="damaged or incomplete"):
            ids(path)
        path.write_bytes(whole[:20] + b"nonsense" + whole[28:])
        with pytest.raises(InputError, match="damaged or incomplete"):
            ids(path)


def test_tsv_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "c.tsv"
    path.write_text('17\tthe moon\nb\t"the ""sun"""\n')
    assert [(p.passage_id, p.text) for p in open_corpus(path)] == [("17", "the moon"), ("b", 'the "sun"')]
    texts = ['"I have a dream" is a speech.', '"Hello said he"', 'a 5" disk']
    path.write_text("".join(f"{i}\t{text}\n" for i, text in enumerate(texts)) + '"9"\t"all quoted"\n')
    assert [p.text for p in open_corpus(path)] == [*texts, "all quoted"], "as MS MARCO's"
    path.write_text('1\t"a\tb"\n2\tplain\n')
    assert [p.text for p in open_corpus(path)] == ["a\tb", "plain"]
    path.write_text("docid\tbody\nb\tthe sun\n")
    with pytest.raises(InputError, match="wrong TSV header"):
        ids(path)


def test_a_passage_may_have_a_title_only(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(
        record("a", " ", title="The Moon") + record("b", "", title=" ") + record("c", "sun", title="S")
    )
    reader = open_corpus(path)
    assert [(p.passage_id, p.text, p.title) for p in reader] == [("a", "The Moon", ""), ("c", "sun", "S")]
    assert (reader.counts.used, dict(reader.counts.reasons)) == (2, {"empty text": 1})


@pytest.mark.parametrize("wrong", ["a b", "a\u00a0b", " a", "a\x1b[2J", "a\x7f"])
def test_ids_are_one_word(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(record("good") + record(wrong))
    with pytest.raises(InputError, match="one word without white space or control characters") as caught:
        ids(path)
    assert caught.value.where == f"{path}:2"


def test_a_line_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb.jsonl.gz"
    path.write_bytes(gzip.compress(record("a").encode() + b'{"id": "b", "text": "' + b"x" * 3_000_000))
    monkeypatch.setenv("SPARTA_MAX_LINE_MB", "2")
    read = iter(open_corpus(path))
    assert next(read).passage_id == "a"
    with pytest.raises(InputError, match="a line is longer than the limit of 2 MB") as caught:
        next(read)
    assert caught.value.where == f"{path}:2"
    assert "SPARTA_MAX_LINE_MB" in str(caught.value)
    monkeypatch.setenv("SPARTA_MAX_LINE_MB", "0.02")
    with pytest.raises(InputError, match=r"longer than the limit of 0\.02 MB"):
        ids(path)
    monkeypatch.setenv("SPARTA_MAX_LINE_MB", "4")
    with pytest.raises(InputError, match="broken JSON"):
        ids(path)
    monkeypatch.setenv("SPARTA_MAX_LINE_MB", "much")
    with pytest.raises(InputError, match="a number of megabytes above 0"):
        ids(path)


def test_mrqa_without_its_marks(tmp_path: Path) -> None:
    """The answers are still where the text says: each place is checked by the word that stands there."""
    context = "[DOC] [TLE] The Moon [PAR] <P> It is round . </P> <Ul> <Li> Cold [SEP] too </Li> a < b"
    words = ["The", "Moon", "It", "round", "Cold", "too", "b"]
    questions = [
        {
            "qid": word,
            "question": f"{word}?",
            "detected_answers": [
                {"char_spans": [[context.rindex(word), context.rindex(word) + len(word) - 1]]}
            ],
        }
        for word in words
    ]
    path = tmp_path / "m.jsonl"
    path.write_text(
        json.dumps({"header": {}}) + "\n" + json.dumps({"context": context, "qas": questions}) + "\n"
    )
    (asked,) = read_mrqa(path)
    assert asked.text == "The Moon\nIt is round .\nCold\ntoo\na < b"
    for word, _, (begin,) in asked.questions:
        assert asked.text[begin : begin + len(word)] == word


def test_an_empty_text_file_is_no_passage(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "moon.txt").write_text("The moon is round.")
    reader = open_corpus(tmp_path)
    assert [passage.passage_id for passage in reader] == ["moon.txt"]
    assert dict(reader.counts.reasons) == {"empty text": 1}


def test_texts_of_subfolders_are_passages_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("moon.txt", "far/a planet.md", "far/away/moon.txt", ".git/no.txt", "far/.no.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("The moon is round.")
    (tmp_path / "far" / "records.jsonl").write_text(record("r"))
    (tmp_path / "far" / "picture.png").touch()
    read = {p.passage_id: p.title for p in open_corpus(tmp_path)}
    assert read == {"far/a_planet.md": "a planet", "far/away/moon.txt": "moon", "moon.txt": "moon"}
    assert "not reading far/picture.png (another format), far/records.jsonl (records in a" in caplog.text
    for number in range(30):
        (tmp_path / f"t{number}.txt").write_text("The sun is hot.")
    assert len(ids(tmp_path)) == 33
    assert "t22.txt, t23.txt and 13 more; not reading far/" in caplog.text


@pytest.mark.skipif(sys.platform != "linux", reason="needs file names that are any bytes")
def test_a_file_name_that_is_not_utf_8_is_a_bad_record(tmp_path: Path) -> None:
    (tmp_path / "moon.txt").write_text("The moon is round.")
    name = os.fsdecode(b"caf\xe9.txt")
    (tmp_path / name).write_text("The moon is cold.")
    with pytest.raises(BadRecordError, match=r"is not UTF-8: caf\\xe9\.txt") as caught:
        ids(tmp_path)
    assert caught.value.where == f"{tmp_path}/caf\\xe9.txt:1"
    assert "rename the file" in str(caught.value.remedy)
    reader = open_corpus(tmp_path, skip_invalid=True)
    assert [passage.passage_id for passage in reader] == ["moon.txt"]
    assert dict(reader.counts.reasons) == {"invalid id": 1}
    assert reader.fingerprint() == {**reader.identity(), "source": str(tmp_path)}


@pytest.mark.skipif(sys.platform != "linux", reason="needs file names that are any bytes")
def test_a_file_name_in_utf_8_is_read_as_such_in_every_locale(tmp_path: Path) -> None:
    """Where the locale is ASCII, Python passes the bytes of the name as surrogates."""
    (tmp_path / "le café.txt").write_text("The moon is round.")
    name = "le café.txt".encode().decode("ascii", "surrogateescape")
    _, passage = text_file(str(tmp_path / name), str(tmp_path), Tally())
    assert isinstance(passage, Passage)
    assert (passage.passage_id, passage.title) == ("le_café.txt", "le café")


def test_files_of_questions_are_no_passages(tmp_path: Path) -> None:
    for name in ("a.jsonl", "queries_dev.jsonl", "questions-2.jsonl", "qrels.jsonl", "querieslike.jsonl"):
        (tmp_path / name).write_text(record(name.partition(".")[0]))
    assert ids(tmp_path) == ["a", "querieslike"]


def test_links_to_folders_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are not followed, which could go round in a circle."""
    for folder in ("texts", "elsewhere"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.txt").write_text("the moon")
    (tmp_path / "texts" / "more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "texts" / "gone.txt").symlink_to(tmp_path / "nowhere")
    assert ids(tmp_path / "texts") == ["a.txt"]
    assert "gone.txt (not a file), more (a link to a folder)" in caplog.text


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("```sh\n# install\n```\n# Moon\n", "Moon"),
        ("~~~~\n# a\n~~~\n# b\n~~~~~\n## Moon ##\n", "Moon"),
        ("```\n# never closed\n", "note"),
        ("    # code\n\n# Moon", "Moon"),
        ("<!--\n# a\n-->\n# Moon", "Moon"),
        ("The\nmoon\n====\n# later", "The moon"),
        ("Moon\r\n---\r\n", "Moon"),
        ("- a list\ngoes on\n---\n# Moon", "Moon"),
        ("a\n\n---\n\n| b |\n|---|\n\n> c\n===\n\n# Moon", "Moon"),
        ("#hashtag\n# C#", "C#"),
        ("no heading", "note"),
    ],
)
def test_the_title_of_markdown_is_its_first_heading(text: str, title: str, tmp_path: Path) -> None:
    (tmp_path / "note.md").write_text(text, newline="")
    assert [passage.title for passage in open_corpus(tmp_path)] == [title]


FRONT = """---
title: 'The moon'
lang: en
year: 1990
tags: [sky, night]
flag: no
id: 7
date: 2024-01-05
---
"""


def test_front_matter_is_metadata(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(FRONT + "# Heading\n\nIt is round.")
    (tmp_path / "b.txt").write_text("---\na: b\n---\ntext")
    (tmp_path / "c.md").write_text("---\nonly text\n---\nmore")
    first, second, third = open_corpus(tmp_path)
    assert (first.passage_id, first.title, first.text) == ("a.md", "The moon", "# Heading\n\nIt is round.")
    kept = {"lang": "en", "year": "1990", "tags": ["sky", "night"], "flag": "no", "date": "2024-01-05"}
    assert {name: first.record[name] for name in kept} == kept
    assert second.text == "---\na: b\n---\ntext"
    assert third.text == "---\nonly text\n---\nmore"


@pytest.mark.slow
@pytest.mark.parametrize(
    "front",
    [
        "a: b: c",
        "a: &x [1]\nb: [*x, *x]",
        "[" * 60_000,
        "a: " + "[" * 600 + "]" * 600,
        "".join(f"k{i}: {'[' * 9}\n" for i in range(3000)),
        "a: 'never closed",
        "a: \x01",
    ],
    ids=range(7),
)
def test_front_matter_that_is_hostile_or_broken(front: str, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(f"---\n{front}\n---\ntext")
    started = time.thread_time()
    with pytest.raises(BadRecordError) as error:
        list(open_corpus(tmp_path))
    assert time.thread_time() - started < 3
    assert error.value.reason in ("broken front matter", "JSON nested too deeply")


def test_front_matter_builds_no_objects(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("---\na: !!python/object/apply:os.getcwd []\n---\ntext")
    assert [passage.record["a"] for passage in open_corpus(tmp_path)] == [[]]


def test_suffixes_in_capitals(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "UPPER.TXT").write_text("the moon")
    (tmp_path / "Read.Md").write_text("# Sun\n\nhot")
    (tmp_path / "Z.TXT.GZ").write_bytes(gzip.compress(b"the stars"))
    titles = {passage.passage_id: passage.title for passage in open_corpus(tmp_path)}
    assert titles == {"Read.Md": "Sun", "UPPER.TXT": "UPPER", "Z.TXT": "Z"}
    assert not caplog.text
    (tmp_path / "More.JSONL").write_text(record("j"))
    assert ids(tmp_path) == ["j"]


def test_questions_beside_texts_hide_neither_subfolders_nor_texts(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    for name in ("a.md", "below/b.md"):
        (tmp_path / name).write_text("The moon.\n")
    expected = ["a.md", "below/b.md"]
    assert ids(tmp_path) == expected
    (tmp_path / "questions.jsonl").write_text(record("q1"))
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\ta.md\t1\n")
    assert ids(tmp_path) == expected


def test_texts_of_utf_16_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("Wikipedia".encode("utf-16-le"))
    (tmp_path / "b.txt").write_text("The moon is round.")
    reader = open_corpus(tmp_path, skip_invalid=True)
    assert [passage.passage_id for passage in reader] == ["b.txt"]
    (skip,) = reader.counts.first_skips
    assert "zero bytes" in skip.reason


def test_a_text_that_was_removed_after_the_listing_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    for name in ("a.md", "b.txt", "below/c.txt"):
        (tmp_path / name).write_text("The moon.")
    reader = open_corpus(tmp_path)
    (tmp_path / "a.md").unlink()
    (tmp_path / "below" / "c.txt").unlink()
    (tmp_path / "below").rmdir()
    assert (reader.is_rereadable, reader.size) == (True, (9, True))
    assert [passage.passage_id for passage in reader] == ["b.txt"]
    assert dict(reader.counts.reasons) == {"removed file": 2}
    assert reader.counts.first_skips[0].where == f"{tmp_path}/a.md"
    assert reader.fingerprint() == {**open_corpus(tmp_path).identity(), "source": str(tmp_path)}
    reader = open_corpus(tmp_path)
    tmp_path.rename(tmp_path.with_name(f"{tmp_path.name}-elsewhere"))
    with pytest.raises(InputError, match="no such file"):
        list(reader)


def test_a_text_that_is_removed_during_hashing_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("The moon.")
    listing = files.files_of(str(tmp_path))
    (tmp_path / "a.txt").unlink()
    remaining = open_corpus(tmp_path).identity()
    monkeypatch.setattr(files, "files_of", lambda _source: listing)
    assert open_corpus(tmp_path).identity() == remaining
