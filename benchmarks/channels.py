"""Every channel and every hybrid of them, on indexes with all three channels, in one table.

    python benchmarks/channels.py --alpha 0.6 INDEX=SET [INDEX=SET …]

SET is what `hybrid eval --dataset` takes, INDEX what `sparta index` and `dense index` made of its corpus. α
is the weight of BM25, chosen on another set by `hybrid tune`; dense and sparta count alike. p is that of a
paired t-test of RR against the best single channel of the set, Holm over the rows of the set.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from hybrid.evaluation.compare import compare, timed
from hybrid.evaluation.questions import questions_of
from hybrid.evaluation.results import results_table
from hybrid.retrieval.channels import CHANNELS, Channels
from hybrid.retrieval.fusion import Fusion, all_fusion_weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", nargs="+", metavar="INDEX=SET")
    parser.add_argument("--alpha", type=float, required=True)
    given = parser.parse_args()
    fusions = [Fusion(weights) for weights in all_fusion_weights(CHANNELS, given.alpha)]
    found = []
    for pair in given.pairs:
        index, _, questions = pair.partition("=")
        asked = questions_of(Path(questions))
        with Channels(Path(index), CHANNELS) as channels:
            found.append(timed(compare(channels, asked, fusions), channels, asked, fusions))
    print(results_table(found).write("markdown"))


if __name__ == "__main__":
    main()
