"""Every channel and every hybrid of them, on indexes with all three channels, in one table.

    python benchmarks/channels.py --alpha 0.6 INDEX=SET [INDEX=SET …]

SET is what `hybrid eval --dataset` takes, INDEX what `sparta index` and `dense index` made of its corpus. α
is the weight of BM25, chosen on another set by `hybrid tune`; dense and sparta count alike. p is that of a
paired t-test of RR against the best single channel of the set, Holm over the rows of the set.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from hybrid.channels import CHANNELS, Channels
from hybrid.compare import compare, compare_table
from hybrid.fusion import Fusion
from hybrid.questions import questions_of


def fusions(alpha: float) -> list[Fusion]:
    """All hybrids of the three channels."""
    weighed = {"dense": 1.0, "sparta": 1.0, "bm25": alpha}
    together = (("dense", "bm25"), ("sparta", "bm25"), ("dense", "sparta"), ("dense", "sparta", "bm25"))
    return [Fusion({name: weighed[name] for name in names}) for names in together]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", nargs="+", metavar="INDEX=SET")
    parser.add_argument("--alpha", type=float, required=True)
    given = parser.parse_args()
    found = []
    for pair in given.pairs:
        index, _, questions = pair.partition("=")
        with Channels(Path(index), CHANNELS) as channels:
            found.append(compare(channels, questions_of(Path(questions)), fusions(given.alpha)))
    print(compare_table(found).write("markdown"))


if __name__ == "__main__":
    main()
