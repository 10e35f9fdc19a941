"""What several users have open at a time, replaced while they use it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from sparta.base.closing import Closing
from sparta.base.errors import IndexStateError


class Shared[View: Closing](Closing):
    """An index as one commit has it. A view that was replaced is closed when its last user lets go of it.

    :param where: what messages name
    """

    def __init__(self, view: View, where: str) -> None:
        self._view: View | None = view
        self._users: Counter[int] = Counter()
        self._lock, self._where = threading.Lock(), where
        self._held = threading.local()

    @contextmanager
    def reading(self) -> Iterator[View]:
        """Hold the present view open, whatever replaces it meanwhile; inside of `holding`, the one held.

        :raises IndexStateError: it was closed.
        """
        held: View | None = getattr(self._held, "view", None)
        if held is not None:
            yield held
            return
        with self._lock:
            view = self._view
            if view is None:
                raise IndexStateError("the index is closed", where=self._where, remedy="open it again")
            self._users[id(view)] += 1
        try:
            yield view
        finally:
            with self._lock:
                self._users[id(view)] -= 1
                unused = self._forgotten(view)
            if unused:
                view.close()

    @property
    def is_held(self) -> bool:
        """Whether this thread is inside of `holding`."""
        return getattr(self._held, "view", None) is not None

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Have this thread read one view alone until the block ends: docids hold for the view they are of.

        :raises IndexStateError: it was closed.
        """
        with self.reading() as view:
            before, self._held.view = getattr(self._held, "view", None), view
            try:
                yield
            finally:
                self._held.view = before

    def replace(self, new: View | None) -> None:
        """Take another view from now on; None closes it for good, and what is given after that at once."""
        with self._lock:
            old = self._view
            if old is None:
                unused = new
            else:
                self._view = new
                unused = old if self._forgotten(old) else None
        if unused is not None:
            unused.close()

    def close(self) -> None:
        """Release the index as soon as nobody uses it."""
        self.replace(None)

    def _forgotten(self, view: View) -> bool:
        """Whether a view was replaced and has no users; it is then no longer counted."""
        if view is self._view or self._users[id(view)]:
            return False
        del self._users[id(view)]
        return True
