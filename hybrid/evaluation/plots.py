"""Draws plots with matplotlib, if it is installed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparta.base.errors import InputError
from sparta.base.files import check_output_file, storage_errors


def check_plot(path: Path | None) -> None:
    """Raise if a plot could not be written to a path; runs before the long work.

    :raises InputError: matplotlib is not installed or does not support the file format, or the folder does
        not exist.
    """
    if path is None:
        return
    formats = _pyplot().Figure().canvas.get_supported_filetypes()
    if path.suffix and path.suffix[1:].lower() not in formats:
        raise InputError(
            f"a plot is written as PNG, SVG or PDF, found the suffix {path.suffix}", where=str(path)
        )
    check_output_file(path, "plot")


@contextmanager
def figure(path: Path, columns: int = 1, **options: Any) -> Iterator[Any]:
    """Yield the axes of a new figure and save the figure; several columns give a list of axes.

    The file name's suffix decides the format; `check_plot` names the supported formats.
    """
    plt = _pyplot()
    new_figure, axes = plt.subplots(1, columns, layout="constrained", **options)
    try:
        yield axes
        with storage_errors(path):
            new_figure.savefig(path, dpi=120, bbox_inches="tight")
    finally:
        plt.close(new_figure)


def add_legend(*axes: Any) -> None:
    """Add one legend for several axes, to the right of the axes; an equal label appears once.

    The saved file becomes wider, so the legend hides nothing and the axes keep their size.
    """
    by_label = {
        label: handle
        for axis in axes
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    axes[0].figure.legend(
        by_label.values(),
        by_label.keys(),
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        frameon=False,
        fontsize=8,
    )


def colors(names: Iterable[str]) -> dict[str, str]:
    """Return matplotlib's color of each name, so that a ranking has the same color in all axes."""
    return {name: f"C{i}" for i, name in enumerate(dict.fromkeys(names))}


def _pyplot() -> Any:
    """Return pyplot with a backend that draws into files."""
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        raise InputError(
            "a plot needs matplotlib, which is not installed", remedy="pip install matplotlib"
        ) from None
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    return plt
