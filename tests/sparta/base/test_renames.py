"""Old names of arguments, attributes and keys work, and each use warns at the line that has it."""

import copy
import dataclasses
import inspect
import json
import pickle
import warnings
from typing import Any

import pytest

from sparta.base.renames import RenamedKeys, renamed_arguments, renamed_fields


@renamed_fields(width="columns", height="rows")
@dataclasses.dataclass(frozen=True, slots=True)
class Grid:
    columns: int
    rows: int = 1


class Record(RenamedKeys):
    new_keys = {"body": "text"}  # noqa: RUF012


@renamed_arguments(old="new")
def plain(value: int, new: int = 0) -> tuple[int, int]:
    """Return both."""
    return value, new


def warned(old: str, new: str) -> Any:
    return pytest.warns(DeprecationWarning, match=f"^{old} is now {new}$")


def test_arguments():
    old: dict[str, Any] = {"old": 2}
    with warned(r"plain\(old=…\)", r"plain\(new=…\)") as caught:
        assert plain(1, **old) == (1, 2)
    assert caught[0].filename == __file__
    assert plain.__doc__ == "Return both."
    assert list(inspect.signature(plain).parameters) == ["value", "new"]
    with pytest.raises(TypeError):
        plain(1, other=3)


def test_fields():
    made: Any = Grid
    with warned(r"Grid\(width=…\)", r"Grid\(columns=…\)"):
        grid = made(width=3)
    assert grid == Grid(3)
    with warned("Grid.width", "Grid.columns") as caught:
        assert grid.width == 3
    assert caught[0].filename == __file__
    with warned(r"Grid\(height=…\)", r"Grid\(rows=…\)"):
        assert dataclasses.replace(grid, height=5) == Grid(3, 5)


def test_new_names_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        grid = dataclasses.replace(Grid(columns=3), rows=2)
        assert (grid.columns, grid.rows, dataclasses.asdict(grid)) == (3, 2, {"columns": 3, "rows": 2})
        assert pickle.loads(pickle.dumps(grid)) == copy.copy(grid) == grid
        record = Record(id="a", text="moon")
        assert record["text"] == record.get("text") == "moon"
        assert (record.get("none"), record.get("none", 1), "none" in record) == (None, 1, False)
        assert json.loads(json.dumps(record)) == record == {"id": "a", "text": "moon"}


def test_keys():
    record = Record(id="a", text="moon")
    with warned("The key 'body'", "'text'") as caught:
        assert record["body"] == "moon"
    assert caught[0].filename == __file__
    with warned("The key 'body'", "'text'") as caught:
        assert record.get("body") == "moon"
    assert caught[0].filename == __file__
    assert "body" in record
    with pytest.raises(KeyError, match="none"):
        record["none"]
    with pytest.raises(KeyError, match="body"):
        Record(id="b")["body"]
