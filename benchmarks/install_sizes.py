"""Prints how many MB each extra adds to the base package.

The sizes are those of the installed files of all packages that an extra needs and the base package does not,
in the environment that runs this script, without bytecode. `make dev` installs all extras.

    python benchmarks/install_sizes.py
"""

from __future__ import annotations

import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement

PACKAGE = "sparta-search"
FOR_DEVELOPERS = "dev"


def main() -> int:
    """Print the table; return 1 if the package of an extra is missing here."""
    sparta = distribution(PACKAGE)
    base = packages_of(sparta, "")
    extras = [name for name in sparta.metadata.get_all("Provides-Extra") or [] if name != FOR_DEVELOPERS]
    print(f"base package: {sum(map(megabytes, base.values())):,.0f} MB\n\n| extra | adds, MB |\n|---|---:|")
    missing = False
    for extra in extras:
        packages = packages_of(sparta, extra)
        if lacking := sorted(name for name, package in packages.items() if package is None):
            print(f"| `{extra}` | not installed: {', '.join(lacking)} |")
            missing = True
            continue
        added = [package for name, package in packages.items() if name not in base]
        print(f"| `{extra}` | {sum(map(megabytes, added)):,.0f} |")
    return int(missing)


def packages_of(start: Distribution, extra: str) -> dict[str, Distribution | None]:
    """Return all packages that a package with an extra needs, by name; None for those not installed here."""
    packages: dict[str, Distribution | None] = {}
    waiting, seen = [(start, extra)], {(start.name, extra)}
    while waiting:
        needing, wanted_extra = waiting.pop()
        for line in needing.requires or []:
            requirement = Requirement(line)
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": wanted_extra}):
                continue
            name = requirement.name.lower().replace("_", "-")
            needed = start if name == PACKAGE else installed(name)
            if name != PACKAGE:
                packages[name] = needed
            for each in ("", *requirement.extras):
                if needed is not None and (name, each) not in seen:
                    seen.add((name, each))
                    waiting.append((needed, each))
    return packages


def installed(name: str) -> Distribution | None:
    """Return an installed package, or None."""
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def megabytes(package: Distribution | None) -> float:
    """Return the size of the installed files of a package in MB (2**20 bytes)."""
    paths = (package.locate_file(file) for file in (package.files or [])) if package is not None else ()
    return sum(path.stat().st_size for path in paths if path.exists()) / 2**20  # type: ignore[attr-defined]


if __name__ == "__main__":
    sys.exit(main())
