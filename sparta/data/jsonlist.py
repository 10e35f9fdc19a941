"""A file that is one JSON list, of any size, read element by element."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from sparta.base.errors import InputError
from sparta.base.files import MAX_LINE_VARIABLE, longest_line, open_decompressed, reading
from sparta.data.parsing import TO_UTF8, refuse_half_pairs

CHUNK_BYTES = 1 << 20
_AFTER_ELEMENT = frozenset(",] \t\r\n")


def json_list(path: Path, form: str) -> Iterator[Any]:
    """Yield the elements of the list that a file holds, gzipped or not; one at a time is in memory.

    :param form: what the file is expected to be, for messages.
    :raises InputError: it holds no list, or broken JSON, and in which element.
    """
    number = 0
    try:
        with reading(path), open_decompressed(path) as stream:
            text = _Text(stream)
            if text.take("[]") != "[":
                raise ValueError("it does not begin with [")
            following = "" if text.take("]") else ","
            while following == ",":
                number += 1
                yield text.element()
                following = text.take(",]")
                if not following:
                    raise ValueError("expected , or ]")
            if text.rest():
                raise ValueError("something stands behind the list")
    except (ValueError, RecursionError) as error:
        place = f" after {number - 1:,} whole elements" if number else ""
        said = error.msg if isinstance(error, json.JSONDecodeError) else error  # its place is in what is read
        raise InputError(
            f"expected {form}, found something else{place} ({said})",
            where=str(path),
            remedy="python3 -m json.tool names the line of broken JSON",
        ) from None


def begins_list(path: Path) -> bool:
    """Whether the first character of a file, gzipped or not, is that of a JSON list.

    :raises InputError: it is no text.
    """
    try:
        with reading(path), open_decompressed(path) as stream:
            return _Text(stream).rest() == "["
    except UnicodeDecodeError as error:
        raise InputError(
            f"expected JSON in UTF-8, found something else ({error})",
            where=str(path),
            remedy=TO_UTF8,
        ) from None


class _Text:
    """A stream of UTF-8 from which JSON is taken: what is taken is forgotten."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._bytes_to_text = codecs.getincrementaldecoder("utf-8-sig")()
        self._decoder = json.JSONDecoder()
        self._longest = longest_line()
        self._text, self._at, self._ended = "", 0, False

    def take(self, wanted: str) -> str:
        """Take the next character that is no blank if it is among these; "" if it is not."""
        found = self.rest()
        if not found or found not in wanted:
            return ""
        self._at += 1
        return found

    def rest(self) -> str:
        """Look at the next character that is no blank; "" at the end."""
        while True:
            while self._at < len(self._text):
                if not self._text[self._at].isspace():
                    return self._text[self._at]
                self._at += 1
            if self._ended:
                return ""
            self._read()

    def element(self) -> Any:
        """Take a value, reading on until it is whole.

        :raises ValueError: there is none.
        """
        self.rest()
        while True:
            too_long = len(self._text) - self._at > self._longest
            last = self._ended or too_long
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError:
                if too_long and not self._ended:
                    raise ValueError(
                        f"no end within {self._longest / 1e6:g} MB; {MAX_LINE_VARIABLE} (in MB) allows more"
                    ) from None
                if last:
                    raise
            else:
                if last or self._text[end : end + 1] in _AFTER_ELEMENT:  # else a number may go on
                    refuse_half_pairs(self._text[self._at : end], value)
                    self._at = end
                    return value
            self._read()

    def _read(self) -> None:
        """Read on: as much as is there, so that a long element is not decoded over and over."""
        self._text = self._text[self._at :]
        self._at = 0
        data = self._stream.read(max(CHUNK_BYTES, len(self._text)))
        self._ended = not data
        self._text += self._bytes_to_text.decode(data, final=self._ended)
