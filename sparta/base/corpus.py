"""A corpus as a stream of passages, and what counts as bad input.

Formats: JSONL, one object a line, and TSV with a header (`id`, `text`, `title`), quoted as DPR and Python's
csv module write it, one record a line. Both may be gzip. A name with .jsonl, .ndjson or .tsv says which it
is; otherwise the first line does. Blank lines are neither read nor counted.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
import shlex
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from sparta.base.errors import InputError, StorageError
from sparta.base.files import STANDARD_INPUT, Tally, numbered_lines, shown_name, unreadable
from sparta.base.records import Passage, Skip

EMPTY_TEXT = "empty text"
MAX_ID_BYTES = 512
KEPT_SKIPS = 20

_CORPUS_SUFFIXES = (".jsonl", ".jsonl.gz", ".tsv", ".tsv.gz")
_BATCH_RECORDS = 1000
_BATCH_BYTES = 8 << 20  # of lines: a thousand very long ones would not be bounded memory
_OR_SKIP = "; or leave such records out with --skip-invalid (skip_invalid=True)"
_KINDS: dict[type, str] = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
}
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_TSV_FIELD = re.compile(r'(?:"((?:[^"]++|"")*+)"|((?!")[^\t]*+))(?:\t|\Z)')


class BadRecordError(InputError):
    """A line that is not a record. `reason` is its kind, one of a few; the message says the rest."""

    def __init__(
        self, reason: str, detail: str = "", *, where: str = "", remedy: str = "mend the line"
    ) -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason, where=where, remedy=remedy)
        self.reason = reason


@dataclass(slots=True)
class ReadCounts:
    """How many records were read, used and skipped; the reasons, and the first skips."""

    used: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    first_skips: list[Skip] = field(default_factory=list)

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
        return {"read": self.read, "used": self.used, "skipped": self.skipped, "reasons": dict(self.reasons)}


type _Outcome = Passage | BadRecordError


class CorpusReader:
    """The passages of a corpus, read as a stream: memory does not grow with the corpus.

    `source` is a file, a folder (its *.jsonl, *.jsonl.gz, *.tsv and *.tsv.gz in the order of their names;
    neither subfolders nor hidden files), or `-` for standard input. The reader looks ahead by at most one
    batch of 1,000 records, and what comes before a bad record is yielded before the error is raised.

    A bad record is an InputError; with `skip_invalid` it is skipped and counted. A record whose text is empty
    or white space is always skipped, whatever else it holds. Missing files, files without records, broken
    gzip and a bad TSV header are always errors. `counts` holds what the present iteration, or the last one,
    has yielded and skipped so far.
    """

    def __init__(self, source: str | Path, *, skip_invalid: bool = False) -> None:
        self.source = str(source)
        self.skip_invalid = skip_invalid
        self.counts = ReadCounts()
        self._paths = _paths_of(self.source)
        self._tally = Tally()
        self._at_end = False

    def __iter__(self) -> Iterator[Passage]:
        self.counts, self._tally, self._at_end = ReadCounts(), Tally(), False
        with SeenIds() as seen:
            for batch in self._batches():
                yield from self._release(batch, seen)
        self._at_end = True

    def fingerprint(self) -> dict[str, Any]:
        """Return the source as given, and the bytes and SHA-256 of its files in order, as stored.

        Both are None for standard input, which nothing can compare with. They were taken while reading, so
        they are known only after the corpus was read to its end (ValueError before that).
        """
        if not self._at_end:
            raise ValueError("the corpus has not been read to its end")
        return _fingerprint(self.source, self._tally)

    def _batches(self) -> Iterator[list[_Outcome | InputError]]:
        batch: list[_Outcome | InputError] = []
        size = 0
        try:
            for length, outcome in self._outcomes():
                batch.append(outcome)
                size += length
                if len(batch) == _BATCH_RECORDS or size >= _BATCH_BYTES or self._must_stop(outcome):
                    yield batch
                    batch, size = [], 0
        except InputError as error:  # the file itself: what came before it goes first
            batch.append(error)
        if batch:
            yield batch

    def _outcomes(self) -> Iterator[tuple[int, _Outcome]]:
        for path in self._paths:
            yield from _outcomes_of(path, self._tally)

    def _release(self, batch: Sequence[_Outcome | InputError], seen: SeenIds) -> Iterator[Passage]:
        passages = [outcome for outcome in batch if isinstance(outcome, Passage)]
        repeated = seen.add([(passage.passage_id, passage.where) for passage in passages])
        for outcome in batch:
            if isinstance(outcome, Passage) and outcome.where not in repeated:
                self.counts.used += 1
                yield outcome
                continue
            bad = _duplicate(outcome, repeated[outcome.where]) if isinstance(outcome, Passage) else outcome
            if not isinstance(bad, BadRecordError):
                raise bad
            self._leave_out(bad)

    def take_back(self, bad: BadRecordError) -> None:
        """Leave out the passage that was yielded last, for a reason that its user knows: skip it, or stop."""
        self.counts.used -= 1
        self._leave_out(bad)

    def _leave_out(self, bad: BadRecordError) -> None:
        if self._must_stop(bad):
            bad.remedy += _OR_SKIP
            raise bad
        self.counts.skip(bad)

    def _must_stop(self, outcome: _Outcome) -> bool:
        return isinstance(outcome, BadRecordError) and not self.skip_invalid and outcome.reason != EMPTY_TEXT


def source_fingerprint(source: str | Path) -> dict[str, Any]:
    """Return what `CorpusReader.fingerprint` returns, from the bytes alone; standard input is left unread."""
    tally = Tally()
    for path in _paths_of(str(source)):
        if path == STANDARD_INPUT:
            continue
        try:
            with Path(path).open("rb") as stream:
                while data := stream.read(1 << 20):
                    tally.add(data)
        except OSError as error:
            raise unreadable(path, error) from error
    return _fingerprint(str(source), tally)


def _fingerprint(source: str, tally: Tally) -> dict[str, Any]:
    if source == STANDARD_INPUT:
        return {"source": source, "bytes": None, "sha256": None}
    return {"source": source, "bytes": tally.size, "sha256": tally.sha256()}


def _duplicate(passage: Passage, first: str) -> BadRecordError:
    detail = f"{passage.passage_id!r} was already the id of {first}"
    return BadRecordError(
        "duplicate id", detail, where=passage.where, remedy="give every record an id of its own"
    )


def _paths_of(source: str) -> list[str]:
    if source == STANDARD_INPUT:
        return [source]
    path = Path(source)
    if not path.is_dir():
        if not path.exists():
            raise unreadable(source, FileNotFoundError())
        return [source]
    found = sorted(entry for entry in path.iterdir() if _is_corpus_file(entry))
    if not found:
        raise InputError(
            "no corpus in this folder: expected *.jsonl, *.tsv, *.jsonl.gz or *.tsv.gz, found none",
            where=source,
            remedy="give a file, or the folder that holds the files itself (subfolders are not read)",
        )
    return [str(entry) for entry in found]


def _is_corpus_file(path: Path) -> bool:
    return path.name.endswith(_CORPUS_SUFFIXES) and not path.name.startswith(".") and path.is_file()


# From lines to passages


def _outcomes_of(path: str, tally: Tally) -> Iterator[tuple[int, _Outcome]]:
    lines = numbered_lines(path, tally)
    first = next(lines, None)
    if first is None:
        raise no_records(path)
    if format_of(path, first[1]) == "jsonl":
        parse: Callable[[str], dict[str, Any]] = parse_object
        lines = itertools.chain([first], lines)
    else:
        parse = partial(_parse_row, _header(path, first))
    number = 0
    for number, line in lines:
        yield len(line), _outcome(parse, line, f"{shown_name(path)}:{number}")
    if not number:
        raise no_records(path)


def no_records(path: str | Path) -> InputError:
    """Say that a file holds nothing."""
    message = "empty file: expected at least one record, found none"
    return InputError(message, where=shown_name(path), remedy="check that the file was written completely")


def format_of(path: str | Path, first_line: bytes) -> Literal["jsonl", "tsv"]:
    """Recognise the format by the file's name, otherwise by its first line."""
    name = str(path).removesuffix(".gz")
    if name.endswith((".jsonl", ".ndjson")):
        return "jsonl"
    if name.endswith(".tsv"):
        return "tsv"
    if first_line.removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"[")):
        return "jsonl"
    if b"\t" in first_line:
        return "tsv"
    raise InputError(
        f"unknown format: expected a JSON object or tab-separated columns, found {_shortened(first_line)}",
        where=f"{shown_name(path)}:1",
        remedy=f"make JSONL of it: {_conversion(path)}",
    )


def _conversion(path: str | Path) -> str:
    """The command that makes JSONL of CSV with a header, or of any text with one record a line."""
    given = "FILE" if str(path) == STANDARD_INPUT else str(path)
    packed, plain = given.endswith(".gz"), given.removesuffix(".gz")
    records = (
        "csv.DictReader(sys.stdin)"
        if plain.endswith(".csv")
        else '({"id": i, "text": t.strip()} for i, t in enumerate(sys.stdin))'
    )
    code = f"import csv, json, sys; [print(json.dumps(r)) for r in {records}]"
    read = f"gzip -dc {shlex.quote(given)} | " if packed else ""
    source = "" if packed else f" < {shlex.quote(given)}"
    return f"{read}python3 -c '{code}'{source} > {shlex.quote(f'{plain}.jsonl')}"


def _outcome(parse: Callable[[str], dict[str, Any]], line: bytes, where: str) -> _Outcome:
    try:
        return _passage(parse(decoded(line)), where)
    except BadRecordError as bad:
        bad.where = where
        return bad


@contextlib.contextmanager
def placed(where: str) -> Iterator[None]:
    """Tell an InputError that passes through where it happened, unless it knows."""
    try:
        yield
    except InputError as error:
        error.where = error.where or where
        raise


def decoded(line: bytes) -> str:
    """Return the line as text, without a byte order mark."""
    try:
        return line.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        found = f"byte 0x{line[error.start]:02x} at byte {error.start} of the line (counted from 0)"
        remedy = "convert the file to UTF-8 (iconv -t UTF-8)"
        raise BadRecordError("invalid UTF-8", f"expected UTF-8 text, found {found}", remedy=remedy) from None


def parse_object(line: str) -> dict[str, Any]:
    """Return the JSON object that a line holds. NaN, infinities and lone surrogates are not JSON text."""
    try:
        record = _JSON.decode(line)
        if _SURROGATE_ESCAPE.search(line):
            json.dumps(record, ensure_ascii=False).encode("utf-8")
    except json.JSONDecodeError as error:
        detail = f"expected one JSON object, found {_shortened(line)} ({error.msg}, column {error.colno})"
        raise BadRecordError("broken JSON", detail) from None
    except UnicodeEncodeError:
        detail = "expected Unicode text, found half a surrogate pair (\\ud800 to \\udfff)"
        raise BadRecordError("broken JSON", detail) from None
    except (ValueError, RecursionError) as error:
        raise BadRecordError("broken JSON", str(error)) from None
    if not isinstance(record, dict):
        remedy = "write one JSON object a line (jq -c '.[]' makes them of an array)"
        raise BadRecordError("not an object", f"expected a JSON object, found {_kind(record)}", remedy=remedy)
    return record


def _finite(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):
        raise ValueError(f"expected a finite number, found {literal}")
    return number


_JSON = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


def _shortened(line: str | bytes) -> str:
    text = line[:80].decode("utf-8", "replace") if isinstance(line, bytes) else line
    return repr(text) if len(text) <= 40 else f"{text[:40]!r}…"


def _header(path: str, first: tuple[int, bytes]) -> list[str]:
    where = f"{shown_name(path)}:{first[0]}"
    try:
        columns = _split_row(decoded(first[1]))
    except BadRecordError as bad:  # not one record among others: nothing can be read without a header
        raise InputError(bad.message, where=where, remedy=bad.remedy) from None
    names = set(columns)
    if len(names) < len(columns) or not names & {"id", "_id"} or not names & {"text", "contents"}:
        raise InputError(
            f"wrong header: expected the columns id, text, title, found {_shortened(first[1])}",
            where=where,
            remedy="begin the file with the line id<TAB>text<TAB>title",
        )
    return columns


def _parse_row(columns: Sequence[str], line: str) -> dict[str, Any]:
    fields = _split_row(line)
    if len(fields) != len(columns):
        detail = f"expected {len(columns)} ({', '.join(columns)}), found {len(fields)}"
        raise BadRecordError("wrong number of columns", detail)
    return dict(zip(columns, fields, strict=True))


def _split_row(line: str) -> list[str]:
    if '"' not in line:
        return line.split("\t")
    fields: list[str] = []
    end = 0
    while True:
        match = _TSV_FIELD.match(line, end)
        if match is None:
            expected = "a column quoted to its end, on this line, with inner quotes doubled"
            raise BadRecordError("broken quotes", f"expected {expected}, found {_shortened(line[end:])}")
        quoted, plain = match.groups()
        fields.append(plain if quoted is None else quoted.replace('""', '"'))
        end = match.end()
        if not match.group().endswith("\t"):
            return fields


def _passage(record: Mapping[str, Any], where: str) -> Passage:
    text = _text(record)
    if text.isspace() or not text:
        raise BadRecordError(EMPTY_TEXT)
    context, start, end = _context(record, text)
    return Passage(identifier(record), text, _title(record), context, start, end, record, where)


def identifier(record: Mapping[str, Any]) -> str:
    """Return the id of a record: `id` or `_id`, a string or an integer."""
    value = _field(record, "id", "_id", of="id")
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise BadRecordError("wrong type", f"expected a string or an integer as id, found {_kind(value)}")
    text = str(value)
    if not text:
        raise BadRecordError("invalid id", "expected at least one character, found none")
    if any(character in text for character in "\t\n\r"):
        raise BadRecordError(
            "invalid id", f"expected an id without tabs and line ends, found {_shortened(text)}"
        )
    if len(text.encode("utf-8")) > MAX_ID_BYTES:
        detail = f"expected at most {MAX_ID_BYTES} bytes, found {len(text.encode('utf-8'))}"
        raise BadRecordError("invalid id", detail)
    return text


def _field(record: Mapping[str, Any], *names: str, of: str) -> Any:
    for name in names:
        if name in record:
            return record[name]
    wanted = " or ".join(f'"{name}"' for name in names)
    found = ", ".join(itertools.islice(record, 8)) or "no field"
    raise BadRecordError(f"missing {of}", f"expected the field {wanted}, found {_shortened(found)}")


def string_field(record: Mapping[str, Any], *names: str, of: str) -> str:
    """Return the first of these fields that is there, which must be a string."""
    value = _field(record, *names, of=of)
    if not isinstance(value, str):
        raise BadRecordError("wrong type", f"expected a string as {of}, found {_kind(value)}")
    return value


def _text(record: Mapping[str, Any]) -> str:
    return string_field(record, "text", "contents", of="text")


def _title(record: Mapping[str, Any]) -> str:
    return "" if record.get("title") is None else string_field(record, "title", of="title")


def _context(record: Mapping[str, Any], text: str) -> tuple[str, int, int]:
    """Return the context and where in it the text lies. Only all three fields together make a context."""
    if not {"context", "start", "end"} <= record.keys():
        return "", 0, 0
    context = string_field(record, "context", of="context")
    start, end = _offset(record, "start"), _offset(record, "end")
    if not context:
        return "", 0, 0
    if context[start:end] != text:
        expected = f"the text {_shortened(text)} at [{start}:{end}] of the context"
        detail = f"expected {expected}, found {_shortened(context[start:end])}"
        remedy = "count start and end in characters, from 0"
        raise BadRecordError("context mismatch", detail, remedy=remedy)
    return context, start, end


def _offset(record: Mapping[str, Any], name: str) -> int:
    value = record[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        found = value if isinstance(value, int) else _kind(value)
        raise BadRecordError("wrong type", f"expected an integer from 0 as {name}, found {found}")
    return value


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "an object")


# Duplicate ids


class SeenIds:
    """The ids met so far and where, in a temporary database on disk, so that memory does not grow with them.

    The database has no name: it is gone when the process ends, however it ends.
    """

    def __init__(self) -> None:
        self._paths: dict[str, int] = {}
        # isolation_level None and one transaction that is never committed: nothing here needs to last.
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for pragma in ("journal_mode=OFF", "synchronous=OFF", "temp_store=FILE", "cache_size=-16384"):
            self._database.execute(f"PRAGMA {pragma}")
        columns = "id TEXT PRIMARY KEY, path INTEGER, line INTEGER"
        self._database.execute(f"CREATE TABLE ids ({columns}) WITHOUT ROWID")
        self._database.execute("BEGIN")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def add(self, batch: Sequence[tuple[str, str]]) -> dict[str, str]:
        """Remember pairs of an id and its `path:line`.

        Returns, for every pair whose id was there before, its `path:line` with the first one of that id.
        """
        before = self._database.total_changes
        rows = [(passage_id, *self._place(where)) for passage_id, where in batch]
        try:
            self._database.executemany("INSERT OR IGNORE INTO ids VALUES (?, ?, ?)", rows)
            if self._database.total_changes - before == len(rows):
                return {}
            firsts = [(where, self._first(passage_id)) for passage_id, where in batch]
        except sqlite3.Error as error:
            remedy = "free some space in the folder for temporary files, or name another one in TMPDIR"
            raise StorageError(f"the list of ids on disk failed: {error}", remedy=remedy) from error
        return {where: first for where, first in firsts if first != where}

    def _place(self, where: str) -> tuple[int, int]:
        path, _, line = where.rpartition(":")
        return self._paths.setdefault(path, len(self._paths)), int(line)

    def _first(self, passage_id: str) -> str:
        query = "SELECT path, line FROM ids WHERE id = ?"
        path, line = self._database.execute(query, (passage_id,)).fetchone()
        return f"{list(self._paths)[path]}:{line}"
