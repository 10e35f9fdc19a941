"""`sparta push`: copy an index into OpenSearch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from cli._arguments import Text, arguments, command, flag, group, made, option, takes, typed, whole
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
    update: bool = flag("Write and delete only the changed passages, in the live index.")
    ids: tuple[str, ...] = option(
        "Only delete the passage with this id, in OpenSearch. Repeat the option for several passages.",
        "--delete",
        metavar="ID",
        type=Text(),
    )
    shards: int | None = option(
        "Number of primary shards [default: one per data node].", type=click.IntRange(1)
    )
    replicas: int = whole(1, "Number of copies of each shard; fewer if there are too few nodes.", least=0)
    connections: int = whole(2, "Number of simultaneous bulk requests.", most=64)
    keep_old: bool = flag("Do not delete the index that had the alias before.")
    quiet: bool = quiet_option


@command()
@takes(_Push)
def push(pushing: _Push) -> None:
    """Copy an index into OpenSearch, or only its changes.

    Fills and verifies a new index beside the live one, then moves the alias --name to the new index and
    deletes the old one. After an interruption, the same command continues. Searchers need only the URL and
    the alias. Credentials: $SPARTA_OPENSEARCH_USER and $SPARTA_OPENSEARCH_PASSWORD, or
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
            f"these options cannot be combined: {', '.join([*changing, *fixed])}",
            remedy="use only --update or only --delete: the live index keeps its shards and replicas",
        )
    if ids and typed("index"):
        raise InputError(
            "--delete cannot be combined with --index, because --delete changes only OpenSearch",
            remedy="omit --index; to delete from an index folder, run: sparta delete",
        )
    with pushing.server.server() as server:
        if ids:
            _delete(server, pushing.server.name, ids)
        else:
            _push(pushing, server)


def _push(pushing: _Push, server: Any) -> None:
    """Push or update the index, and print the report."""
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
            changes = update(searcher, server, name, connections=pushing.connections, advance=bar.update)
            click.echo(
                f"{name}: {counted(changes.passages, 'passage')}, {changes.written:,} written,"
                f" {changes.deleted:,} deleted ({changes.index})"
            )
            return
        report = push(searcher, server, name, made(PushOptions, pushing), advance=bar.update)
    old = f"; replaces {', '.join(report.replaced)}" if report.replaced else ""
    if report.unchanged:
        click.echo(f"{name}: up to date, {counted(report.passages, 'passage')} ({report.index}){old}")
        return
    kept = f", {report.kept:,} from before" if report.kept else ""
    click.echo(
        f"{name}: {counted(report.passages, 'passage')} in {report.seconds:.0f} s{kept} ({report.index}){old}"
    )


def _delete(server: Any, name: str, ids: tuple[str, ...]) -> None:
    """Delete passages in OpenSearch, and print the report; raise InputError for ids that are not there."""
    from hybrid.opensearch.update import delete

    report = delete(server, name, ids)
    print_deletion(report)
    if report.missing:
        shown = ", ".join(map(repr, report.missing[:_SHOWN]))
        raise InputError(f"the index holds no passage with the id {shown}", where=f"{server.where}/{name}")
