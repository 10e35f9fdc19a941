"""A stream of the passages of a file or a folder."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from sparta.base.disk.streams import BOM, input_errors
from sparta.base.errors import InputError
from sparta.base.files import STANDARD_INPUT
from sparta.base.records import Passage
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
from sparta.data.formats.fields import USUAL_FIELDS, Fields
from sparta.data.formats.limited import Documents, check_packages, is_document
from sparta.data.formats.reading import Outcome, file_outcomes, object_outcomes, table_outcomes, text_outcome
from sparta.data.formats.sqlite import is_database, needs_query, no_database, query_rows, stored_files
from sparta.data.readers.corpus_reader import CorpusReader

_TREC = re.compile(rb"\s*<(DOC|top)\b", re.IGNORECASE)
_TREC_ADVICE = {
    b"doc": "if it is a TREC collection, convert it to JSONL: one object per line, with id and text",
    b"top": "if it holds TREC topics, write each topic as a line ID<TAB>QUERY, as a file of queries",
}
logger = logging.getLogger("sparta.data")


class FileReader(CorpusReader):
    """A stream of the passages of a file or a folder.

    `source` is a file, `-` for standard input, or a folder. In a folder, the reader takes the first of
    these kinds that the folder has: corpus.jsonl, as in BEIR; JSONL and TSV files; text, Markdown, HTML and
    PDF files, also in subfolders; CSV, Parquet and Arrow files. It reads them in the order of their names.
    It ignores hidden files, files with names of queries or judgments, and records and tables in subfolders;
    a warning names the ignored files.

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
            if is_text and (advice := _how_to_split(start)):
                logger.warning("%s: the file is one passage; %s", self.source, advice)
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
            for outcome in object_outcomes(row, f"{self.source}: row {number}", self.fields):
                yield 0, outcome


def _how_to_split(start: bytes) -> str:
    """Return the advice for a text that seems to hold several records; "" for other texts.

    :param start: the beginning of the text
    """
    if match := _TREC.match(start.removeprefix(BOM)):
        return _TREC_ADVICE[match[1].lower()]
    return "if each line is one, rename the file to .tsv" if b"\t" in start else ""
