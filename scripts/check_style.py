"""Check what no linter knows: python scripts/check_style.py [FILE...]; exits 1 if it finds anything.

1. No command-line flag in a string of the library, docstrings apart: a remedy holds options as data.
2. No parameter named `given`: a name says what it holds.
3. No branch on the text of an error: an error has a type, a code and facts.
4. At most 30 locals and parameters of the product with names that say nothing, such as `one` and `found`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("sparta", "dense", "hybrid", "cli")
FLAG = re.compile(r"(?<![\w-])--[a-z]")
WITH_FLAGS = {
    "cli/": "the command line itself",
    "sparta/lucene/jvm.py": "options of Java",
    "sparta/base/extras.py": "options of pip",
    "sparta/training/model_card.py": "commands in model cards",
}
"""Files whose strings may hold flags, by how their paths begin, and what the flags are."""

BY_TEXT = {
    "sparta/lucene/java_errors.py": "an IOException of Java names a full disk only in its text",
    "sparta/neural/encoding.py": "torch raises a plain RuntimeError where a device has no memory left",
    "hybrid/service/live/service.py": "an error that is raised again and again is logged once",
}
"""Files that may branch on the text of another library's error, and why nothing else tells it apart."""

EMPTY_NAMES = ("one", "own", "found", "given", "told", "wanted", "asked", "alone", "beside")
MOST_EMPTY_NAMES = 30

_TEXTS = ("message", "remedy")
_METHODS = ("startswith", "endswith", "find", "match", "search", "fullmatch")


def faults(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and description of each fault of a module.

    :param path: relative to the root, with forward slashes
    """
    if not path.startswith(tuple(WITH_FLAGS)):
        yield from _flags(tree)
    yield from _parameters(tree)
    if path not in BY_TEXT:
        yield from _branches(tree)


def _flags(tree: ast.Module) -> Iterator[tuple[int, str]]:
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in docstrings:
            continue
        if flag := FLAG.search(node.value):
            shown = node.value[flag.start() : flag.start() + 20]
            yield node.lineno, f"a flag in a string: {shown!r}; use Option or Command in a remedy"


def _parameters(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.arg == "given":
            yield node.lineno, "a parameter named given; name what it holds"


def _branches(tree: ast.Module) -> Iterator[tuple[int, str]]:
    errors = {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)} | {"error"}
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and any(_is_text_of_error(part, errors) for part in _compared(node)):
            yield node.lineno, "a branch on the text of an error; use its type, code or facts"


def empty_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and name of each local and parameter whose name says nothing."""
    for node in ast.walk(tree):
        match node:
            case ast.arg(arg=name) | ast.ExceptHandler(name=name) | ast.Name(id=name, ctx=ast.Store()):
                if name in EMPTY_NAMES:
                    yield node.lineno, name


def _compared(node: ast.expr) -> list[ast.expr]:
    """Return what a comparison, a search or a match looks at."""
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn | ast.Eq | ast.NotEq):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
        return [node.func.value, *node.args]
    return []


def _is_text_of_error(node: ast.expr, errors: Collection[str | None]) -> bool:
    """Whether an expression is `x.message`, `x.remedy`, `message`, or `str` of one of the errors."""
    if isinstance(node, ast.Attribute):
        return node.attr in _TEXTS
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str" and node.args:
        argument = node.args[0]
        is_error = isinstance(argument, ast.Name) and argument.id in errors
        return is_error or _is_text_of_error(argument, errors)
    return isinstance(node, ast.Name) and node.id == "message"


def main() -> int:
    names = sys.argv[1:]
    files = map(Path, names) if names else (f for p in PACKAGES for f in sorted((ROOT / p).rglob("*.py")))
    count = 0
    empty = []
    for file in files:
        path, tree = file.resolve().relative_to(ROOT).as_posix(), ast.parse(file.read_text(encoding="utf-8"))
        for line, fault in faults(path, tree):
            print(f"{path}:{line}: {fault}")
            count += 1
        empty += [
            f"{path}:{line}: the name {name} does not say what it holds" for line, name in empty_names(tree)
        ]
    if len(empty) > MOST_EMPTY_NAMES:
        print("\n".join(empty))
        count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
