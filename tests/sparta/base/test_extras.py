"""Errors name the extra that installs a missing package, as the distribution's metadata say."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from sparta.base.errors import MissingPackageError
from sparta.base.extras import DEVELOPMENT, Package, optional_packages, packages, packages_of

ROOT = Path(__file__).parents[3]


def test_lines_of_the_metadata() -> None:
    lines = [
        "NumPy>=2.0",
        "faiss-cpu>=1.9; extra == 'dense'",
        'uvloop (>=0.21) ; (sys_platform != "win32") and extra == "gpu"',
        "torch; extra == 'train'",
        "torch; extra == 'gpu'",
        "sparta-search[dense]; extra == 'train'",
        "some.name[http]>=1,<2; extra == 'train'",
    ]
    found = packages_of(lines, ["dense", "train", "gpu", "empty"])
    assert found.required == (Package("numpy", "numpy"),)
    assert found.extras == {
        "dense": (Package("faiss", "faiss-cpu"),),
        "train": (Package("torch", "torch"), Package("some_name", "some-name")),
        "gpu": (Package("uvloop", "uvloop"), Package("torch", "torch")),
        "empty": (),
    }
    assert found.remedy("torch") == "pip install 'sparta-search[train]'"
    assert found.remedy("numpy") == "pip install sparta-search"
    assert found.remedy("nothing") == ""


@pytest.mark.skipif(find_spec("pyserini") is None, reason="needs the extra pyserini")
def test_every_listed_package_can_be_imported_by_its_name() -> None:
    installed = packages()
    listed = [*installed.required, *(p for extra in installed.extras.values() for p in extra)]
    tools = {package.module for package in installed.extras.get(DEVELOPMENT, ())}
    assert len(listed) > 30
    assert [p.module for p in listed if p.module not in tools and find_spec(p.module) is None] == []


@pytest.mark.parametrize(("module", "extra"), [("faiss", "[dense]"), ("torch", "[train]"), ("orjson", "")])
def test_a_missing_package(module: str, extra: str) -> None:
    with pytest.raises(MissingPackageError) as missing, optional_packages():
        raise ModuleNotFoundError(f"No module named '{module}.x'", name=f"{module}.x")
    assert str(missing.value.remedy).strip("'").endswith(f"sparta-search{extra}")


def test_a_package_of_no_list() -> None:
    with pytest.raises(ModuleNotFoundError), optional_packages():
        raise ModuleNotFoundError("No module named 'other'", name="other")


def test_messages_name_extras_that_exist() -> None:
    named = {
        (path.name, extra)
        for package in ("sparta", "dense", "hybrid", "cli")
        for path in (ROOT / package).rglob("*.py")
        for extra in re.findall(r"sparta-search\[([a-z-]+)\]", path.read_text(encoding="utf-8"))
    }
    assert len(named) >= 3
    assert {extra for _, extra in named} <= {*packages().extras}
