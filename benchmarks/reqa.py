"""Retrieval quality on BEIR folders: SPARTA's default model beside BM25 on the same index, in one run.

    python benchmarks/reqa.py FOLDER... [--model M] [--quick]

Each folder holds corpus.jsonl, queries.jsonl and qrels/test.tsv. Everything runs through the command line, as
a user would do it; measures come from ir_measures. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ir_measures
from ir_measures import RR, R, Success, nDCG

from sparta.data.trec import read_qrels

MEASURES = [RR, Success @ 1, R @ 20, nDCG @ 10]
QUICK_QUERIES = 200


def sparta(*arguments: str) -> float:
    """Run the command line; seconds it took."""
    started = time.monotonic()
    subprocess.run([sys.executable, "-m", "cli._sparta", *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - started


def measure(run: Path, qrels: dict[str, dict[str, int]]) -> list[float]:
    """The measures in percent, over all judged questions."""
    found = ir_measures.calc_aggregate(MEASURES, qrels, ir_measures.read_trec_run(str(run)))
    return [100 * found[m] for m in MEASURES]


def evaluate(folder: Path, extra: list[str], quick: bool, work: Path) -> list[str]:
    """Index one folder, search it in both channels; table rows."""
    qrels = read_qrels(folder / "qrels" / "test.tsv")
    queries = folder / "queries.jsonl"
    if quick:
        lines = queries.read_text(encoding="utf-8").splitlines(keepends=True)
        queries = work / "queries.jsonl"
        queries.write_text("".join(itertools.islice(lines, QUICK_QUERIES)), encoding="utf-8")
        kept = {line.split('"')[3] for line in lines[:QUICK_QUERIES]}
        qrels = {q: judged for q, judged in qrels.items() if q in kept}
    index = str(work / "index")
    seconds = sparta(
        "index", "--corpus", str(folder / "corpus.jsonl"), "--index", index, "--overwrite", *extra
    )
    rows = []
    for channel in ("impact", "bm25"):
        run = work / f"{channel}.trec"
        sparta(
            *("search", "--queries", str(queries), "--index", index, "--output", str(run)),
            *("-k", "100", "--threads", "2", "--channel", channel),
        )
        figures = " | ".join(f"{value:.1f}" for value in measure(run, qrels))
        rows.append(f"| {folder.name} | {channel} | {figures} | {seconds:.0f} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--top-k", type=int)
    parser.add_argument("--quick", action="store_true", help=f"the first {QUICK_QUERIES} questions only")
    given = parser.parse_args()
    extra = ["--quiet"]
    extra += ["--model", given.model] if given.model else []
    extra += ["--top-k", str(given.top_k)] if given.top_k else []
    print("| set | channel | MRR | Success@1 | R@20 | nDCG@10 | indexing (s) |")
    print("|---|---|---|---|---|---|---|")
    for folder in given.folders:
        with tempfile.TemporaryDirectory() as work:
            print("\n".join(evaluate(folder, extra, given.quick, Path(work))), flush=True)


if __name__ == "__main__":
    main()
