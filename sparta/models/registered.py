"""Models of other Python distributions, registered by the entry point group `sparta.models`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from sparta.base.errors import ModelError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "sparta.models"


def looks_like_path(name: str) -> bool:
    """Return whether a name can only be a path, and neither a registered name nor a hub id."""
    return Path(name).is_absolute() or name.startswith(("./", "../", "~")) or name.count("/") > 1


def local_folder(name: str | Path) -> Path:
    """Return the path itself, or the folder that is registered under the name.

    Entry points are scanned (about 80 ms) only if the name is not a folder and does not look like a path.

    :raises ModelError: the entry point fails, or returns no folder.
    """
    path = Path(name)
    if path.is_dir() or looks_like_path(str(name)):
        return path
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP, name=str(name)):
        return _provided(point)
    return path


def _provided(point: EntryPoint) -> Path:
    """Return the folder of an entry point, which is a path or a function that returns a path."""
    distribution = point.dist.name if point.dist else "unknown"
    where = f"{point.value} (distribution {distribution})"
    remedy = f"update or remove the distribution {distribution}, or name the model's folder"
    try:
        provided = point.load()
        provided = provided() if callable(provided) else provided
    except Exception as error:  # code of another distribution may fail in any way
        raise ModelError(
            f"the model {point.name!r} of the Python package {distribution} failed to load: {error!r}",
            where=where,
            remedy=remedy,
        ) from error
    if not isinstance(provided, str | os.PathLike) or not Path(provided).is_dir():
        raise ModelError(
            f"the model {point.name!r} of the Python package {distribution} is not a folder: {provided!r}",
            where=where,
            remedy=remedy,
        )
    return Path(provided)
