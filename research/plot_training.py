"""Draw the log of a training: losses, validation, terms a text.

python research/plot_training.py OUTPUT_FOLDER PLOT.png
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

WINDOW = 25


def curve(lines: list[dict[str, float]], name: str) -> tuple[list[float], np.ndarray]:
    """Return steps and values, the values averaged over neighbouring steps."""
    found = [(line["step"], line[name]) for line in lines if name in line]
    steps, values = [s for s, _ in found], np.array([v for _, v in found])
    width = min(WINDOW, len(values)) if name != "validation" else 1
    smooth = np.convolve(values, np.ones(width) / width, mode="valid") if width else values
    return steps[len(steps) - len(smooth) :], smooth


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("plot", type=Path)
    given = parser.parse_args()
    lines = [json.loads(line) for line in (given.folder / "log.jsonl").read_text().splitlines()]
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    groups = (("ranking", "loss"), ("validation",), ("terms", "paragraph_terms"))
    figure, axes = plt.subplots(1, len(groups), figsize=(12, 3.4), layout="constrained")
    for axis, names in zip(axes, groups, strict=True):
        for name in names:
            if any(name in line for line in lines):
                axis.plot(*curve(lines, name), label=name)
        axis.set(xlabel="step", title=", ".join(names))
        axis.grid(alpha=0.3)
        axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.1), ncols=len(names), frameon=False)
    axes[2].set_yscale("log")
    figure.savefig(given.plot, dpi=120)


if __name__ == "__main__":
    main()
