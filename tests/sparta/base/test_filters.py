"""What is read as a filter, and what is said of what is none."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sparta.base.errors import InputError
from sparta.base.filters import Filter, Numbers, OneOf, Texts, term
from sparta.base.remedies import Option

UP = math.nextafter(1990.0, math.inf)


@pytest.mark.parametrize(
    ("given", "conditions"),
    [
        ({"lang": "en"}, [OneOf("lang", ("en",))]),
        ({"n": 1}, [OneOf("n", ("1",))]),
        ({"n": 1.0}, [OneOf("n", ("1",))]),
        ({"n": 0.5, "b": True}, [OneOf("n", ("0.5",)), OneOf("b", ("true",))]),
        ({"lang": {"in": ["en", "de", "en"]}}, [OneOf("lang", ("en", "de"))]),
        ({"y": {"gte": 1990, "lt": 2000}}, [Numbers("y", 1990.0, math.nextafter(2000.0, 0))]),
        ({"y": {"gt": 1990}}, [Numbers("y", UP, math.inf)]),
        ({"d": {"gt": "2020", "lte": "2021"}}, [Texts("d", "2020\0", "2021\0")]),
        ({"d": {"lt": "b"}}, [Texts("d", None, "b")]),
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
        ({"a": {}}, '"in", or one or two of gt, gte, lt, lte'),
        ({"a": {"in": []}}, "at least one value of 'a'"),
        ({"a": {"in": "en"}}, "a list of values of 'a'"),
        ({"a": {"in": [["x"]]}}, "a text, a number"),
        ({"a": {"in": ["x"], "gt": 3}}, '"in", or one or two'),
        ({"a": {"gt": 1, "gte": 2}}, '"in", or one or two'),
        ({"a": {"eq": 1}}, '"in", or one or two'),
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
        (["a=1", "a=2"], "'1' and '2'"),
        (["a>1", "a>=2"], '"in", or one or two'),
        (["a>1", "a>2"], "{'gt': 1.0} and {'gt': 2.0}"),
        (["a>1", "a in x"], "{'gt': 1.0} and {'in': ['x']}"),
        (["a>1", "a<x"], "all finite numbers, or all texts"),
        (["lang!=en"], "'lang!=en'"),
        (["lang != en"], "'lang != en'"),
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


def test_a_field_whose_name_ends_in_a_mark_is_given_in_json() -> None:
    with pytest.raises(InputError) as told:
        Filter.parse(["lang!=en"])
    assert told.value.remedy.options == [Option("filter", "lang in A,B")]
    assert """'{"lang!": "en"}'""" in told.value.remedy.parts
    assert Filter.parse(['{"lang!": "en"}']) == Filter((OneOf("lang!", ("en",)),))


def test_terms_of_long_values_differ_and_fit() -> None:
    terms = {term("f", "é" * n) for n in (127, 128, 129, 300, 301)} | {term("f", "é" * 300 + "x")}
    assert len(terms) == 6
    assert max(map(len, terms)) == 2 + 256
    assert all(one.decode() for one in terms)
