"""Parse the query string of `GET /search` into the request of `POST /search`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from pydantic import ValidationError

from hybrid.service.schemas import SearchRequest, invalid
from sparta.base.errors import InputError
from sparta.base.filters import filter_object

_MOST_PARAMETERS = 100
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InputError(f"the parameter {name} must be a whole number, found {text[:40]!r}")
    return int(text)


def _boolean(name: str, text: str) -> bool:
    if text not in _BOOLEANS:
        raise InputError(f"the parameter {name} must be true or false, found {text[:40]!r}")
    return _BOOLEANS[text]


def _text(_name: str, text: str) -> str:
    return text


PARAMETERS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "q": ("query", _text),
    "k": ("k", _number),
    "offset": ("offset", _number),
    "channels": ("channels", _text),
    "collapse": ("collapse", _text),
    "hits": ("hits", _text),
    "join": ("join", _boolean),
    "explain": ("explain", _boolean),
}
"""The parameters besides `filter` and `facet`: the request's field, and the function that reads the text."""


def search_request(query_string: bytes) -> SearchRequest:
    """Return the search that a query string describes: `q`, `k`, `filter` and so on.

    `filter` is a condition as on the command line (`lang=en`), or a JSON object. `filter` and
    `facet` may repeat.

    :raises InputError: a parameter is unknown, repeated or invalid, or `q` is missing
    """
    fields: dict[str, Any] = {}
    repeated: dict[str, list[str]] = {"filter": [], "facet": []}
    for name, text in _pairs(query_string):
        if name in repeated:
            repeated[name].append(text)
            continue
        if name not in PARAMETERS:
            known = ", ".join([*PARAMETERS, *repeated])
            raise InputError(f"unknown parameter {name[:40]!r}; the parameters are {known}")
        field, read = PARAMETERS[name]
        if field in fields:
            raise InputError(f"the parameter {name} occurs twice")
        fields[field] = read(name, text)
    if "query" not in fields:
        raise InputError("the parameter q is missing: GET /search?q=QUERY")
    try:
        return SearchRequest.model_validate(
            {**fields, "filter": filter_object(repeated["filter"]), "facets": repeated["facet"]}
        )
    except ValidationError as error:
        raise invalid(error) from None


def _pairs(query_string: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            query_string.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_MOST_PARAMETERS,
        )
    except ValueError:
        raise InputError(
            f"the query string is not UTF-8, percent-encoded, or has more than {_MOST_PARAMETERS} parameters"
        ) from None


def described_parameters() -> list[dict[str, Any]]:
    """Return the parameters as OpenAPI describes them."""
    fields = SearchRequest.model_json_schema()["properties"]
    described = [
        {
            "name": name,
            "in": "query",
            "required": name == "q",
            "schema": {"type": "string"} if name == "q" else _schema(fields[field]),
            "description": fields[field].get("description", "The query."),
        }
        for name, (field, _) in PARAMETERS.items()
    ]
    conditions = {
        "name": "filter",
        "in": "query",
        "schema": {"type": "array", "items": {"type": "string"}},
        "description": "Condition on the metadata, as lang=en, year>=1990 or JSON; may repeat.",
    }
    facets = {
        "name": "facet",
        "in": "query",
        "schema": {"type": "array", "items": {"type": "string"}},
        "description": "Metadata field: count its values over all hits; may repeat.",
    }
    return [*described, conditions, facets]


def _schema(field: dict[str, Any]) -> dict[str, Any]:
    kind: dict[str, Any] = next(iter(field.get("anyOf", ())), field)
    names = ("type", "minimum", "maximum", "maxLength")
    return {name: kind[name] for name in names if name in kind} | (
        {"default": field["default"]} if field.get("default") is not None else {}
    )
