"""`dense`: encode, index and search vectors; train, mine, convert."""

from __future__ import annotations

import click

from cli._options import GROUP_SETTINGS, SpartaGroup
from cli.dense_commands.convert import convert
from cli.dense_commands.encode import encode
from cli.dense_commands.index import index
from cli.dense_commands.links import links
from cli.dense_commands.mine import mine
from cli.dense_commands.search import search
from cli.dense_commands.train import train
from cli.dense_commands.train_skills import train_skills


@click.group(cls=SpartaGroup, context_settings=GROUP_SETTINGS)
@click.version_option(package_name="sparta-search", prog_name="dense")
def main() -> None:
    """Dense retrieval: passages found by the vectors of a bi-encoder.

    \b
    sparta index --corpus wiki.jsonl
    dense index
    dense search "who founded google"
    """  # noqa: D301 (click looks for the backspace)


for command in (encode, index, search, train, train_skills, links, mine, convert):
    main.add_command(command)

if __name__ == "__main__":
    main()
