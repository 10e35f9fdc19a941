"""Corpora, vectors and queries that are not what they should be: what is refused, with which words."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.commands import QUESTION, RECORDS, done, hits_of, refused, top_rows, written, written_queries
from tests.programs import sparta

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("own_logger")]


GOOD = json.dumps(RECORDS[0]).encode() + b"\n"


BAD_CORPORA = {
    "empty": (b"", ["corpus.jsonl: empty file", "expected at least one record", "written completely"]),
    "blank lines": (b"\n \n", ["corpus.jsonl: empty file"]),
    "broken JSON": (
        GOOD + b'{"id": "b", "text": "x"}\n{"id": "c", "te',
        [
            "corpus.jsonl:3: broken JSON",
            "expected one JSON object",
            """found '{"id": "c", "te'""",
            "--skip-invalid",
        ],
    ),
    "not a JSON object": (
        GOOD + b'["b"]\n',
        ["corpus.jsonl:2: not a JSON object", "found a list"],
    ),
    "missing text": (
        GOOD + b'{"id": "b"}\n',
        ["corpus.jsonl:2: missing text", "found 'id'", "--text-field NAME"],
    ),
    "duplicate id": (
        GOOD + b"\n" + GOOD,
        [
            "corpus.jsonl:3: duplicate id",
            "'google' was already the id of",
            "corpus.jsonl:1",
        ],
    ),
    "invalid UTF-8": (
        GOOD + b'{"id": "b", "text": "caf\xe9"}\n',
        ["corpus.jsonl:2: invalid UTF-8", "found byte 0xe9 at byte 24", "convert the file to UTF-8"],
    ),
    "NaN": (GOOD + b'{"id": "b", "text": "x", "n": NaN}\n', ["corpus.jsonl:2: broken JSON", "NaN"]),
}


@pytest.mark.parametrize(("content", "words"), BAD_CORPORA.values(), ids=BAD_CORPORA.keys())
def test_a_bad_corpus_is_refused_and_mended(content, words, tmp_path, model):
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(content)
    refused(sparta("index", "--corpus", path, *model), 2, *words)
    refused(sparta("encode", "--corpus", path, "--output", "shards", *model), 2, *words)
    assert sparta("search", QUESTION).exit_code == 2  # half an index does not pass for one
    written(path, *RECORDS)
    assert "sparta-index: 5 passages" in done(sparta("index", "--corpus", path, *model)).stdout


@pytest.mark.parametrize("command", ["index", "update", "encode"])
def test_a_missing_corpus_is_told_before_anything_is_loaded(command):
    arguments = ["--corpus", "nowhere.jsonl", *(["--output", "shards"] if command == "encode" else [])]
    refused(
        sparta(command, *arguments, "--model", "no/such/model"),
        2,
        "nowhere.jsonl: no such file",
        "check the path",
    )
    assert list(Path().iterdir()) == []


def test_bad_records_are_skipped_and_counted_when_one_says_so(tmp_path, model):
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(GOOD + GOOD + b'{"id": "b"}\n{\n{"id": "e", "text": " "}\n')
    result = done(sparta("index", "--corpus", path, *model, "--skip-invalid"))
    assert "read 5 records = 1 used + 4 skipped" in result.stdout
    for reason in ("duplicate id", "missing text", "broken JSON", "empty text"):
        assert f"1 {reason}" in result.stdout
    assert len(re.findall(r"^  skipped .*corpus\.jsonl:\d: ", result.stderr, re.MULTILINE)) == 4


def test_empty_texts_are_skipped_and_counted(tmp_path, model):
    path = written(tmp_path / "c.jsonl", *RECORDS, {"id": "e", "text": ""}, {"id": "f", "text": " \t"})
    result = done(sparta("index", "--corpus", path, *model))
    assert "read 7 records = 5 used + 2 skipped (2 empty text)" in result.stdout
    assert f"skipped {path}:6: empty text" in result.stderr
    assert (
        "read 7 records = 5 used + 2 skipped (2 empty text)"
        in done(sparta("encode", "--corpus", path, "--output", "shards", *model)).stdout
    )


def test_a_corpus_of_empty_texts_only_gives_no_index(tmp_path, model):
    path = written(tmp_path / "c.jsonl", {"id": "e", "text": ""})
    refused(
        sparta("index", "--corpus", path, *model), 2, path, "no passages: all records were skipped (1 empty"
    )
    refused(sparta("search", QUESTION), 2, "holds no passages yet")


@pytest.mark.slow
def test_twenty_thousand_words_are_encoded_in_windows(tmp_path, model):
    text = " ".join(["the moon of the earth"] * 3_999 + ["jupiter is a large planet"])
    path = written(tmp_path / "c.jsonl", *RECORDS, {"id": "long", "text": text})
    result = done(sparta("index", "--corpus", path, *model))
    assert "6 passages" in result.stdout
    assert "1 longer than the model's input" in result.stdout
    assert json.loads(Path("sparta-index/manifest.json").read_text())["live"]["counts"]["windowed"] == 1
    found = dict(top_rows(done(sparta("terms", "long", "-n", 10_000)).stdout))
    assert {"moon", "jupiter"} <= found.keys()  # the first window's words and the last one's
    assert "long" in done(sparta("search", "large planet", "-k", 2)).stdout


BAD_VECTORS = {
    "negative": ({"moon": -1}, ["from 0 to 65535, found -1 for the term 'moon'", "quantize the weights"]),
    "float": ({"moon": 1.5}, ["expected an integer impact", "found 1.5", "quantize the weights"]),
    "whole float": ({"moon": 2.0}, ["expected an integer impact", "found 2.0"]),
    "true": ({"moon": True}, ["expected an integer impact", "found True"]),
    "too large": ({"moon": 65536}, ["from 0 to 65535, found 65536"]),
    "NaN": ({"moon": float("nan")}, ["expected a finite number, found NaN"]),
    "infinity": ({"moon": float("inf")}, ["expected a finite number, found Infinity"]),
    "text": ({"moon": "7"}, ["expected an integer impact", "found '7'"]),
    "long term": ({"x" * 300: 1}, ["a term must have 1 to 255 characters, found 300", "shorten"]),
    "no term": ({"": 1}, ["a term must have 1 to 255 characters, found 0"]),
    "list": ([1], ["field vector must be an object of terms and impacts, found list"]),
}


@pytest.mark.parametrize(("vector", "words"), BAD_VECTORS.values(), ids=BAD_VECTORS.keys())
def test_bad_vectors_are_refused(vector, words, tmp_path, tiny_model_folder):
    good = {"id": "a", "contents": "", "vector": {"moon": 7}}
    path = written(tmp_path / "v.jsonl", good, {"id": "b", "contents": "", "vector": vector})
    result = sparta("index", "--vectors", path, "--tokenizer", tiny_model_folder)
    refused(result, 2, f"{path}:2: ", *words)


def test_vectors_with_the_longest_term_and_the_largest_impact(tmp_path, tiny_model_folder):
    vector = {"moon": 65535, "x" * 255: 1, "earth": 0}
    path = written(tmp_path / "v.jsonl", {"id": "a", "contents": "the moon", "vector": vector})
    done(sparta("index", "--vectors", path, "--tokenizer", tiny_model_folder))
    rows = top_rows(done(sparta("terms", "a")).stdout)
    assert rows == [("moon", 65535), ("x" * 255, 1)]
    assert [hit["score"] for hit in hits_of("moon")] == [65535.0]


def test_vectors_that_are_not_there(tmp_path, tiny_model_folder):
    tokenizer = "--tokenizer", tiny_model_folder
    refused(
        sparta("index", "--vectors", "nowhere", *tokenizer),
        2,
        "nowhere: ",
        "no such file or folder of vectors",
        "--vectors",
    )
    (tmp_path / "folder").mkdir()
    refused(
        sparta("index", "--vectors", "folder", *tokenizer), 2, "folder: ", "contains neither", "sparta encode"
    )


def test_a_corpus_from_standard_input(corpus, model):
    text = corpus.read_bytes()
    assert "5 passages" in done(sparta("index", "--corpus", "-", *model, stdin=text)).stdout
    assert done(sparta("search", QUESTION, "-k", 1)).stdout.startswith("  1  Google")
    refused(sparta("index", "--corpus", "-", *model, stdin=b'{"id": 1\n'), 2, "an index of another input")
    bad = sparta("index", "--corpus", "-", *model, "--index", "other", stdin=b'{"id": 1\n')
    refused(bad, 2, "<stdin>:1: broken JSON")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that not even root can read")
def test_a_corpus_that_cannot_be_read(tmp_path):
    result = sparta("index", "--corpus", "/proc/self/mem", "--index", tmp_path / "index")
    refused(result, 2, "cannot be read: Input/output error", "/proc/self/mem")
    assert not (tmp_path / "index").exists()


def test_queries_that_are_not_what_they_should_be(built, tmp_path):
    options = "--output", "run.trec", "--index", built
    refused(
        sparta("search", "--queries", "nowhere.tsv", *options),
        2,
        "nowhere.tsv: no such file",
        "check the path",
    )
    (tmp_path / "q.tsv").write_text("q1\tx\nq2 y\n")
    refused(
        sparta("search", "--queries", "q.tsv", *options), 2, "q.tsv:2: wrong number of columns", "expected 2"
    )
    written(tmp_path / "q.jsonl", {"_id": "q1", "text": "x"}, {"_id": "q1", "text": "y"})
    refused(
        sparta("search", "--queries", "q.jsonl", *options), 2, "q.jsonl:2: duplicate query id", "q.jsonl:1"
    )
    written_queries()
    refused(
        sparta("search", "--queries", "queries.tsv", "--index", built),
        2,
        "--queries and --output",
        "run.trec",
    )
    result = sparta("search", "--queries", "queries.tsv", "--output", "no/run.trec", "--index", built)
    refused(result, 2, "no/run.trec", "No such file")
    assert not Path("run.trec").exists()


@pytest.mark.parametrize("command", ["index", "update", "encode"])
def test_an_unknown_format_is_told_before_anything_is_loaded(command, tmp_path, built):
    text = tmp_path / "notes.dat"
    text.write_text("# Moon\n\nThe moon is round.\n")
    where = ["--output", "shards"] if command == "encode" else ["--index", built]
    arguments = [command, "--corpus", text, *where, "--model", "no/such/model"]
    refused(sparta(*arguments), 2, f"{text}:1: unknown format", "name the file .txt if it is one text")


def test_skipped_records_that_are_not_listed_are_counted(tmp_path, model):
    path = written(tmp_path / "c.jsonl", RECORDS[0], *({"id": f"e{i}", "text": ""} for i in range(28)))
    result = done(sparta("index", "--corpus", path, "--channels", "bm25"))
    assert "  … and 8 more skipped records" in result.stderr.splitlines()
    assert "sparta-index: 1 passage, 1 written in" in result.stdout
