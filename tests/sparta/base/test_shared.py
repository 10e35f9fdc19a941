"""A view is closed once, when it was replaced and nobody uses it."""

from __future__ import annotations

from threading import Thread

import pytest

from sparta.base.closing import Closing
from sparta.base.errors import IndexStateError
from sparta.base.shared import Shared


class View(Closing):
    """Counts how often it is closed."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_a_view_outlives_its_replacement_until_its_last_user_lets_go() -> None:
    first, second = View(), View()
    shared = Shared(first, "here")
    with shared.reading() as one:
        with shared.reading() as other:
            shared.replace(second)
            assert one is other is first
        assert first.closed == 0
        with shared.reading() as newer:
            assert newer is second
    assert (first.closed, second.closed) == (1, 0)
    with shared.reading():
        shared.close()
        assert second.closed == 0
    assert second.closed == 1
    shared.close()
    assert (first.closed, second.closed) == (1, 1)
    with pytest.raises(IndexStateError, match="here"), shared.reading():
        pass


def test_a_thread_that_holds_a_view_reads_no_other() -> None:
    first, second = View(), View()
    shared = Shared(first, "here")
    seen: list[View] = []

    def look() -> None:
        with shared.reading() as view:
            seen.append(view)

    with shared.holding():
        with shared.holding():
            shared.replace(second)
        look()
        other = Thread(target=look)
        other.start()
        other.join()
        assert first.closed == 0
    assert first.closed == 1
    look()
    assert seen == [first, second, second]


def test_a_view_that_comes_after_the_end_is_closed() -> None:
    """As of a thread that was opening it meanwhile."""
    first, late = View(), View()
    shared = Shared(first, "here")
    shared.close()
    shared.replace(late)
    assert (first.closed, late.closed) == (1, 1)
    with pytest.raises(IndexStateError, match="the index is closed"), shared.reading():
        pass


def test_a_view_that_nobody_uses_is_closed_at_once() -> None:
    view = View()
    with Shared(view, ""), pytest.raises(ZeroDivisionError):
        raise ZeroDivisionError
    assert view.closed == 1
