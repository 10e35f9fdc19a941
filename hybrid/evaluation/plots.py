"""Plots: matplotlib, where it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparta.base.errors import InputError
from sparta.base.files import check_place, storage_errors


def check_plot(path: Path | None) -> None:
    """Refuse, before the work, a place or a form in which no plot could be drawn at its end.

    :raises InputError: matplotlib is not installed, or does not know the form; there is no such folder.
    """
    if path is None:
        return
    known = _pyplot().Figure().canvas.get_supported_filetypes()
    if path.suffix and path.suffix[1:].lower() not in known:
        raise InputError(f"expected a plot as PNG, SVG or PDF, found {path.suffix}", where=str(path))
    check_place(path, "plot")


@contextmanager
def figure(path: Path, columns: int = 1, **options: Any) -> Iterator[Any]:
    """Yield axes (a list, of several columns) and save what was drawn, in a form that `check_plot` allows."""
    plt = _pyplot()
    drawn, axes = plt.subplots(1, columns, layout="constrained", **options)
    try:
        yield axes
        with storage_errors(path):
            drawn.savefig(path, dpi=120)
    finally:
        plt.close(drawn)


def _pyplot() -> Any:
    """Pyplot, drawing into files."""
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        raise InputError(
            "expected matplotlib for a plot, found none", remedy="pip install matplotlib"
        ) from None
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    return plt
