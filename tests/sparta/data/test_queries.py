"""Queries in the files people have."""

import gzip
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparta.base.errors import InputError
from sparta.base.records import Query
from sparta.data.queries import read_queries


def read(tmp_path: Path, content: str | bytes, name: str = "queries.jsonl") -> list[Query]:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(read_queries(path))


def test_beir_jsonl(tmp_path: Path) -> None:
    content = (
        '{"_id": "q1", "text": "who founded google", "answers": ["Page", "Brin"], "metadata": {}}\n'
        "\n"
        '{"id": 2, "question": "where", "answers": []}\r\n'
        '{"id": "q3", "text": ""}'
    )
    assert read(tmp_path, content) == [
        Query("q1", "who founded google", ("Page", "Brin")),
        Query("2", "where"),
        Query("q3", ""),
    ]


@pytest.mark.parametrize("content", ['{"id": 1, "text": "a"}', "1\ta"])
def test_a_name_that_ends_in_txt_says_nothing_of_queries(tmp_path: Path, content: str) -> None:
    assert read(tmp_path, content, "queries.txt") == [Query("1", "a")]


@pytest.mark.parametrize("header", ["", "qid\ttext\n", "id\tquery\n"])
def test_tsv_is_taken_as_it_stands(tmp_path: Path, header: str) -> None:
    found = read(tmp_path, f'{header}q1\t"quoted" words\nq2\t\n', "queries.tsv")
    assert found == [Query("q1", '"quoted" words'), Query("q2", "")]


@pytest.mark.parametrize(
    "content",
    ['{"_id": "1", "text": "a"}\n', "1\ta\n", "\ufeffqid\ttext\n1\ta", '\ufeff{"id": 1, "text": "a"}'],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_the_format_is_recognised_without_a_name(tmp_path: Path, content: str, zipped: bool) -> None:
    stored = gzip.compress(content.encode()) if zipped else content.encode()
    assert read(tmp_path, stored, "queries") == [Query("1", "a")]
    with CliRunner().isolation(input=stored):
        assert list(read_queries("-")) == [Query("1", "a")]


@pytest.mark.parametrize(
    ("name", "content", "line", "message"),
    [
        ("q.jsonl", '{"id": 1, "text": "a"}\n{"id": 2,', 2, "broken JSON"),
        ("q.jsonl", '["a"]', 1, "found a list"),
        ("q.jsonl", '{"text": "a"}', 1, "missing id"),
        ("q.jsonl", '{"id": 1}', 1, 'missing text: expected the field "text" or "question"'),
        ("q.jsonl", '{"id": 1, "text": 5}', 1, "text of the wrong type: expected a string, found a number"),
        ("q.jsonl", '{"id": 1, "text": "a", "answers": "b"}', 1, "list of strings"),
        ("q.jsonl", '{"id": 1, "text": "a", "answers": [1]}', 1, "list of strings"),
        (
            "q.jsonl",
            '{"id": 1, "text": "a"}\n\n{"_id": "1", "text": "b"}',
            3,
            "'1' was already the id of .*:1",
        ),
        ("q.jsonl", b'{"id": 1, "text": "\xff"}', 1, "0xff at byte 19"),
        ("q.tsv", "1\ta\tb", 1, r"expected 2 columns \(qid, text\), found 3"),
        ("q.tsv", "1\ta\n2", 2, "found 1"),
        ("q.tsv", "\ta", 1, "invalid id"),
        ("q.tsv", "1\ta\n1\tb", 2, "already the id"),
        ("q", "who founded google", 1, "found 1"),
    ],
)
def test_bad_queries(tmp_path: Path, name: str, content: str | bytes, line: int, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read(tmp_path, content, name)
    assert caught.value.where == f"{tmp_path / name}:{line}"
    assert caught.value.remedy
    assert "skip" not in str(caught.value.remedy)


@pytest.mark.parametrize(("name", "content"), [("q", "moon"), ("q.csv", "1,moon"), ("q", "a\0b")])
def test_a_wrong_format_names_the_formats_of_queries(tmp_path: Path, name: str, content: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, content, name)
    assert "ID<TAB>QUERY, or as JSON" in str(caught.value.remedy)
    assert ("binary" in caught.value.message) == ("\0" in content)


@pytest.mark.parametrize(("name", "content"), [("q.jsonl", ""), ("q.tsv", "qid\ttext\n"), ("q", "\n \n")])
def test_a_file_without_queries(tmp_path: Path, name: str, content: str) -> None:
    with pytest.raises(InputError, match="empty file"):
        read(tmp_path, content, name)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file") as caught:
        list(read_queries(tmp_path / "absent.tsv"))
    assert caught.value.where == str(tmp_path / "absent.tsv")
