"""What long commands show on a terminal."""

import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.cli.commands import DRIVER, RECORDS, ROOT, written

pytestmark = pytest.mark.jvm


def shown_on_a_terminal(*arguments: object) -> str:
    """Run a command whose standard error is a terminal, and return what it shows there."""
    reading, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 120))
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=terminal,
    ) as process:
        os.close(terminal)
        shown = b""
        try:
            while part := os.read(reading, 1 << 16):
                shown += part
        except OSError:  # how Linux says that the other end is closed
            pass
        os.close(reading)
    assert process.returncode == 0, shown
    return shown.decode()


@pytest.mark.slow
def test_indexing_shows_how_much_of_the_corpus_is_done(tmp_path: Path) -> None:
    corpus = written(tmp_path / "corpus.jsonl", *RECORDS)
    command = ("index", "--corpus", corpus, "--channels", "bm25", "--index")
    shown = shown_on_a_terminal(*command, tmp_path / "a")
    size = corpus.stat().st_size
    assert re.search(rf"100%.*{size}/{size} .*{len(RECORDS)} passages", shown)
    assert "%" not in shown_on_a_terminal(*command, tmp_path / "b", "--quiet")
