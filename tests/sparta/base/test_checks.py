"""Queries, ids, counts, numbers and paths as callers give them."""

from __future__ import annotations

from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybrid
import sparta
from sparta.base.checks import (
    fraction,
    limit,
    parse_numbers,
    path_of,
    paths_of,
    plain_number,
    queries_of,
    query_of,
    whole,
)
from sparta.base.errors import IndexStateError, InputError


def test_lists_generators_and_views() -> None:
    asked = {"a": "red fox", "b": "moon"}
    expected = (["red fox", "moon"], ["a", "b"])
    assert queries_of(list(asked.values()), list(asked)) == expected
    assert queries_of((q for q in asked.values()), (i for i in asked)) == expected
    assert queries_of(asked.values(), asked.keys()) == expected
    assert queries_of(np.array(["red", "fox"])) == (["red", "fox"], ["0", "1"])
    assert queries_of([], []) == ([], [])


@pytest.mark.parametrize(
    ("queries", "ids", "said"),
    [
        ("red", None, "a list of queries, found str"),
        ({"q1": "red fox"}, None, "a list of queries, found dict"),
        (b"red", None, "a list of queries, found bytes"),
        (None, None, "a list of queries, found NoneType"),
        ([None], None, "NoneType at position 0"),
        (["red", 1], None, "int at position 1"),
        ([b"x"], None, "bytes at position 0"),
        (["\ud800"], None, "lone surrogate"),
        (["red"], "a", "a list of query ids, found str"),
        (["red"], {"a": 1}, "a list of query ids, found dict"),
        (["red"], [None], "NoneType at position 0"),
        (["red"], [], "0 ids and 1 queries"),
        (["red", "fox"], ["a", "a"], "the query id 'a' appears more than once"),
    ],
)
def test_what_is_no_list_of_queries(queries: Any, ids: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        queries_of(queries, ids)


def test_a_dictionary_is_told_how_to_ask() -> None:
    with pytest.raises(InputError) as refused:
        queries_of({"q1": "red fox"})
    remedy = str(refused.value.remedy)
    assert "pass two lists: list(queries.values()), list(queries)" in remedy
    assert "run(" not in remedy, "batch_search and the readers of answers refuse it too"


@pytest.mark.parametrize(
    ("query", "said"), [(None, "found NoneType"), (["q"], "found list"), ("\ud800", "lone surrogate")]
)
def test_what_is_no_query(query: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        query_of(query)


def test_comma_separated_numbers() -> None:
    assert parse_numbers("20, 100", "depths") == (20, 100)
    for text in ("", "0", "-1", "1.5", "10,", "ten", "²", "9" * 10, "9" * 5000):
        with pytest.raises(InputError, match="from 1 to 999,999,999"):
            parse_numbers(text, "depths")
    with pytest.raises(InputError, match="from 2 to") as refused:
        parse_numbers("1,3", "shots", least=2)
    advice: Any = refused.value.remedy
    assert "--shots 20,50,100" in advice.for_command_line()


@pytest.mark.parametrize("given", [None, 2.5, "2", True, -1, 0])
def test_what_is_no_count(given: Any) -> None:
    with pytest.raises(InputError, match=r"n must be (a whole number|at least 1), found"):
        whole("n", given)


def test_counts() -> None:
    assert [whole("n", np.int64(3)), whole("n", 0, 0), limit("n", None), limit("n", 2)] == [3, 0, None, 2]


@pytest.mark.parametrize("given", [None, "1", True, -0.1, 1.1, float("nan")])
def test_what_is_no_fraction(given: Any) -> None:
    with pytest.raises(InputError, match="expected a weight from 0 to 1, found"):
        fraction("a weight", given)


def test_numbers_of_others() -> None:
    found = [plain_number(one) for one in (np.int64(3), np.float32(0.5), Fraction(1, 4))]
    assert (found, [type(one) for one in found]) == ([3, 0.5, 0.25], [int, float, float])
    with pytest.raises(TypeError, match="set"):
        plain_number({1})


def test_paths() -> None:
    assert paths_of(["a", Path("b")], "files") == [path_of("a", "a file"), Path("b")]
    for wrong in (5, None, ["a"]):
        with pytest.raises(InputError, match="expected the path of a file, found"):
            path_of(wrong, "a file")
    with pytest.raises(InputError, match="a list of paths of files, found str"):
        paths_of("a", "files")


@pytest.mark.parametrize(
    "name",
    [
        "sparta.train_model",
        "sparta.train_reader",
        "hybrid.train_path_reader",
        "dense.train_dense",
        "dense.train_in_two_stages",
        "dense.train_skills",
    ],
)
def test_the_folder_of_a_training_may_be_a_text(name: str, tmp_path: Path) -> None:
    library, function = name.split(".")
    (tmp_path / "file").touch()
    with pytest.raises(IndexStateError, match="output folder already contains files"):
        getattr(import_module(library), function)([], None, str(tmp_path))


@pytest.mark.parametrize(
    ("library", "name", "recipe"),
    [(sparta, "train_reader", "ReaderRecipe"), (hybrid, "train_path_reader", "PathRecipe")],
)
def test_files_of_a_training_may_be_texts(library: Any, name: str, recipe: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        getattr(library, name)([str(tmp_path / "no.jsonl")], getattr(library, recipe)(), tmp_path / "out")
