"""Reports of commands that write an index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from cli._output import counted
from sparta.data.units import is_cut, unit_noun


def print_index_report(report: Any, *, optimized: bool = False) -> None:
    """Print what was written into an index and what the index holds now."""
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
        print_skips(report.source)
    print_channel_reports(report.channels)


def print_skips(counts: dict[str, Any]) -> None:
    """Print the first skipped records of a corpus, and the number of the others."""
    for skip in counts.get("first_skips", []):
        click.echo(f"  skipped {skip['where']}: {skip['reason']}", err=True)
    if more := counts.get("skipped", 0) - len(counts.get("first_skips", [])):
        click.echo(f"  … and {more:,} more skipped records", err=True)


def print_deletion(report: Any) -> None:
    """Print how many of the named passages were deleted."""
    units = f" ({counted(report.deleted, unit_noun(report.unit))})" if is_cut(report.unit) else ""
    click.echo(f"deleted {report.requested - len(report.missing)} of {report.requested}{units}")


def print_channel_reports(reports: Iterable[Any]) -> None:
    """Print what was written into dense channels."""
    for report in reports:
        model = Path(report.model).name
        summary = f"{report.path}: {report.kind}, {counted(report.passages, 'vector')} of {model}"
        if report.unchanged:
            click.echo(f"{summary}: up to date; nothing to do")
        else:
            click.echo(
                f"{summary}: encoded {report.encoded:,}, reused {report.copied_vectors:,},"
                f" kept {report.kept:,}, removed {report.removed_vectors:,} in {report.seconds:.1f} s"
                f"{only_beginnings(report)}"
            )


def fail_if_behind(behind: Sequence[str]) -> None:
    """End the command with exit code 1 if a channel failed to update. A logged warning has the remedy."""
    if behind:
        click.get_current_context().exit(1)


def read_counts(counts: dict[str, Any]) -> str:
    """Return how many records of a corpus were read, used and skipped, as the end of a report."""
    if "read" not in counts:
        return ""
    reasons = ", ".join(f"{n} {reason}" for reason, n in counts["reasons"].items())
    skipped = f"{counts['skipped']:,} skipped" + (f" ({reasons})" if reasons else "")
    cut = f"; {counted(counts['cut'], 'sentence')} cut, longer than 128 words" if counts.get("cut") else ""
    hashed = f"; {counted(counts['hashed'], 'id')} hashed from the content" if counts.get("hashed") else ""
    return f"; read {counted(counts['read'], 'record')} = {counts['used']:,} used + {skipped}{hashed}{cut}"


def only_beginnings(report: Any) -> str:
    """Return how many passages were cut to the model's length, as the end of a report."""
    if not report.truncated_passages:
        return ""
    cut = f"{counted(report.truncated_passages, 'passage')} cut to the model's longest input"
    return f"; {cut}, {report.share_read:.1%} of all wordpieces encoded"


def windowed(n: int) -> str:
    """Return how many passages were longer than the model's input, as the end of a report."""
    return f"; {n:,} longer than the model's input, encoded in overlapping windows" if n else ""
