"""The tables and the plot of msmarco_size.py. Other benchmarks print their tables with `print_table`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernel import DEPTHS

NAMES = {
    "sparta": "sparta",
    "beside": "the other checkout",
    "lucene": "sparta, Lucene's format",
    "pyserini": "Pyserini",
}
COLUMNS = ("10/1", "10/2", "10/p50", "10/p99", "1000/1", "1000/2", "first", "cold first", "cold", "memory")
HEADS = (
    *("top 10", "two threads", "p50", "p99", "top 1000", "two threads"),
    *("first", "cold: first", "cold: mean", "memory MB"),
)


def extrapolated(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add the engines that a size lacks, in proportion to their last measured size."""
    known: dict[str, tuple[int, dict[str, float]]] = {}
    filled = []
    for result in results:
        engines = dict(result["engines"])
        for name, (documents, row) in known.items():
            if name not in engines:
                factor = result["documents"] / documents
                engines[name] = {key: row[key] * factor for key in row if key[0] == "1" and "p" not in key}
                engines[name]["extrapolated"] = 1.0
        known |= {n: (result["documents"], r) for n, r in engines.items() if "extrapolated" not in r}
        filled.append({**result, "engines": engines})
    return filled


def print_tables(results: list[dict[str, Any]]) -> None:
    """Print Markdown tables of times, ratios, sizes and changes."""
    rows: list[list[str]] = []
    for result in extrapolated(results):
        for name, row in result["engines"].items():
            mark = "≈ " if "extrapolated" in row else ""
            cells = [mark + _number(row[key]) if key in row else "–" for key in COLUMNS]
            rows.append([f"{result['documents']:,}", NAMES[name], *cells])
    print_table(["documents", "engine", *HEADS], rows)
    rows = []
    for result in results:
        if "beside" in result["engines"]:
            ours, other = (result["engines"][name] for name in ("sparta", "beside"))
            ratios = [f"{ours[key] / other[key]:.2f}" for key in ("10/1", "10/2", "1000/1", "1000/2")]
            rows.append([f"{result['documents']:,}", *ratios])
    heads = ["top 10", "two threads", "top 1000", "two threads"]
    print_table(["documents", *(f"ratio, {head}" for head in heads)], rows)
    rows = [
        [
            f"{result['documents']:,}",
            codec,
            f"{row['postings']:,}",
            f"{row['GB']:.3f}",
            f"{row['GB'] * 1e9 / row['postings']:.2f}",
            f"{row['rate'] / 1e6:.1f}",
            f"{row['minutes']:.1f}",
            f"{row['memory']:,.0f}",
        ]
        for result in results
        for codec, row in result["built"].items()
    ]
    heads = ["documents", "format", "postings", "GB", "bytes per posting"]
    print_table([*heads, "M postings per processor second", "minutes", "memory MB"], rows)
    rows = [
        [
            f"{result['documents']:,}",
            row["step"],
            f"{row['commit']:.2f}",
            f"{row['refresh']:.3f}",
            _number(row["ms"]),
            f"{row['ms'] / result['changed'][0]['ms']:.2f}",
            f"{row['disk']:.2f}" if "disk" in row else "",
        ]
        for result in results
        for row in result["changed"]
    ]
    heads = ["documents", "change", "commit s", "open and first query s", "top 10", "ratio to as built"]
    print_table([*heads, "most disk, ratio to as built"], rows)


def print_table(heads: list[str], rows: list[list[str]]) -> None:
    """Print a Markdown table; nothing without rows."""
    if rows:
        print("\n" + "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows)))


def _number(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def draw(results: list[dict[str, Any]], plot: Path) -> None:
    """Draw time and size against the number of documents."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (times, sizes) = plt.subplots(1, 2, figsize=(12, 3.8), layout="constrained")
    for name, label in NAMES.items():
        for k, style in zip(DEPTHS, ("-", "--"), strict=True):
            measured = [r for r in results if name in r["engines"]]
            points = [(r["documents"], r["engines"][name][f"{k}/1"]) for r in measured]
            if points:
                look = {"color": f"C{list(NAMES).index(name)}", "marker": "o", "label": f"{label}, top {k}"}
                times.loglog(*zip(*points, strict=True), style, **look)
    for codec, label in (("fast", "sparta's format"), ("lucene", "Lucene's format")):
        points = [(r["documents"], r["built"][codec]["GB"]) for r in results if codec in r["built"]]
        if points:
            sizes.loglog(*zip(*points, strict=True), marker="o", label=label)
    times.set(xlabel="documents", ylabel="mean ms/query, one thread")
    sizes.set(xlabel="documents", ylabel="index, GB")
    for axis in (times, sizes):
        axis.grid(which="major", alpha=0.3)
    times.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    sizes.legend(frameon=False, fontsize=8)
    figure.savefig(plot, dpi=120)
    print(f"plot: {plot}")
