"""Adapters load nothing before they are used, and say which extra they lack."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import hybrid.integrations as integrations
from sparta.base import extras

ROOT = Path(__file__).parents[3]
FRAMEWORKS = (
    *("fastmcp", "mcp", "langchain_core", "llama_index", "haystack", "pyterrier", "beir", "mteb"),
    *("sentence_transformers", "pandas", "datasets", "pydantic"),
)
PACKAGES = {
    "BeirSearch": "beir",
    "HaystackDocumentStore": "haystack",
    "HaystackRetriever": "haystack",
    "LangChainRetriever": "langchain_core",
    "LangChainVectorStore": "langchain_core",
    "LlamaIndexRetriever": "llama_index",
    "LlamaIndexVectorStore": "llama_index",
    "MtebSearch": "mteb",
    "PyTerrierRetriever": "pyterrier",
    "mcp_server": "fastmcp",
}


def python(code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)


def test_importing_every_package_imports_no_framework() -> None:
    packages = [
        ".".join(path.parent.relative_to(ROOT).parts)
        for package in ("sparta", "dense", "hybrid", "cli")
        for path in (ROOT / package).rglob("__init__.py")
    ]
    assert "hybrid.integrations" in packages
    code = (
        "import sys, importlib\n"
        f"for name in {[*packages, 'cli._sparta', 'cli._dense', 'cli._hybrid']!r}:\n"
        "    importlib.import_module(name)\n"
        "print(*sys.modules)"
    )
    loaded = {name.partition(".")[0] for name in python(code).stdout.split()}
    assert "hybrid" in loaded
    assert loaded & {*FRAMEWORKS, "torch", "numpy", "jnius"} == set()


@pytest.mark.parametrize("name", PACKAGES)
def test_a_missing_package_is_told_with_its_extra(name: str) -> None:
    package = PACKAGES[name]
    (extra,) = [e for e, listed in extras.packages().extras.items() if package in {p.module for p in listed}]
    code = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == {package!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "from sparta.base.errors import MissingPackageError\n"
        "import hybrid.integrations\n"
        f"try:\n    hybrid.integrations.{name}\n"
        "except MissingPackageError as error:\n    print(error)"
    )
    said = python(code).stdout
    assert f" {package} " in said.splitlines()[0]
    assert f"pip install 'sparta-search[{extra}]'" in said


def test_names_have_their_homes() -> None:
    assert integrations.__all__ == dir(integrations) == sorted(PACKAGES)
    tree = ast.parse(Path(str(integrations.__file__)).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {n.name: one.module for one in block.body if isinstance(one, ast.ImportFrom) for n in one.names}
    assert sorted(seen) == integrations.__all__
    assert seen == integrations._HOMES  # noqa: SLF001 (a module that also has the name would load more)
    for name, home in seen.items():
        value = getattr(integrations, name)
        assert value.__module__ == home
        assert value is getattr(import_module(home), name)
