"""What is written into an index: where impacts come from, how they are written, how far a job came."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sparta.base.errors import IndexStateError
from sparta.base.remedies import Option, remedy
from sparta.index.folder import GROWING
from sparta.index.impact_batches import ImpactBatch
from sparta.models.query_encoder import QuerySide

DEFAULT_COMMIT_SECONDS = 30.0
JSON_VECTORS = "JSON vectors of "
"""How the model of vectors that no model of ours made is called, before the name of their file."""
MODES = ("create", "overwrite", *GROWING)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How an index is written: `mode` says what may happen to an existing one."""

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
    """Where impacts come from.

    `job` identifies the input (path, hash, how it is cut). `batches(n, last)` gives those after the first n
    passages; the id of the last of these is `last`, or not known where that is empty. `describe()` is called
    at the end for counts of what was read. `language` is that of the texts, where the source knows it.
    """

    job: dict[str, Any]
    side: QuerySide
    batches: Callable[[int, str], Iterator[ImpactBatch]]
    describe: Callable[[], dict[str, Any]] = dict
    fixed_vocabulary: bool = True
    language: str | None = None


@dataclass
class Progress:
    """What a Lucene commit carries: how far the input was read and what was written.

    `job` is the id of the job that wrote last; `last_id` the last passage of it that is in the index;
    `source` what was read, once the job is done; `deleted` how many passages were deleted since it began.
    """

    job: str = ""
    consumed: int = 0
    last_id: str = ""
    next_position: int = 0
    done: bool = False
    counts: dict[str, float] = field(default_factory=dict)
    source: dict[str, Any] = field(default_factory=dict)
    deleted: int = 0

    def add(self, batch: ImpactBatch) -> None:
        """Count a batch that was handed to the writer."""
        self.consumed += len(batch)
        self.next_position += len(batch)
        self.last_id = batch.passage_ids[-1]
        lost = batch.quantization
        for name, value in (
            ("passages", len(batch)),
            ("postings", len(batch.term_ids)),
            ("clipped", lost.clipped),
            ("absolute_error", lost.absolute_error),
            ("zeros", batch.zeros),
            ("windowed", batch.windowed),
        ):
            self.counts[name] = self.counts.get(name, 0) + value

    def dumps(self) -> str:
        """As a commit carries it."""
        return json.dumps(asdict(self))

    @staticmethod
    def loads(text: str) -> Progress:
        """Read a commit's string; an empty one is the beginning."""
        return Progress(**json.loads(text)) if text else Progress()


def new_job(job: dict[str, Any]) -> dict[str, Any]:
    """A job as it is started: another one each time, also with the same input."""
    return {**job, "run": secrets.token_hex(8)}


def input_of(job: dict[str, Any]) -> dict[str, Any]:
    """What a job reads and how: all but when it was started."""
    return {k: v for k, v in job.items() if k != "run"}


def job_id(job: dict[str, Any]) -> str:
    """A fingerprint of a job."""
    return hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()[:16]


def skip_passages(
    batches: Iterable[ImpactBatch], count: int, check: Callable[[int, str], object] = lambda *_: None
) -> Iterator[ImpactBatch]:
    """The batches after the first `count` passages; commits fall between batches, so none is cut.

    Terms that skipped batches brought along come with the first batch that is left. `check` gets the number
    of passages that were skipped, fewer when there are no more, and the id of the last of them.
    """
    seen, last = 0, ""
    skipped_terms: list[str] = []
    for batch in batches:
        seen += len(batch)
        if seen <= count:
            skipped_terms += batch.new_terms
            last = batch.passage_ids[-1]
            if seen == count:
                check(seen, last)
            continue
        if seen - len(batch) < count:
            raise cut_in_another_way()
        yield replace(batch, new_terms=[*skipped_terms, *batch.new_terms])
        skipped_terms = []
    if seen < count:
        check(seen, last)


def cut_in_another_way() -> IndexStateError:
    """Say that a commit does not fall between two batches of this input."""
    return IndexStateError(
        "the input is cut in another way than when the index was started",
        remedy=remedy("start again with {}", Option("overwrite", True)),
    )
