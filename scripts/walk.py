"""Follow one passage, or one query, through the code, and print the modules that it visits.

A hook (PEP 669) sees every call in our four packages whose arguments hold a text that stands nowhere else. A
function counts when it is called first. A stop is a change of module, a return is a stop in a module that was
visited before. Opened files and rankings asked of Java are counted besides.

    python scripts/walk.py index
    python scripts/walk.py search
    python scripts/walk.py eval --checkout ../another-checkout

Needs an environment in which the packages are installed; with --checkout, their code is taken from there.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import itertools
import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import CodeType
from typing import Any

PACKAGES = ("sparta", "dense", "hybrid", "cli")
MARK = "zyxwv"
PASSAGES = (f"The {MARK} is a river of the moon.", "The sun is a star.", "Ice is frozen water.")
RANKING = {"ImpactSearcher.search", "ImpactSearcher.rank"}
_DEEPEST = 3
_MOST = 20


def holds(value: object, depth: int = 0) -> bool:
    """Whether a value holds the mark: a text, bytes, or a container or dataclass with one inside."""
    if isinstance(value, str):
        return MARK in value
    if isinstance(value, bytes | bytearray):
        return MARK.encode() in value
    if depth >= _DEEPEST:
        return False
    if isinstance(value, dict):
        inner: Any = value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        inner = value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        inner = (getattr(value, field.name, None) for field in dataclasses.fields(value))
    else:
        return False
    return any(holds(part, depth + 1) for part in itertools.islice(inner, _MOST))


class Walk:
    """What was seen: functions that took the mark, in the order of their first calls; counts."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.functions: dict[tuple[str, str], None] = {}
        self.rankings = self.readers = 0
        self.opened: Counter[str] = Counter()

    def see(self, code: CodeType, _: int) -> object:
        """See a call; calls of functions outside our packages are not reported again."""
        frame = sys._getframe(1)
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in PACKAGES:
            return sys.monitoring.DISABLE
        self.rankings += code.co_qualname in RANKING
        self.readers += code.co_qualname == "ImpactSearcher.__init__"
        varied = bool(code.co_flags & 4) + bool(code.co_flags & 8)
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + varied]
        if any(holds(frame.f_locals.get(name)) for name in names if name not in ("self", "cls")):
            self.functions.setdefault((module, code.co_qualname))
        return None

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """See a file that is opened for reading."""
        if event == "open" and isinstance(arguments[0], str | os.PathLike) and arguments[1] in ("r", "rb"):
            path = Path(arguments[0]).absolute()
            if path.is_relative_to(self.root) and path.exists():
                self.opened[str(path.relative_to(self.root))] += 1

    def stops(self) -> list[str]:
        """The modules in the order in which the mark came to them."""
        return [module for module, _ in itertools.groupby(module for module, _ in self.functions)]


def commands(command: str, folder: Path) -> tuple[list[str], list[list[str]]]:
    """The command that is followed, and what is done before it."""
    corpus, questions, index = folder / "corpus.jsonl", folder / "questions.jsonl", folder / "ix"
    lines = [json.dumps({"id": f"p{n}", "text": text}) for n, text in enumerate(PASSAGES)]
    corpus.write_text("\n".join(lines) + "\n")
    question = {"_id": "q1", "text": f"where is the {MARK}", "answers": ["moon"]}
    questions.write_text(json.dumps(question) + "\n")
    make = ["sparta", "index", "--corpus", str(corpus), "--index", str(index), "--quiet"]
    if command == "index":
        return make, []
    if command == "search":
        return ["sparta", "search", f"where is the {MARK}", "-k", "10", "--index", str(index)], [make]
    dense = ["dense", "index", "--index", str(index), "--quiet"]
    dataset = ["--dataset", str(questions), "--index", str(index), "--quiet"]
    return ["hybrid", "eval", "--alpha", "1.2", *dataset], [make, dense]


def run(words: list[str]) -> None:
    """Run a command in this process."""
    sys.argv = words
    try:
        importlib.import_module(f"cli._{words[0]}").main()
    except SystemExit as ended:
        if ended.code:
            raise


def main() -> None:
    """Follow a command, and print what was seen."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("command", choices=("index", "search", "eval"))
    parser.add_argument("--checkout", type=Path, default=Path(__file__).parents[1])
    given = parser.parse_args()
    sys.path.insert(0, str(given.checkout.resolve()))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        followed, before = commands(given.command, folder)
        for words in before:
            run(words)
        walk = Walk(folder)
        sys.addaudithook(walk.audit)
        hook, starts = sys.monitoring.PROFILER_ID, sys.monitoring.events.PY_START
        sys.monitoring.use_tool_id(hook, "walk")
        sys.monitoring.register_callback(hook, starts, walk.see)
        sys.monitoring.set_events(hook, starts)
        try:
            run(followed)
        finally:
            sys.monitoring.set_events(hook, 0)
    stops = walk.stops()
    print(f"\n{' '.join(followed[:2])}: {len(stops)} stops, {len(stops) - len(set(stops))} returns")
    print("  " + "\n  ".join(stops))
    print(f"rankings asked of Java: {walk.rankings}; Lucene readers opened: {walk.readers}")
    for name, count in sorted(walk.opened.items()):
        if name.endswith((".json", ".jsonl")):
            print(f"opened {count} times: {name}")


if __name__ == "__main__":
    main()
