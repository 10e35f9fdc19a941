"""What commands print about what they did."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from cli._output import counted
from sparta.data.units import is_cut, unit_noun


def print_index_report(report: Any, *, optimized: bool = False) -> None:
    """Say what an index holds now, and what was written."""
    if report.unchanged:
        if optimized:
            click.echo(f"{report.path}: merged into one segment")
        click.echo(f"{report.path}: up to date, {counted(report.documents, 'passage')}; nothing to do")
    else:
        written = report.written
        passages, postings = int(written.get("passages", 0)), int(written.get("postings", 0))
        click.echo(
            f"{report.path}: {counted(report.documents, 'passage')}, "
            + (
                f"{counted(postings, 'posting')} written ({postings / max(1, passages):,.0f} per passage)"
                if postings
                else f"{passages:,} written"
            )
            + f" in {report.seconds:.1f} s"
            f"{windowed(int(written.get('windowed', 0)))}{read_counts(report.source)}"
        )
        for skip in report.source.get("first_skips", []):
            click.echo(f"  skipped {skip['where']}: {skip['reason']}", err=True)
        if more := report.source.get("skipped", 0) - len(report.source.get("first_skips", [])):
            click.echo(f"  … and {more:,} more", err=True)
    print_channel_reports(report.channels)


def print_deletion(report: Any) -> None:
    """Say how many of the passages that were named are deleted."""
    units = f" ({counted(report.deleted, unit_noun(report.unit))})" if is_cut(report.unit) else ""
    click.echo(f"deleted {report.named - len(report.missing)} of {report.named}{units}")


def print_channel_reports(reports: Iterable[Any]) -> None:
    """Say what was done for the dense channel."""
    for report in reports:
        model = Path(report.model).name
        held = f"{report.path}: {report.kind}, {counted(report.passages, 'vector')} of {model}"
        if report.unchanged:
            click.echo(f"{held}: up to date; nothing to do")
        else:
            click.echo(
                f"{held}: encoded {report.encoded:,}, reused {report.taken:,}, kept {report.kept:,}, removed"
                f" {report.forgotten:,} in {report.seconds:.1f} s{only_beginnings(report)}"
            )


def read_counts(counts: dict[str, Any]) -> str:
    """What was read of a corpus, to be put after a report."""
    if "read" not in counts:
        return ""
    reasons = ", ".join(f"{n} {reason}" for reason, n in counts["reasons"].items())
    skipped = f"{counts['skipped']:,} skipped" + (f" ({reasons})" if reasons else "")
    cut = f"; {counted(counts['cut'], 'sentence')} cut, longer than 128 words" if counts.get("cut") else ""
    return f"; read {counted(counts['read'], 'record')} = {counts['used']:,} used + {skipped}{cut}"


def only_beginnings(report: Any) -> str:
    """How many passages are in their vectors by their beginnings only, and what share was read of all."""
    if not report.cut:
        return ""
    cut = f"{counted(report.cut, 'passage')} cut to what the model reads at once"
    return f"; {cut}, {report.share_read:.1%} of all wordpieces read"


def windowed(n: int) -> str:
    """How many passages were longer than the model reads at once."""
    return f"; {n:,} longer than the model reads at once, encoded in windows" if n else ""
