"""Chooses the weight of a reader of paths: passage EM of the questions that its training held out."""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from hybrid.evaluation.questions import questions_of
from hybrid.multihop.measures import covers
from hybrid.replications.path_examples import read_path_examples
from hybrid.replications.path_train import PathRecipe, split

WEIGHTS = (0.0, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 0.5, 1.0)


def write_questions(tasks: Path, mined: Path, output: Path) -> None:
    """Write the held-out questions as queries."""
    held = {one.question for one in split(read_path_examples(mined), PathRecipe().held_out)[1]}
    kept = [one for one in questions_of(tasks).queries if one.text in held]
    output.write_text("".join(json.dumps({"_id": one.query_id, "text": one.text}) + "\n" for one in kept))


def print_weights(tasks: Path, found: Path) -> None:
    """Print passage EM by weight, from paths that were read with a weight of 0."""
    paths = defaultdict(list)
    for line in found.read_text(encoding="utf-8").splitlines():
        path = json.loads(line)
        paths[path["query_id"]].append(path)
    gold = {q: [place.passage_ids for place in sets[0]] for q, sets in questions_of(tasks).evidence.items()}
    for weight in WEIGHTS:
        right = 0
        for query_id, own in paths.items():
            read = [path for path in own if "answer" in path]

            def score(path: dict[str, Any], weight: float = weight) -> float:
                return float(path["score"] + weight * sum(p["steps"]["read"] for p in path["passages"]))

            ids = [passage["id"] for passage in max(read, key=score)["passages"]]
            right += len(ids) == len(gold[query_id]) and covers(ids, gold[query_id])
        print(f"{weight:g}\t{100 * right / len(paths):.1f}")


def main() -> None:
    """`questions TASKS MINED OUTPUT`, or `weights TASKS PATHS`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["questions", "weights"])
    parser.add_argument("files", type=Path, nargs="+")
    given = parser.parse_args()
    (write_questions if given.what == "questions" else print_weights)(*given.files)


if __name__ == "__main__":
    main()
