"""`hybrid replicate`: list the tables of the papers, or measure one."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from cli._arguments import Needs, argument, arguments, command, folder_type, made, option, takes
from cli._options import device_option, form_option
from cli._training import seed_option
from sparta.base.errors import InputError


@arguments
class _Replication:
    name: str | None = argument("name", required=False, metavar="[TABLE]")
    data: Path | None = option(
        "Folder of the papers' data, in the published layout; the list names the data.", type=folder_type
    )
    output: Path = option(
        "Folder for measured rows, indexes and models; one folder per table.",
        type=folder_type,
        default=Path("replications"),
    )
    encoder: str | None = option(
        "Pretrained encoder that the trainings of the table start from.", metavar="FOLDER|ID"
    )
    questions: int | None = option("Cut: use N questions of each set.", type=click.IntRange(1), metavar="N")
    passages: int | None = option(
        "Cut: use N passages: those that the questions need, then those that BM25 ranks best.",
        type=click.IntRange(1),
        metavar="N",
    )
    steps: int | None = option("Cut: train for N steps.", type=click.IntRange(1), metavar="N")
    seed: int = seed_option
    device: str | None = device_option
    form: str = form_option
    RULES = (Needs("TABLE", ("encoder", "questions", "passages", "steps", "seed"), lambda a: a.name),)


@command()
@takes(_Replication)
def replicate(chosen: _Replication) -> None:
    """Measure a table of the papers; without TABLE, list all tables.

    The list shows for each table what it measures, the data that it needs and its state. With TABLE, prints
    the paper's figures beside ours, with the data, the cut, the time and the memory of each row. OUTPUT/TABLE
    keeps the measured rows, so the repeated command continues after an interruption.

    \b
    hybrid replicate --data DIR
    hybrid replicate sparta-7 --data DIR --questions 500
    """  # noqa: D301 (click looks for the backspace)
    from hybrid.replications.tables.catalog import listed, table_named
    from hybrid.replications.tables.experiment import Experiment
    from hybrid.replications.tables.table import Cut

    if chosen.name is None:
        click.echo(listed(chosen.data, chosen.output).write(chosen.form))
        return
    table = table_named(chosen.name)
    if chosen.data is None:
        raise InputError("--data is missing: the folder of the papers' data", remedy="add --data DIR")
    logging.getLogger("sparta").setLevel(logging.INFO)
    folder = chosen.output / table.name
    experiment = made(Experiment, chosen, table=table, folder=folder, cut=made(Cut, chosen))
    rows = experiment.run()
    click.echo(table.compared(rows).write(chosen.form))
    for gap in table.gaps:
        click.echo(gap)
