"""The script that checks style finds each kind of fault. `make check` runs it over the code."""

from __future__ import annotations

import ast
import runpy
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "check_style.py"
FAULTS = runpy.run_path(str(SCRIPT))["faults"]


@pytest.mark.parametrize(
    "code",
    [
        'raise InputError("wrong", remedy="add --append")',
        'remedy = f"leave {name} out, or give --paper"',
        "def whole(name, given): pass",
        "def run(**given): pass",
        "def run(*given): pass",
        'if "newer" in error.message: pass',
        'if f"{name} index" in error.remedy: pass',
        'found = error.message == "closed"',
        'if error.message.startswith("no index"): pass',
        'if re.search("memory", str(error)): pass',
        'try: pass\nexcept OSError as reason:\n    if "disk" in str(reason): pass',
    ],
)
def test_a_fault_is_found(code: str) -> None:
    assert len(list(FAULTS("sparta/base/new.py", ast.parse(code)))) == 1


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("sparta/base/new.py", 'def run():\n    """Write `--resume`."""'),
        ("sparta/base/new.py", 'remedy("add {}", Option("append", True))'),
        ("sparta/base/new.py", 'a -- b; "a--b ---"'),
        ("sparta/base/new.py", "given = str(error)\nlogger.warning(error.message)"),
        ("sparta/lucene/jvm.py", 'options.append("--add-modules=x")'),
        ("cli/new.py", 'option("--append")'),
    ],
)
def test_other_code_is_not(path: str, code: str) -> None:
    assert not list(FAULTS(path, ast.parse(code)))


def test_names_that_say_nothing_are_counted(tmp_path: Path) -> None:
    code = "def run(found):\n    one = found\n    return [one for one in found]\n"
    assert [name for _, name in runpy.run_path(str(SCRIPT))["empty_names"](ast.parse(code))] == [
        "found",
        "one",
        "one",
    ]


def test_every_mutant_is_of_the_code_as_it_is() -> None:
    """What a mutant replaces stands once in its file."""
    mutants = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text(encoding="utf-8"))["mutant"]
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in {one["file"] for one in mutants}}
    assert [one["old"] for one in mutants if texts[one["file"]].count(one["old"]) != 1] == []
