"""The names of a record's fields, where a corpus has other names than `id`, `text` and `title`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparta.base.errors import InputError
from sparta.base.remedies import Option, Remedy, remedy
from sparta.data.parsing import BadRecordError, shortened

_HASH_DIGITS = 20


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a record that hold its id, its text and its title; None and () mean the usual names.

    The texts of several fields are joined by a blank line; a field that is missing or null in one record is
    left out. Fields that are read as id, text or title are no metadata.
    """

    id: str | None = None
    text: tuple[str, ...] = ()
    title: str | None = None

    @staticmethod
    def of(id: str | None, text: str | Sequence[str] | None, title: str | None) -> Fields:
        """Return the fields of these names; a single text field may be a string.

        :raises InputError: a name is no string, or empty.
        """
        texts = (text,) if isinstance(text, str) else tuple(text or ())
        for name in (*texts, *(each for each in (id, title) if each is not None)):
            if not isinstance(name, str) or not name:
                raise InputError(f"the name of a field must be a string that is not empty, found {name!r}")
        return Fields(id, texts, title) if id or texts or title else USUAL_FIELDS

    @property
    def names(self) -> tuple[str, ...]:
        """The names that differ from the usual names."""
        return tuple(name for name in (self.id, *self.text, self.title) if name is not None)

    @property
    def options(self) -> dict[str, Any]:
        """The options that name these fields, as `IndexOptions` has them; empty for the usual names."""
        named = {"id_field": self.id, "text_field": list(self.text), "title_field": self.title}
        return {option: name for option, name in named.items() if name}

    def remedy(self, advice: str) -> Remedy:
        """Return advice, and the option that names the field of the text."""
        return remedy(f"{advice}; or name the field of the text with {{}}", Option("text_field", "NAME"))

    def of_record(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a record with the fields `id`, `text` and `title`.

        A record without an id gets one: a hash of its title, text and context, which stays the same in every
        order and in every file.

        :raises BadRecordError: a named field is missing, or a text is no string.
        """
        # The identity is compared first, because this is called for every record.
        if ("id" in record or "_id" in record) and (self is USUAL_FIELDS or not self.names):
            return record
        renamed = dict(record)
        if self.names:
            renamed = {name: value for name, value in record.items() if name not in self.names}
            if self.id is not None:
                renamed.pop("_id", None)
                renamed["id"] = self._value(record, self.id, "id")
            if self.title is not None and record.get(self.title) is not None:
                renamed["title"] = record[self.title]
            if self.text:
                renamed.pop("contents", None)
                renamed["text"] = self._text(record)
        if not {"id", "_id"} & renamed.keys() and {"text", "contents"} & renamed.keys():
            renamed["id"] = _content_hash(renamed)
        return renamed

    def _text(self, record: Mapping[str, Any]) -> str:
        values = [(name, record[name]) for name in self.text if record.get(name) is not None]
        if not values and record.keys().isdisjoint(self.text):
            raise self._missing(record, self.text, "text")
        for name, value in values:
            if not isinstance(value, str):
                found = f"found {type(value).__name__} in the field {name!r}"
                raise BadRecordError("text of the wrong type", f"expected a string, {found}")
        return "\n\n".join(value for _, value in values)

    def _value(self, record: Mapping[str, Any], name: str, of: str) -> Any:
        if name not in record:
            raise self._missing(record, (name,), of)
        return record[name]

    def _missing(self, record: Mapping[str, Any], names: Sequence[str], of: str) -> BadRecordError:
        expected = " or ".join(f'"{name}"' for name in names)
        found = shortened(", ".join(record) or "no field")
        return BadRecordError(
            f"missing {of}",
            f"expected the field {expected}, found {found}",
            remedy=remedy("correct the line, or name the field with {}", Option(f"{of}_field", "NAME")),
        )


def _content_hash(record: Mapping[str, Any]) -> str:
    """Return the id of a record without one: 20 hexadecimal digits of the SHA-256 of its content."""
    texts = (record.get("title"), record.get("text", record.get("contents")), record.get("context"))
    content = "\0".join(text if isinstance(text, str) else "" for text in texts)
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]


USUAL_FIELDS = Fields()
