"""Compares the rows of research/skill_ablations.sh: each encoder's rankings, and differences of pairs."""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from hybrid.evaluation.answering import interval
from hybrid.evaluation.measures import Evaluation, holm, p_values
from hybrid.evaluation.results import SetResults, results_table
from hybrid.evaluation.tables import Table

PAIRS = (
    ("feed-forward", "none"),
    ("attention", "none"),
    ("attention", "naive"),
    ("none-pretrained", "none"),
    ("attention-pretrained", "attention"),
    ("attention-pretrained", "none-pretrained"),
)
MEASURES = ("passage_EM", "R@20")


def rankings_of(folder: Path) -> dict[str, Evaluation]:
    """Read the measures of every query that `hybrid eval --per-query` wrote, by ranking."""
    found: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    with (folder / "queries.jsonl").open(encoding="utf-8") as stream:
        for line in map(json.loads, stream):
            for measure in MEASURES:
                if measure in line:
                    found[line["ranking"]][measure][line["query_id"]] = line[measure]
    return {name: Evaluation(folder.name, per_query) for name, per_query in found.items()}


def pairs(name: str, encoders: Mapping[str, Evaluation]) -> list[list[str]]:
    """One row for each pair and measure: points, their 95 % interval, p (paired t-test, Holm)."""
    rows = []
    for measure in MEASURES:
        raw = [p_values(encoders[other], [encoders[one]], measure)[0] for one, other in PAIRS]
        for (one, other), p in zip(PAIRS, holm(raw), strict=True):
            first, second = encoders[one].per_query[measure], encoders[other].per_query[measure]
            differences = [100 * (first[q] - second[q]) for q in second]
            low, high = interval(differences)
            rows.append(
                [
                    name,
                    f"{one} − {other}",
                    measure,
                    f"{fmean(differences):+.1f}",
                    f"{low:+.1f} to {high:+.1f}",
                    f"{p:.3f}",
                ]
            )
    return rows


def main() -> None:
    """Print a table for each ranking, and one of the pairs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path, nargs="+", help="folders of the encoders")
    given = parser.parse_args()
    found = {folder.name: rankings_of(folder) for folder in given.rows}
    names = [name for name in next(iter(found.values())) if name != "bm25"]  # which no encoder changes
    sets = [SetResults(name, [own[name] for own in found.values()]) for name in names]
    for one in sets:
        print(results_table([one], MEASURES, label="encoder").write("markdown"))
    differences = [row for one in sets for row in pairs(one.name, {e.name: e for e in one.evaluations})]
    print(Table(["ranking", "pair", "measure", "points", "95 %", "p"], differences).write("markdown"))


if __name__ == "__main__":
    main()
