"""How fast a question's passages are read, beside a plain loop of transformers over the same passages.

    python benchmarks/reading.py --index INDEX --queries nq.test.tsv [--questions 40] [--depth 10]

Three ways take turns at each question: all its passages are read; they are read as `sparta answer` does,
which leaves out those that cannot win; transformers' BertForQuestionAnswering, with the same weights, reads
one window at a time. Medians of ms/question.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import torch
from transformers import BertConfig, BertForQuestionAnswering

from hybrid import open_answerer, questions_of
from sparta.base.records import Hit
from sparta.reader.config import reader_folder
from sparta.reader.records import Text, text_of
from sparta.reader.span_reader import SpanReader, padded


def plain(model: SpanReader) -> BertForQuestionAnswering:
    """The same weights in transformers' own class."""
    peer = BertForQuestionAnswering(BertConfig(**model.encoder_config)).eval()
    state = {f"bert.{name}": tensor for name, tensor in model.encoder.state_dict().items()}
    peer.load_state_dict({**state, **{f"qa_outputs.{n}": t for n, t in model.spans.state_dict().items()}})
    return peer


def read_one_by_one(
    peer: BertForQuestionAnswering, model: SpanReader, question: str, texts: Sequence[Text]
) -> int:
    """The passage with the highest sum of a start and an end."""
    best: list[float] = []
    for text in texts:
        highest = -float("inf")
        for window in model.windows(question, [text]):
            ids, mask, segments, readable = padded([window])
            found = peer(input_ids=ids, attention_mask=mask, token_type_ids=segments)
            scores = torch.stack([found.start_logits, found.end_logits]).masked_fill(~readable, -torch.inf)
            highest = max(highest, float(scores.amax(dim=2).sum()))
        best.append(highest)
    return max(range(len(best)), key=best.__getitem__) if best else -1


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--index", required=True)
    parser.add_argument("--queries", required=True)
    parser.add_argument("--channel", default="bm25")
    parser.add_argument("--reader")
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--depth", type=int, default=10)
    given = parser.parse_args()
    asked = questions_of(Path(given.queries)).sample(given.questions + 3).queries
    model = SpanReader.load(reader_folder(given.reader))
    peer = plain(model)
    with open_answerer(
        given.index, given.channel, reader=given.reader, depth=given.depth, threshold=0
    ) as answerer:
        hits: dict[str, Sequence[Hit]] = {
            q.text: answerer.retriever.search(q.text, given.depth) for q in asked
        }
        texts = {question: [text_of(hit) for hit in own] for question, own in hits.items()}

        ways: dict[str, Callable[[str], object]] = {
            "sparta, all passages": lambda question: answerer.reader.read(question, texts[question], 10),
            "sparta, as `sparta answer` does": lambda q: answerer.answer_hits(q, hits[q]),
            "transformers, one by one": lambda q: read_one_by_one(peer, model, q, texts[q]),
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        with torch.inference_mode():
            for number, query in enumerate(asked):
                for name, way in ways.items():
                    started = time.perf_counter()
                    way(query.text)
                    if number >= 3:  # the first ones warm it up
                        times[name].append(1000 * (time.perf_counter() - started))
        counts = answerer.counts
    print("| reads | ms/question |\n|---|---|")
    for name, own in times.items():
        print(f"| {name} | {median(own):.0f} |")
    passages = sum(map(len, texts.values())) / len(texts)
    print(f"\n{len(asked) - 3} questions, {passages:.1f} passages each, {torch.get_num_threads()} threads;")
    print(f"`sparta answer` reads {100 * counts.read / counts.retrieved:.0f} % of them")


if __name__ == "__main__":
    main()
