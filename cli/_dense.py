"""`dense`: encode, index and search vectors; train, mine, convert."""

from __future__ import annotations

import click

from cli._group import SpartaGroup

_COMMANDS = {
    "encode": "cli.dense_commands.encode:encode",
    "index": "cli.dense_commands.index:index",
    "search": "cli.dense_commands.search:search",
    "train": "cli.dense_commands.train:train",
    "train-skills": "cli.dense_commands.train_skills:train_skills",
    "links": "cli.dense_commands.links:links",
    "mine": "cli.dense_commands.mine:mine",
    "convert": "cli.dense_commands.convert:convert",
}


@click.group(cls=SpartaGroup, places=_COMMANDS)
@click.version_option(package_name="sparta-search", prog_name="dense")
def main() -> None:
    """Dense retrieval: passages found by the vectors of a bi-encoder.

    \b
    sparta index --corpus wiki.jsonl
    dense index
    dense search "who founded google"
    """  # noqa: D301 (click looks for the backspace)


if __name__ == "__main__":
    main()
