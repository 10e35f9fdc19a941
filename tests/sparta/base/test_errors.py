"""The tree of errors in the docstring is the tree of classes."""

from __future__ import annotations

import importlib
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

from sparta.base import errors

PACKAGE = Path(errors.__file__).parents[1]


def subclasses(base: type[errors.SpartaError]) -> Iterator[type[errors.SpartaError]]:
    for error in base.__subclasses__():
        yield error
        yield from subclasses(error)


def test_the_docstring_lists_all_errors_with_parents_and_exit_codes() -> None:
    for path in PACKAGE.rglob("*.py"):
        if re.search(r"^class \w+\([\w, ]*Error\b", path.read_text(encoding="utf-8"), re.MULTILINE):
            importlib.import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
    listed, branch = [], [""] * 4
    for indent, name, code in re.findall(r"^([├└│─ ]*)(\w+Error) +(\d) ", errors.__doc__ or "", re.MULTILINE):
        depth = len(indent) // 4
        branch[depth + 1] = name
        listed.append((branch[depth], name, int(code)))
    root, *others = listed
    assert root == ("", "SpartaError", errors.SpartaError.exit_code)
    raised = {e for e in subclasses(errors.SpartaError) if e.__module__.startswith("sparta.")}
    assert sorted(others) == sorted((e.__mro__[1].__name__, e.__name__, e.exit_code) for e in raised)


def test_a_missing_package_is_also_an_import_error() -> None:
    error = errors.MissingPackageError("no torch", where="here", remedy="pip install torch")
    assert isinstance(error, ImportError)
    assert str(error) == "here: no torch\n  → pip install torch"
    copied = pickle.loads(pickle.dumps(error))
    assert (str(copied), copied.args, copied.code) == (str(error), ("no torch",), "missing_package")
