"""Normal forms: the values of `unicodedata.normalize`, without its quadratic time."""

from __future__ import annotations

import ast
import random
import time
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparta.base.normal_form import Form, normal_form

ROOT = Path(__file__).parents[3]
FOLDERS = ("sparta", "dense", "hybrid", "cli", "benchmarks", "research", "scripts")
FORMS: tuple[Form, ...] = ("NFC", "NFD", "NFKC")
MARKS = [c for c in map(chr, range(0x20000)) if unicodedata.category(c)[0] == "M"]
OTHERS = [c for c in map(chr, range(0x20000)) if unicodedata.decomposition(c)] + list("ae가ᄀ —😀")


@pytest.mark.parametrize("form", FORMS)
def test_values_are_those_of_the_standard_library(form: Form) -> None:
    draw = random.Random(0)
    for share in (0.5, 0.9, 0.99):
        for _ in range(300):
            length = draw.randrange(20, 200)
            text = "".join(draw.choice(MARKS if draw.random() < share else OTHERS) for _ in range(length))
            assert normal_form(form, text) == unicodedata.normalize(form, text)
    assert normal_form(form, "\ud800" * 40) == "\ud800" * 40


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("letter", ["a", "\u1ebf", "", "\u2014"])
def test_many_marks_on_a_letter_take_linear_time(form: Form, letter: str) -> None:
    started = time.thread_time()
    length = len(normal_form(form, letter + "\u0301\u0316" * 80_000))
    assert time.thread_time() - started < 2  # the standard library: 20 s
    assert length >= 160_000


def test_every_nonstarter_is_a_mark_above_the_characters_that_are_skipped() -> None:
    # The pattern of long runs relies on it.
    nonstarters = [c for c in map(chr, range(0x110000)) if unicodedata.combining(normal_form("NFD", c)[0])]
    assert len(nonstarters) > 900
    assert not [c for c in nonstarters if c.isalnum() or c.isspace() or c < "\u0300"]


def callers(path: Path) -> Iterator[int]:
    """Lines that name `normalize` of the module unicodedata."""
    tree = ast.parse(path.read_text("utf-8"))
    modules = {"unicodedata"} | {
        name.asname or name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for name in node.names
        if name.name == "unicodedata"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "normalize":
            if isinstance(node.value, ast.Name) and node.value.id in modules:
                yield node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module == "unicodedata":
            yield from (node.lineno for name in node.names if name.name in ("normalize", "*"))


@pytest.mark.slow
def test_only_one_module_normalizes_by_the_standard_library() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 200
    found = {path.relative_to(ROOT).as_posix() for path in files if any(callers(path))}
    assert found == {"sparta/base/normal_form.py"}
