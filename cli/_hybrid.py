"""`hybrid`: several channels as one, evaluation, and the experiments of the papers."""

from __future__ import annotations

import click

from cli._options import GROUP_SETTINGS, SpartaGroup
from cli.hybrid_commands.downstream import downstream, train_labels
from cli.hybrid_commands.eval import evaluate_channels
from cli.hybrid_commands.leave_out import leave_out
from cli.hybrid_commands.search import search
from cli.hybrid_commands.sweep import sweep
from cli.hybrid_commands.tasks import tasks
from cli.hybrid_commands.tune import tune


@click.group(cls=SpartaGroup, context_settings=GROUP_SETTINGS)
@click.version_option(package_name="sparta-search", prog_name="hybrid")
def main() -> None:
    """Search impacts, BM25 and vectors as one ranking, measure rankings, and run the papers' experiments."""


for command in (search, evaluate_channels, tasks, leave_out, downstream, train_labels, tune, sweep):
    main.add_command(command)

if __name__ == "__main__":
    main()
