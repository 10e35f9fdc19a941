"""Reading a corpus as a stream of passages, and checking its records.

JSONL files have one object per line. TSV files have a header (`id`, `text`, `title`) and quoting as DPR and
Python's csv module write it, or no header and the two columns id and text. A page of KILT's knowledge
source is split into passages of 100 words. A table row is a passage. The suffix .jsonl, .ndjson or .tsv
decides the format; other names are decided by the first line. Blank lines are ignored and not counted. In a
folder without such files, each .txt or .md file is a passage, including those in subfolders. All files may
be compressed by gzip, bzip2 or zstd.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from sparta.base.errors import InputError
from sparta.base.files import (
    STANDARD_INPUT,
    Tally,
    input_errors,
    longest_line,
    numbered_lines,
    open_decompressed,
    plain_name,
    shown_name,
    too_long,
    unread_form,
    unreadable,
)
from sparta.base.records import Passage, Skip
from sparta.base.remedies import Option, remedy
from sparta.data.files import check_one_a_line, files_of, format_of, is_text_of, no_records
from sparta.data.kilt import is_page, page_passages
from sparta.data.parsing import (
    EMPTY_TEXT,
    BadRecordError,
    as_object,
    decoded,
    parse_object,
    read_header,
    read_markdown,
    read_pair,
    read_passage,
    read_row,
)
from sparta.data.seen_ids import SeenIds
from sparta.data.tables import is_row, row_passage

KEPT_SKIPS = 20
RECORDS = "records"
"""The source name of records in memory."""

logger = logging.getLogger("sparta.data")
_BATCH_RECORDS = 1000
_BATCH_BYTES = 8 << 20  # bounds memory when the lines are very long
_OR_SKIP = remedy("; or skip such records with {}", Option("skip_invalid", True))


@dataclass(slots=True)
class ReadCounts:
    """Counts of used and skipped records, with the reasons and the first skips."""

    used: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    first_skips: list[Skip] = field(default_factory=list)
    cut: int = 0
    """The number of sentences that were cut because they exceeded the maximum length."""

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
        return {**counts, "reasons": dict(self.reasons), **({"cut": self.cut} if self.cut else {})}


type _Outcome = Passage | BadRecordError
type Record = str | Mapping[str, Any] | Passage
"""A passage in memory: a text, a dictionary of record fields (docs/formats.md), or a Passage."""
type Corpus = str | Path | Iterable[Record] | CorpusReader
"""A file, a folder, `-` for standard input, or records in memory."""


def open_corpus(corpus: Corpus, *, skip_invalid: bool = False) -> CorpusReader:
    """Return the reader of a corpus.

    Texts in memory without an id are numbered from 0 in each list.

    :raises InputError: the file does not exist, or `corpus` is a single record instead of a list.
    """
    if isinstance(corpus, CorpusReader):
        return corpus
    if isinstance(corpus, str | Path):
        return CorpusReader(corpus, skip_invalid=skip_invalid)
    if isinstance(corpus, Mapping | Passage):
        raise InputError(
            "the corpus is a single record, not a list of records",
            remedy="put the record into a list: [record]",
        )
    if hasattr(corpus, "columns"):  # iterating over a data frame of pandas or polars yields columns
        raise InputError(
            f"the corpus is a table ({type(corpus).__name__}), not a list of records",
            remedy='pass the rows: frame.to_dict("records") of pandas, frame.to_dicts() of polars',
        )
    return RecordReader(corpus, skip_invalid=skip_invalid)


class CorpusReader:
    """A stream of a corpus's passages; memory use does not grow with the corpus.

    `source` is a file, `-` for standard input, or a folder. In a folder, the reader takes the file
    corpus.jsonl if there is one, as in BEIR. Otherwise it takes the JSONL and TSV files in the order of
    their names, or, without any, the text and Markdown files in the folder and its subfolders. It ignores
    hidden files, files with names of queries or judgments, and records in subfolders; a warning names the
    ignored files. The reader looks ahead by at most one batch of 1,000 records. It yields all passages
    before a bad record before it raises the error.

    A bad record is an InputError; with `skip_invalid` it is skipped and counted. A record without text uses
    its title as text; a record with neither is always skipped. Missing files, files without records, broken
    compression and a bad TSV header are always errors. `counts` holds the counts of the current or the last
    iteration.
    """

    def __init__(self, source: str | Path, *, skip_invalid: bool = False) -> None:
        self.source = str(source)
        self.skip_invalid = skip_invalid
        self.counts = ReadCounts()
        self.position = 0
        """Where the last yielded passage ends, in bytes of the files or in records of a list."""
        self._paths, self._left_out = files_of(self.source)
        self._file: BinaryIO | None = None
        if self._paths == [self.source] and Path(self.source).is_file():
            with input_errors(self.source):
                self._file = Path(self.source).open("rb")  # noqa: SIM115 (closed after reading)
            for _, first_line in itertools.islice(numbered_lines(self.source, Tally(), self._file), 1):
                format_of(self.source, first_line)
        self._tally = _SourceTally()
        self._at_end = False

    def __iter__(self) -> Iterator[Passage]:
        self.counts, self._tally, self._at_end = ReadCounts(), _SourceTally(), False
        if self._left_out:
            names = [Path(path).relative_to(self.source).as_posix() for path in self._paths]
            read, ignored = _listed(names), _listed(self._left_out)
            logger.warning("%s: reading %s; not reading %s", self.source, read, ignored)
            self._left_out = []  # warn only once
        self.position = 0
        with SeenIds() as seen_ids:
            for batch in self._batches():
                yield from self._release(batch, seen_ids)
        self._at_end = True
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, if it is open. The next iteration opens the file again."""
        opened, self._file = getattr(self, "_file", None), None
        if opened is not None:
            opened.close()

    @property
    def size(self) -> tuple[int | None, bool]:
        """The size of the corpus (None if unknown), and whether it is in bytes rather than records."""
        files = [Path(path) for path in self._paths]
        if not all(path.is_file() for path in files):
            return None, False
        return sum(path.stat().st_size for path in files), True

    def identity(self) -> dict[str, Any]:
        """Return the absolute path, size and SHA-256 of the corpus, before it is read.

        For input that can be read only once, such as a pipe, size and hash are None.
        """
        path = Path(self.source)
        if path.exists() and not path.is_file() and not path.is_dir():
            return {"source": self.source, "bytes": None, "sha256": None}
        fingerprint = source_fingerprint(self.source, self._file)
        return (
            fingerprint if self.source == STANDARD_INPUT else {**fingerprint, "source": str(path.resolve())}
        )

    def fingerprint(self) -> dict[str, Any]:
        """Return the source, and the total bytes and SHA-256 of its files in order, as stored on disk.

        For a folder of texts, the SHA-256 also covers the path and the end of each file. Bytes and SHA-256
        are None for standard input, which cannot be read again for comparison. The reader computes both
        while it reads.

        :raises ValueError: the corpus was not read to its end.
        """
        if not self._at_end:
            raise ValueError("the fingerprint needs the whole corpus, which has not been read to its end")
        return _fingerprint(self.source, self._tally)

    def _batches(self) -> Iterator[list[tuple[int, _Outcome | InputError]]]:
        batch: list[tuple[int, _Outcome | InputError]] = []
        size = position = 0
        try:
            for length, outcome in self._outcomes():
                position += length + 1
                # In a compressed file, the bytes on disk are fewer than the bytes of the lines.
                batch.append((min(position, self._tally.size), outcome))
                size += length
                if len(batch) == _BATCH_RECORDS or size >= _BATCH_BYTES or self._stops(outcome):
                    yield batch
                    batch, size = [], 0
        except InputError as error:  # an error of the whole file: yield the records before it first
            batch.append((position, error))
        if batch:
            yield batch

    def _outcomes(self) -> Iterator[tuple[int, _Outcome]]:
        for path in self._paths:
            if is_text_of(path, self.source):
                yield _text_file(path, self.source, self._tally)
                self._tally.end_text(path, self.source)
            else:
                yield from _outcomes_of(path, self._tally, self._file)

    def _release(
        self, batch: Sequence[tuple[int, _Outcome | InputError]], seen_ids: SeenIds
    ) -> Iterator[Passage]:
        numbered_passages = [
            (number, item) for number, (_, item) in enumerate(batch) if isinstance(item, Passage)
        ]
        first_places = seen_ids.add([(passage.passage_id, passage.where) for _, passage in numbered_passages])
        duplicate_of = {numbered_passages[n][0]: first for n, first in first_places.items()}
        for number, (self.position, outcome) in enumerate(batch):
            if isinstance(outcome, Passage) and number not in duplicate_of:
                self.counts.used += 1
                yield outcome
                continue
            if isinstance(outcome, Passage):
                detail = f"{outcome.passage_id!r} was already the id of {duplicate_of[number]}"
                remedy = "give every record a different id"
                outcome = BadRecordError("duplicate id", detail, where=outcome.where, remedy=remedy)
            if not isinstance(outcome, BadRecordError):
                raise outcome
            self._skip_or_raise(outcome)

    def take_back(self, bad: BadRecordError) -> None:
        """Discard the last yielded passage, which the caller cannot use: skip it, or raise the error.

        :raises BadRecordError: `skip_invalid` is not set.
        """
        self.counts.used -= 1
        self._skip_or_raise(bad)

    def _skip_or_raise(self, bad: BadRecordError) -> None:
        if self._stops(bad):
            bad.remedy += _OR_SKIP
            raise bad
        self.counts.skip(bad)

    def _stops(self, outcome: _Outcome) -> bool:
        return isinstance(outcome, BadRecordError) and not self.skip_invalid and outcome.reason != EMPTY_TEXT


class RecordReader(CorpusReader):
    """A stream of passages from records in memory.

    The checks are the same as for files. An iterator is read only once. Records in memory have no
    fingerprint, so an index cannot recognize them later.
    """

    def __init__(self, records: Iterable[Record], *, skip_invalid: bool = False) -> None:
        super().__init__(STANDARD_INPUT, skip_invalid=skip_invalid)
        self.source = RECORDS
        self._records = records

    @property
    def size(self) -> tuple[int | None, bool]:
        """The number of records (None if unknown), and False: the size is not in bytes."""
        return len(self._records) if isinstance(self._records, Sized) else None, False

    def identity(self) -> dict[str, Any]:
        """Return the identity of records in memory, which has neither size nor hash."""
        return {"source": RECORDS, "bytes": None, "sha256": None}

    def _outcomes(self) -> Iterator[tuple[int, _Outcome]]:
        for number, record in enumerate(self._records):
            self._tally.size = number + 1
            for outcome in _record_outcomes(record, number):
                yield len(outcome.text) if isinstance(outcome, Passage) else 0, outcome


def _record_outcomes(record: object, number: int) -> list[_Outcome]:
    where = f"{RECORDS}:{number}"
    if isinstance(record, str):
        record = {"id": str(number), "text": record}
    if isinstance(record, Passage):
        return [_checked(record, where)]
    if not isinstance(record, Mapping):
        detail = f"expected a dictionary, a Passage or a string, found {type(record).__name__}"
        remedy = 'pass records as {"id": …, "text": …, "title": …}'
        return [BadRecordError("record of the wrong type", detail, where=where, remedy=remedy)]
    return _passages_of(lambda _: as_object(record), b"", where)


def _checked(passage: Passage, where: str) -> _Outcome:
    """Check a Passage made by a program by the rules for a record of a file."""
    record: dict[str, Any] = {"id": passage.passage_id, "text": passage.text, "title": passage.title}
    context: dict[str, Any] = {}
    if passage.context:
        context = {"context": passage.context, "start": passage.start, "end": passage.end}
    try:
        stored = as_object({**passage.record, **context})
        return replace(read_passage(as_object(record | context), where), record=stored)
    except BadRecordError as bad:
        bad.where = where
        return bad


def source_fingerprint(source: str | Path, opened: BinaryIO | None = None) -> dict[str, Any]:
    """Return the same as `CorpusReader.fingerprint`, computed from the files alone.

    Standard input is not read.

    :param opened: the source, if it is a single file that is already open
    """
    tally = _SourceTally()
    for path in files_of(str(source))[0]:
        if path == STANDARD_INPUT:
            continue
        try:
            with nullcontext(opened) if opened else Path(path).open("rb") as stream:
                stream.seek(0)
                while data := stream.read(1 << 20):
                    tally.add(data)
        except OSError as error:
            raise unreadable(path, error) from error
        if is_text_of(path, str(source)):
            tally.end_text(path, str(source))
    return _fingerprint(str(source), tally)


class _SourceTally(Tally):
    """The size and SHA-256 of a source.

    For a folder of texts, the hash includes the paths, which become passage ids.
    """

    def end_text(self, path: str, folder: str) -> None:
        """Add a text's path within its folder, and the position of its end, to the hash."""
        name = os.fsencode(Path(path).relative_to(folder))
        self._digest.update(b"\0%s\0%d\0" % (name, self.size))


def _fingerprint(source: str, tally: Tally) -> dict[str, Any]:
    if source in (STANDARD_INPUT, RECORDS):
        return {"source": source, "bytes": None, "sha256": None}
    return {"source": source, "bytes": tally.size, "sha256": tally.sha256()}


def _listed(names: Sequence[str]) -> str:
    """Join the first names, and say how many more names there are."""
    more = len(names) - KEPT_SKIPS
    return ", ".join(names[:KEPT_SKIPS]) + (f" and {more:,} more" if more > 0 else "")


# From lines to passages


def _outcomes_of(path: str, tally: Tally, opened: BinaryIO | None) -> Iterator[tuple[int, _Outcome]]:
    lines = numbered_lines(path, tally, opened)
    first_line = next(lines, None)
    if first_line is None:
        raise no_records(path)
    if format_of(path, first_line[1]) == "jsonl":
        parse: Callable[[str], dict[str, Any]] = parse_object
        check_one_a_line(path, first_line)
        lines = itertools.chain([first_line], lines)
    else:
        columns = read_header(path, first_line)
        parse = read_pair if columns is None else partial(read_row, columns)
        lines = itertools.chain([first_line], lines) if columns is None else lines
    line_number = 0
    for line_number, line in lines:
        outcomes = _passages_of(parse, line, f"{shown_name(path)}:{line_number}")
        for outcome in outcomes:
            yield len(line) // len(outcomes), outcome
    if not line_number:
        raise no_records(path)


def _text_file(path: str, folder: str, tally: Tally) -> tuple[int, _Outcome]:
    """Read a text or Markdown file in a folder as a passage.

    The passage id is the path within the folder. The title is the file's name, unless Markdown gives a
    title.
    """
    max_bytes = longest_line()
    with input_errors(path), open_decompressed(path, tally) as stream:
        data = stream.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise too_long(path, "a text file", max_bytes)
    name = Path(plain_name(path))
    passage_id = re.sub(r"\s+", "_", name.relative_to(folder).as_posix())

    def parse(text: str) -> dict[str, Any]:
        if (shown_id := _in_utf8(passage_id)) != passage_id:
            detail = f"the file name, which is the passage id, is not UTF-8: {shown_id}"
            raise BadRecordError("invalid id", detail, remedy="rename the file (for example with convmv)")
        record = {"text": text} if name.suffix.lower() == ".txt" else read_markdown(text)
        title = record.get("title") or (name.stem if text.strip() else "")
        return {**record, "id": passage_id, "title": title, "text": record["text"].strip()}

    where = f"{_in_utf8(path)}:1"
    if unsupported := unread_form(data, path):
        description, conversion = unsupported
        detail = f"expected UTF-8 text, found {description}"
        return len(data), BadRecordError("invalid UTF-8", detail, where=where, remedy=conversion)
    return len(data), _passages_of(parse, data, where)[0]


def _in_utf8(path: str) -> str:
    r"""Return a path as valid Unicode, with bytes that are not UTF-8 as \xNN."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _passages_of(parse: Callable[[str], Mapping[str, Any]], line: bytes, where: str) -> list[_Outcome]:
    """Return the passages of a record as a list; a bad record gives its error as the only element.

    A KILT page may have several passages, any other record has one.
    """
    try:
        record = parse(decoded(line))
        if is_row(record):
            return [read_passage(row_passage(record, where.rpartition(":")[2]), where)]
        passages = page_passages(record) if is_page(record) else [record]
        return [read_passage(passage, where) for passage in passages]
    except BadRecordError as bad:
        bad.where = where
        return [bad]
