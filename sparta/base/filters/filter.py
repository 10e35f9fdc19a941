"""`Filter`: the argument of every search that limits it to some passages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparta.base.filters.conditions import Condition, Texts, simple_conditions
from sparta.base.filters.json_form import conditions_of, not_a_filter
from sparta.base.filters.text_form import fields_of, merged


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions on a passage's metadata.

    All conditions must hold; in a list field, one matching element suffices.

    >>> Filter.of({"lang": {"in": ["en", "de"]}, "year": {"gte": 1990, "lt": 2000}}) is not None
    True
    """

    conditions: tuple[Condition, ...]

    @staticmethod
    def of(value: FilterLike | None) -> Filter | None:
        """Build a filter from an object of fields and their conditions.

        A condition is a value, `{"in": […]}`, one or two bounds as in `{"gte": 1990, "lt": 2000}`, `{"not":
        condition}` or `{"exists": true}`. Two bounds must be two numbers or two strings. The keys `or`, `and`
        and `not` combine filters: `{"or": [{"lang": "en"}, {"year": 1990}]}`. None and an empty object filter
        nothing and give None.

        :raises InputError: `value` is not a valid filter; the error says what was expected.
        """
        if value is None or isinstance(value, Filter):
            return value
        if not isinstance(value, Mapping):
            raise not_a_filter("an object of fields", value)
        return Filter(conditions_of(value)) if value else None

    @staticmethod
    def parse(texts: Sequence[str]) -> Filter | None:
        """Build a filter from command-line conditions: `lang=en`, `lang!=en`, `year>=1990`, or JSON.

        A text may have several alternatives: `lang=en or year>=1990`. All texts must hold. Two bounds of one
        field become one range.

        :raises InputError: a condition is not valid.
        """
        parts = merged([fields_of(text) for text in texts])
        conditions = tuple(condition for part in parts for condition in conditions_of(part))
        return Filter(conditions) if conditions else None

    @property
    def fields(self) -> list[str]:
        """The names of all fields in the conditions."""
        return list(dict.fromkeys(condition.field for condition in simple_conditions(self.conditions)))

    def text_bounds(self) -> list[str]:
        """Return the bounds of all string ranges in the filter."""
        ranges = [
            condition for condition in simple_conditions(self.conditions) if isinstance(condition, Texts)
        ]
        return [bound.rstrip("\0") for texts in ranges for bound in (texts.low, texts.high) if bound]

    def packed(self) -> list[bytes]:
        """Return all conditions as consecutive byte strings for Java."""
        return [string for condition in self.conditions for string in condition.packed()]


FilterLike = Filter | Mapping[str, Any]
"""A filter, or its JSON object."""
