"""Ctrl-C: what is kept, and the exit code."""

import importlib
from typing import Any

import pytest

from tests.cli.commands import QUESTION, sparta, sparta_process, written

importlib.import_module("sparta.shards.encode")  # before a test replaces what it imports
pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("own_logger")]


@pytest.mark.parametrize("command", ["index", "encode"])
@pytest.mark.parametrize("moment", ["opening the model", "before the first batch"])
def test_ctrl_c_before_anything_was_written(tmp_path, corpus, model, monkeypatch, command, moment):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    place = (
        f"sparta.{'models.load' if command == 'index' else 'shards.encode'}.open_encoder"
        if moment == "opening the model"
        else "sparta.models.document_encoder.DocumentEncoder.encode"
    )
    monkeypatch.setattr(place, interrupted)
    option = "--index" if command == "index" else "--output"
    result = sparta(command, "--corpus", corpus, option, tmp_path / "new", *model)
    assert result.exit_code == 130
    assert (
        result.stderr
        == "interrupted: nothing was written yet; the same command with --resume starts from the beginning\n"
    )


def test_ctrl_c_before_anything_more_was_written(tmp_path, corpus, index, model, monkeypatch):
    """What an earlier command wrote is told as well, if the same command goes on from there."""
    from sparta.index.inputs.impact_batches import quantized_batch

    batches = 0

    def interrupting(*arguments: Any) -> Any:
        nonlocal batches
        batches += 1
        if batches == 2:
            raise KeyboardInterrupt
        return quantized_batch(*arguments)

    new = tmp_path / "new"
    monkeypatch.setattr("sparta.index.pipeline._PASSAGES_PER_BATCH", 3)
    monkeypatch.setattr("sparta.index.inputs.sources.quantized_batch", interrupting)
    said = "interrupted: 3 passages kept; the same command with --resume continues\n"
    assert sparta("index", "--corpus", corpus, "--index", new, *model).stderr == said
    batches = 1
    assert sparta("index", "--resume", "--corpus", corpus, "--index", new, *model).stderr == said
    monkeypatch.setattr("sparta.models.load.open_encoder", interrupting)
    batches = 1
    assert sparta("index", "--resume", "--corpus", corpus, "--index", new, *model).stderr == said
    batches = 1
    more = written(tmp_path / "more.jsonl", {"id": "new", "text": "the moon"})
    nothing = (
        "interrupted: nothing was written yet; the index is unchanged;"
        " the same command with --resume starts from the beginning\n"
    )
    assert sparta("update", "--corpus", more, "--index", index, *model).stderr == nothing


@pytest.mark.slow
def test_ctrl_c_while_a_batch_is_written_keeps_the_batch(tmp_path, corpus, model):
    """Lucene finishes the batch, and a commit follows."""
    code = """
import signal
import sparta.index.pipeline
from sparta.lucene.bridge import ImpactWriter
signal.signal(signal.SIGINT, signal.default_int_handler)
sparta.index.pipeline._PASSAGES_PER_BATCH = 3
add = ImpactWriter.add
def interrupted(*arguments, **options):
    signal.raise_signal(signal.SIGINT)
    return add(*arguments, **options)
ImpactWriter.add = interrupted
"""
    ended = sparta_process("index", "--corpus", corpus, "--index", tmp_path / "new", *model, before=code)
    assert ended.returncode == 130
    assert ended.stderr.endswith("interrupted: 3 passages kept; the same command with --resume continues\n")


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
