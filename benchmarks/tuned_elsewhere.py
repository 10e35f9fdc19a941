"""What a hybrid is worth on other sets than the one on which its α was chosen.

    python benchmarks/tuned_elsewhere.py [--base dense] [--alphas 0.1:2:0.1] [--candidates 10,20,50,100,200]
                                         INDEX=SET [INDEX=SET …]

SET is what `hybrid eval --dataset` takes, INDEX what `sparta index` and `dense index` made of its corpus. On
each set alone α, and how many candidates each channel gives, are chosen as `hybrid tune` chooses them; the
hybrid is then measured on all. p is that of a paired t-test of RR against the better of the two channels of
the set, Holm over the hybrids that were tuned elsewhere; ↑ and ↓ say which way a difference below 0.05 goes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from hybrid.channels import Channels
from hybrid.fusion import Fusion
from hybrid.measures import against_best
from hybrid.questions import QuestionSet, questions_of
from hybrid.searched import search_all
from hybrid.tables import Cell, Table
from hybrid.tune import chosen, parse_alphas, parse_candidates, tune

MEASURE = "RR"


def column(index: Path, asked: QuestionSet, fusions: dict[str, Fusion]) -> list[str]:
    """RR of the channels, then that of the hybrid which each set has chosen, with p."""
    channels = list(next(iter(fusions.values())).weights)
    with Channels(index, channels) as opened:
        searched = search_all(opened, asked, max(fusion.candidates for fusion in fusions.values()))
    alone = [searched.measured(name, searched.runs[name], [MEASURE]) for name in channels]
    fused = {
        name: searched.measured(name, fusion.fuse_runs(searched.runs), [MEASURE])
        for name, fusion in fusions.items()
    }
    elsewhere = [one for name, one in fused.items() if name != asked.name]
    best = max(alone, key=lambda one: one.mean(MEASURE))
    _, chances = against_best([best, *elsewhere], MEASURE, among=[best])
    cells = [f"{100 * one.mean(MEASURE):.2f}" for one in alone]
    for name, one in fused.items():
        mean = one.mean(MEASURE)
        if name == asked.name:
            cells.append(f"[{100 * mean:.2f}]")
            continue
        way = "" if chances[name] >= 0.05 else "*↑" if mean > best.mean(MEASURE) else "*↓"
        cells.append(f"{100 * mean:.2f} ({chances[name]:.3f}{way})")
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", nargs="+", metavar="INDEX=SET")
    parser.add_argument("--base", choices=["dense", "sparta"], default="dense")
    parser.add_argument("--alphas", type=parse_alphas, default="0.1:2:0.1")
    parser.add_argument("--candidates", type=parse_candidates, default="10,20,50,100,200")
    given = parser.parse_args()
    split = [pair.partition("=") for pair in given.pairs]
    sets = {
        asked.name: (Path(index), asked) for index, _, path in split for asked in [questions_of(Path(path))]
    }
    start = Fusion.with_alpha(given.base, 1.0)
    fusions: dict[str, Fusion] = {}
    for name, (index, asked) in sets.items():
        with Channels(index, list(start.weights)) as channels:
            tuned = tune(channels, [asked], start, MEASURE, alphas=given.alphas, candidates=given.candidates)
        fusions[name] = chosen(start, tuned)
    columns = [column(index, asked, fusions) for index, asked in sets.values()]
    settings: list[list[Cell]] = [[f"{name} alone", "", ""] for name in start.weights]
    settings += [
        [f"tuned on {name}", f"{own.weights['bm25']:g}", own.candidates] for name, own in fusions.items()
    ]
    rows = [[*setting, *cells] for setting, cells in zip(settings, zip(*columns, strict=True), strict=True)]
    print(Table(["", "α", "candidates", *sets], rows).write("markdown"))


if __name__ == "__main__":
    main()
