"""How much Ctrl-C loses while an index is built, and whether the same command with --resume continues.

    python benchmarks/interrupts.py [--passages 3000] [--seconds 30] [--runs 2]

Builds an index of passages that are drawn from the sentences of the example corpus, presses Ctrl-C after some
seconds, and resumes the index in the next run. Prints for each run the encoded passages, the kept ones, and
the seconds from Ctrl-C to the end of the command.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples" / "wiki.jsonl"
_RUN = """
import sys
from sparta.base.errors import Interrupted
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index

encoded = 0

def advance(count):
    global encoded
    if not encoded:
        print("encoding", flush=True)
    encoded += count

try:
    build_index(sys.argv[1], sys.argv[2], "create", IndexOptions(resume=True), advance=advance)
except Interrupted as stopped:
    print(encoded, stopped.kept)
"""


def write_corpus(path: Path, passages: int) -> None:
    """Write passages of four to eight sentences of the example corpus."""
    draw = random.Random(0)
    texts = [json.loads(line)["text"] for line in EXAMPLES.read_text(encoding="utf-8").splitlines()]
    sentences = [sentence for text in texts for sentence in text.split(". ")]
    with path.open("w", encoding="utf-8") as stream:
        for number in range(passages):
            text = ". ".join(draw.sample(sentences, draw.randint(4, 8)))
            stream.write(json.dumps({"id": f"p{number}", "text": text}) + "\n")


def interrupted(index: Path, corpus: Path, seconds: float) -> tuple[int, int, float]:
    """Build for some seconds after the first passage. Returns encoded and kept passages, and the wait."""
    with subprocess.Popen(
        [sys.executable, "-c", _RUN, str(index), str(corpus)], stdout=subprocess.PIPE, text=True
    ) as process:
        if process.stdout is None or process.stdout.readline() != "encoding\n":
            raise SystemExit("the index was complete before it could be interrupted")
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        pressed = time.monotonic()
        encoded, kept = map(int, process.stdout.readline().split())
        process.wait()
        return encoded, kept, time.monotonic() - pressed


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--passages", type=int, default=3000)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--runs", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        corpus, index, before = Path(folder) / "corpus.jsonl", Path(folder) / "index", 0
        write_corpus(corpus, arguments.passages)
        for run in range(1, arguments.runs + 1):
            encoded, kept, wait = interrupted(index, corpus, arguments.seconds)
            share = (kept - before) / encoded
            print(
                f"run {run}: {encoded} encoded, {kept - before} kept ({share:.1%}), Ctrl-C took {wait:.1f} s"
            )
            before = kept


if __name__ == "__main__":
    main()
