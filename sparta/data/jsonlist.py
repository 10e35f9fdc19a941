"""Reading a JSON list of any size from a file, element by element."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from sparta.base.disk.streams import MAX_LINE_VARIABLE, input_errors, longest_line, open_decompressed
from sparta.base.errors import InputError
from sparta.base.files import shown_name
from sparta.data.parsing import TO_UTF8, json_parts, refuse_half_pairs

_BLOCK_BYTES = 1 << 20
_AFTER_ELEMENT = frozenset(",] \t\r\n")
_NOT_BLANK = re.compile(r"\S")


class LargeElementError(ValueError):
    """An element of a list is too long, or has too many JSON values."""


def json_list(path: Path, form: str, block_bytes: int = _BLOCK_BYTES) -> Iterator[Any]:
    """Yield the elements of a JSON list in a file, which may be compressed.

    Only one element is in memory at a time.

    :param form: a description of the expected format, for the error message
    :param block_bytes: the number of bytes to read at once
    :raises InputError: the file is not a list, or contains broken JSON; the error says after which element.
    """
    element_count = 0
    try:
        with input_errors(path), open_decompressed(path) as stream:
            for element, _ in placed_elements(stream, block_bytes):
                element_count += 1
                yield element
    except UnicodeDecodeError as error:
        raise not_utf8(path, error) from None
    except (ValueError, RecursionError) as error:
        place = f" after {element_count:,} complete elements" if element_count else ""
        # The line and column of a decoding error refer to the buffer, so only its reason is shown.
        problem = error.msg if isinstance(error, json.JSONDecodeError) else error
        raise InputError(
            f"invalid format{place}: expected {form} ({problem})",
            where=str(path),
            remedy="correct the JSON: python3 -m json.tool names the broken line",
        ) from None


def placed_elements(
    stream: BinaryIO,
    block_bytes: int = _BLOCK_BYTES,
    *,
    is_checked: bool = True,
    longest: int | None = None,
    most_values: int | None = None,
) -> Iterator[tuple[Any, str]]:
    """Yield the elements of a JSON list in a UTF-8 stream, each with its JSON text.

    :param is_checked: raise for a lone surrogate; else the caller must look for them
    :param longest: give up an element after this many characters; None is the limit of lines in files
    :param most_values: read no element of several blocks that has more JSON values
    :raises LargeElementError: an element exceeds a limit.
    :raises ValueError: the stream is not a list, or contains broken JSON.
    """
    text = _Text(stream, block_bytes, longest, most_values)
    if text.take("[]") != "[":
        raise ValueError("the file does not begin with [")
    separator = "" if text.take("]") else ","
    while separator == ",":
        yield text.element(is_checked=is_checked)
        separator = text.take(",]")
        if not separator:
            raise ValueError("expected , or ] after an element of the list")
    if text.peek():
        raise ValueError("text follows the end of the list")


def begins_list(path: Path) -> bool:
    """Return whether a file, which may be compressed, begins with a JSON list.

    :raises InputError: the file is not UTF-8.
    """
    try:
        with input_errors(path), open_decompressed(path) as stream:
            return _Text(stream).peek() == "["
    except UnicodeDecodeError as error:
        raise not_utf8(path, error) from None


def not_utf8(path: str | Path, error: UnicodeDecodeError) -> InputError:
    """Return the error for a JSON list that is not UTF-8.

    The position of a decoding error refers to the buffer, so only the invalid byte is shown.
    """
    return InputError(
        f"invalid UTF-8: expected a JSON file in UTF-8, found byte 0x{error.object[error.start]:02x}",
        where=shown_name(path),
        remedy=TO_UTF8,
    )


class _Text:
    """A buffer over a UTF-8 stream of JSON. Consumed text is dropped from memory."""

    def __init__(
        self,
        stream: BinaryIO,
        block_bytes: int = _BLOCK_BYTES,
        longest: int | None = None,
        most_values: int | None = None,
    ) -> None:
        self._stream, self._block_bytes = stream, block_bytes
        self._bytes_to_text = codecs.getincrementaldecoder("utf-8-sig")()
        self._decoder = json.JSONDecoder()
        self._longest = longest_line() if longest is None else longest
        self._limit = f"{self._longest:,} characters"
        if longest is None:
            self._limit = f"{self._longest / 1e6:g} MB; {MAX_LINE_VARIABLE} sets the limit"
        self._most_values = most_values
        self._text, self._position, self._at_end = "", 0, False

    def take(self, characters: str) -> str:
        """Consume and return the next non-blank character if it is in `characters`; otherwise return ""."""
        character = self.peek()
        if not character or character not in characters:
            return ""
        self._position += 1
        return character

    def peek(self) -> str:
        """Return the next non-blank character without consuming it; "" at the end."""
        while True:
            if match := _NOT_BLANK.search(self._text, self._position):
                self._position = match.start()
                return match[0]
            self._position = len(self._text)
            if self._at_end:
                return ""
            self._read()

    def element(self, *, is_checked: bool) -> tuple[Any, str]:
        """Consume and return a JSON value and its text; reads more of the stream until the value is complete.

        :raises LargeElementError: the value exceeds a limit.
        :raises ValueError: there is no valid value.
        """
        self.peek()
        while True:
            too_long = len(self._text) - self._position > self._longest
            is_last_try = self._at_end or too_long
            try:
                value, end = self._decoder.raw_decode(self._text, self._position)
            except json.JSONDecodeError:
                if too_long and not self._at_end:
                    raise LargeElementError(f"the element is longer than {self._limit}") from None
                if is_last_try:
                    raise
            else:
                # Without a separator behind it, a number may continue in the next bytes.
                if is_last_try or self._text[end : end + 1] in _AFTER_ELEMENT:
                    element = self._text[self._position : end]
                    if is_checked:
                        refuse_half_pairs(element, value)
                    self._position = end
                    return value, element
            self._read()
            self._check_values()

    def _check_values(self) -> None:
        """Raise before decoding if a long buffer has too many values: they take far more memory than text."""
        if self._most_values is None or len(self._text) <= 2 * self._block_bytes:
            return
        if json_parts(self._text.encode()) > self._most_values:
            raise LargeElementError(f"the element has more than {self._most_values:,} JSON values")

    def _read(self) -> None:
        """Read at least as many bytes as the buffer holds, so that decoding a long element stays linear."""
        self._text = self._text[self._position :]
        self._position = 0
        data = self._stream.read(max(self._block_bytes, len(self._text)))
        self._at_end = not data
        self._text += self._bytes_to_text.decode(data, final=self._at_end)
