"""Plots: matplotlib, where it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparta.base.errors import InputError


@contextmanager
def figure(path: Path, columns: int = 1, **options: Any) -> Iterator[Any]:
    """Yield axes (a list, of several columns) and save what was drawn; the name says in which form.

    :raises InputError: matplotlib is not installed, or does not know the form.
    """
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        raise InputError(
            "expected matplotlib for a plot, found none", remedy="pip install matplotlib"
        ) from None
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    drawn, axes = plt.subplots(1, columns, layout="constrained", **options)
    try:
        yield axes
        drawn.savefig(path, dpi=120)
    except ValueError as error:
        raise InputError(f"expected a plot as PNG, SVG or PDF: {error}", where=str(path)) from error
    finally:
        plt.close(drawn)
