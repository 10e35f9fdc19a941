"""What is read as a filter, and what is said of what is none."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from sparta.base.errors import InputError
from sparta.base.filters import AllOf, AnyOf, Exists, Filter, Not, Numbers, OneOf, Texts, term

X, NOT_90S = {"x": {"exists": True}}, {"not": {"year": {"gte": 1990}}}
A1, B2, AND1 = OneOf("a", ("1",)), OneOf("b", ("2",)), OneOf("and", ("1",))
UP = math.nextafter(1990.0, math.inf)


def of(value: dict[str, Any]) -> tuple[Any, ...]:
    parsed = Filter.of(value)
    assert parsed is not None
    return parsed.conditions


def nested_or(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {"a": 1}
    for _ in range(levels):
        value = {"or": [value]}
    return value


def nested_not(levels: int) -> dict[str, Any]:
    value: Any = 1
    for _ in range(levels):
        value = {"not": value}
    return {"a": value}


@pytest.mark.parametrize(
    ("given", "conditions"),
    [
        ({"lang": "en"}, [OneOf("lang", ("en",))]),
        ({"n": 1}, [OneOf("n", ("1",))]),
        ({"n": 1.0}, [OneOf("n", ("1",))]),
        ({"b": np.bool_(True)}, [OneOf("b", ("true",))]),
        ({"n": 0.5, "b": True}, [OneOf("n", ("0.5",)), OneOf("b", ("true",))]),
        ({"lang": {"in": ["en", "de", "en"]}}, [OneOf("lang", ("en", "de"))]),
        ({"y": {"gte": 1990, "lt": 2000}}, [Numbers("y", 1990.0, math.nextafter(2000.0, 0))]),
        ({"y": {"gt": 1990}}, [Numbers("y", UP, math.inf)]),
        ({"d": {"gt": "2020", "lte": "2021"}}, [Texts("d", "2020\0", "2021\0")]),
        ({"d": {"lt": "b"}}, [Texts("d", None, "b")]),
        ({"a": {"not": "x"}}, [Not(OneOf("a", ("x",)))]),
        ({"a": {"not": {"not": {"in": ["x"]}}}}, [Not(Not(OneOf("a", ("x",))))]),
        ({"a.b": {"exists": True}, "c": {"exists": False}}, [Exists("a.b"), Not(Exists("c"))]),
        ({"or": [{"a": 1}, {"b": 2, "c": 3}]}, [AnyOf((A1, AllOf((B2, OneOf("c", ("3",))))))]),
        ({"and": [{"a": 1}, {"b": 2}], "a": 1}, [AllOf((A1, B2)), A1]),
        ({"not": {"a": 1, "b": 2}}, [Not(AllOf((A1, B2)))]),
        ({"not": [{"a": 1}, {"b": 2}]}, [Not(AnyOf((A1, B2)))]),
        ({"or": "x", "not": "y", "and": {"in": [1]}}, [OneOf("or", ("x",)), OneOf("not", ("y",)), AND1]),
    ],
)
def test_json(given: dict[str, Any], conditions: list[Any]) -> None:
    assert Filter.of(given) == Filter(tuple(conditions))
    assert hash(Filter.of(given)) == hash(Filter(tuple(conditions)))


@pytest.mark.parametrize(
    ("texts", "given"),
    [
        (["lang=en"], {"lang": "en"}),
        (["lang = en "], {"lang": "en"}),
        (["title=Man in Black"], {"title": "Man in Black"}),
        (["lang in en, de"], {"lang": {"in": ["en", "de"]}}),
        (["url=a=b<c"], {"url": "a=b<c"}),
        (["two words=x"], {"two words": "x"}),
        (["year>=1990", "year<2000"], {"year": {"gte": 1990, "lt": 2000}}),
        (["year > 1990"], {"year": {"gt": 1990}}),
        (["date<=2020-05-01"], {"date": {"lte": "2020-05-01"}}),
        (['{"year": {"gte": 1990}}', "lang=en"], {"year": {"gte": 1990}, "lang": "en"}),
        (["empty="], {"empty": ""}),
        (["id=007"], {"id": "007"}),
        (["price=2.50"], {"price": {"in": ["2.50", 2.5]}}),
        (["price=-1.0"], {"price": {"in": ["-1.0", -1]}}),
        (["price in 1.0,2.50,3,x"], {"price": {"in": ["1.0", 1, "2.50", 2.5, 3, "x"]}}),
        (["price=1e2"], {"price": {"in": ["1e2", 100]}}),
        (["price=2.5"], {"price": 2.5}),
        (["price=1e999"], {"price": "1e999"}),
        (["price=" + "9" * 5000], {"price": "9" * 5000}),
        (["price=" + "9" * 400], {"price": "9" * 400}),
        (["version=1.0.0"], {"version": "1.0.0"}),
        (['{"lang": "=en"}'], {"lang": "=en"}),
        (["lang!=en"], {"lang": {"not": "en"}}),
        (["lang != 2.50"], {"lang": {"not": {"in": ["2.50", 2.5]}}}),
        (["lang not in en,de"], {"lang": {"not": {"in": ["en", "de"]}}}),
        (["not lang in en,de"], {"not": {"lang": {"in": ["en", "de"]}}}),
        (["not year>=1990"], {"not": {"year": {"gte": 1990}}}),
        (["author.name exists"], {"author.name": {"exists": True}}),
        (["not author.name exists"], {"not": {"author.name": {"exists": True}}}),
        (["lang=en or year>=1990 or x exists"], {"or": [{"lang": "en"}, {"year": {"gte": 1990}}, X]}),
        (["lang in en,de or not year>=1990"], {"or": [{"lang": {"in": ["en", "de"]}}, NOT_90S]}),
        (["title=Dead or Alive"], {"title": "Dead or Alive"}),
        (["title=Dead or Alive or lang=en"], {"or": [{"title": "Dead or Alive"}, {"lang": "en"}]}),
        (["url=a!=b"], {"url": "a!=b"}),
        (["title=Dead and Alive"], {"title": "Dead and Alive"}),
        (["lang in de,fr and year<2000"], {"lang": {"in": ["de", "fr"]}, "year": {"lt": 2000}}),
        (["year>=1990 and year<2000"], {"year": {"gte": 1990, "lt": 2000}}),
        (["x exists or a=b and c!=d"], {"or": [X, {"a": "b", "c": {"not": "d"}}]}),
        (['{"lang!": "en"}'], {"lang!": "en"}),
        (["year<2000", "lang=en", "year>1990"], {"year": {"gt": 1990, "lt": 2000}, "lang": "en"}),
        ([], None),
    ],
)
def test_the_command_line(texts: list[str], given: Any) -> None:
    assert Filter.parse(texts) == Filter.of(given)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("en", "an object of fields"),
        ({"": 1}, "the name of a field"),
        ({3: 1}, "the name of a field"),
        ({"a\0b": 1}, "the name of a field"),
        ({"a": None}, "a text, a number, true or false as the value of 'a'"),
        ({"a": ["x"]}, "a text, a number"),
        ({"a": math.nan}, "a text, a number"),
        ({"a": "\ud800"}, "Unicode text"),
        ({"\ud800": "a"}, "Unicode text"),
        ({"a": {}}, '"in", "not", "exists", or one or two of gt, gte, lt, lte'),
        ({"a": {"in": []}}, "at least one value of 'a'"),
        ({"a": {"in": "en"}}, "a list of values of 'a'"),
        ({"a": {"in": [["x"]]}}, "a text, a number"),
        ({"a": {"in": ["x"], "gt": 3}}, '"in", "not", "exists", or one or two'),
        ({"a": {"gt": 1, "gte": 2}}, '"in", "not", "exists", or one or two'),
        ({"a": {"eq": 1}}, '"in", "not", "exists", or one or two'),
        ({"a": {"not": "x", "gt": 1}}, '"in", "not", "exists", or one or two'),
        ({"a": {"exists": 1}}, "true or false for \"exists\" of 'a'"),
        ({"or": []}, "at least one filter in the list of 'or'"),
        ({"or": ["a=1"]}, "an object with at least one field, found 'a=1'"),
        ({"or": [{}]}, "an object with at least one field"),
        ({"not": {}}, "an object with at least one field"),
        ({"not": {"in": ["x"]}}, "a text, a number"),
        (nested_or(30), "at most 20 levels of filters"),
        (nested_not(100_000), "at most 20 levels of filters"),
        ({"a": {"gt": 1, "lt": "x"}}, "all finite numbers, or all texts"),
        ({"a": {"gt": True}}, "all finite numbers"),
        ({"a": {"gt": math.inf}}, "all finite numbers"),
        ({"a": {"gt": 10**400}}, "all finite numbers"),
        ({"a": {"gt": "x" * 200}}, "bounds of at most 192 bytes"),
    ],
)
def test_what_is_none(given: Any, expected: str) -> None:
    with pytest.raises(InputError) as told:
        Filter.of(given)
    assert expected in told.value.message
    assert "found" in told.value.message
    assert told.value.remedy


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["en"], "expected FIELD=VALUE, found 'en'"),
        (["=en"], "expected FIELD=VALUE"),
        (['{"a": '], "is not JSON"),
        (["a>1", "a<x"], "all finite numbers, or all texts"),
        (["en or lang=de"], "expected FIELD=VALUE, found 'en'"),
        (["lang!==en"], "expected a value after !=, found '=en'"),
        (["lang==en"], "expected a value after =, found '=en'"),
        (["year=>1990"], "expected a value after =, found '>1990'"),
        (["year > = 1990"], "expected a value after >, found '= 1990'"),
        (["year>="], "expected a value after >=, found ''"),
        (["year <"], "expected a value after <, found ''"),
    ],
)
def test_what_is_none_on_the_command_line(texts: list[str], expected: str) -> None:
    with pytest.raises(InputError) as told:
        Filter.parse(texts)
    assert expected in told.value.message


def test_several_conditions_on_a_field_must_all_hold() -> None:
    assert Filter.parse(["a=1", "a=2"]) == Filter((A1, OneOf("a", ("2",))))
    assert Filter.parse(["a>1", "a>=2"]) == Filter((*of({"a": {"gt": 1}}), *of({"a": {"gte": 2}})))
    assert Filter.parse(["a>1", "a!=2"]) == Filter((*of({"a": {"gt": 1}}), *of({"a": {"not": 2}})))


def test_a_filter_knows_all_its_fields_and_bounds() -> None:
    found = Filter.of({"or": [{"a": {"not": {"gt": "x"}}}, {"b": 1, "a": 2}], "c": {"lte": "y"}})
    assert found is not None
    assert found.fields == ["a", "b", "c"]
    assert found.text_bounds() == ["x", "y"]


def test_terms_of_long_values_differ_and_fit() -> None:
    terms = {term("f", "é" * n) for n in (127, 128, 129, 300, 301)} | {term("f", "é" * 300 + "x")}
    assert len(terms) == 6
    assert max(map(len, terms)) == 2 + 256
    assert all(one.decode() for one in terms)
