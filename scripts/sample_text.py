"""Draw texts for a fresh reader: python scripts/sample_text.py SEED [NUMBER].

Prints NUMBER (30) docstrings, messages, sentences of the documentation and functions of the product, drawn
at random by the seed. The reader says each sentence in other words, and what each local variable of the
functions holds.
"""

from __future__ import annotations

import ast
import random
import sys

from check_docs import is_prose, pages, sentences
from messages import messages, modules

_SHORTEST, _LONGEST = 4, 40
"""Lines of a function that is worth reading and not tiring."""


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
        if is_prose(path)
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
