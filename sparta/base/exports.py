"""Public names of a package, each imported when it is used."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from sparta.base.extras import optional_packages


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package (PEP 562) whose names live in the modules `homes`.

    A home `module:other` is that of a name of an earlier release, which `other` has taken the place of.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, present = homes[name].partition(":")
        if present:
            warnings.warn(f"{package}.{name} is now {module}.{present}", DeprecationWarning, stacklevel=2)
        with optional_packages():
            return getattr(import_module(module), present or name)

    return get, lambda: sorted(homes)
