"""What a person waits for: each command in a process of its own, on the example index.

    python benchmarks/cold_starts.py [--runs 3]

Prints the seconds of each run, the first one apart: it may make Java's class archive and Python's bytecode.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"
PASSAGES = '{"id": "1", "text": "a moon"}\n{"id": "2", "text": "the earth"}\n{"id": "3", "text": "a star"}\n'
QUERY = "who founded google"


def seconds(program: str, *arguments: object) -> float:
    """How long a command takes."""
    started = time.monotonic()
    command = [sys.executable, "-m", f"cli._{program}", *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True)
    return time.monotonic() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        index, corpus = Path(folder, "index"), Path(folder, "three.jsonl")
        corpus.write_text(PASSAGES, encoding="utf-8")
        seconds("sparta", "index", "--corpus", EXAMPLES / "wiki.jsonl", "--index", index)
        seconds("dense", "index", "--index", index)
        weights = ("--weights", "impact=1,dense=1")
        commands: dict[str, tuple[object, ...]] = {
            "sparta search": ("sparta", "search", QUERY, "--index", index),
            "dense search": ("dense", "search", QUERY, "--index", index),
            "hybrid search": ("hybrid", "search", QUERY, "--index", index, *weights),
            "sparta answer": ("sparta", "answer", QUERY, "--index", index),
        }
        print("| command | first, s | then, s |\n|---|---|---|")
        for name, (program, *arguments) in commands.items():
            took = [seconds(str(program), *arguments) for _ in range(runs + 1)]
            print(f"| {name} | {took[0]:.2f} | {', '.join(f'{s:.2f}' for s in took[1:])} |")
        made = [
            seconds("sparta", "index", "--corpus", corpus, "--index", Path(folder, f"ix{run}"))
            for run in range(runs + 1)
        ]
        print(f"| sparta index, 3 passages | {made[0]:.2f} | {', '.join(f'{s:.2f}' for s in made[1:])} |")


if __name__ == "__main__":
    main()
