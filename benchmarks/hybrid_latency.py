"""How long a question waits for each channel of an index, and for their fusions, searched side by side.

    python benchmarks/hybrid_latency.py INDEX QUESTIONS [--number 200] [--candidates 100] [-k 10]

QUESTIONS is whatever `hybrid eval --dataset` takes. Questions are asked one at a time; each goes to all
channels and all fusions before the next comes, so that what else the machine does is shared by all; those
with the dense channel come last, since the threads of its encoder keep a processor for a while. A channel
alone is asked for its candidates, a fusion for its k best, as `hybrid search` does. Prints a Markdown table
of medians, and the wait for a fusion divided by that for the slowest of its channels alone. The bar is 1.3.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from statistics import median, quantiles

from hybrid.evaluation.compare import latencies
from hybrid.evaluation.questions import questions_of
from hybrid.retrieval.channels import Channels, channels_of
from hybrid.retrieval.fusion import Fusion

BAR = 1.3
FUSIONS = (("impact", "bm25"), ("dense", "bm25"), ("impact", "bm25", "dense"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("index", type=Path)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--number", type=int, default=200, help="questions that are timed")
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()

    texts = [q.text for q in questions_of(given.questions).sample(given.number).queries]
    names = channels_of(given.index)
    fusions = [
        Fusion(dict.fromkeys(wanted, 1.0), candidates=given.candidates)
        for wanted in FUSIONS
        if set(wanted) <= set(names)
    ]
    with Channels(given.index, names) as channels:
        passages = channels.searchers["bm25"].num_docs
        times = latencies(channels, texts, fusions, k=given.k, rounds=given.rounds)
    joined = {fusion.label: fusion.weights for fusion in fusions}
    middle = {name: median(own) for name, own in times.items()}
    print(
        f"{passages:,} passages, {len(texts)} questions × {given.rounds}, {given.candidates} candidates,"
        f" {os.cpu_count()} processors"
    )
    print("\n| | median ms | 90 of 100 below | times the slowest channel |\n|---|---|---|---|")
    for name, own in times.items():
        ratio = ""
        if name in joined:
            against = middle[name] / max(middle[channel] for channel in joined[name])
            ratio = f"{against:.2f}{'' if against <= BAR else ' (above the bar)'}"
        print(f"| {name} | {middle[name]:.2f} | {quantiles(own, n=10)[-1]:.2f} | {ratio} |")


if __name__ == "__main__":
    main()
