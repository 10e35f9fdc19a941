"""What is opened and must be closed, as a context manager."""

from __future__ import annotations

from typing import Self


class Closing:
    """Gives a class that has `close` the form `with …:`."""

    def close(self) -> None:
        """Let go of what is open."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
