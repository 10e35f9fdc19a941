"""`hybrid`: fusion of channels, evaluation, and the experiments of the papers."""

from __future__ import annotations

import click

from cli._group import Place, SpartaGroup

_COMMANDS = {
    "Search": {
        "search": Place(
            "cli.hybrid_commands.search:search", "Find the best passages by several channels, fused."
        ),
    },
    "Measure": {
        "eval": Place(
            "cli.hybrid_commands.eval:evaluate_channels",
            "Measure channels of your index. For test sets: sparta eval.",
        ),
        "tune": Place("cli.hybrid_commands.tune:tune", "Choose the weights of a fusion on your questions."),
        "sweep": Place(
            "cli.hybrid_commands.sweep:sweep", "Measure what it costs to keep fewer terms per passage."
        ),
    },
    "Experiments of the papers": {
        "replicate": Place(
            "cli.hybrid_commands.replicate:replicate",
            "Measure a table of the papers; without TABLE, list all tables.",
        ),
        "tasks": Place(
            "cli.hybrid_commands.tasks:tasks", "Measure bi-encoders on tasks of KILT, over all passages."
        ),
        "leave-out": Place(
            "cli.hybrid_commands.leave_out:leave_out",
            "Measure zero-shot and few-shot retrieval, task by task.",
        ),
        "downstream": Place(
            "cli.hybrid_commands.downstream:downstream", "Answer a task's questions from retrieved passages."
        ),
        "train-labels": Place(
            "cli.hybrid_commands.downstream:train_labels", "Train a classifier of claims that reads passages."
        ),
    },
}


@click.group(cls=SpartaGroup, sections=_COMMANDS)
@click.version_option(package_name="sparta-search", prog_name="hybrid")
def main() -> None:
    """Hybrid retrieval: one ranking from several channels (impact, bm25, dense).

    \b
    sparta index --corpus wiki.jsonl
    hybrid search "who founded google" --alpha 1.2
    hybrid eval --alpha 1.2
    """  # noqa: D301 (click looks for the backspace)


if __name__ == "__main__":
    main()
