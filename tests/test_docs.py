"""The pages: their Python runs, and docs/cli.md is what the commands say of themselves."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def python_of(page: Path) -> str:
    """All Python of a page, as one program."""
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))


@pytest.mark.slow
@pytest.mark.jvm
@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_the_python_of_a_page_runs(page: str, tmp_path: Path) -> None:
    code = python_of(ROOT / page)
    assert "Index.create(" in code
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "Bill Gates" in ended.stdout


def test_the_page_of_commands_is_their_help(tmp_path: Path) -> None:
    made = tmp_path / "cli.md"
    script = [sys.executable, str(ROOT / "scripts" / "cli_docs.py"), str(made)]
    ended = subprocess.run(script, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert ended.returncode == 0
    told = "the help changed: python scripts/cli_docs.py"
    assert made.read_text(encoding="utf-8") == (ROOT / "docs" / "cli.md").read_text(encoding="utf-8"), told


def test_the_readme_says_which_java_pyserini_needs() -> None:
    """The runtime that comes with the packages is not enough for it."""
    said = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert re.search(r"Pyserini asks for a whole JDK \(21 or newer, with `jdk\.incubator\.vector`\)", said)


PARSER = """
import argparse, contextlib, io, json, os, runpy, sys

class Parsed(Exception):
    pass

def parsed(self, *given, **named):
    parse(self, *given, **named)
    raise Parsed

parse, argparse.ArgumentParser.parse_args = argparse.ArgumentParser.parse_args, parsed
wrong = {}
for command in json.load(sys.stdin):
    sys.argv, sys.path[0] = command, os.path.dirname(command[0])
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            runpy.run_path(command[0], run_name="__main__")
    except Parsed:
        continue
    except SystemExit:
        wrong[" ".join(command)] = said.getvalue()
print(json.dumps(wrong))
"""


def benchmarks_of(page: str) -> list[list[str]]:
    """The commands of a page that run a benchmark: in its blocks, and between backticks; without `python`."""
    text = (ROOT / page).read_text(encoding="utf-8").replace("\\\n", " ")
    typed = re.findall(r"(?:^|`)(python benchmarks/(?:[^`\n]|\n(?=[^`\n]*`))*)", text, re.MULTILINE)
    return [shlex.split(command)[1:] for command in typed]


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/benchmarks.md"])
def test_the_commands_of_benchmarks_can_be_typed(page: str) -> None:
    """Each script that is named has one with all its arguments, which its own parser takes; none is run."""
    commands = benchmarks_of(page)
    named = set(re.findall(r"benchmarks/\w+\.py", (ROOT / page).read_text(encoding="utf-8")))
    assert named == {command[0] for command in commands}
    ended = subprocess.run(
        [sys.executable, "-c", PARSER],
        input=json.dumps(commands),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1]) == {}


CHECKS = runpy.run_path(str(ROOT / "scripts" / "check_docs.py"))


@pytest.mark.parametrize("page", [str(path.relative_to(ROOT)) for path in CHECKS["pages"]()])
def test_links_lead_somewhere(page: str) -> None:
    """To a file that exists and, with an anchor, to a heading of it."""
    assert list(CHECKS["broken_links"](ROOT / page)) == []


def test_what_lies_in_a_folder_is_told_once() -> None:
    """By the page of formats: what stood on two pages came to differ."""
    numbered = r"[a-z]+-0{3,}\d"
    assert re.search(numbered, (ROOT / "docs" / "formats.md").read_text(encoding="utf-8"))
    assert re.findall(numbered, (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")) == []


DECISIONS = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("*.md"))
FOLDERS = ("benchmarks", "cli", "dense", "hybrid", "java", "research", "scripts", "sparta", "tests")
NEVER_MADE = {"--reorder"}  # decision 0008 says why


@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision_that_names_what_is_gone_says_so(name: str) -> None:
    text = (ROOT / "docs" / "decisions" / name).read_text(encoding="utf-8")
    if "**Status:**" in text:
        return
    code = [path for folder in ("benchmarks", "cli") for path in (ROOT / folder).rglob("*.py")]
    named = [*code, ROOT / "docs" / "cli.md"]
    known = {option for path in named for option in re.findall(r"--[a-z][a-z0-9-]+", path.read_text("utf-8"))}
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", text))
    paths = re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w/.-]+)`", text)
    gone = [*sorted(options - known - NEVER_MADE), *(path for path in paths if not (ROOT / path).exists())]
    assert gone == [], "say it in a line **Status:**"
