"""`dense`: encode, index and search vectors; train, mine, convert."""

from __future__ import annotations

import click

from cli._group import Place, SpartaGroup

_COMMANDS = {
    "Index and search": {
        "index": Place("cli.dense_commands.index:index", "Add a dense channel to an index, or update it."),
        "search": Place(
            "cli.dense_commands.search:search", "Find the best passages by the dense channel alone."
        ),
        "encode": Place(
            "cli.dense_commands.encode:encode", "Encode a corpus on several machines, to index it later."
        ),
    },
    "Train": {
        "train": Place(
            "cli.dense_commands.train:train", "Train a bi-encoder: TASER, DPR, or one shared encoder."
        ),
        "mine": Place("cli.dense_commands.mine:mine", "Find hard negatives, to train a bi-encoder with."),
        "train-skills": Place(
            "cli.dense_commands.train_skills:train_skills",
            "Train one encoder for several skills (Chain-of-Skills).",
        ),
        "links": Place(
            "cli.dense_commands.links:links", "Make training data from the links of a Wikipedia dump."
        ),
        "convert": Place(
            "cli.dense_commands.convert:convert", "Convert a checkpoint of DPR, TASER or Chain-of-Skills."
        ),
    },
}


@click.group(cls=SpartaGroup, sections=_COMMANDS)
@click.version_option(package_name="sparta-search", prog_name="dense")
def main() -> None:
    """Dense retrieval: a bi-encoder turns passages and queries into vectors.

    \b
    sparta index --corpus wiki.jsonl
    dense index
    dense search "who founded google"
    """  # noqa: D301 (click looks for the backspace)


if __name__ == "__main__":
    main()
