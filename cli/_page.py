"""Which part of a ranking the commands show: filter, collapse, offset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from cli._numbers import HIGHEST_COUNT
from cli._options import Text, number, options

filter_option = click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="CONDITION",
    type=Text(),
    help="Only passages whose metadata is so: lang=en, 'lang in en,de', 'year>=1990', or JSON as"
    ' {"year": {"gte": 1990, "lt": 2000}}. Several must all hold.',
)
page_options = options(
    filter_option,
    click.option(
        "--collapse", metavar="FIELD", type=Text(), help="Only the best passage of each value of this field."
    ),
    number(
        "--offset", default=0, least=0, most=HIGHEST_COUNT, text="Leave out so many of the best passages."
    ),
)


def filter_of(given: Mapping[str, Any]) -> Any:
    """Return the filter that the command line gave; None where it gave none."""
    from sparta.base.filters import Filter

    return Filter.parse(given["filters"])


def page_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the methods of a retriever are told of the page."""
    return {"offset": given["offset"], "filter": filter_of(given), "collapse": given["collapse"]}
