"""Every command of docs/quickstart.md runs as typed, in its order, in a copy of the folder examples."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.documents import pdf
from tests.environments import ROOT
from tests.sparta.sharing.hub_server import TOKEN, running_hub

PAGE = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
PROGRAMS = {
    *("sparta", "dense", "hybrid", "python", "pip", "make"),
    *("source", "cd", "export", "mkdir", "echo", "printf", "mv"),
}
NOT_RUN = {
    "make install": "this environment is installed",
    "source .venv/bin/activate": "its programs are first on the PATH",
    "cd examples": "the test begins there",
    "pip install": "this environment has all extras",
    "export HF_TOKEN": "the token of the test's hub is set",
    "sparta index --corpus irds:": "needs the network; tests/sparta/data/test_irds.py reads local files",
    "hybrid eval --index scifact": "needs this dataset",
}
SHORTER = {
    "--steps 300": "--steps 2",
    "--data train-v1.1.json": "--data train-v1.1.json --steps 2 --held-out 12",
}
"""Trainings end after two steps here."""


def commands() -> list[str]:
    """The commands in the blocks of the page, in order."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    lines = [line for language, block in blocks if not language for line in block.splitlines()]
    return [line.partition("  #")[0].rstrip() for line in lines if line.split(" ")[0] in PROGRAMS]


def is_run(command: str) -> bool:
    return not command.startswith(tuple(NOT_RUN))


def test_every_exception_is_on_the_page() -> None:
    typed = commands()
    assert len(typed) > 60
    for beginning in NOT_RUN:
        assert any(command.startswith(beginning) for command in typed), beginning
    for words in SHORTER:
        assert sum(words in command for command in typed) == 1, words


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the folder examples with the files that a reader of the page has."""
    folder = Path(shutil.copytree(ROOT / "examples", tmp_path / "examples"))
    (folder / "my-report.pdf").write_bytes(pdf(["The sun is hot."]))
    (folder / "my-folder").mkdir()
    (folder / "my-folder" / "a.md").write_text("# Moon\n\nThe Moon is far away.\n")
    shutil.copy(folder / "wiki.jsonl", folder / "my-corpus.jsonl")
    pairs = [{"question": f"what orbits planet {i}", "positive": f"Moon {i} orbits it."} for i in range(64)]
    (folder / "my-pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    shutil.copy(folder / "questions.jsonl", folder / "held-out.jsonl")
    contexts = [f"The town number {n} has the name Lowick {n}. A river is near." for n in range(12)]
    paragraphs = [
        {
            "context": context,
            "qas": [
                {
                    "id": f"q{n}",
                    "question": f"What is the name of town number {n}?",
                    "answers": [{"text": f"Lowick {n}", "answer_start": context.index("Lowick")}],
                }
            ],
        }
        for n, context in enumerate(contexts)
    ]
    squad = {"version": "1.1", "data": [{"title": "Lowick", "paragraphs": paragraphs}]}
    for name in ("dev-v1.1.json", "train-v1.1.json"):
        (folder / name).write_text(json.dumps(squad))
    return folder


@pytest.fixture
def variables(tmp_path: Path) -> Iterator[dict[str, str]]:
    programs = str(Path(sys.executable).parent)
    with running_hub() as hub:
        yield {
            **{name: value for name, value in os.environ.items() if not name.startswith("SPARTA")},
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HF_ENDPOINT": hub.address,
            "HF_TOKEN": TOKEN,
            "HF_HOME": str(tmp_path / "home"),
            "HF_HUB_DISABLE_XET": "1",
        }


def serves(command: str, folder: Path, variables: dict[str, str]) -> str:
    """Run `sparta serve` on a free port until it answers, then press Ctrl-C; return its error, if any."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]
    words = ["sparta", *command.split()[1:], "--port", str(port)]
    log = folder / "serve.log"
    with (
        log.open("w") as stream,
        subprocess.Popen(words, cwd=folder, env=variables, stdout=stream, stderr=stream) as served,
    ):
        for _ in range(600):
            time.sleep(0.2)
            try:
                ready = urlopen(f"http://127.0.0.1:{port}/ready", timeout=5).status == 200
            except OSError:
                ready = False
            if ready or served.poll() is not None:
                break
        served.send_signal(signal.SIGINT)
        served.wait(60)
    return "" if ready else log.read_text()


@pytest.mark.release
@pytest.mark.jvm
def test_the_commands_run_as_typed(folder: Path, variables: dict[str, str]) -> None:
    failed = []
    for command in filter(is_run, commands()):
        typed = command
        for words, fewer in SHORTER.items():
            typed = typed.replace(words, fewer)
        started = time.monotonic()
        if command.startswith("sparta serve"):
            error = serves(command, folder, variables)
        else:
            ended = subprocess.run(
                ["bash", "-c", typed], cwd=folder, env=variables, capture_output=True, text=True, check=False
            )
            error = f"exit code {ended.returncode}: {ended.stdout}{ended.stderr}" if ended.returncode else ""
        print(f"{time.monotonic() - started:6.1f} s  {typed} {error}", flush=True)
        if error:
            failed.append(f"{typed}\n{error}")
    assert not failed, "\n".join(failed)
