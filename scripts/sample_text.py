"""Draw texts for a fresh reader: python scripts/sample_text.py SEED [NUMBER].

Prints NUMBER (30) docstrings, messages, sentences of the documentation and functions of the product, drawn
at random by the seed. The reader says each sentence in other words, and what each local variable of the
functions holds.
"""

from __future__ import annotations

import ast
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from check_docs import GENERATED, pages, sentences
from messages import PACKAGES, messages

ROOT = Path(__file__).parents[1]

_SHORTEST, _LONGEST = 4, 40
"""Lines of a function that is worth reading and not tiring."""


def modules() -> Iterator[tuple[str, str, ast.Module]]:
    """Yield name, text and tree of each module of the product."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            yield path.relative_to(ROOT).as_posix(), text, ast.parse(text)


def docstrings() -> list[str]:
    """Return the docstrings of all modules, classes and functions, with their places."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        f"{name} {getattr(node, 'name', '')}\n{docstring}"
        for name, _, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, kinds) and (docstring := ast.get_docstring(node))
    ]


def functions() -> list[str]:
    """Return the functions of 4 to 40 lines, with their places."""
    return [
        f"{name}\n{ast.get_source_segment(text, node)}"
        for name, text, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if _SHORTEST <= (node.end_lineno or node.lineno) - node.lineno + 1 <= _LONGEST
    ]


def main() -> None:
    seed, number = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 30
    documented = [
        f"{path.name}: {sentence.text}"
        for path in pages()
        if path.parent.name != "decisions" and not path.as_posix().endswith(GENERATED)
        for sentence in sentences(path.read_text("utf-8"))
    ]
    printed = [f"{m.file}: {m.text}" + (f"\n  → {m.remedy}" if m.remedy else "") for m in messages()]
    kinds = {
        "docstrings": docstrings(),
        "messages": printed,
        "sentences": documented,
        "functions": functions(),
    }
    for kind, texts in kinds.items():
        print(f"# {kind}: {number} of {len(texts):,}, seed {seed}\n")
        for i, text in enumerate(random.Random(seed).sample(texts, min(number, len(texts))), 1):
            print(f"{i}. {text}\n")


if __name__ == "__main__":
    main()
