"""A bar that remembers what it is told."""

from __future__ import annotations

from typing import Any

import pytest


class Bar:
    """In the place of tqdm's."""

    def __init__(self, total: int | None = None, initial: int = 0, **options: Any) -> None:
        self.total, self.n, self.options = total, initial, options
        self.postfix, self.closed = "", False

    def update(self, count: int) -> None:
        self.n += count

    def set_postfix_str(self, text: str, refresh: bool = True) -> None:
        self.postfix = text

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[Bar]:
    """The bars that are shown."""
    shown: list[Bar] = []

    def bar(**options: Any) -> Bar:
        shown.append(Bar(**options))
        return shown[-1]

    monkeypatch.setattr("tqdm.tqdm", bar)
    return shown
