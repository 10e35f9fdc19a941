"""What a hybrid is worth on other sets than the one on which its α was chosen.

    python benchmarks/tuned_elsewhere.py [--base dense] [--alphas 0.1:2:0.1] [--candidates 10,20,50,100,200]
                                         [--normalization minmax] INDEX=SET [INDEX=SET …]

SET is what `hybrid eval --dataset` takes, INDEX what `sparta index` and `dense index` made of its corpus. On
each set alone α, and how many candidates each channel gives, are chosen as `hybrid tune` chooses them; the
hybrid is then measured on all. p is that of a paired t-test of RR against the better of the two channels of
the set, Holm over the hybrids that were tuned elsewhere; ↑ and ↓ say which way a difference below 0.05 goes.
A hybrid that was tuned on the set, or on one with the same questions, stands in square brackets, without p.
The last column is `hybrid tune`'s cross-validated RR of the set that was tuned on; it is empty where all its
questions are in one fold.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from pathlib import Path

from hybrid.evaluation.measures import against_best, shown_p
from hybrid.evaluation.questions import questions_of
from hybrid.evaluation.rankings import depth_of, search_all
from hybrid.evaluation.tables import Cell, Table
from hybrid.evaluation.testsets import QuestionSet
from hybrid.evaluation.tune import best_fusion, parse_alphas, tune
from hybrid.retrieval.channels import Channels
from hybrid.retrieval.fusion import NORMALIZATIONS, Fusion, formula
from sparta.base.checks import parse_numbers
from sparta.base.errors import InputError

MEASURE = "RR"


def column(index: Path, asked: QuestionSet, fusions: dict[str, Fusion], same: Collection[str]) -> list[str]:
    """RR of the channels, then that of the hybrid which each set chose; with p unless it is one of `same`."""
    channels = list(next(iter(fusions.values())).weights)
    with Channels(index, channels) as opened:
        depth = max(depth_of(one, MEASURE) for one in fusions.values())
        searched = search_all(opened, asked, depth)
    alone = [searched.measured(name, searched.runs[name], [MEASURE]) for name in channels]
    fused = {
        name: searched.measured(name, searched.fused(fusion), [MEASURE]) for name, fusion in fusions.items()
    }
    elsewhere = [one for name, one in fused.items() if name not in same]
    best = max(alone, key=lambda one: one.mean(MEASURE))
    _, chances = against_best([best, *elsewhere], MEASURE, among=[best])
    cells = [f"{100 * one.mean(MEASURE):.2f}" for one in alone]
    for name, one in fused.items():
        mean = one.mean(MEASURE)
        if name in same:
            cells.append(f"[{100 * mean:.2f}]")
            continue
        way = "" if chances[name] >= 0.05 else "*↑" if mean > best.mean(MEASURE) else "*↓"
        cells.append(f"{100 * mean:.2f} ({shown_p(chances[name])}{way})")
    return cells


def sets_of(pairs: Sequence[str]) -> dict[str, tuple[Path, QuestionSet]]:
    """Index and questions by the name of the set."""
    found: dict[str, tuple[Path, QuestionSet]] = {}
    for pair in pairs:
        index, equals, path = pair.partition("=")
        asked = questions_of(Path(path))
        if not equals or asked.name in found:
            raise InputError(
                f"expected INDEX=SET, each set once, found {pair}", remedy="indexes/selqa-dev=data/selqa-dev"
            )
        found[asked.name] = Path(index), asked
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", nargs="+", metavar="INDEX=SET")
    parser.add_argument("--base", choices=["dense", "sparta"], default="dense")
    parser.add_argument("--alphas", default="0.1:2:0.1")
    parser.add_argument("--candidates", default="10,20,50,100,200")
    parser.add_argument("--normalization", choices=list(NORMALIZATIONS), default="minmax")
    given = parser.parse_args(arguments)
    alphas, candidates = parse_alphas(given.alphas), parse_numbers(given.candidates, "candidates")
    sets = sets_of(given.pairs)
    start = Fusion({given.base: 1.0, "bm25": 1.0}, normalization=given.normalization)
    fusions: dict[str, Fusion] = {}
    validated: dict[str, str] = {}
    for name, (index, asked) in sets.items():
        with Channels(index, list(start.weights)) as channels:
            tuned = tune(channels, [asked], start, MEASURE, alphas=alphas, candidates=candidates)
        fusions[name] = best_fusion(start, tuned)
        validated[name] = f"{100 * tuned.cross_validated:.2f}" if tuned.folds else ""
    questions = {name: {q.text for q in asked.queries} for name, (_, asked) in sets.items()}
    columns = [
        column(index, asked, fusions, [other for other in sets if questions[name] & questions[other]])
        for name, (index, asked) in sets.items()
    ]
    settings: list[list[Cell]] = [[f"{name} alone", None, None] for name in start.weights]
    settings += [
        [f"tuned on {name}", f"{own.weights['bm25']:g}", own.candidates] for name, own in fusions.items()
    ]
    last: list[Cell] = [*[None] * len(start.weights), *validated.values()]
    rows = [
        [*setting, *cells, own]
        for setting, cells, own in zip(settings, zip(*columns, strict=True), last, strict=True)
    ]
    print(Table(["", "α", "candidates", *sets, "cross-validated"], rows).write("markdown"))
    rule = formula(start).partition("; ")[2].replace(f"{start.candidates} best", "best candidates")
    print(f"\nscore = {given.base} + α·bm25, α of {given.alphas}; {rule}")


if __name__ == "__main__":
    main()
