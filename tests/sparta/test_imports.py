"""No module needs itself: neither at run time nor for its types."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("sparta", "dense", "hybrid", "cli")
LAZY = {f"{package}/__init__.py" for package in PACKAGES}
"""Their names are imported when they are used: they need no module before."""
MOST_MODULES = 15


def imported(tree: ast.AST) -> Iterator[str]:
    """The modules that are imported when a module is, or that its annotations name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            continue
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        yield from imported(node)


@pytest.mark.slow
def test_no_circles_of_imports() -> None:
    files = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }
    graph = {
        name: {n for n in imported(ast.parse(path.read_text())) if n in files and n != name}
        for name, path in files.items()
        if str(path.relative_to(ROOT)) not in LAZY
    }
    assert sum(map(len, graph.values())) > 200
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' → '.join(error.args[1])}")


def test_no_folder_holds_too_many_modules() -> None:
    folders = {path.parent for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert len(folders) > 15
    crowded = {folder: n for folder in folders if (n := len(list(folder.glob("*.py")))) > MOST_MODULES}
    assert crowded == {}


def test_no_test_file_is_too_long() -> None:
    lengths = {p: len(p.read_text().splitlines()) for p in (ROOT / "tests").rglob("*.py")}
    assert len(lengths) > 60
    assert {p.name: n for p, n in lengths.items() if n > 500} == {}


@pytest.mark.parametrize("package", ["sparta", "dense", "hybrid"])
def test_windows_is_refused_in_one_sentence(package: str) -> None:
    code = f"import sys; sys.platform = 'win32'; import {package}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].startswith("ImportError: sparta runs on Linux and macOS; ")
