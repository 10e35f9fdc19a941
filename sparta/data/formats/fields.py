"""The names of a record's fields, where a corpus has other names than `id`, `text` and `title`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sparta.base.checks import list_of
from sparta.base.errors import InputError
from sparta.base.records import Passage
from sparta.base.remedies import Option, Remedy, remedy
from sparta.data.parsing import BadRecordError, shortened

ID_NAMES = {"id", "_id", "docid", "doc_id", "docno", "pid"}
"""Common names of the field that holds the id, in lower case; records are read by `id` and `_id` only."""
_HASH_DIGITS = 20
HASH = re.compile(rf"[0-9a-f]{{{_HASH_DIGITS}}}")
"""The form of the hashes that are ids."""


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a record that hold its id, its text and its title; None and () mean the usual names.

    The texts of several fields are joined by a blank line; a field that is missing or null in one record is
    left out. Fields that are read as id, text or title are no metadata.

    `inherited` holds the names that come from an index, not from the user: a corpus without fields ignores
    them. `unseen` holds the user's names that no record had so far.
    """

    id: str | None = None
    text: tuple[str, ...] = ()
    title: str | None = None
    inherited: frozenset[str] = frozenset()
    unseen: set[str] = field(default_factory=set, init=False, compare=False, repr=False)
    _dropped: frozenset[str] = field(default=frozenset(), init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        self.unseen.update(self.user_names)
        # A usual name keeps its role if no other field has it.
        kept = set() if self.id else {"id", "_id"}
        kept |= set() if self.text else {"text", "contents"}
        kept |= set() if self.title or "title" in self.text else {"title"}
        object.__setattr__(self, "_dropped", frozenset(self.names) - kept)

    @staticmethod
    def of(id: str | None, text: str | Sequence[str] | None, title: str | None) -> Fields:
        """Return the fields of these names; a single text field may be a string.

        :raises InputError: a name is no string, or empty.
        """
        texts = (text,) if isinstance(text, str) else tuple(list_of(text or (), "names of fields"))
        for name in (*texts, *(each for each in (id, title) if each is not None)):
            if not isinstance(name, str) or not name:
                raise InputError(f"the name of a field must be a string that is not empty, found {name!r}")
        return Fields(id, texts, title) if id or texts or title else USUAL_FIELDS

    def or_those_of(self, index_fields: Mapping[str, Any]) -> Fields:
        """Return the fields with the names of an index where these fields have none.

        A name that both have counts as inherited: a printed command repeats the names of the index.

        :param index_fields: the index's names, as `options` has them
        """
        names = {**index_fields, **self.options}
        filled = Fields.of(names.get("id_field"), names.get("text_field"), names.get("title_field"))
        shared = [value for option, value in names.items() if index_fields.get(option) == value]
        inherited = frozenset(
            name for value in shared for name in ([value] if isinstance(value, str) else value)
        )
        return replace(filled, inherited=inherited) if inherited else filled

    @property
    def names(self) -> tuple[str, ...]:
        """The names that differ from the usual names."""
        return tuple(name for name in (self.id, *self.text, self.title) if name is not None)

    @property
    def user_names(self) -> set[str]:
        """The names that the user named."""
        return {*self.names} - self.inherited

    @property
    def options(self) -> dict[str, Any]:
        """The options that name these fields, as `IndexOptions` has them; empty for the usual names."""
        named = {"id_field": self.id, "text_field": list(self.text), "title_field": self.title}
        return {option: name for option, name in named.items() if name}

    @property
    def user_options(self) -> list[Option]:
        """The options that the user named, without their values."""
        roles = {"id_field": (self.id,), "text_field": self.text, "title_field": (self.title,)}
        return [Option(option) for option, names in roles.items() if self.user_names & {*names}]

    def omit(self) -> Remedy:
        """Return the advice to omit the options that the user named."""
        options = self.user_options
        return remedy("omit " + " and ".join("{}" for _ in options), *options)

    def check_columns(self, columns: Sequence[str], where: str) -> None:
        """Check the names of a table's columns before any row is read.

        :raises InputError: two columns have the same name, or the user named a column that the table lacks.
        """
        listed = shortened(", ".join(columns))
        if len({*columns}) < len(columns):
            raise InputError(
                f"expected different column names, found {listed}",
                where=where,
                remedy="rename the columns that have the same name",
            )
        roles = [("id_field", self.id), *(("text_field", name) for name in self.text)]
        for option, name in (*roles, ("title_field", self.title)):
            if name not in (None, *columns, *self.inherited):
                raise InputError(
                    f"expected the column {name!r}, found {listed}",
                    where=where,
                    remedy=remedy("name one of the columns with {}", Option(option)),
                )
        self.unseen.difference_update(columns)

    def similar(self, names: Sequence[str], *, lacks_id: bool, lacks_title: bool) -> list[Option]:
        """Return options that name the fields of a record which may hold its id or its title."""
        roles = {
            "id_field": ID_NAMES if lacks_id and self.id is None else set(),
            "title_field": {"title"} if lacks_title and self.title is None else set(),
        }
        return [
            Option(option, name)
            for option, usual_names in roles.items()
            for name in names
            if name.lower() in usual_names and name not in ("id", "_id", "title")
        ]

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
            self.unseen.difference_update(record)
            renamed = {name: value for name, value in record.items() if name not in self._dropped}
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
            remedy=remedy("correct the record, or name the field with {}", Option(f"{of}_field", "NAME")),
        )


def _content_hash(record: Mapping[str, Any]) -> str:
    """Return the id of a record without one: 20 hexadecimal digits of the SHA-256 of its content."""
    texts = (record.get("title"), record.get("text", record.get("contents")), record.get("context"))
    content = "\0".join(text if isinstance(text, str) else "" for text in texts)
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]


def is_content_hash(passage: Passage) -> bool:
    """Return whether the id of a passage, which has the form of `HASH`, is the hash of its content."""
    return passage.passage_id == _content_hash(passage.record)


USUAL_FIELDS = Fields()
