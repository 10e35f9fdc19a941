"""The pages: their Python runs, and docs/cli.md is what the commands say of themselves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def python_of(page: Path) -> str:
    """All Python of a page, as one program."""
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))


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


PAGES = sorted(str(p.relative_to(ROOT)) for p in [*ROOT.glob("docs/*.md"), ROOT / "README.md"])


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []
