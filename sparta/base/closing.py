"""What is opened and must be closed, as a context manager."""

from __future__ import annotations

from typing import Self


class Closing:
    """Gives a class that has `close` the form `with …:`.

    A subclass that can be opened again in another process says how in `__reduce__`; others cannot be pickled
    or copied.
    """

    def close(self) -> None:
        """Let go of what is open."""
        raise NotImplementedError

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError(
            f"a {type(self).__name__} holds open files and cannot be pickled or copied:"
            " pass the path of its index folder, and open it there"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
