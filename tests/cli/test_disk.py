"""Outputs that cannot be written: a full disk, a read-only folder, a closed pipe."""

import contextlib
import errno
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import (
    DRIVER,
    QUESTION,
    ROOT,
    done,
    refused,
    sparta_processes,
    written,
    written_queries,
)
from tests.programs import sparta

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("own_logger")]


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


def test_a_read_only_folder_can_be_searched_and_not_written(read_only, corpus, model):
    index = read_only / "ix"
    assert done(sparta("search", QUESTION, "--index", index)).stdout.startswith("  1  Google")
    assert sparta("doctor", "--quick", "--index", index, "--json").stdout.count(str(index)) == 1
    words = (read_only, "cannot be written", "or write to another")
    more = corpus.with_name("more.jsonl")
    more.write_text('{"id": "more", "text": "The moon is old."}\n')
    for arguments in (
        ["index", "--corpus", corpus, *model, "--index", read_only / "new"],
        ["index", "--corpus", more, *model, "--index", index, "--append"],
        ["index", "--corpus", corpus, *model, "--index", index, "--overwrite"],
        ["update", "--corpus", corpus, *model, "--index", index],
        ["delete", "moon", "--index", index],
        ["encode", "--corpus", corpus, *model, "--output", read_only / "shards"],
        ["search", "--queries", written_queries(), "--output", read_only / "run", "--index", index],
        ["export", "--format", "ciff", "--output", read_only / "x.ciff", "--index", index],
    ):
        refused(sparta(*arguments), 1, *words[:2], "write to a")


@pytest.mark.slow
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
    assert said.startswith("error: standard output: the file cannot be written: No space left"), said
    assert "Traceback" not in said
    assert "Exception ignored" not in said


@pytest.mark.parametrize("option", ["--help", "--version"])
@pytest.mark.parametrize("buffering", [0, -1])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_standard_output_that_is_full_before_a_command_runs(option, buffering, monkeypatch, capsys):
    with io.TextIOWrapper(Path("/dev/full").open("wb", buffering), write_through=not buffering) as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as ended:
            sparta.main([option])
        assert ended.value.code == 1
        assert capsys.readouterr().err.startswith("error: standard output: the file cannot be written")


def test_standard_output_that_is_open_only_for_reading_is_no_full_disk(monkeypatch, capsys):
    descriptor = os.open(os.devnull, os.O_RDONLY)
    with open(descriptor, "w") as stream:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdout", stream)
        with pytest.raises(SystemExit) as ended:
            sparta.main(["--version"])
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert said.startswith("error: standard output: the file cannot be written: Bad file descriptor\n"), said
    assert "redirections" in said
    assert "space" not in said


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_disk_that_fails_is_not_taken_for_standard_output(number, monkeypatch):
    def fail(_: str) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("cli._group.import_module", fail)
    result = sparta("info")
    assert result.exit_code == 1
    assert f"{os.strerror(number)}\n  →" in result.stderr
    assert "standard output" not in result.stderr


@pytest.mark.slow
def test_standard_streams_that_are_closed(built, tmp_path):
    """As a daemon starts a command: what it prints is lost, what it does is not."""
    for line, said in (
        (f'search "{QUESTION}" --index "{built}" >&-', ""),
        (f'index --corpus - --channels bm25 --index "{tmp_path}/ix" <&-', "standard input is closed"),
    ):
        ended = subprocess.run(
            ["bash", "-c", f'"{sys.executable}" -c "{DRIVER}" {line}'],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
            check=False,
        )
        assert said in ended.stderr.decode()
        assert "Traceback" not in ended.stderr.decode()
        assert bool(ended.returncode) == bool(said)


def test_files_that_may_not_grow(tmp_path):
    path = written(tmp_path / "c.jsonl", {"id": "1", "text": "the moon"})
    line = f'ulimit -f 20; "{sys.executable}" -c "{DRIVER}" index --corpus "{path}" --channels bm25'
    ended = subprocess.run(
        ["bash", "-c", f'{line} --index "{tmp_path}/ix"'],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert ended.returncode == 1
    assert "cannot be written: File too large" in ended.stderr
    assert "ulimit -f" in ended.stderr


@pytest.mark.slow
def test_a_pipe_that_is_closed_early(built, tmp_path):
    """`sparta search … | head -1` is quiet and no error, also when what is printed exceeds the pipe."""
    code = "import sparta.search.searcher as s; hit = s.Searcher.search;" + (
        "s.Searcher.search = lambda self, q, k, **page: hit(self, q, k, **page) * 2000;" + DRIVER
    )
    command = (
        f'set -o pipefail; "{sys.executable}" -c "{code}" search "{QUESTION}" --index "{built}" | head -1'
    )
    result = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert result.stdout.startswith("  1  Google")
    assert (result.stderr, result.returncode) == ("", 0)


@pytest.mark.slow
@pytest.mark.parametrize("home", ["/dev/null", "/proc"])
def test_a_home_that_cannot_be_written_costs_only_the_cache(home, corpus, tmp_path, model):
    """Also where HOME is a file, as for a system user."""
    index, variables = tmp_path / "ix", {"HOME": home, "XDG_CACHE_HOME": None, "SPARTA_JVM_ARCHIVE": ""}
    made, result = sparta_processes(
        ["index", "--corpus", corpus, "--index", index, *model],
        ["search", QUESTION, "--index", index, "--channel", "bm25"],
        **variables,
    )
    assert (made.returncode, "Traceback" in made.stderr) == (0, False), made.stderr
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("  1  Google")


@pytest.mark.slow
def test_a_temporary_folder_that_fills_up_is_named(small_disk, built, corpus, tmp_path, model):
    """Commands that need no temporary folder work; the others name it and TMPDIR."""
    variables = {"TMPDIR": str(small_disk("size=40k"))}
    folder = tmp_path / "set"
    (folder / "qrels").mkdir(parents=True)
    written(folder / "corpus.jsonl", *({"_id": str(i), "text": f"the sun {i}"} for i in range(50)))
    written(folder / "queries.jsonl", {"_id": "q", "text": "the sun"})
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\t1\t1\n")
    search, index, result = sparta_processes(
        ["search", QUESTION, "--index", built],
        ["index", "--corpus", corpus, *model, "--index", tmp_path / "ix"],
        ["eval", folder],
        **variables,
    )
    assert (search.returncode, search.stderr) == (0, "")
    assert index.returncode == 0, index.stderr
    refused(result, 1, variables["TMPDIR"], "No space left on device")
    assert "Traceback" not in result.stderr
