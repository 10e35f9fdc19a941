"""Observes calls of functions, which run as ever."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import pytest


@pytest.fixture
def calls() -> Iterator[Callable[..., list[tuple[str, dict[str, Any]]]]]:
    """A function `(*functions) -> list`: name and arguments of each later call. The functions run as ever."""
    monitoring, tool = sys.monitoring, 4
    names: dict[CodeType, str] = {}
    recorded: list[tuple[str, dict[str, Any]]] = []

    def record(code: CodeType, _offset: int) -> None:
        here = inspect.currentframe()
        assert here is not None
        assert here.f_back is not None
        recorded.append((names[code], dict(here.f_back.f_locals)))

    def watch(*functions: Any) -> list[tuple[str, dict[str, Any]]]:
        for function in functions:
            code = inspect.unwrap(function).__code__
            names[code] = function.__name__
            monitoring.set_local_events(tool, code, monitoring.events.PY_START)
        return recorded

    monitoring.use_tool_id(tool, "calls")
    monitoring.register_callback(tool, monitoring.events.PY_START, record)
    yield watch
    for code in names:
        monitoring.set_local_events(tool, code, 0)
    monitoring.register_callback(tool, monitoring.events.PY_START, None)
    monitoring.free_tool_id(tool)
