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

from tests.conftest import JAVA_OPTIONS

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
    few_threads = (
        f"import jnius_config; jnius_config.add_options(*{JAVA_OPTIONS})\n"
        "from sparta.runtime.processor import use_threads; use_threads(1)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", few_threads + code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "Bill Gates" in ended.stdout


@pytest.mark.slow
def test_the_page_of_messages_is_that_of_the_code() -> None:
    page = runpy.run_path(str(ROOT / "scripts" / "messages.py"))["page"]()
    shown = (ROOT / "docs" / "messages.md").read_text(encoding="utf-8")
    assert "\n- : " not in page
    assert "\n- removed file: the file was removed" in page  # a constant of another module
    assert "as in --device cpu," in page
    assert shown == page, "a message changed: python scripts/messages.py"


def test_the_page_of_commands_is_their_help(tmp_path: Path) -> None:
    made = tmp_path / "cli.md"
    script = [sys.executable, str(ROOT / "scripts" / "cli_docs.py"), str(made)]
    ended = subprocess.run(script, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert ended.returncode == 0
    told = "the help changed: python scripts/cli_docs.py"
    assert made.read_text(encoding="utf-8") == (ROOT / "docs" / "cli.md").read_text(encoding="utf-8"), told


def test_the_page_of_formats_says_which_java_pyserini_needs() -> None:
    """The runtime that comes with the packages is not enough for it."""
    text = " ".join((ROOT / "docs" / "formats.md").read_text(encoding="utf-8").split())
    assert "Pyserini asks for a full JDK (21 or newer) with the module `jdk.incubator.vector`" in text


BENCHMARKS = "docs/benchmarks.md"


def rows_below(page: str, heading: str) -> list[list[str]]:
    """Return the rows of all tables below a heading, without bold type.

    An empty first cell repeats the cell above it.
    """
    text = (ROOT / page).read_text(encoding="utf-8")
    (start,) = re.finditer(rf"^(#+) {re.escape(heading)}$", text, re.MULTILINE)
    section = re.split(rf"^#{{1,{len(start[1])}}} ", text[start.end() :], maxsplit=1, flags=re.MULTILINE)[0]
    rows: list[list[str]] = []
    for line in re.findall(r"^\|(.*)\|$", section, re.MULTILINE):
        cells = [cell.replace("**", "").strip() for cell in line.split("|")]
        rows.append([cells[0] or rows[-1][0], *cells[1:]])
    return rows


def row(rows: list[list[str]], *beginnings: str) -> list[str]:
    """Return the only row whose first cells begin like this."""
    (match,) = [cells for cells in rows if all(map(str.startswith, cells, beginnings))]
    return match


def test_the_readmes_quality_is_that_of_the_benchmarks() -> None:
    readme, measured = rows_below("README.md", "Quality"), rows_below(BENCHMARKS, "Quality")
    assert len(readme) == 2 + 4
    for name in ("ReQA SQuAD dev", "SQuAD dev", "SelQA dev", "HotpotQA"):
        assert row(readme, name)[1:] == [
            row(measured, name, channel)[2] for channel in ("bm25", "impact", "dense + impact")
        ]


def test_the_readmes_speed_is_that_of_the_benchmarks() -> None:
    readme, measured = (
        rows_below("README.md", "Speed"),
        rows_below(BENCHMARKS, "Searching 200,000 documents"),
    )
    assert len(readme) == 2 + 3
    with_ids = "sparta (sparta codec, with passage ids)"
    for name, top_10, top_1000 in (
        ("sparta", with_ids, with_ids),
        ("Pyserini", "Pyserini 2.2", "Pyserini 2.2"),
        ("PISA", "PISA 0.4.9 (maxscore)", "PISA 0.4.9 (maxscore)"),
    ):
        ten, thousand = [
            next(cells for cells in measured if cells[0].startswith(engine) and cells[1] == k)
            for engine, k in ((top_10, "10"), (top_1000, "1000"))
        ]
        assert row(readme, name)[1:] == [f"{float(ten[2]):.2f}", f"{float(thousand[2]):.2f}", ten[8]]


def test_the_figures_of_fusion_are_those_of_the_benchmarks() -> None:
    measured = rows_below(BENCHMARKS, "The example corpus")
    example = {cells[0]: f"{float(cells[1]):.1f}" for cells in measured[2:]}
    quickstart = rows_below("docs/quickstart.md", "When fusion helps")
    rankings = ("impact", "dense + impact", "impact + 1.2·bm25")
    assert row(quickstart, "example corpus")[1:] == [example[ranking] for ranking in rankings]
    for page in ("README.md", "docs/quickstart.md", "examples/README.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert example["impact"] in text
        assert example["impact + 1.2·bm25"] in text
    channels = rows_below(BENCHMARKS, "Channels and hybrids")
    for name in ("SelQA dev", "SQuAD dev, paragraphs"):
        cells = row([cells for cells in channels if len(cells) == 8 and "(" in cells[-1]], name)
        figures = [cells[column].split()[0] for column in (2, 6, 5)]
        assert row(quickstart, name)[1:] == [f"{float(figure):.1f}" for figure in figures]


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
@pytest.mark.parametrize("page", ["README.md", pytest.param("docs/benchmarks.md", marks=pytest.mark.release)])
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


def test_the_fields_of_a_language_are_those_of_the_page() -> None:
    from dataclasses import fields

    from sparta.data.languages import Language

    page = (ROOT / "docs" / "languages.md").read_text(encoding="utf-8").partition("## Another language")[2]
    example, table = page.partition("| field | meaning |")[::2]
    named = {*re.findall(r"^    (\w+)=", example, re.MULTILINE)}
    for line in re.findall(r"^\| (`.*?) \| ", table, re.MULTILINE):
        named.update(re.findall(r"`(\w+)`", line))
    assert named == {field.name for field in fields(Language)} - {"former"}  # only older indexes have it
