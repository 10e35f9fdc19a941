"""Old names of arguments, attributes and keys, which work for one release with a DeprecationWarning."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ClassVar


def renamed_arguments[**P, R](**new_names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function so that it also accepts old names of keyword arguments.

    An old name wins over the new name, so that `dataclasses.replace` accepts old names too.

    :param new_names: the new name of each old name
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        shown = function.__qualname__.removesuffix(".__init__")

        @functools.wraps(function)
        def accepts_old_names(*args: P.args, **kwargs: P.kwargs) -> R:
            for old in new_names.keys() & kwargs.keys():
                _warn(f"{shown}({old}=…)", f"{shown}({new_names[old]}=…)")
                kwargs[new_names[old]] = kwargs.pop(old)
            return function(*args, **kwargs)

        return accepts_old_names

    return decorate


def renamed_attributes[T: type](**new_names: str) -> Callable[[T], T]:
    """Decorate a class so that its attributes and methods can also be read under their old names.

    :param new_names: the new name of each old name
    """

    def decorate(owner: T) -> T:
        for old, new in new_names.items():
            setattr(owner, old, _alias(owner.__name__, old, new))
        return owner

    return decorate


def renamed_fields[T: type](**new_names: str) -> Callable[[T], T]:
    """Decorate a class so that its attributes and constructor arguments have old names too.

    :param new_names: the new name of each old name
    """

    def decorate(owner: T) -> T:
        constructor: Any = owner
        constructor.__init__ = renamed_arguments(**new_names)(constructor.__init__)
        return renamed_attributes(**new_names)(owner)

    return decorate


class RenamedKeys(dict[str, Any]):
    """A dictionary whose renamed keys can also be read under their old names."""

    new_keys: ClassVar[Mapping[str, str]] = {}
    """The new key of each old key."""

    def __missing__(self, key: str) -> Any:
        if key not in self:
            raise KeyError(key)
        _warn(f"The key {key!r}", repr(self.new_keys[key]))
        return super().__getitem__(self.new_keys[key])

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or super().__contains__(self.new_keys.get(str(key)))

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or the default."""
        if super().__contains__(key) or key not in self:
            return super().get(key, default)
        _warn(f"The key {key!r}", repr(self.new_keys[key]))
        return super().get(self.new_keys[key])


def _alias(owner: str, old: str, new: str) -> property:
    def read(self: object) -> Any:
        _warn(f"{owner}.{old}", f"{owner}.{new}")
        return getattr(self, new)

    return property(read)


def _warn(old: str, new: str) -> None:
    """Warn the caller of the function that called this one."""
    warnings.warn(f"{old} is now {new}", DeprecationWarning, stacklevel=3)
