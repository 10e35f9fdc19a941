"""Draw docs/images/search.svg: what the README's commands really print, run on the example corpus."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = [
    ["index", "--corpus", "wiki.jsonl"],
    ["search", "who founded google", "-k", "2"],
    ["explain", "who founded google", "google"],
    ["answer", "who founded google"],
]


def output_of(arguments: list[str], index: str) -> str:
    """Run a command in the examples folder; what a terminal would show of it."""
    environment = {**os.environ, "SPARTA_INDEX": index, "COLUMNS": "120"}
    done = subprocess.run(
        [sys.executable, "-m", "cli._sparta", *arguments],
        cwd=ROOT / "examples",
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.replace(index, "sparta-index")


def shown(output: str) -> Text:
    """The output with marked words as a terminal shows them: bold and underlined instead of between stars."""
    text = Text()
    for i, piece in enumerate(re.split(r"\*(\w[\w ]*)\*", output)):
        text.append(piece, style="bold underline" if i % 2 else "")
    return text


def main() -> None:
    """Run the commands and save the picture."""
    console = Console(record=True, width=124, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        for arguments in COMMANDS:
            typed = " ".join(f'"{a}"' if " " in a else a for a in arguments)
            console.print(Text(f"$ sparta {typed}", style="bold green"))
            console.print(shown(output_of(arguments, str(Path(folder) / "sparta-index"))))
    target = ROOT / "docs" / "images" / "search.svg"
    target.parent.mkdir(exist_ok=True)
    console.save_svg(str(target), title="sparta")


if __name__ == "__main__":
    main()
