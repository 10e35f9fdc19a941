"""Metadata filters, which limit a search to some passages."""

from sparta.base.filters.conditions import (
    LONGEST,
    AllOf,
    AnyOf,
    Condition,
    Exists,
    Not,
    Numbers,
    OneOf,
    Scalar,
    SimpleCondition,
    Texts,
    term,
    text_of,
)
from sparta.base.filters.filter import Filter, FilterLike
from sparta.base.filters.json_form import COMPARISONS
from sparta.base.filters.text_form import filter_object

__all__ = [
    "COMPARISONS",
    "LONGEST",
    "AllOf",
    "AnyOf",
    "Condition",
    "Exists",
    "Filter",
    "FilterLike",
    "Not",
    "Numbers",
    "OneOf",
    "Scalar",
    "SimpleCondition",
    "Texts",
    "filter_object",
    "term",
    "text_of",
]
