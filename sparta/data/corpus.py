"""A corpus as a stream of passages, and what counts as bad input.

Formats: JSONL, one object a line; TSV with a header (`id`, `text`, `title`), quoted as DPR and Python's csv
module write it, or with the two columns id and text and no header, one record a line. A line of KILT's
knowledge source is a page, which is cut into passages of 100 words; a row of a table is a passage. A name
with .jsonl, .ndjson or .tsv says which it is; otherwise the first line does. Blank lines are neither read nor
counted. In a folder without such files, each .txt or .md file is a passage, also of its subfolders. All may
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
    longest_line,
    numbered_lines,
    open_decompressed,
    plain_name,
    reading,
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
"""How the source of passages in memory is named."""

logger = logging.getLogger("sparta.data")
_BATCH_RECORDS = 1000
_BATCH_BYTES = 8 << 20  # of lines: a thousand very long ones would not be bounded memory
_OR_SKIP = remedy("; or leave such records out with {}", Option("skip_invalid", True))


@dataclass(slots=True)
class ReadCounts:
    """How many records were read, used and skipped; the reasons, and the first skips."""

    used: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    first_skips: list[Skip] = field(default_factory=list)
    cut: int = 0
    """Sentences above the longest length, which were cut."""

    @property
    def skipped(self) -> int:
        """Records read and not used."""
        return self.reasons.total()

    @property
    def read(self) -> int:
        """Records read: used + skipped, always."""
        return self.used + self.skipped

    def skip(self, bad: BadRecordError) -> None:
        """Count a record that is not used."""
        self.reasons[bad.reason] += 1
        if len(self.first_skips) < KEPT_SKIPS:
            self.first_skips.append(Skip(bad.where, bad.message))

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers, for a manifest."""
        numbers = {"read": self.read, "used": self.used, "skipped": self.skipped}
        return {**numbers, "reasons": dict(self.reasons), **({"cut": self.cut} if self.cut else {})}


type _Outcome = Passage | BadRecordError
type Record = str | Mapping[str, Any] | Passage
"""A passage in memory: its text, the fields of a record (docs/formats.md), or a Passage."""
type Corpus = str | Path | Iterable[Record] | CorpusReader
"""A file, a folder, `-` for standard input, or records in memory."""


def open_corpus(corpus: Corpus, *, skip_invalid: bool = False) -> CorpusReader:
    """Return the reader of a corpus.

    Of a text in memory without an id, its number (from 0, in each list anew) is the id.

    :raises InputError: no file, or one record where several are expected.
    """
    if isinstance(corpus, CorpusReader):
        return corpus
    if isinstance(corpus, str | Path):
        return CorpusReader(corpus, skip_invalid=skip_invalid)
    if isinstance(corpus, Mapping | Passage):
        raise InputError("expected several records, found one", remedy="put it into a list: [record]")
    if hasattr(corpus, "columns"):  # iterating over a table of pandas or polars gives its columns
        raise InputError(
            f"expected records, found a table ({type(corpus).__name__})",
            remedy='give its rows: frame.to_dict("records") of pandas, frame.to_dicts() of polars',
        )
    return RecordReader(corpus, skip_invalid=skip_invalid)


class CorpusReader:
    """The passages of a corpus, read as a stream: memory does not grow with the corpus.

    `source` is a file, `-` for standard input, or a folder: its corpus.jsonl if it has one, as in BEIR,
    otherwise its JSONL and TSV files in the order of their names, or, without any, the text and Markdown
    files in it and below it. Hidden files, files of queries and judgments (by their names), and subfolders
    otherwise, are not read; a warning names what is left out. The reader looks ahead by at most one batch of
    1,000 records, and what comes before a bad record is yielded before the error is raised.

    A bad record is an InputError; with `skip_invalid` it is skipped and counted. A record without text is
    read by its title; without either, it is always skipped, whatever else it holds. Missing files, files
    without records, broken compression and a bad TSV header are always errors. `counts` holds what the
    present iteration, or the last one, has yielded and skipped so far.
    """

    def __init__(self, source: str | Path, *, skip_invalid: bool = False) -> None:
        self.source = str(source)
        self.skip_invalid = skip_invalid
        self.counts = ReadCounts()
        self.position = 0
        """Bytes of the files up to the passage that was yielded last; of records in memory, their number."""
        self._paths, self._left_out = files_of(self.source)
        self._file: BinaryIO | None = None
        if self._paths == [self.source] and Path(self.source).is_file():
            with reading(self.source):
                self._file = Path(self.source).open("rb")  # noqa: SIM115 (closed when it was read)
            for _, first in itertools.islice(numbered_lines(self.source, Tally(), self._file), 1):
                format_of(self.source, first)
        self._tally = _SourceTally()
        self._at_end = False

    def __iter__(self) -> Iterator[Passage]:
        self.counts, self._tally, self._at_end = ReadCounts(), _SourceTally(), False
        if self._left_out:
            names = [Path(path).relative_to(self.source).as_posix() for path in self._paths]
            read, others = _listed(names), _listed(self._left_out)
            logger.warning("%s: reading %s; not reading %s", self.source, read, others)
            self._left_out = []  # told once
        self.position = 0
        with SeenIds() as seen:
            for batch in self._batches():
                yield from self._release(batch, seen)
        self._at_end = True
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, if one is open; the next iteration opens it again."""
        opened, self._file = getattr(self, "_file", None), None
        if opened is not None:
            opened.close()

    @property
    def size(self) -> tuple[int | None, bool]:
        """What there is to read, None where that is not known, and whether it is counted in bytes."""
        files = [Path(path) for path in self._paths]
        if not all(path.is_file() for path in files):
            return None, False
        return sum(path.stat().st_size for path in files), True

    def identity(self) -> dict[str, Any]:
        """Return what tells this input from others: absolute path, size and hash, before it is read.

        Of what can be read once only, such as a pipe, size and hash are None.
        """
        path = Path(self.source)
        if path.exists() and not path.is_file() and not path.is_dir():
            return {"source": self.source, "bytes": None, "sha256": None}
        known = source_fingerprint(self.source, self._file)
        return known if self.source == STANDARD_INPUT else {**known, "source": str(path.resolve())}

    def fingerprint(self) -> dict[str, Any]:
        """Return the source as given, and the bytes and SHA-256 of its files in order, as stored.

        The SHA-256 of a folder of texts is also of their paths and of where each ends. Bytes and SHA-256 are
        None for standard input, which nothing can compare with. They were taken while reading, so they are
        known only after the corpus was read to its end (ValueError before that).
        """
        if not self._at_end:
            raise ValueError("the corpus has not been read to its end")
        return _fingerprint(self.source, self._tally)

    def _batches(self) -> Iterator[list[tuple[int, _Outcome | InputError]]]:
        batch: list[tuple[int, _Outcome | InputError]] = []
        size = position = 0
        try:
            for length, outcome in self._outcomes():
                position += length + 1
                batch.append((min(position, self._tally.size), outcome))  # of a compressed file the latter
                size += length
                if len(batch) == _BATCH_RECORDS or size >= _BATCH_BYTES or self._stops(outcome):
                    yield batch
                    batch, size = [], 0
        except InputError as error:  # the file itself: what came before it goes first
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
        self, batch: Sequence[tuple[int, _Outcome | InputError]], seen: SeenIds
    ) -> Iterator[Passage]:
        placed = [(number, own) for number, (_, own) in enumerate(batch) if isinstance(own, Passage)]
        repeated = seen.add([(passage.passage_id, passage.where) for _, passage in placed])
        firsts = {placed[n][0]: first for n, first in repeated.items()}
        for number, (self.position, outcome) in enumerate(batch):
            if isinstance(outcome, Passage) and number not in firsts:
                self.counts.used += 1
                yield outcome
                continue
            if isinstance(outcome, Passage):
                detail = f"{outcome.passage_id!r} was already the id of {firsts[number]}"
                remedy = "give every record an id of its own"
                outcome = BadRecordError("duplicate id", detail, where=outcome.where, remedy=remedy)
            if not isinstance(outcome, BadRecordError):
                raise outcome
            self._leave_out(outcome)

    def take_back(self, bad: BadRecordError) -> None:
        """Leave out the passage that was yielded last, for a reason that its user knows: skip it, or stop."""
        self.counts.used -= 1
        self._leave_out(bad)

    def _leave_out(self, bad: BadRecordError) -> None:
        if self._stops(bad):
            bad.remedy += _OR_SKIP
            raise bad
        self.counts.skip(bad)

    def _stops(self, outcome: _Outcome) -> bool:
        return isinstance(outcome, BadRecordError) and not self.skip_invalid and outcome.reason != EMPTY_TEXT


class RecordReader(CorpusReader):
    """The passages of records in memory, checked as those of a file are; an iterator is read once.

    Such a corpus has no fingerprint: nothing can tell whether an index holds it already.
    """

    def __init__(self, records: Iterable[Record], *, skip_invalid: bool = False) -> None:
        super().__init__(STANDARD_INPUT, skip_invalid=skip_invalid)
        self.source = RECORDS
        self._records = records

    @property
    def size(self) -> tuple[int | None, bool]:
        """The number of records, None where that is not known; not in bytes."""
        return len(self._records) if isinstance(self._records, Sized) else None, False

    def identity(self) -> dict[str, Any]:
        """Return what tells this input from others: nothing does."""
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
        detail = f"expected a dictionary, a Passage or a text, found {type(record).__name__}"
        remedy = 'give {"id": …, "text": …, "title": …}'
        return [BadRecordError("not a record", detail, where=where, remedy=remedy)]
    return _passages_of(lambda _: as_object(record), b"", where)


def _checked(passage: Passage, where: str) -> _Outcome:
    """A passage that a program made, held to what a record of a file must be."""
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
    """Return what `CorpusReader.fingerprint` returns, from the bytes alone; standard input is left unread.

    :param opened: the source, where it is one file that is open already
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
    """The size and SHA-256 of a source; of a folder of texts the hash is also of what makes their ids."""

    def end_text(self, path: str, folder: str) -> None:
        """Hash the path of a text in its folder, and where the text ends."""
        name = os.fsencode(Path(path).relative_to(folder))
        self._digest.update(b"\0%s\0%d\0" % (name, self.size))


def _fingerprint(source: str, tally: Tally) -> dict[str, Any]:
    if source in (STANDARD_INPUT, RECORDS):
        return {"source": source, "bytes": None, "sha256": None}
    return {"source": source, "bytes": tally.size, "sha256": tally.sha256()}


def _listed(names: Sequence[str]) -> str:
    """Some names, and how many more there are."""
    more = len(names) - KEPT_SKIPS
    return ", ".join(names[:KEPT_SKIPS]) + (f" and {more:,} more" if more > 0 else "")


# From lines to passages


def _outcomes_of(path: str, tally: Tally, opened: BinaryIO | None) -> Iterator[tuple[int, _Outcome]]:
    lines = numbered_lines(path, tally, opened)
    first = next(lines, None)
    if first is None:
        raise no_records(path)
    if format_of(path, first[1]) == "jsonl":
        parse: Callable[[str], dict[str, Any]] = parse_object
        check_one_a_line(path, first)
        lines = itertools.chain([first], lines)
    else:
        columns = read_header(path, first)
        parse = read_pair if columns is None else partial(read_row, columns)
        lines = itertools.chain([first], lines) if columns is None else lines
    number = 0
    for number, line in lines:
        outcomes = _passages_of(parse, line, f"{shown_name(path)}:{number}")
        for outcome in outcomes:
            yield len(line) // len(outcomes), outcome
    if not number:
        raise no_records(path)


def _text_file(path: str, folder: str, tally: Tally) -> tuple[int, _Outcome]:
    """Read a text or Markdown file of a folder: its path there is the id, its name the title by default."""
    limit = longest_line()
    with reading(path), open_decompressed(path, tally) as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise too_long(path, "a text file", limit)
    name = Path(plain_name(path))
    passage_id = re.sub(r"\s+", "_", name.relative_to(folder).as_posix())

    def parse(text: str) -> dict[str, Any]:
        if (said := _in_utf8(passage_id)) != passage_id:
            detail = f"expected a file name in UTF-8, found {said}"
            raise BadRecordError("invalid id", detail, remedy="rename the file (convmv does so)")
        record = {"text": text} if name.suffix.lower() == ".txt" else read_markdown(text)
        title = record.get("title") or (name.stem if text.strip() else "")
        return {**record, "id": passage_id, "title": title, "text": record["text"].strip()}

    where = f"{_in_utf8(path)}:1"
    if unread := unread_form(data, path):
        detail = f"expected UTF-8 text, found {unread[0]}"
        return len(data), BadRecordError("invalid UTF-8", detail, where=where, remedy=unread[1])
    return len(data), _passages_of(parse, data, where)[0]


def _in_utf8(path: str) -> str:
    r"""A path as it can be written: bytes that are not UTF-8 as \xNN."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _passages_of(parse: Callable[[str], Mapping[str, Any]], line: bytes, where: str) -> list[_Outcome]:
    """Return the passage of a line or of a table row, those of a page of KILT, or what is wrong with it."""
    try:
        record = parse(decoded(line))
        if is_row(record):
            return [read_passage(row_passage(record, where.rpartition(":")[2]), where)]
        return [read_passage(one, where) for one in (page_passages(record) if is_page(record) else [record])]
    except BadRecordError as bad:
        bad.where = where
        return [bad]
