"""The files of a corpus, and in which form each is."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from sparta.base.errors import InputError
from sparta.base.files import STANDARD_INPUT, plain_name, shown_name, unreadable
from sparta.data.parsing import shortened

BEIR_CORPUS = "corpus.jsonl"
_RECORD_SUFFIXES = (".jsonl", ".ndjson", ".tsv")
_TEXT_SUFFIXES = (".txt", ".md", ".markdown")
_NOT_PASSAGES = re.compile(r"(queries|questions|qrels)(?![^\W_])")


def files_of(source: str) -> tuple[list[str], list[str]]:
    """Return the files of a source, and for each file of a folder that is left out its name and why."""
    if source == STANDARD_INPUT:
        return [source], []
    path = Path(source)
    if not path.is_dir():
        if not path.exists():
            raise unreadable(source, FileNotFoundError())
        return [source], []
    entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    if not any(_ends(entry, _RECORD_SUFFIXES) for entry in entries):
        entries = sorted(_below(path))
    left_out = {entry: why for entry in entries if (why := _why_not_read(entry, path))}
    files = [entry for entry in entries if entry not in left_out]
    if records := [entry for entry in files if _ends(entry, _RECORD_SUFFIXES)]:
        left_out |= dict.fromkeys(set(files) - set(records), "a text beside files of records")
        files = records
    if corpus := [entry for entry in files if plain_name(entry.name) == BEIR_CORPUS]:
        left_out |= dict.fromkeys(set(files) - set(corpus), f"beside {BEIR_CORPUS}")
        left_out = {entry: why for entry, why in left_out.items() if not _NOT_PASSAGES.match(entry.name)}
        files = corpus
    if not files:
        raise InputError(
            "no corpus in this folder: expected *.jsonl, *.tsv, *.txt or *.md (.gz, .bz2, .zst), found none",
            where=source,
            remedy="give a file, or the folder that holds the files itself (of subfolders, texts are read)",
        )
    named = [f"{entry.relative_to(path)} ({left_out[entry]})" for entry in entries if entry in left_out]
    return [str(entry) for entry in files], named


def is_text_of(path: str, source: str) -> bool:
    """Whether a file is a passage of its own, in a folder of texts."""
    return path != source and _ends(Path(path), _TEXT_SUFFIXES)


def _ends(path: Path, suffixes: tuple[str, ...]) -> bool:
    return plain_name(path.name).lower().endswith(suffixes)


def _below(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, but hidden ones, and the links to folders, which are not followed.

    :raises InputError: a folder cannot be read.
    """

    def refuse(error: OSError) -> None:
        raise unreadable(str(error.filename), error)

    for here, folders, names in folder.walk(on_error=refuse):
        folders[:] = (name for name in folders if not name.startswith("."))
        yield from (here / name for name in names if not name.startswith("."))  # links to folders among them


def _why_not_read(path: Path, folder: Path) -> str:
    """Why an entry of a folder is no part of the corpus; "" if it is one."""
    if path.parent != folder and _ends(path, _RECORD_SUFFIXES):
        return "records in a subfolder"
    if not path.is_file():
        what = "a link to a folder" if path.is_symlink() else "a folder"
        return what if path.is_dir() else "not a file"
    if not _ends(path, _RECORD_SUFFIXES + _TEXT_SUFFIXES):
        return "another format"
    return "queries or judgments" if _NOT_PASSAGES.match(path.name) else ""


def no_records(path: str | Path) -> InputError:
    """Say that a file holds nothing."""
    message = "empty file: expected at least one record, found none"
    return InputError(message, where=shown_name(path), remedy="check that the file was written completely")


def format_of(path: str | Path, first_line: bytes) -> Literal["jsonl", "tsv"]:
    """Recognise the format by the file's name, otherwise by its first line."""
    name = plain_name(path).lower()
    if name.endswith((".jsonl", ".ndjson")):
        return "jsonl"
    if name.endswith(".tsv"):
        return "tsv"
    if first_line.removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"[")):
        return "jsonl"
    if b"\t" in first_line:
        return "tsv"
    if b"\0" in first_line:
        raise InputError(
            "unknown format: expected text, found a binary file",
            where=shown_name(path),
            remedy="make JSONL of it: one object a line, with id, text and maybe title",
        )
    text = name.endswith(_TEXT_SUFFIXES)
    folder = "give its folder, of which each .txt or .md file is a passage; or " if text else ""
    raise InputError(
        f"unknown format: expected a JSON object or tab-separated columns, found {shortened(first_line)}",
        where=f"{shown_name(path)}:1",
        remedy=f"{folder}make JSONL of it: {_conversion(path)}",
    )


def check_one_a_line(path: str, first: tuple[int, bytes]) -> None:
    """Refuse an array, and objects of several lines, of which few lines would be records.

    :raises InputError: the first line begins one.
    """
    text = first[1].decode("utf-8", "replace").strip().removeprefix("\ufeff")
    array = text.startswith("[")
    if array or text == "{":
        read, source, made = _shell_names(path)
        raise InputError(
            f"expected one JSON object a line, found {'an array' if array else 'an object of several lines'}",
            where=f"{shown_name(path)}:{first[0]}",
            remedy=f"make lines of it: {read}jq -c '{'.[]' if array else '.'}'{source} > {made}",
        )


def _conversion(path: str | Path) -> str:
    """The command that makes JSONL of CSV with a header, or of any text with one record a line."""
    plain = plain_name(path)
    read, source, made = _shell_names(path)
    opened = 'open(0, encoding="utf-8-sig", newline="")'
    records = (
        f"csv.DictReader({opened})"
        if plain.endswith(".csv")
        else f'({{"id": i, "text": t.strip()}} for i, t in enumerate({opened}))'
    )
    code = (
        f"import csv, json, sys; csv.field_size_limit(sys.maxsize); [print(json.dumps(r)) for r in {records}]"
    )
    return f"{read}python3 -c '{code}'{source} > {made}"


def _shell_names(path: str | Path) -> tuple[str, str, str]:
    """What decompresses a file before a command, what is the command's input, and JSONL to be made of it."""
    given = "FILE" if str(path) == STANDARD_INPUT else str(path)
    plain = plain_name(given)
    program = {".gz": "gzip", ".bz2": "bzip2", ".zst": "zstd"}.get(given.removeprefix(plain))
    read = f"{program} -dc {shlex.quote(given)} | " if program else ""
    source = "" if program else f" < {shlex.quote(given)}"
    return read, source, shlex.quote(f"{plain}.jsonl")
