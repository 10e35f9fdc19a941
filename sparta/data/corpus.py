"""Reading a corpus as a stream of passages, and checking its records.

JSONL files have one object per line, JSON files a list of objects. TSV and CSV files have a header (`id`,
`text`, `title`) and quoting as Python's csv module writes it; TSV may have no header and the two columns id
and text. The rows of a query to an SQLite database, of Parquet files and of Arrow files are records, and so
are the documents of a dataset of ir_datasets. A page of KILT's knowledge source is split into passages of
100 words. A table row is a passage. The suffix decides the format; other names are decided by the first line.
Blank lines are ignored and not counted. A text, Markdown, HTML or PDF file is one passage, and in a folder
without records each of these files is one, including those in subfolders. All files may be compressed by
gzip, bzip2 or zstd, except databases and Parquet and Arrow files.
"""

from __future__ import annotations

import contextlib
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

from sparta.base.disk.streams import input_errors
from sparta.base.errors import InputError
from sparta.base.files import STANDARD_INPUT, caller_errors
from sparta.base.records import Passage, Skip
from sparta.base.remedies import Option, remedy
from sparta.data.files import (
    SourceTally,
    beginning,
    files_of,
    format_of,
    is_columnar,
    is_text_of,
    signature,
    tally_of,
    warn_of_ignored,
)
from sparta.data.formats.fields import HASH, USUAL_FIELDS, Fields, is_content_hash
from sparta.data.formats.irds import check_irds, document_count, irds_documents, is_irds
from sparta.data.formats.limited import Documents, check_packages, is_document
from sparta.data.formats.objects import columns_of, is_collection, is_rereadable, row_count, rows_of
from sparta.data.formats.reading import (
    RECORDS,
    Outcome,
    file_outcomes,
    object_outcomes,
    record_outcomes,
    table_outcomes,
    text_outcome,
)
from sparta.data.formats.sqlite import is_database, needs_query, no_database, query_rows, stored_files
from sparta.data.parsing import EMPTY_TEXT, REMOVED, TEXT_FIELDS, BadRecordError
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


type Record = str | Mapping[str, Any] | Passage
"""A passage in memory: a text, a dictionary of record fields (docs/formats.md), or a Passage."""
type Corpus = str | Path | Iterable[Record] | CorpusReader
"""A file, a folder, `-` for standard input, `irds:` with the name of a dataset, or records in memory."""


def open_corpus(
    corpus: Corpus,
    *,
    skip_invalid: bool = False,
    fields: Fields = USUAL_FIELDS,
    query: str | None = None,
) -> CorpusReader:
    """Return the reader of a corpus.

    Texts in memory without an id are numbered from 0 in each list. Tables of pandas, polars and pyarrow, data
    sets of Hugging Face, rows of sqlite3, and documents of LangChain and LlamaIndex are collections of
    records, too.

    :param fields: the names of the fields that hold id, text and title
    :param query: the SQL query whose rows are the records of an SQLite database
    :raises InputError: the file does not exist, or `corpus` is a single record instead of a list.
    """
    if isinstance(corpus, CorpusReader):
        return corpus
    if isinstance(corpus, str | Path) and is_irds(corpus):
        return IrdsReader(str(corpus), skip_invalid=skip_invalid, fields=fields, query=query)
    if isinstance(corpus, str | Path):
        return FileReader(corpus, skip_invalid=skip_invalid, fields=fields, query=query)
    if isinstance(corpus, Passage) or (isinstance(corpus, Mapping) and not is_collection(corpus)):
        raise InputError(
            "the corpus is a single record, not a list of records",
            remedy="put the record into a list: [record]",
        )
    if query is not None:
        raise no_database(RECORDS)
    return RecordReader(corpus, skip_invalid=skip_invalid, fields=fields)


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


class FileReader(CorpusReader):
    """A stream of the passages of a file or a folder.

    `source` is a file, `-` for standard input, or a folder. In a folder, the reader takes the file
    corpus.jsonl if there is one, as in BEIR. Otherwise it takes the JSONL and TSV files in the order of
    their names, or, without any, the text and Markdown files in the folder and its subfolders. It ignores
    hidden files, files with names of queries or judgments, and records in subfolders; a warning names the
    ignored files.

    Missing files, files without records, broken compression and a bad TSV header are always errors.
    """

    def __init__(
        self,
        source: str | Path,
        *,
        skip_invalid: bool = False,
        fields: Fields = USUAL_FIELDS,
        query: str | None = None,
    ) -> None:
        super().__init__(str(source), skip_invalid=skip_invalid, fields=fields, query=query)
        self._paths, self._left_out = files_of(self.source)
        if is_text_of(self._paths[0], self.source):
            self._duplicate_remedy = "rename one of the two files"
        self._file: BinaryIO | None = None
        self._documents = Documents()
        self._is_database = False
        self._hashed: tuple[list[object], SourceTally] | None = None
        if self._paths == [self.source] and Path(self.source).is_file():
            with input_errors(self.source):
                self._file = Path(self.source).open("rb")  # noqa: SIM115 (closed after reading)
                self._is_database = is_database(self._file)
        if self._is_database and query is None:
            self.close()
            raise needs_query(self.source)
        if query is not None and not self._is_database:
            raise no_database(self.source)
        has_columns = any(map(is_columnar, self._paths))
        check_packages(self._paths, columnar=has_columns, skip_invalid=skip_invalid)
        is_lines = not (self._is_database or has_columns or is_document(self.source))
        is_text = all(is_text_of(path, self.source) or is_document(path) for path in self._paths)
        if self._file is not None and is_lines and (start := beginning(self.source, self._file)):
            is_text = format_of(self.source, start) == "text"
            if is_text and b"\t" in start:
                logger.warning(
                    "%s: the file is one passage; if each line is one, rename the file to .tsv", self.source
                )
        if is_text and fields.user_names:
            raise InputError(
                "a text, Markdown, HTML or PDF file has no fields that an option could name",
                where=self.source,
                remedy=fields.omit(),
            )
        self._at_end = False

    def __iter__(self) -> Iterator[Passage]:
        self._at_end = False
        if self._left_out:
            warn_of_ignored(self.source, self._paths, self._left_out)
            self._left_out = []  # warn only once
        yield from super().__iter__()
        self._at_end = True
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and end the child process, if there are any. The next iteration opens the file."""
        if documents := getattr(self, "_documents", None):
            documents.close()
        opened, self._file = getattr(self, "_file", None), None
        if opened is not None:
            opened.close()

    @property
    def size(self) -> tuple[int | None, bool]:
        """The size of the corpus (None if unknown), and whether it is in bytes rather than records."""
        if not self.is_rereadable:
            return None, False
        stored_bytes = 0
        for path in map(Path, self._paths):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # removed since the listing
                stored_bytes += path.stat().st_size
        return stored_bytes, True

    @property
    def is_rereadable(self) -> bool:
        """Whether the corpus can be read twice."""
        path = Path(self.source)
        return path.is_dir() or path.is_file()

    def identity(self) -> dict[str, Any]:
        """Return the absolute path, size and SHA-256 of the corpus, before it is read."""
        path = Path(self.source)
        is_pipe = path.exists() and not path.is_file() and not path.is_dir()
        if is_pipe or self.source == STANDARD_INPUT:
            return super().identity()
        tally = tally_of(self.source, self._file)
        if path.is_file():
            self._hashed = signature(self.source), tally
        return {"source": str(path.resolve()), "bytes": tally.size, "sha256": tally.sha256()}

    def fingerprint(self) -> dict[str, Any]:
        """Return the source, and the total bytes and SHA-256 of its files in order, as stored on disk.

        For a folder of texts, the SHA-256 also covers the path and the end of each file. Bytes and SHA-256
        are None for standard input, which cannot be read again for comparison. The reader computes both
        while it reads.

        :raises ValueError: the corpus was not read to its end.
        """
        if not self._at_end:
            raise ValueError("the fingerprint needs the whole corpus, which has not been read to its end")
        if self.source == STANDARD_INPUT:
            return super().identity()
        return {"source": self.source, "bytes": self._tally.size, "sha256": self._tally.sha256()}

    def _outcomes(self) -> Iterator[tuple[int, Outcome]]:
        if self._is_database and self.query is not None:
            yield from self._database_outcomes(self.query)
            return
        for path in self._paths:
            if is_text_of(path, self.source) or is_document(path):
                documents = self._documents if is_document(path) else None
                yield text_outcome(path, self.source, self._tally, documents)
            elif is_columnar(path):
                self._add_whole(path)
                yield from table_outcomes(path, self.fields)
            else:
                yield from file_outcomes(path, self._tally, self._file, self.fields)

    def _add_whole(self, path: str) -> None:
        """Add a file that a library reads to the tally; `identity` may have hashed the same file before."""
        if path == self.source and self._hashed and self._hashed[0] == signature(path):
            self._tally = self._hashed[1].copy()
        else:
            for stored in stored_files(path):
                self._tally.add_file(stored)

    def _database_outcomes(self, query: str) -> Iterator[tuple[int, Outcome]]:
        self._add_whole(self.source)
        for number, row in enumerate(query_rows(self.source, query), 1):
            if number == 1:
                self.fields.check_columns([*row], self.source)
            for outcome in object_outcomes(row, f"{self.source}:{number}", self.fields):
                yield 0, outcome


def passages_of(path: str | Path) -> Iterator[Passage]:
    """Yield the passages of a file, for a caller that has no options for fields and invalid records.

    :raises BadRecordError: a record is invalid.
    """
    try:
        yield from FileReader(path)
    except BadRecordError as error:
        error.remedy = "correct this record; the text must be in a usual field, such as text"
        raise


class IrdsReader(CorpusReader):
    """A stream of the documents of a dataset of ir_datasets, such as `irds:beir/scifact`.

    ir_datasets downloads the files at the first use, and checks their published hashes. So the name
    identifies the content, and the fingerprint is a hash of the name.

    :raises InputError: the dataset is unknown or has no documents.
    """

    def __init__(
        self,
        source: str,
        *,
        skip_invalid: bool = False,
        fields: Fields = USUAL_FIELDS,
        query: str | None = None,
    ) -> None:
        super().__init__(source, skip_invalid=skip_invalid, fields=fields, query=query)
        if query is not None:
            raise no_database(source)
        check_irds(source, "docs")

    @property
    def size(self) -> tuple[int | None, bool]:
        """The number of documents (None if unknown), and False: the size is not in bytes."""
        return document_count(self.source), False

    @property
    def is_rereadable(self) -> bool:
        """True: ir_datasets keeps the documents on disk."""
        return True

    def identity(self) -> dict[str, Any]:
        """Return the name of the dataset, and the hash of the name."""
        return {"source": self.source, "bytes": None, "sha256": sha256(self.source.encode()).hexdigest()}

    def _outcomes(self) -> Iterator[tuple[int, Outcome]]:
        for number, record in enumerate(irds_documents(self.source), 1):
            self._tally.size = number
            for outcome in object_outcomes(record, f"{self.source}:{number}", self.fields):
                yield len(outcome.text) if isinstance(outcome, Passage) else 0, outcome


class RecordReader(CorpusReader):
    """A stream of passages from records in memory.

    The checks are the same as for files. An iterator is read only once. Records in memory have no
    fingerprint, so an index cannot recognize them later.
    """

    def __init__(
        self, records: Iterable[Record], *, skip_invalid: bool = False, fields: Fields = USUAL_FIELDS
    ) -> None:
        super().__init__(RECORDS, skip_invalid=skip_invalid, fields=fields)
        self._records = records

    @property
    def size(self) -> tuple[int | None, bool]:
        """The number of records (None if unknown), and False: the size is not in bytes."""
        return row_count(self._records), False

    @property
    def is_rereadable(self) -> bool:
        """Whether the records can be read twice. An iterator cannot."""
        return is_rereadable(self._records)

    def _outcomes(self) -> Iterator[tuple[int, Outcome]]:
        if columns := columns_of(self._records):
            self.fields.check_columns(columns, self.source)
        for number, record in enumerate(self._rows()):
            self._tally.size = number + 1
            for outcome in record_outcomes(record, number, self.fields):
                yield len(outcome.text) if isinstance(outcome, Passage) else 0, outcome

    def _rows(self) -> Iterator[Any]:
        with caller_errors():
            yield from rows_of(self._records, self.fields.text or TEXT_FIELDS)


class PartOfCorpus(RecordReader):
    """The passages of a corpus with these ids. The index names the whole corpus as their source.

    `ids_read` holds the ids of the passages that were read; the corpus may have lost others meanwhile.

    :param whole: the reader of the corpus
    """

    def __init__(self, whole: CorpusReader, passage_ids: Container[str]) -> None:
        super().__init__(self._passages(whole, passage_ids))
        self.ids_read = set[str]()
        self.fields, self.query = whole.fields, whole.query
        self._whole = whole
        self.source = whole.source
        self._has_warned = True  # the reader of the corpus warns

    def _rows(self) -> Iterator[Any]:
        yield from self._records  # the errors are those of files, not of a caller's iterator

    def _passages(self, whole: CorpusReader, passage_ids: Container[str]) -> Iterator[Passage]:
        for passage in whole:
            if passage.passage_id in passage_ids:
                self.ids_read.add(passage.passage_id)
                yield passage

    def identity(self) -> dict[str, Any]:
        """Return the path of the corpus, without a hash: an index must not take the part for the whole."""
        source = self._whole.source
        named = source if is_irds(source) else str(Path(source).resolve())
        return {**super().identity(), "source": named}


def _is_hashed(passage: Passage) -> bool:
    """Return whether the id of a passage is the hash of its content, as of a record without an id."""
    return bool(HASH.fullmatch(passage.passage_id)) and is_content_hash(passage)
