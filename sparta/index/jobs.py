"""Describe an indexing job: the source of its impacts, and the options for writing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from sparta.base.errors import IndexStateError, InputError
from sparta.base.remedies import Option, remedy
from sparta.index.generation import GROWING, Job
from sparta.index.inputs.impact_batches import ImpactBatch
from sparta.models.query_encoder import QuerySide

DEFAULT_COMMIT_SECONDS = 30.0
JSON_VECTORS = "JSON vectors of "
"""The start of the model name of vectors from another program; the name of the vectors' file follows."""
MODES = ("create", "overwrite", *GROWING)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options for writing an index; `mode` decides what the job may do to an existing index."""

    mode: str = "create"
    resume: bool = False
    language: str = "en"
    threads: int = 2
    ram_buffer_mb: int = 64
    codec: str | None = None
    optimize: bool = False
    commit_seconds: float = DEFAULT_COMMIT_SECONDS


@dataclass(frozen=True, slots=True)
class Source:
    """The source of an index's passages and impacts.

    `job` describes the input, its unit and its pruning. `batches(n, last_id)` returns the batches after the
    first n passages; `last_id` is the id of passage n, or empty if the caller does not know the id.
    `describe()` returns the counts of records that were read; the writer calls it at the end. `language` is
    the language of the texts, or None if the source does not know the language. `arithmetic` names the
    runtime and the arithmetic that encodes the passages, such as `openvino int8`; empty if unknown.
    """

    job: Job
    side: QuerySide
    batches: Callable[[int, str], Iterator[ImpactBatch]]
    describe: Callable[[], dict[str, Any]] = dict
    fixed_vocabulary: bool = True
    language: str | None = None
    arithmetic: str = ""


def skip_passages(
    batches: Iterable[ImpactBatch], count: int, check: Callable[[int, str], object] = lambda *_: None
) -> Iterator[ImpactBatch]:
    """Yield the batches after the first `count` passages. Commits fall between batches, so no batch is split.

    The first yielded batch also carries the new terms of the skipped batches.

    :param check: called with the number of skipped passages, which is below `count` if the input is shorter,
        and the id of the last skipped passage
    """
    passages_read, last_id = 0, ""
    skipped_terms: list[str] = []
    for batch in batches:
        passages_read += len(batch)
        if passages_read <= count:
            skipped_terms += batch.new_terms
            last_id = batch.passage_ids[-1]
            if passages_read == count:
                check(passages_read, last_id)
            continue
        if passages_read - len(batch) < count:
            raise batch_bounds_changed()
        yield replace(batch, new_terms=[*skipped_terms, *batch.new_terms])
        skipped_terms = []
    if passages_read < count:
        check(passages_read, last_id)


class InputChangedError(InputError, IndexStateError):
    """The input of a resumed job differs from the input that the job has read before."""


def batch_bounds_changed() -> InputChangedError:
    """Return the error for a commit that does not fall between two batches of the input."""
    return InputChangedError(
        "the input has changed since this index was started: its batches differ",
        remedy=remedy("start again with {}", Option("overwrite", True)),
    )
