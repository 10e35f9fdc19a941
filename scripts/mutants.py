"""Put the faults of tests/mutants.toml into a copy of the code, one at a time; the tests must catch them.

    python scripts/mutants.py [--only TEXT] [--workers 2] [--least 0.9]

Exits 1 when fewer than `--least` are caught, or when a fault's place is not found exactly once.
"""

from __future__ import annotations

import argparse
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def copy_tree(folder: Path) -> Path:
    """Copy what git knows of the working tree."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("docs/", "benchmarks/")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    return folder


def passes(folder: Path, tests: list[str]) -> bool:
    """Whether these tests pass in a copy."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", *tests]
    env = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1, 2):
        raise SystemExit(f"the tests {tests} could not be run:\n{done.stdout}{done.stderr}")
    return done.returncode == 0


def survives(mutant: dict[str, Any], copies: queue.SimpleQueue[Path]) -> bool:
    """Whether the tests pass with this fault in the code."""
    folder = copies.get()
    path = folder / mutant["file"]
    whole = path.read_text(encoding="utf-8")
    try:
        path.write_text(whole.replace(mutant["old"], mutant["new"]), encoding="utf-8")
        return passes(folder, mutant["tests"])
    finally:
        path.write_text(whole, encoding="utf-8")
        copies.put(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="only faults whose file or text holds this")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--least", type=float, default=0.9)
    given = parser.parse_args()
    mutants = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text(encoding="utf-8"))["mutant"]
    for one in mutants:
        times = (ROOT / one["file"]).read_text(encoding="utf-8").count(one["old"])
        if times != 1:
            raise SystemExit(f"expected once in {one['file']}, found {times} times: {one['old']}")
    mutants = [m for m in mutants if given.only in m["file"] + m["old"] + m["new"]]
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(given.workers) as pool:
        copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(given.workers):
            copies.put(copy_tree(Path(temporary, str(number))))
        survivors = []
        for one, lives in zip(mutants, pool.map(lambda m: survives(m, copies), mutants), strict=True):
            print(
                "SURVIVED" if lives else "caught  ", one["file"], "|", one["new"].splitlines()[0], flush=True
            )
            survivors += [one] * lives
    caught = len(mutants) - len(survivors)
    print(f"{caught} of {len(mutants)} caught ({caught / len(mutants):.0%})")
    sys.exit(caught < given.least * len(mutants))


if __name__ == "__main__":
    main()
