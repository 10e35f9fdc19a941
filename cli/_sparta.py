"""`sparta`: index, search, explain; models and machines."""

from __future__ import annotations

import click

from cli._options import GROUP_SETTINGS, SpartaGroup
from cli.service_commands.mcp import mcp
from cli.service_commands.push import push
from cli.service_commands.serve import serve
from cli.sparta_commands.answer import answer
from cli.sparta_commands.delete import delete
from cli.sparta_commands.doctor import doctor
from cli.sparta_commands.encode import encode
from cli.sparta_commands.eval import eval_command
from cli.sparta_commands.explain import explain, terms
from cli.sparta_commands.export import export, export_model
from cli.sparta_commands.index import index
from cli.sparta_commands.info import info
from cli.sparta_commands.reader import mine_answers, mine_paths, train_paths, train_reader, tune_reader
from cli.sparta_commands.search import search
from cli.sparta_commands.train import train
from cli.sparta_commands.update import update
from cli.sparta_commands.verify import verify


@click.group(cls=SpartaGroup, context_settings=GROUP_SETTINGS)
@click.version_option(package_name="sparta-search", prog_name="sparta")
def main() -> None:
    """Open-domain question answering from a Lucene index that a transformer wrote.

    \b
    sparta index --corpus wiki.jsonl
    sparta search "who founded google"
    """  # noqa: D301 (click looks for the backspace)


WRITING = (index, update, delete, encode)
READING = (search, answer, explain, terms, info, export, push, verify)
OTHERS = (serve, mcp, train, export_model, eval_command, doctor)
READERS = (mine_answers, train_reader, tune_reader, mine_paths, train_paths)
for command in (*WRITING, *READING, *OTHERS, *READERS):
    main.add_command(command)

if __name__ == "__main__":
    main()
