"""Parse the query strings of `GET /search` and `GET /answer` into the requests of their POST methods."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError

from hybrid.service.schemas import AnswerRequest, SearchRequest, invalid
from sparta.base.errors import InputError
from sparta.base.filters import filter_object

_MOST_PARAMETERS = 100
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_FILTER = "Condition on the metadata, as lang=en, year>=1990 or JSON; may repeat."
_FACET = "Metadata field: count its values over all hits; may repeat."


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InputError(f"the parameter {name} must be a whole number, found {text[:40]!r}")
    return int(text)


def _fraction(name: str, text: str) -> float:
    if not re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,20}", text):
        raise InputError(f"the parameter {name} must be a number from 0 to 1, found {text[:40]!r}")
    return float(text)


def _boolean(name: str, text: str) -> bool:
    if text not in _BOOLEANS:
        raise InputError(f"the parameter {name} must be true or false, found {text[:40]!r}")
    return _BOOLEANS[text]


def _text(_name: str, text: str) -> str:
    return text


@dataclass(frozen=True)
class UrlParameters[R: BaseModel]:
    """The parameters of an endpoint's URL.

    `filter`, a condition as on the command line (`lang=en`) or a JSON object, may repeat.

    :param path: the endpoint, for messages
    :param request: the request that the parameters describe
    :param single: by parameter: the request's field, and the function that reads the text
    :param repeated: by parameter that may repeat: the request's field, and a description
    """

    path: str
    request: type[R]
    single: Mapping[str, tuple[str, Callable[[str, str], Any]]]
    repeated: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def parse(self, query_string: bytes) -> R:
        """Return the request that a query string describes.

        :raises InputError: a parameter is unknown, repeated or invalid, or `q` is missing
        """
        fields: dict[str, Any] = {}
        conditions: list[str] = []
        lists: dict[str, list[str]] = {name: [] for name, _ in self.repeated.values()}
        for name, text in _pairs(query_string):
            if name == "filter":
                conditions.append(text)
            elif name in self.repeated:
                lists[self.repeated[name][0]].append(text)
            elif name not in self.single:
                known = ", ".join([*self.single, "filter", *self.repeated])
                raise InputError(f"unknown parameter {name[:40]!r}; the parameters are {known}")
            else:
                request_field, read = self.single[name]
                if request_field in fields:
                    raise InputError(f"the parameter {name} occurs twice")
                fields[request_field] = read(name, text)
        if "query" not in fields:
            raise InputError(f"the parameter q is missing: GET {self.path}?q=QUERY")
        try:
            return self.request.model_validate({**fields, **lists, "filter": filter_object(conditions)})
        except ValidationError as error:
            raise invalid(error) from None

    def described(self) -> list[dict[str, Any]]:
        """Return the parameters as OpenAPI describes them."""
        fields = self.request.model_json_schema()["properties"]
        single = [
            {
                "name": name,
                "in": "query",
                "required": name == "q",
                "schema": {"type": "string"} if name == "q" else _schema(fields[request_field]),
                "description": fields[request_field].get("description", "The query."),
            }
            for name, (request_field, _) in self.single.items()
        ]
        texts = {"type": "array", "items": {"type": "string"}}
        repeated = {"filter": _FILTER, **{name: text for name, (_, text) in self.repeated.items()}}
        return single + [
            {"name": name, "in": "query", "schema": texts, "description": text}
            for name, text in repeated.items()
        ]


SEARCH_PARAMETERS = UrlParameters(
    "/search",
    SearchRequest,
    {
        "q": ("query", _text),
        "k": ("k", _number),
        "offset": ("offset", _number),
        "channels": ("channels", _text),
        "collapse": ("collapse", _text),
        "hits": ("hits", _text),
        "join": ("join", _boolean),
        "rerank": ("rerank", _number),
        "explain": ("explain", _boolean),
    },
    {"facet": ("facets", _FACET)},
)
ANSWER_PARAMETERS = UrlParameters(
    "/answer",
    AnswerRequest,
    {
        "q": ("query", _text),
        "n": ("n", _number),
        "depth": ("depth", _number),
        "channels": ("channels", _text),
        "rerank": ("rerank", _number),
        "threshold": ("threshold", _fraction),
    },
)


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


def _schema(field: dict[str, Any]) -> dict[str, Any]:
    kind: dict[str, Any] = next(iter(field.get("anyOf", ())), field)
    names = ("type", "minimum", "maximum", "maxLength")
    return {name: kind[name] for name in names if name in kind} | (
        {"default": field["default"]} if field.get("default") is not None else {}
    )
