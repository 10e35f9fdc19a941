"""The base class of the readers of a corpus: batches, duplicate ids, skipped records and counts."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparta.base.errors import InputError
from sparta.base.records import Passage, Skip
from sparta.base.remedies import Option, remedy
from sparta.data.files import SourceTally
from sparta.data.formats.fields import HASH, USUAL_FIELDS, Fields, is_content_hash
from sparta.data.formats.reading import Outcome
from sparta.data.parsing import EMPTY_TEXT, REMOVED, BadRecordError
from sparta.data.seen_ids import SeenIds

KEPT_SKIPS = 20
logger = logging.getLogger("sparta.data")
_IN_INDEX = "skip_invalid=True (for an index: IndexOptions(skip_invalid=True))"
_OR_SKIP = remedy("; or skip such records with {}", Option("skip_invalid", True, python=_IN_INDEX))


@dataclass(slots=True)
class ReadCounts:
    """Counts of used and skipped records, with the reasons and the first skips."""

    used: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    first_skips: list[Skip] = field(default_factory=list)
    cut: int = 0
    """The number of sentences that were cut because they exceeded the maximum length."""
    hashed: int = 0
    """The number of used records without an id, which have a hash of their content as id."""

    @property
    def skipped(self) -> int:
        """The number of records that were read but not used."""
        return self.reasons.total()

    @property
    def read(self) -> int:
        """The number of records that were read: always used + skipped."""
        return self.used + self.skipped

    def skip(self, bad: BadRecordError) -> None:
        """Count a skipped record."""
        self.reasons[bad.reason] += 1
        if len(self.first_skips) < KEPT_SKIPS:
            self.first_skips.append(Skip(bad.where, bad.message))

    def as_dict(self) -> dict[str, Any]:
        """Return the counts for a manifest."""
        counts = {"read": self.read, "used": self.used, "skipped": self.skipped}
        special = {"cut": self.cut, "hashed": self.hashed}
        return {**counts, "reasons": dict(self.reasons), **{name: n for name, n in special.items() if n}}

    def for_report(self) -> dict[str, Any]:
        """Return the counts and the first skips."""
        return {**self.as_dict(), "first_skips": [skip._asdict() for skip in self.first_skips]}


def describe_skips(counts: Mapping[str, Any]) -> str:
    """Return how many records were skipped, why, and the first skip; empty if no record was skipped.

    :param counts: as `ReadCounts.for_report` returns them
    """
    if not counts.get("skipped"):
        return ""
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in counts["reasons"].items())
    first = (counts.get("first_skips") or [{"where": "", "reason": ""}])[0]
    return (
        f"{counts['skipped']:,} of {counts['read']:,} records were skipped ({reasons});"
        f" the first: {first['where']}: {first['reason']}"
    )


class CorpusReader(ABC):
    """A stream of a corpus's passages; memory use does not grow with the corpus.

    The reader looks ahead by at most one batch of 1,000 records. It yields all passages before a bad record
    before it raises the error.

    A bad record is an InputError; with `skip_invalid` it is skipped and counted. A record without text uses
    its title as text; a record with neither is always skipped, as is a text that was removed after its folder
    was listed. `counts` holds the counts of the current or
    the last iteration.
    """

    def __init__(
        self,
        source: str,
        *,
        skip_invalid: bool = False,
        fields: Fields = USUAL_FIELDS,
        query: str | None = None,
    ) -> None:
        self.source = source
        self.skip_invalid = skip_invalid
        self.fields, self.query = fields, query
        self.counts = ReadCounts()
        self.batch_records, self.batch_bytes = 1000, 8 << 20
        """The sizes at which a batch ends; the bytes bound memory when the lines are very long."""
        self.position = 0
        """Where the last yielded passage ends, in bytes of the files or in records of a list."""
        self._has_warned = False
        self._duplicate_remedy = "give every record a different id"
        self._tally = SourceTally()

    def __iter__(self) -> Iterator[Passage]:
        self.counts, self._tally = ReadCounts(), SourceTally()
        self.position = 0
        with SeenIds() as seen_ids:
            for batch in self._batches():
                self._warn_of_fields([outcome for _, outcome in batch if isinstance(outcome, Passage)])
                yield from self._release(batch, seen_ids)

    @property
    @abstractmethod
    def size(self) -> tuple[int | None, bool]:
        """The size of the corpus (None if unknown), and whether it is in bytes rather than records."""

    @property
    @abstractmethod
    def is_rereadable(self) -> bool:
        """Whether the corpus can be read twice."""

    @property
    def reading(self) -> dict[str, Any]:
        """The options for the fields and the query; empty for the usual fields and no query."""
        return {**self.fields.options, **({"query": self.query} if self.query else {})}

    def identity(self) -> dict[str, Any]:
        """Return the source, size and SHA-256 of the corpus, before it is read.

        Size and hash are None for records in memory and for input that can be read only once, such as a pipe.
        """
        return {"source": self.source, "bytes": None, "sha256": None}

    def fingerprint(self) -> dict[str, Any]:
        """Return the identity; readers of files compute it while they read."""
        return self.identity()

    def close(self) -> None:  # noqa: B027 (only files need it)
        """Release all resources. The next iteration opens them again."""

    @abstractmethod
    def _outcomes(self) -> Iterator[tuple[int, Outcome]]:
        """Yield the passages and the bad records, each with its length. Add what is read to the tally."""

    def _batches(self) -> Iterator[list[tuple[int, Outcome | InputError]]]:
        batch: list[tuple[int, Outcome | InputError]] = []
        size = position = 0
        try:
            for length, outcome in self._outcomes():
                position += length + 1
                # In a compressed file, the bytes on disk are fewer than the bytes of the lines.
                stored = self._tally.size
                batch.append((position if position < stored else stored, outcome))
                size += length
                if len(batch) == self.batch_records or size >= self.batch_bytes or self._stops(outcome):
                    yield batch
                    batch, size = [], 0
        except InputError as error:  # an error of the whole file: yield the records before it first
            batch.append((position, error))
        if batch:
            yield batch

    def _release(
        self, batch: Sequence[tuple[int, Outcome | InputError]], seen_ids: SeenIds
    ) -> Iterator[Passage]:
        numbered_passages = [
            (number, item) for number, (_, item) in enumerate(batch) if isinstance(item, Passage)
        ]
        first_places = seen_ids.add([(passage.passage_id, passage.where) for _, passage in numbered_passages])
        duplicate_of = {numbered_passages[n][0]: first for n, first in first_places.items()}
        for number, (self.position, outcome) in enumerate(batch):
            if isinstance(outcome, Passage) and number not in duplicate_of:
                self.counts.used += 1
                self.counts.hashed += _is_hashed(outcome)
                yield outcome
                continue
            if isinstance(outcome, Passage):
                detail = f"{outcome.passage_id!r} was already the id of {duplicate_of[number]}"
                outcome = BadRecordError(
                    "duplicate id", detail, where=outcome.where, remedy=self._duplicate_remedy
                )
            if not isinstance(outcome, BadRecordError):
                raise outcome
            self._skip_or_raise(outcome)

    def _warn_of_fields(self, passages: Sequence[Passage]) -> None:
        """Warn, once, of the user's names that no passage has, and of fields that may hold ids or titles.

        :param passages: the first passages that are read together
        """
        if self._has_warned or not passages:
            return
        self._has_warned = True
        for name in sorted(self.fields.unseen):
            message = "%s: none of the first %s records has the field %r; check the name"
            logger.warning(message, self.source, f"{len(passages):,}", name)
        first = passages[0]
        for option in self.fields.similar(
            [*first.record], lacks_id=_is_hashed(first), lacks_title=not first.title
        ):
            role = option.name.removesuffix("_field")
            logger.warning(
                "%s: the records have no field %r; %s",
                self.source,
                role,
                remedy(f"if {option.value} holds it, add {{}}", option),
            )

    def take_back(self, passage: Passage, bad: BadRecordError) -> None:
        """Discard the last yielded passage, which the caller cannot use: skip it, or raise the error.

        :raises BadRecordError: `skip_invalid` is not set.
        """
        self.counts.used -= 1
        self.counts.hashed -= _is_hashed(passage)
        self._skip_or_raise(bad)

    def _skip_or_raise(self, bad: BadRecordError) -> None:
        if self._stops(bad):
            bad.remedy += _OR_SKIP
            raise bad
        self.counts.skip(bad)

    def _stops(self, outcome: Outcome) -> bool:
        if self.skip_invalid or not isinstance(outcome, BadRecordError):
            return False
        return outcome.reason not in (EMPTY_TEXT, REMOVED)


def _is_hashed(passage: Passage) -> bool:
    """Return whether the id of a passage is the hash of its content, as of a record without an id."""
    return bool(HASH.fullmatch(passage.passage_id)) and is_content_hash(passage)
