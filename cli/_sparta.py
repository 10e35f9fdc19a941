"""`sparta`: index, search, explain; models and machines."""

from __future__ import annotations

import click

from cli._group import SpartaGroup

_COMMANDS = {
    "index": "cli.sparta_commands.index:index",
    "update": "cli.sparta_commands.update:update",
    "delete": "cli.sparta_commands.delete:delete",
    "encode": "cli.sparta_commands.encode:encode",
    "search": "cli.sparta_commands.search:search",
    "answer": "cli.sparta_commands.answer:answer",
    "explain": "cli.sparta_commands.explain:explain",
    "terms": "cli.sparta_commands.explain:terms",
    "info": "cli.sparta_commands.info:info",
    "export": "cli.sparta_commands.export:export",
    "push": "cli.service_commands.push:push",
    "verify": "cli.sparta_commands.verify:verify",
    "serve": "cli.service_commands.serve:serve",
    "mcp": "cli.service_commands.mcp:mcp",
    "train": "cli.sparta_commands.train:train",
    "export-model": "cli.sparta_commands.export:export_model",
    "eval": "cli.sparta_commands.eval:eval_command",
    "doctor": "cli.sparta_commands.doctor:doctor",
    "mine-answers": "cli.sparta_commands.reader:mine_answers",
    "train-reader": "cli.sparta_commands.reader:train_reader",
    "tune-reader": "cli.sparta_commands.reader:tune_reader",
    "mine-paths": "cli.sparta_commands.reader:mine_paths",
    "train-paths": "cli.sparta_commands.reader:train_paths",
}


@click.group(cls=SpartaGroup, places=_COMMANDS)
@click.version_option(package_name="sparta-search", prog_name="sparta")
def main() -> None:
    """Open-domain question answering from a Lucene index that a transformer wrote.

    \b
    sparta index --corpus wiki.jsonl
    sparta search "who founded google"
    """  # noqa: D301 (click looks for the backspace)


if __name__ == "__main__":
    main()
