"""`hybrid chain`: paths of evidence for a question."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cli._options import Text, dumps, index_option, number, visible


@click.command()
@click.argument("question", type=Text())
@click.option(
    "--chain",
    "steps",
    default="hotpot",
    show_default=True,
    metavar="NAME|FILE",
    help="The steps: hotpot (two hops), single (one), or a file of [[step]] tables.",
)
@index_option
@click.option("--model", metavar="FOLDER|ID", help="A model with skills: what dense train-skills made.")
@click.option(
    "--entities",
    metavar="FOLDER",
    help="Index of descriptions, for the step link; its dense channel is of the model's entity expert.",
)
@number("-k", default=10, text="How many paths.")
@click.option("--json", "as_json", is_flag=True, help="JSON: the paths with their passages and the seconds.")
def chain(question: str, steps: str, index: Path | None, k: int, as_json: bool, **given: Any) -> None:
    """Find paths of evidence for a question, step by step.

    A path shows its score and, for each passage, what each step scored it and which entity led to it.

    \b
    dense index --model skills
    hybrid chain "where was the author of Relativity born" --model skills --entities entities
    """  # noqa: D301 (click looks for the backspace)
    from hybrid.multihop.chain import Chain
    from hybrid.multihop.steps import read_chain
    from hybrid.multihop.tools import IndexTools

    chosen = read_chain(steps)
    with IndexTools(index, given["model"], given["entities"]) as tools:
        found = Chain(chosen, tools).search(question, k)
    if as_json:
        value = {"paths": [path.as_dict() for path in found.paths], "seconds": found.seconds}
        click.echo(dumps(value))
        return
    for rank, path in enumerate(found.paths, 1):
        click.echo(visible(f"{rank:>3}  {path}", keep="\n"))
    spent = "  ".join(f"{name} {1000 * s:.0f}" for name, s in found.seconds.items())
    click.echo(f"ms: {spent}", err=True)
