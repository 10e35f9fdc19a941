"""`sparta push`: an index goes to OpenSearch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from cli._arguments import Text, arguments, flag, group, made, option, takes, typed, whole
from cli._opensearch import RequiredServer
from cli._options import index_option, quiet_option
from cli._output import counted
from cli._reports import print_deletion
from sparta.base.errors import InputError

_SHOWN = 10


@arguments
class _Push:
    index: Path | None = index_option
    server: RequiredServer = group(RequiredServer)
    update: bool = flag("Write and delete only what changed, in the index that is live.")
    ids: tuple[str, ...] = option(
        "Only delete this passage; several times.", "--delete", metavar="ID", type=Text()
    )
    shards: int | None = option("Primary shards [default: one for each data node].", type=click.IntRange(1))
    replicas: int = whole(1, "Copies of each shard, as far as there are nodes for them.", least=0)
    connections: int = whole(2, "Bulk requests at once.", most=64)
    keep_old: bool = flag("Leave the index that had the alias.")
    quiet: bool = quiet_option


@click.command()
@takes(_Push)
def push(pushing: _Push) -> None:
    """Push the index to OpenSearch, or what changed in it.

    A new index is filled beside the live one and verified; then the alias --name is swapped to it, and the
    old one is removed. The same command finishes a push that was interrupted. Searchers need the URL and the
    alias only. Credentials: $SPARTA_OPENSEARCH_USER and $SPARTA_OPENSEARCH_PASSWORD, or
    $SPARTA_OPENSEARCH_KEY.

    \b
    sparta push --opensearch http://localhost:9200 --name wiki
    sparta push --opensearch http://localhost:9200 --name wiki --update
    """  # noqa: D301 (click looks for the backspace)
    ids = pushing.ids
    changing = typed("update", "ids")
    fixed = typed("shards", "replicas", "keep_old", *(["connections"] if ids else []))
    if len(changing) > 1 or (changing and fixed):
        raise InputError(
            f"expected --update or --delete alone, found {', '.join([*changing, *fixed])}",
            remedy="the index that is live keeps its shards and copies",
        )
    if ids and typed("index"):
        raise InputError(
            "expected --delete without --index, found both: it deletes on the server alone",
            remedy="leave --index out; in the index here: sparta delete",
        )
    with pushing.server.server() as server:
        if ids:
            _delete(server, pushing.server.name, ids)
        else:
            _push(pushing, server)


def _push(pushing: _Push, server: Any) -> None:
    from tqdm import tqdm

    from hybrid.opensearch.push import PushOptions, push
    from hybrid.opensearch.update import update
    from sparta.search.searcher import Searcher

    name = pushing.server.name
    with (
        Searcher(pushing.index) as searcher,
        tqdm(
            total=searcher.num_docs, unit="passage", disable=True if pushing.quiet else None, file=sys.stderr
        ) as bar,
    ):
        if pushing.update:
            done = update(searcher, server, name, connections=pushing.connections, advance=bar.update)
            click.echo(
                f"{name}: {counted(done.passages, 'passage')}, {done.written:,} written,"
                f" {done.deleted:,} deleted ({done.index})"
            )
            return
        report = push(searcher, server, name, made(PushOptions, pushing), advance=bar.update)
    if report.unchanged:
        click.echo(f"{name}: up to date, {counted(report.passages, 'passage')} ({report.index})")
        return
    kept = f", {report.kept:,} were there" if report.kept else ""
    old = f"; in place of {', '.join(report.replaced)}" if report.replaced else ""
    click.echo(
        f"{name}: {counted(report.passages, 'passage')} in {report.seconds:.0f} s{kept} ({report.index}){old}"
    )


def _delete(server: Any, name: str, ids: tuple[str, ...]) -> None:
    from hybrid.opensearch.update import delete

    report = delete(server, name, ids)
    print_deletion(report)
    if report.missing:
        shown = ", ".join(map(repr, report.missing[:_SHOWN]))
        raise InputError(f"the index holds no passage with the id {shown}", where=f"{server.where}/{name}")
