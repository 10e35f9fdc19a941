"""How long a question waits for a chain, step by step; questions per second; memory.

    python benchmarks/chains.py INDEX QUESTIONS [--chain hop] [--number 200] [--threads 2]

QUESTIONS is whatever `hybrid eval --dataset` takes. The last 50 warm Java and the page cache, untimed; then
questions are asked one at a time. For the throughput, threads ask different questions of one searcher. Memory
is the peak of the process, Java's heap included. Prints a Markdown table of medians. The bar is 0.3 s for two
hops.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median, quantiles

from hybrid.evaluation.questions import questions_of
from hybrid.multihop.searcher import ChainSearcher

BAR = 0.3
WARMING = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("index", type=Path)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--chain", default="hop")
    parser.add_argument("--number", type=int, default=200, help="questions that are timed")
    parser.add_argument("--threads", type=int, default=2, help="that ask side by side")
    given = parser.parse_args()

    texts = [q.text for q in questions_of(given.questions).queries]
    began = time.perf_counter()
    with ChainSearcher(given.chain, given.index) as searcher:
        opened = time.perf_counter() - began
        for text in texts[-WARMING:]:
            searcher.find_paths(text)
        found = [searcher.find_paths(text).seconds for text in texts[: given.number]]
        began = time.perf_counter()
        with ThreadPoolExecutor(given.threads) as pool:
            list(pool.map(searcher.find_paths, texts[: given.number]))
        rate = len(found) / (time.perf_counter() - began)
        passages = searcher.num_docs
    own = [sum(seconds.values()) for seconds in found]
    verdict = "within" if median(own) <= BAR else "above"
    print(
        f"{passages:,} passages, {len(found)} questions, chain {given.chain}, {os.cpu_count()} processors\n"
    )
    print("| step | median ms | 90 of 100 below |\n|---|---|---|")
    for name in found[0]:
        print(f"| {name} | {_row([seconds[name] for seconds in found])} |")
    print(f"| all | {_row(own)} |\n")
    print(f"{median(own):.3f} s a question, {verdict} the bar of {BAR} s; opened in {opened:.1f} s")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{rate:.1f} questions/s with {given.threads} threads; {peak:,.0f} MiB at most")


def _row(seconds: list[float]) -> str:
    return f"{1000 * median(seconds):.1f} | {1000 * quantiles(seconds, n=10)[-1]:.1f}"


if __name__ == "__main__":
    main()
