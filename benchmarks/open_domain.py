"""Open-domain question answering on a large corpus: every channel and hybrid, in one table.

    python benchmarks/open_domain.py --corpus passages.jsonl.gz --tune nq.dev.tsv \
        --test trivia.dev.tsv wq.test.tsv --regex curated.test.tsv --work DIR [--sample 1000] [--minutes M]

Runs the commands that a user would: `sparta encode`, `dense encode`, `sparta index --vectors`, `dense index
--vectors`. Encoding takes hours on a CPU: with --minutes it is interrupted after so many, and the same
command goes on from there another day. How long each piece took is kept in DIR/rates.json. When all is
encoded, α is tuned on the first set only (0.5 to 2.0, step 0.1, answer_recall@20; TASER, §4.3), for the dense
and the sparta base each, and all channels and hybrids are measured on all sets: answer_recall@20 and @100.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from hybrid.channels import CHANNELS, Channels
from hybrid.compare import compare, compare_table
from hybrid.fusion import Fusion
from hybrid.questions import Asked, questions_of
from hybrid.tables import Table
from hybrid.tune import chosen, tune

MEASURE = "answer_recall@20"


def command(program: str, *arguments: object, seconds: float | None = None) -> bool:
    """Run one of our commands; whether it came to its end before it was interrupted."""
    words = [sys.executable, "-m", f"cli._{program}", *map(str, arguments)]
    print("$", program, *words[3:], file=sys.stderr, flush=True)
    with subprocess.Popen(words) as process:
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            process.wait()
            return False
    if status:
        raise SystemExit(status)
    return True


def encode(given: argparse.Namespace, program: str, deadline: float | None) -> bool:
    """Encode what is missing, until the deadline; whether all is there. rates.json says what it took."""
    output, rates = given.work / program, given.work / "rates.json"
    left = None if deadline is None else deadline - time.monotonic()
    if left is not None and left <= 0:
        return False
    before, started = len(list(output.glob("shard-*"))), time.monotonic()
    options = ["--output", output, "--shard-size", given.shard_size, "--resume"]
    try:
        return command(program, "encode", "--corpus", given.corpus, *options, seconds=left)
    finally:
        shards = len(list(output.glob("shard-*"))) - before
        known = json.loads(rates.read_text()) if rates.is_file() else {}
        if shards or not before:  # not where all was there
            piece = {"shards": shards, "seconds": round(time.monotonic() - started, 1)}
            rates.write_text(json.dumps({**known, program: [*known.get(program, []), piece]}, indent=1))


def rates_table(work: Path, passages: int) -> Table:
    """How fast each channel was encoded, over all pieces."""
    rows = []
    for program, pieces in json.loads((work / "rates.json").read_text()).items():
        seconds = sum(piece["seconds"] for piece in pieces)
        rows.append([program, len(pieces), seconds / 3600, passages / seconds])
    return Table(["encoded by", "pieces", "hours", "passages a second"], rows, digits=2)


def asked_of(path: Path, given: argparse.Namespace) -> Asked:
    """A fixed sample of a set."""
    asked = questions_of(path).sample(given.sample)
    return replace(asked, match="regex") if path in given.regex else asked


def measure(given: argparse.Namespace, index: Path) -> None:
    """Tune on the first set, measure on all, print the tables."""
    sets = [asked_of(path, given) for path in (given.tune, *given.test, *given.regex)]
    development = sets[0]
    with Channels(index, CHANNELS) as channels:
        fusions = []
        for base in ("dense", "sparta"):
            fusion = Fusion.with_alpha(base, 1.0)
            fusions.append(chosen(fusion, tune(channels, [development], fusion, MEASURE)))
        fusions += [Fusion({"dense": 1.0, "sparta": 1.0})]
        three = Fusion({"dense": 1.0, "sparta": 1.0, "bm25": 1.0})
        fusions += [chosen(three, tune(channels, [development], three, MEASURE))]
        found = [compare(channels, one, fusions) for one in sets]
        passages = channels.searchers["bm25"].num_docs
    for one in sets:
        print(f"{one.name}: {len(one.queries):,} questions")
    print(
        f"\n{compare_table(found).write('markdown')}\n\n{rates_table(given.work, passages).write('markdown')}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument(
        "--tune", type=Path, required=True, help="questions with answers on which α is chosen"
    )
    parser.add_argument("--test", type=Path, nargs="*", default=[], help="other sets to measure on")
    parser.add_argument(
        "--regex", type=Path, nargs="*", default=[], help="sets whose answers are expressions"
    )
    parser.add_argument("--work", type=Path, required=True, help="folder for shards, index and rates")
    parser.add_argument("--sample", type=int, default=1000, help="questions of each set")
    parser.add_argument("--shard-size", type=int, default=2048, help="passages that an interruption may lose")
    parser.add_argument("--minutes", type=float, help="interrupt the encoding after so many")
    given = parser.parse_args()

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background would ignore it
    given.work.mkdir(parents=True, exist_ok=True)
    deadline = None if given.minutes is None else time.monotonic() + 60 * given.minutes
    if not all(encode(given, program, deadline) for program in ("sparta", "dense")):
        print("not all passages are encoded yet: repeat the command", file=sys.stderr)
        raise SystemExit(3)
    index = given.work / "index"
    command("sparta", "index", "--vectors", given.work / "sparta", "--index", index, "--resume")
    command("dense", "index", "--index", index, "--vectors", given.work / "dense")
    measure(given, index)


if __name__ == "__main__":
    main()
