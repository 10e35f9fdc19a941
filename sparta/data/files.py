"""Selecting the files of a corpus, recognizing their formats, and hashing their content."""

from __future__ import annotations

import logging
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Literal

from sparta.base.disk.streams import BOM, Tally, input_errors, open_decompressed
from sparta.base.disk.unsupported import refuse_unsupported
from sparta.base.errors import InputError
from sparta.base.files import STANDARD_INPUT, plain_name, shown_name, unreadable
from sparta.base.manifest import is_index
from sparta.base.remedies import Command, Remedy, remedy
from sparta.data.formats.limited import DOCUMENT_SUFFIXES
from sparta.data.formats.sqlite import stored_files
from sparta.data.parsing import shortened

BEIR_CORPUS = "corpus.jsonl"
_RECORD_SUFFIXES = (".jsonl", ".ndjson", ".tsv")
_TEXT_SUFFIXES = (".txt", ".md", ".markdown")
_RECORDS_IN_TEXT = re.compile(rb'\{\s*"|\[\s*(\{\s*"|$)')
_PASSAGE_SUFFIXES = (*_TEXT_SUFFIXES, *DOCUMENT_SUFFIXES)
_COLUMN_SUFFIXES = (".parquet", ".arrow", ".feather")
# Read from a folder only if the folder has neither texts nor JSONL nor TSV.
_TABLE_SUFFIXES = (".csv", *_COLUMN_SUFFIXES)
_MOST_LISTED = 20
_BEGINNING_BYTES = 64_000  # a list of any size may be a single line
_GONE = FileNotFoundError, NotADirectoryError
NOT_PASSAGES = re.compile(r"(queries|questions|qrels)(?![^\W_])")
"""The beginning of the names of files and splits that hold queries or judgments."""
_HUGGING_FACE = ("state.json", "dataset_info.json")  # beside the tables of a stored data set

logger = logging.getLogger("sparta.data")


def files_of(source: str) -> tuple[list[str], list[str]]:
    """Return the files of a source, and descriptions of the ignored files: name and reason."""
    if source == STANDARD_INPUT:
        return [source], []
    path = Path(source)
    with input_errors(source):
        if not path.is_dir():
            if not path.exists():
                raise unreadable(source, FileNotFoundError())
            return [source], []
        entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
        if not any(
            _has_suffix(entry, _RECORD_SUFFIXES) and not _reason_to_ignore(entry, path) for entry in entries
        ):
            entries = sorted(_visible_files_below(path))
        reasons = {entry: reason for entry in entries if (reason := _reason_to_ignore(entry, path))}
    files = [entry for entry in entries if entry not in reasons]
    if tables := [entry for entry in files if _has_suffix(entry, _TABLE_SUFFIXES)]:
        others = [entry for entry in files if entry not in tables]
        ignored_tables = tables if others else []
        reasons |= dict.fromkeys(ignored_tables, "a table beside other files")
        files = others or tables
    if records := [entry for entry in files if _has_suffix(entry, _RECORD_SUFFIXES)]:
        reasons |= dict.fromkeys(set(files) - set(records), "a text beside JSONL or TSV files")
        files = records
    if beir_corpus := [entry for entry in files if plain_name(entry.name) == BEIR_CORPUS]:
        reasons |= dict.fromkeys(set(files) - set(beir_corpus), f"beside {BEIR_CORPUS}")
        reasons = {entry: reason for entry, reason in reasons.items() if not NOT_PASSAGES.match(entry.name)}
        files = beir_corpus
    ignored = [f"{entry.relative_to(path)} ({reasons[entry]})" for entry in entries if entry in reasons]
    if not files:
        kinds = "JSONL, TSV, text, Markdown, HTML, PDF, CSV, Parquet or Arrow"
        message = f"no {kinds} file"
        if ignored:
            message = f"no file to read; left out: {_listed(ignored, 3)}"
        raise InputError(
            f"no corpus in this folder: {message}",
            where=source,
            remedy=f"name a file, or a folder of {kinds} files (records and tables not in subfolders)",
        )
    return [str(entry) for entry in files], ignored


def warn_of_ignored(source: str | Path, files: Sequence[str | Path], ignored: Sequence[str]) -> None:
    """Warn that a folder has entries that are not read.

    :param ignored: descriptions of these entries
    """
    names = [Path(path).relative_to(source).as_posix() for path in files]
    logger.warning("%s: reading %s; not reading %s", source, _listed(names), _listed(ignored))


def _listed(names: Sequence[str], most: int = _MOST_LISTED) -> str:
    """Join the first names, and say how many more names there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def is_text_of(path: str, source: str) -> bool:
    """Return whether a file of a folder is a text, HTML or PDF file, which is a single passage."""
    return path != source and _has_suffix(Path(path), _PASSAGE_SUFFIXES)


def was_removed(path: str, source: str, error: InputError) -> bool:
    """Return whether a text cannot be read because it was removed after its folder was listed.

    A missing source is not a removed text: the folder may be on a disk that is no longer mounted.
    """
    return is_text_of(path, source) and isinstance(error.__cause__, _GONE) and Path(source).is_dir()


def is_columnar(path: str) -> bool:
    """Return whether a file is in Parquet or Arrow, by its name."""
    return _has_suffix(Path(path), _COLUMN_SUFFIXES)


def _has_suffix(path: Path, suffixes: tuple[str, ...]) -> bool:
    return plain_name(path.name).lower().endswith(suffixes)


def _visible_files_below(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, except hidden files, indexes, and links to folders.

    :raises InputError: a folder cannot be read.
    """

    def refuse(error: OSError) -> None:
        if not isinstance(error, _GONE):  # a folder may be removed after its parent was listed
            raise unreadable(str(error.filename), error)

    for current_folder, folders, names in folder.walk(on_error=refuse):
        folders[:] = (
            name for name in folders if not name.startswith(".") and not is_index(current_folder / name)
        )
        yield from (current_folder / name for name in names if not name.startswith("."))


def _reason_to_ignore(path: Path, folder: Path) -> str:
    """Return why an entry of a folder does not belong to the corpus; "" if it belongs to the corpus."""
    if path.parent != folder and _has_suffix(path, _RECORD_SUFFIXES):
        return "records in a subfolder"
    if not path.is_file():
        kind = "a link to a folder" if path.is_symlink() else "a folder"
        return kind if path.is_dir() else "not a file"
    if path.parent != folder and _has_suffix(path, _TABLE_SUFFIXES):
        return "a table in a subfolder"
    if path.match("cache-*.arrow") and all((folder / name).is_file() for name in _HUGGING_FACE):
        return "a cache of Hugging Face datasets"
    if _has_suffix(path, (".json",)):
        return "JSON; if it holds passages, rename it to .jsonl"
    if not _has_suffix(path, _RECORD_SUFFIXES + _PASSAGE_SUFFIXES + _TABLE_SUFFIXES):
        return "another format"
    return "queries or judgments" if NOT_PASSAGES.match(path.name) else ""


def no_records(path: str | Path) -> InputError:
    """Return the error for a file without records."""
    message = "empty file: expected at least one record, found none"
    return InputError(message, where=shown_name(path), remedy="check that the file was written completely")


def beginning(path: str | Path, opened: BinaryIO | None = None) -> bytes:
    """Return the beginning of a file's first line that is not blank, at most 64 kB; empty for an empty file.

    :param opened: the file, if it is already open
    :raises InputError: the file cannot be read, or has an unsupported encoding or compression.
    """
    with input_errors(path), open_decompressed(path, opened=opened) as stream:
        start = stream.readline(_BEGINNING_BYTES)
        refuse_unsupported(start, path)
        while start and not start.removeprefix(BOM).strip(b" \r\n"):
            start = stream.readline(_BEGINNING_BYTES)
    return start.rstrip(b"\r\n")


type Format = Literal["jsonl", "json", "table", "text"]
"""The formats of a corpus file: an object per line, a JSON list, TSV or CSV, and a text as one passage."""


def known_format(path: str | Path, first_line: bytes) -> Format | None:
    """Recognize a file's format by its name, otherwise by its first line; None for an unknown format.

    :param first_line: the line, or its beginning
    """
    name = plain_name(path).lower()
    start = first_line.removeprefix(BOM).lstrip()
    first_character = start[:1]
    if name.endswith((".jsonl", ".ndjson")) and first_character != b"[":
        return "jsonl"
    if name.endswith((".tsv", ".csv")):
        return "table"
    if name.endswith(_TEXT_SUFFIXES) and not (name.endswith(".txt") and _RECORDS_IN_TEXT.match(start)):
        return "text"
    if first_character in (b"{", b"["):
        return "json" if first_character == b"[" else "jsonl"
    return "table" if b"\t" in first_line else None


def format_of(path: str | Path, first_line: bytes) -> Format:
    """Recognize the format of a corpus file, as `known_format` does.

    :raises InputError: the format is unknown.
    """
    if form := known_format(path, first_line):
        return form
    if b"\0" in first_line:
        raise InputError(
            "unknown format: the corpus file is binary, not text",
            where=shown_name(path),
            remedy="convert the file to JSONL: one object per line, with id, text and optionally title",
        )
    raise InputError(
        f"unknown format: expected a JSON object or tab-separated columns, found {shortened(first_line)}",
        where=f"{shown_name(path)}:1",
        remedy=_how_to_name(path, first_line.removeprefix(BOM).lstrip()),
    )


def _how_to_name(path: str | Path, start: bytes) -> str | Remedy:
    """Return the remedy for a file of an unknown format.

    :param start: the beginning of the file
    """
    if start.startswith(b"<mediawiki"):
        dump = "FILE" if str(path) == STANDARD_INPUT else path
        links = Command.of("dense links", dump=dump, output="links.jsonl", passages="passages.jsonl")
        return remedy("read the passages of this dump of Wikipedia with: {}, then name passages.jsonl", links)
    if start.startswith(b"<"):
        return (
            "name the file .html if it is a web page; convert other XML to JSONL: one object per line,"
            " with id, text and optionally title"
        )
    return (
        "name the file .txt if it is one text, .csv if it is a table; or convert it to JSONL:"
        f" {_conversion(path)}"
    )


def check_one_a_line(path: str, first_line: tuple[int, bytes]) -> None:
    """Check that a JSONL file does not begin with an object that spans several lines.

    :param first_line: number and content of the first line
    :raises InputError: the first line begins an object without its end.
    """
    text = first_line[1].decode("utf-8", "replace").strip().removeprefix("\ufeff")
    if text == "{":
        decompress, stdin, jsonl_name = _shell_parts(path)
        raise InputError(
            "the JSONL file must have one JSON object per line, found an object of several lines",
            where=f"{shown_name(path)}:{first_line[0]}",
            remedy=f"convert the file to lines: {decompress}jq -c .{stdin} > {jsonl_name}",
        )


def _conversion(path: str | Path) -> str:
    """Return a shell command that converts one text per line to JSONL."""
    decompress, stdin, jsonl_name = _shell_parts(path)
    open_stdin = 'open(0, encoding="utf-8-sig", newline="")'
    records = f'({{"id": i, "text": t.strip()}} for i, t in enumerate({open_stdin}))'
    code = f"import json; [print(json.dumps(r)) for r in {records}]"
    return f"{decompress}python3 -c '{code}'{stdin} > {jsonl_name}"


def _shell_parts(path: str | Path) -> tuple[str, str, str]:
    """Return the parts of a shell command that depend on the path.

    The parts are a decompression pipe, an input redirection (one of these two is empty) and the name of the
    new JSONL file.
    """
    name = "FILE" if str(path) == STANDARD_INPUT else str(path)
    plain = plain_name(name)
    program = {".gz": "gzip", ".bz2": "bzip2", ".zst": "zstd"}.get(name.removeprefix(plain))
    decompress = f"{program} -dc {shlex.quote(name)} | " if program else ""
    stdin = "" if program else f" < {shlex.quote(name)}"
    return decompress, stdin, shlex.quote(f"{plain}.jsonl")


class SourceTally(Tally):
    """The size and SHA-256 of a source.

    For a folder of texts, the hash includes the paths, which become passage ids.
    """

    def end_text(self, path: str, folder: str) -> None:
        """Add a text's path within its folder, and the position of its end, to the hash."""
        name = os.fsencode(Path(path).relative_to(folder))
        self._digest.update(b"\0%s\0%d\0" % (name, self.size))


def tally_of(source: str, opened: BinaryIO | None) -> SourceTally:
    """Return the size and SHA-256 of a file or a folder.

    :param opened: the source, if it is a single file that is already open
    """
    tally = SourceTally()
    for path in files_of(source)[0]:
        try:
            for stored in stored_files(path):
                tally.add_file(stored, opened if stored == path else None)
        except InputError as error:
            if not was_removed(path, source, error):
                raise
            continue
        if is_text_of(path, source):
            tally.end_text(path, source)
    return tally


def signature(path: str) -> list[object]:
    """Return what changes when a file is written: its time, size and inode."""
    stats = [Path(stored).stat() for stored in stored_files(path)]
    return [(stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats]
