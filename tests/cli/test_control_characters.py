"""Texts of a corpus never steer the terminal: control characters are shown, not sent."""

from __future__ import annotations

import json
import logging
import os
import pty
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from cli._output import dumps, visible
from tests.programs import sparta

EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, tiny_model_folder: Path) -> Path:
    """An index whose only passage has control characters; no test changes it."""
    folder = tmp_path_factory.mktemp("evil")
    record = {"id": "a", "title": f"Moon{EVIL}", "text": f"the moon {EVIL} of\r\nthe\f\x85earth"}
    (folder / "c.jsonl").write_text(json.dumps(record) + "\n")
    given = ["index", "--corpus", str(folder / "c.jsonl"), "--index", str(folder / "ix"), "--quiet"]
    result = sparta(*given, "--model", tiny_model_folder)
    assert result.exit_code == 0, result.output
    return folder / "ix"


def controls(text: str) -> set[str]:
    return {c for c in text if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 or c == "\u202e"}


@pytest.mark.jvm
@pytest.mark.parametrize(
    "command",
    [
        ["search", "the moon"],
        ["search", "the moon", "--json"],
        ["search", "the moon", "--channel", "bm25"],
        ["explain", "the moon", "a"],
        ["explain", "the moon", EVIL],
        ["terms", "a"],
        ["terms", EVIL],
        ["delete", EVIL],
    ],
)
def test_no_command_sends_them(index: Path, command: list[str]) -> None:
    result = sparta(*command, "--index", index)
    assert controls(result.output) == set()
    if command[:2] == ["search", "the moon"] and "--json" not in command:
        assert "Moon\\x1b[2J" in result.output, "they are shown"
        assert "of the earth" in result.output.replace("*", ""), "a line end is white space"
    if "--json" in command:
        assert json.loads(result.stdout)["title"] == f"Moon{EVIL}", "JSON says them in its own way"


def test_a_bad_record_with_them_in_its_message(tmp_path: Path, tiny_model_folder: Path) -> None:
    (tmp_path / "c.jsonl").write_text(f"{EVIL} no json\n")
    given = ["index", "--corpus", str(tmp_path / "c.jsonl"), "--index", str(tmp_path / "ix")]
    result = sparta(*given, "--model", tiny_model_folder)
    assert result.exit_code == 2
    assert controls(result.output) == set()


@pytest.mark.usefixtures("own_logger")
@pytest.mark.parametrize("logger", ["sparta.x", "hybrid.x", "dense.x"])
def test_what_is_logged(logger: str, capsys: pytest.CaptureFixture[str]) -> None:
    sparta.main(["terms", "--help"], standalone_mode=False)
    logging.getLogger(logger).warning("from a file: %s", EVIL)
    printed = capsys.readouterr().err
    assert printed.startswith("WARNING: from a file: \\x1b[2J")
    assert controls(printed) == set()


def test_shown_and_kept() -> None:
    assert visible("a\x1b[1m\n\tb\x9c", keep="\n\t") == "a\\x1b[1m\n\tb\\x9c"
    assert json.loads(dumps({"x": EVIL})) == {"version": 1, "x": EVIL}


@pytest.mark.jvm
@pytest.mark.usefixtures("own_logger")
@pytest.mark.parametrize(
    ("variables", "styled"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({"NO_COLOR": ""}, True)],
)
def test_styles_are_left_out_where_they_are_not_wanted(
    index: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    styled: bool,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    reading, terminal = pty.openpty()
    with os.fdopen(reading) as shown, os.fdopen(terminal, "w") as screen:
        with redirect_stdout(screen):
            sparta.main(["search", "the moon", "--index", str(index)], standalone_mode=False)
        screen.flush()
        heading, snippet = shown.readline(), shown.readline()
    assert ("\x1b[1mMoon" in heading, "\x1b[1m\x1b[4mmoon\x1b[0m" in snippet) == (styled, styled)
    assert ("\x1b" in heading, "\x1b" in snippet, "*moon*" in snippet) == (styled, styled, not styled)
