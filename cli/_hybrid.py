"""`hybrid`: several channels as one, evaluation, and the experiments of the papers."""

from __future__ import annotations

import click

from cli._group import SpartaGroup

_COMMANDS = {
    "search": "cli.hybrid_commands.search:search",
    "eval": "cli.hybrid_commands.eval:evaluate_channels",
    "tasks": "cli.hybrid_commands.tasks:tasks",
    "leave-out": "cli.hybrid_commands.leave_out:leave_out",
    "downstream": "cli.hybrid_commands.downstream:downstream",
    "train-labels": "cli.hybrid_commands.downstream:train_labels",
    "tune": "cli.hybrid_commands.tune:tune",
    "sweep": "cli.hybrid_commands.sweep:sweep",
}


@click.group(cls=SpartaGroup, places=_COMMANDS)
@click.version_option(package_name="sparta-search", prog_name="hybrid")
def main() -> None:
    """Search impacts, BM25 and vectors as one ranking, measure rankings, and run the papers' experiments."""


if __name__ == "__main__":
    main()
