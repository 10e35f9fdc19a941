"""A base class for objects with a `close` method."""

from __future__ import annotations

from typing import Self


class Closing:
    """Base class that turns an object with a `close` method into a context manager.

    Instances cannot be pickled or copied, unless the subclass defines `__reduce__`, which tells another
    process how to open the object again.
    """

    def close(self) -> None:
        """Release all resources."""
        raise NotImplementedError

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled or copied:"
            " make a new one in the other process, for example from the path of the index folder"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
