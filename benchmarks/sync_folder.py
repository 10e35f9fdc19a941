"""How long `sparta sync` takes after three changes in a folder of Markdown files.

    python benchmarks/sync_folder.py [--files 150] [--runs 3]

Makes the files from the example corpus. Each run edits one file, deletes one and adds one. Prints what the
command reports, its elapsed time and its processor time, both with the start of Python and Java.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples" / "wiki.jsonl"


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def synced(folder: Path, index: Path) -> str:
    """Run the command; return its report with its times."""
    command = [sys.executable, "-m", "cli._sparta", "sync", str(folder), "--index", str(index), "--quiet"]
    before, started = _processor_seconds(), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds, processor = time.monotonic() - started, _processor_seconds() - before
    report = done.stdout.strip().rpartition(": ")[2] or done.stderr.splitlines()[0]
    return f"{report}; exit code {done.returncode}, {seconds:.1f} s, {processor:.1f} s of the processor"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=150)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    records = [json.loads(line) for line in EXAMPLES.read_text(encoding="utf-8").splitlines()]
    with tempfile.TemporaryDirectory() as work:
        folder, index = Path(work) / "files", Path(work) / "index"
        folder.mkdir()

        def write(number: int, record: dict[str, str]) -> None:
            (folder / f"{number:03}.md").write_text(f"# {record['title']}\n\n{record['text']}\n")

        for number in range(arguments.files):
            write(number, records[number % len(records)])
        print("first build:", synced(folder, index))
        for run in range(arguments.runs):
            write(run, records[-1 - run])
            (folder / f"{arguments.files // 2 + run:03}.md").unlink()
            write(arguments.files + run, records[-20 - run])
            print("three changes:", synced(folder, index))
        print("no change:", synced(folder, index))
        for path in folder.iterdir():
            path.unlink()
        print("empty folder:", synced(folder, index))


if __name__ == "__main__":
    main()
