"""`sparta doctor`: check this machine for what sparta needs."""

from __future__ import annotations

from pathlib import Path

import click

from cli._arguments import command, flag, typed
from cli._options import index_option
from cli._output import dumps


@command()
@index_option
@flag("Print one JSON object per check, each on its own line.", "--json", "as_json")
@click.option("--quick", is_flag=True, help="Do not import packages, which takes seconds for each extra.")
def doctor(index: Path | None, as_json: bool, quick: bool) -> None:
    """Check what this machine lacks.

    Imports the packages of each installed extra, checks Python, Java, models, GPU, memory, limits, disk and
    locale, and opens the index. Each fault has a line that says how to repair it. The last line says what
    works. sparta verify checks every file of the index.
    """
    from sparta.base.remedies import on_command_line
    from sparta.doctor import examine

    findings = examine(index, needed=bool(typed("index")), quick=quick)
    if as_json:
        for finding in findings:
            click.echo(dumps({**finding._asdict(), "remedy": on_command_line(finding.remedy)}))
    else:
        for finding in findings:
            mark = {
                "ok": click.style("ok  ", fg="green"),
                "note": "note",
                "bad": click.style("BAD ", fg="red"),
            }
            advice = f"\n      → {on_command_line(finding.remedy)}" if finding.remedy else ""
            click.echo(f"{mark[finding.state]} {finding.name}: {finding.found}{advice}")
    if any(f.state == "bad" for f in findings):
        click.get_current_context().exit(1)
