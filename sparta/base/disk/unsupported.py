"""Recognizes files in unsupported formats, and names the command that converts them."""

from __future__ import annotations

import contextlib
import re
import zlib
from pathlib import Path

from sparta.base.errors import InputError
from sparta.base.files import shell_path, shown_name

_PANDOC_FORMS = ("docx", "epub", "odt")
_OFFICE = {
    "word/document.xml": ("a Word document", "convert it: {docx}"),
    "xl/workbook.": ("a spreadsheet", "save it as CSV in UTF-8"),
    "ppt/presentation.xml": ("a presentation", "save it as PDF"),
    "application/epub+zip": ("an EPUB book", "convert it: {epub}"),
    "application/vnd.oasis.opendocument.text": ("an OpenDocument text", "convert it: {odt}"),
    "application/vnd.oasis.opendocument.spreadsheet": ("a spreadsheet", "save it as CSV in UTF-8"),
    "application/vnd.oasis.opendocument.presentation": ("a presentation", "save it as PDF"),
}
"""The beginning of a file name or of the media type in a zip archive, its description, and the conversion."""
_TAR = re.compile(rb"(?=[^\0]{0,256}\0)[\s\S]{257}ustar")
_ZIP = b"PK\3\4"
_UNSUPPORTED = {  # in this order: UTF-32 begins as UTF-16 does
    b"\xfd7zXZ\0": ("a file compressed with xz", "decompress it: xz -dk {path}"),
    b"PAR1": (
        "a Parquet file",
        "rename a corpus: mv {path} {path}.parquet; convert any other file to JSONL with pyarrow:"
        ' python3 -c "import json, sys; from pyarrow.parquet import ParquetFile as F; [print(json.dumps(row,'
        ' default=str)) for rows in F(sys.argv[1]).iter_batches() for row in rows.to_pylist()]" {path}'
        " > NEW_FILE",
    ),
    _ZIP: ("a zip archive", "unpack it: unzip {path}"),
    b"\xff\xfe\0\0": ("text in UTF-32", "convert it: iconv -f UTF-32 -t UTF-8 {path} > NEW_FILE"),
    b"\0\0\xfe\xff": ("text in UTF-32", "convert it: iconv -f UTF-32 -t UTF-8 {path} > NEW_FILE"),
    b"\xff\xfe": ("text in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 {path} > NEW_FILE"),
    b"\xfe\xff": ("text in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 {path} > NEW_FILE"),
}
"""The first bytes of each unsupported format, its description, and a command that converts it."""


def unsupported_form(data: bytes, path: str | Path) -> tuple[str, str] | None:
    """Recognize a file in an unsupported format by its first bytes; return None for other files.

    :return: a description of the format, and the command that converts the file
    """
    forms = [form for magic, form in _UNSUPPORTED.items() if data.startswith(magic)]
    if data.startswith(_ZIP):
        forms = [*_office_forms(path), *forms]
    if _TAR.match(data):
        forms = [("a tar archive", "unpack it: tar -xf {path}")]
    if not forms:
        return None
    description, conversion = forms[0]
    commands = {form: _pandoc(form, path) for form in _PANDOC_FORMS}
    return description, conversion.format(path=shell_path(path), **commands)


def _pandoc(form: str, path: str | Path) -> str:
    """Return the command that converts a document to Markdown.

    A document with the suffix of another format is renamed, because it would stay part of a corpus.
    """
    document = str(path) if str(path).lower().endswith(f".{form}") else f"{path}.{form}"
    rename = "" if document == str(path) else f"mv {shell_path(path)} {shell_path(document)} && "
    markdown = shell_path(Path(path).with_suffix(".md"))
    return f"{rename}pandoc -f {form} {shell_path(document)} -o {markdown}"


def _office_forms(path: str | Path) -> list[tuple[str, str]]:
    """Return the forms of `_OFFICE` that a zip archive has; empty if it cannot be opened."""
    import zipfile

    marks: list[str] = []
    damages = (OSError, EOFError, KeyError, RuntimeError, ValueError, zlib.error, zipfile.BadZipFile)
    with contextlib.suppress(*damages), zipfile.ZipFile(path) as archive:
        marks += archive.namelist()
        with archive.open("mimetype") as stream:
            marks.append(stream.read(100).decode("ascii"))
    return [form for start, form in _OFFICE.items() if any(mark.startswith(start) for mark in marks)]


def refuse_unsupported(first_line: bytes, path: str | Path) -> None:
    """Raise InputError if a file begins as a file in an unsupported format does."""
    if unsupported := unsupported_form(first_line, path):
        description, conversion = unsupported
        message = f"expected UTF-8 text, plain or in gzip, bzip2 or zstd, found {description}"
        raise InputError(message, where=shown_name(path), remedy=conversion)
