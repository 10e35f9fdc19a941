"""A base class for objects with a `close` method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Self

from sparta.base.errors import SpartaError


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


class Unopened(Closing):
    """Stands for an object that could not be opened when it was unpickled; every use raises the error."""

    def __init__(self, error: SpartaError) -> None:
        self._error = error

    def __getattr__(self, name: str) -> NoReturn:
        raise self._error

    def __len__(self) -> NoReturn:
        raise self._error

    def __reduce__(self) -> tuple[object, ...]:
        return Unopened, (self._error,)

    def __deepcopy__(self, memo: dict[int, Any]) -> Unopened:
        return Unopened(self._error)

    def close(self) -> None:
        """Do nothing, because nothing is open."""


def open_again[T](create: Callable[..., T], *arguments: Any) -> T | Unopened:
    """Return `create(*arguments)` for unpickling, or an `Unopened` if it raises a SpartaError.

    Unpickling must not fail: a worker of `multiprocessing.Pool` would end without an answer.
    """
    try:
        return create(*arguments)
    except SpartaError as error:
        return Unopened(error)
