"""Lazy imports for the public names of a package."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from sparta.base.extras import optional_packages


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions `__getattr__` and `__dir__` (PEP 562) of a package with lazily imported names.

    :param homes: the module of each public name. The form `module:new_name` marks a deprecated name, which
        was replaced by `new_name` of that module; using a deprecated name warns, and `__dir__` omits it.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, new_name = homes[name].partition(":")
        if new_name:
            warnings.warn(f"{package}.{name} is now {module}.{new_name}", DeprecationWarning, stacklevel=2)
        with optional_packages():
            return getattr(import_module(module), new_name or name)

    return get, lambda: sorted(name for name, home in homes.items() if ":" not in home)
