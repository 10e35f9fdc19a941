"""Ctrl-C: what is kept, and the exit code."""

import io
import json
import re
from typing import Any

import pytest

from tests.cli.commands import QUESTION, sparta_process, written
from tests.moments import at, ctrl_c
from tests.programs import sparta

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("own_logger")]


class Typed(io.RawIOBase):
    """A corpus of which a line comes whenever one is read, and then Ctrl-C."""

    def __init__(self, n: int) -> None:
        self._lines = iter([json.dumps({"id": str(i), "text": f"the moon {i}"}) + "\n" for i in range(n)])

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        line = next(self._lines, "").encode() or ctrl_c()
        buffer[: len(line)] = line
        return len(line)


@pytest.mark.parametrize("command", ["index", "encode"])
@pytest.mark.parametrize("moment", ["opening the model", "before the first batch"])
def test_ctrl_c_before_anything_was_written(tmp_path, corpus, model, command, moment):
    given = command, "--index" if command == "index" else "--output", tmp_path / "new", *model, "--corpus"
    if moment == "opening the model":
        with at("read", "config.json", ctrl_c):
            result = sparta(*given, corpus)
    else:
        result = sparta(*given, "-", stdin=io.BufferedReader(Typed(3)))
    assert result.exit_code == 130
    assert (
        result.stderr
        == "interrupted: nothing was written yet; the same command with --resume starts from the beginning\n"
    )


def test_ctrl_c_before_anything_more_was_written(tmp_path, index, model):
    """What an earlier command wrote is told as well, if the same command goes on from there.

    A command that finds an index reads config.json first to see whether the index is up to date.
    """
    given = ("index", "--corpus", "-", "--index", tmp_path / "new", *model)
    said = sparta(*given, stdin=io.BufferedReader(Typed(1100))).stderr  # a batch has at most 512
    match = re.fullmatch(
        r"interrupted: ([\d,]+) passages kept; the same command with --resume continues\n", said
    )
    assert match, said
    known = int(match[1].replace(",", ""))
    assert 32 <= known < 1100
    assert sparta(*given, "--resume", stdin=io.BufferedReader(Typed(known))).stderr == said
    with at("read", "config.json", ctrl_c, nth=2):
        assert sparta(*given, "--resume", stdin=io.BufferedReader(Typed(known))).stderr == said
    more = written(tmp_path / "more.jsonl", {"id": "new", "text": "the moon"})
    nothing = (
        "interrupted: nothing was written yet; the index is unchanged;"
        " the same command with --resume starts from the beginning\n"
    )
    with at("read", "config.json", ctrl_c, nth=2):
        assert sparta("update", "--corpus", more, "--index", index, *model).stderr == nothing


@pytest.mark.slow
def test_ctrl_c_while_a_batch_is_written_keeps_the_batch(tmp_path, corpus, model):
    """Lucene finishes the batch, and a commit follows."""
    code = """
import signal
import sparta.index.inputs.options
from sparta.lucene.bridge import ImpactWriter
signal.signal(signal.SIGINT, signal.default_int_handler)
sparta.index.inputs.options._PASSAGES_PER_BATCH = 3
add = ImpactWriter.add
def interrupted(*arguments, **options):
    signal.raise_signal(signal.SIGINT)
    return add(*arguments, **options)
ImpactWriter.add = interrupted
"""
    ended = sparta_process("index", "--corpus", corpus, "--index", tmp_path / "new", *model, before=code)
    assert ended.returncode == 130
    assert ended.stderr.endswith("interrupted: 3 passages kept; the same command with --resume continues\n")


@pytest.mark.parametrize("command", ["index", "sync", "update"])
def test_ctrl_c_after_the_last_commit_names_the_passages(tmp_path, monkeypatch, command):
    """The manifest is written, and the job has nothing left to do but to count the passages."""
    options = ("--index", tmp_path / "new", "--channels", "bm25")
    line = "interrupted: 2 passages kept; the same command with --resume continues\n"
    if command == "update":
        sparta(
            "index", "--corpus", written(tmp_path / "old.jsonl", {"id": "old", "text": "a star"}), *options
        )
        options = options[:2]
    new = written(tmp_path / "new.jsonl", {"id": "0", "text": "the moon"}, {"id": "1", "text": "a mill"})
    monkeypatch.setattr("sparta.index.build._count_passages", lambda _: ctrl_c())
    result = sparta(command, *([new] if command == "sync" else ["--corpus", new]), *options)
    assert result.exit_code == 130
    assert result.stderr == (line.replace(" with --resume", "") if command == "sync" else line)


def test_an_interrupt(built, corpus):
    with at("read", "segments_*", ctrl_c):
        result = sparta("search", QUESTION, "--index", built)
    assert (result.exit_code, result.stderr) == (130, "interrupted\n")


def test_a_second_ctrl_c_does_not_break_off_the_end(tmp_path, corpus, model):
    """The second comes while Python shuts down, when threads of the first job still run."""
    code = """
import atexit, os, signal
import sparta.shards.encode as module
signal.signal(signal.SIGINT, signal.default_int_handler)
atexit.register(os.kill, os.getpid(), signal.SIGINT)
module.open_encoder = lambda *_, **__: signal.raise_signal(signal.SIGINT)
"""
    ended = sparta_process("encode", "--corpus", corpus, "--output", tmp_path / "new", *model, before=code)
    assert (ended.returncode, ended.stderr.count("\n")) == (130, 1), ended.stderr
