"""How often a reader answers questions with and without their passage in the index, by threshold.

    python benchmarks/abstaining.py --data squad-passages-dev --index squad --questions 400 --plot plot.png

For each question, the reader reads the best passages twice: as retrieved, and without the question's right
passage (the next passage moves up). Three scores decide whether to answer: the calibrated probability of the
answer, the reader's best span against "no answer", and a logistic model of both with the gaps to the next
span and passage. Half of the articles fit the model and choose the threshold, the other half is measured;
then the halves swap. A second table has all questions by threshold. --data is a BEIR folder, or another file
of questions with answers and right passages.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hybrid.answering.answers import combine, folded_texts, ranker_scores
from hybrid.evaluation.plots import figure
from hybrid.evaluation.questions import questions_of
from hybrid.evaluation.tune_reader import COVERAGE, threshold_of
from sparta.api import Index
from sparta.base.records import Hit
from sparta.data.answers import exact_match
from sparta.data.languages import language_of
from sparta.reader.config import ReaderConfig
from sparta.reader.reader import Reader
from sparta.reader.records import Span, Text, text_of

DEPTH = 10
SPANS = 10
SPLITS = 20
THRESHOLDS = (0.06, 0.08, 0.1, 0.15, 0.21, 0.3)
Floats = npt.NDArray[np.float64]


class Attempt(NamedTuple):
    """A question with its right passage or without it: the answer's probability, features, correctness."""

    probability: float
    features: tuple[float, ...]
    correct: bool


class Question(NamedTuple):
    """A question of an article, read with its right passage and without it."""

    article: str
    answerable: Attempt
    removed: Attempt


def attempt(
    config: ReaderConfig, hits: Sequence[Hit], spans: Sequence[Sequence[Span]], answers: Sequence[str]
) -> Attempt:
    """Return the best answer's probability and the features of the logistic model."""
    texts, scores = [Text(hit.text, hit.title) for hit in hits], [hit.score for hit in hits]
    placed_spans = [[span._replace(passage=n) for span in text_spans] for n, text_spans in enumerate(spans)]
    [best] = combine(config, hits, texts, ranker_scores(scores), placed_spans, config.weight, 1)
    of_passages = sorted((text_spans[0].score for text_spans in spans if text_spans), reverse=True)
    place = [hit.passage_id for hit in hits].index(best.passage_id)
    features = (
        math.log(max(best.score, 1e-9) / max(1 - best.score, 1e-9)),
        of_passages[0],
        of_passages[0] - of_passages[1],
        scores[place] / scores[0],
        (scores[0] - scores[1]) / scores[0],
        float(place),
    )
    return Attempt(best.score, features, exact_match(best.answer, answers))


def read(index: Index, reader: Reader, query: str) -> tuple[list[Hit], list[list[Span]]]:
    """Return the best passages, one more than the depth, and the reader's spans of each."""
    hits, fold = list(index.search(query, DEPTH + 1)), language_of("en").fold
    texts = folded_texts([text_of(hit) for hit in hits], fold)
    return hits, reader.read(fold(query), texts, SPANS)


def readings(chosen: argparse.Namespace) -> Iterator[Question]:
    """Yield the read questions. A file of readings spares the reading of questions that it already holds."""
    question_set = questions_of(chosen.data).sample(chosen.questions)
    kept: dict[str, dict[str, Any]] = {}
    if chosen.readings and chosen.readings.is_file():
        kept = {row["id"]: row for row in map(json.loads, chosen.readings.read_text().splitlines())}
    with Index(chosen.index) as index:
        reader = Reader.open()
        for query in question_set.queries:
            if query.query_id not in kept:
                hits, spans = read(index, reader, query.text)
                line = json.dumps(
                    {"id": query.query_id, "hits": [[h.passage_id, h.score] for h in hits], "spans": spans}
                )
                kept[query.query_id] = json.loads(line)
                if chosen.readings:
                    with chosen.readings.open("a") as stream:
                        stream.write(line + "\n")
            row = kept[query.query_id]
            passages = [index.passage(str(hit[0])) for hit in row["hits"]]
            hits = [
                Hit(p["id"], float(hit[1]), p["title"], p["text"])
                for p, hit in zip(passages, row["hits"], strict=True)
            ]
            spans = [[Span(*span) for span in text_spans] for text_spans in row["spans"]]
            right = [
                passage_id for passage_id, grade in question_set.qrels[query.query_id].items() if grade > 0
            ]
            rest = [n for n, hit in enumerate(hits) if hit.passage_id not in right][:DEPTH]
            article = right[0].rpartition("-")[0] or right[0]
            answerable, removed = (
                attempt(reader.config, [hits[n] for n in places], [spans[n] for n in places], query.answers)
                for places in (range(len(hits[:DEPTH])), rest)
            )
            yield Question(article, answerable, removed)


def logistic(features: Floats, labels: Floats) -> Callable[[Floats], Floats]:
    """Return the score of a logistic model that is fitted to features `(n, width)` and labels `(n,)`."""
    from scipy.optimize import minimize

    mean, deviation = features.mean(0), features.std(0) + 1e-9

    def columns(values: Floats) -> Floats:
        return np.c_[(values - mean) / deviation, np.ones(len(values))]

    fitted = columns(features)

    def loss(weights: Floats) -> float:
        odds = fitted @ weights
        return float(np.mean(np.logaddexp(0, odds) - labels * odds) + 0.01 * np.sum(weights[:-1] ** 2))

    weights = minimize(loss, np.zeros(fitted.shape[1]), method="BFGS").x
    return lambda values: np.asarray(columns(values) @ weights)


def scores_of(kind: str, fitted: Sequence[Question], attempts: Sequence[Attempt]) -> Floats:
    """Return the score of each attempt; the logistic model is fitted on other questions."""
    features = np.array([each.features for each in attempts])
    if kind == "probability":
        return np.array([each.probability for each in attempts])
    if kind == "best span":
        return features[:, 1]
    answerable, removed = (
        np.array([getattr(question, name).features for question in fitted])
        for name in ("answerable", "removed")
    )
    labels = np.r_[np.ones(len(answerable)), np.zeros(len(removed))]
    return logistic(np.r_[answerable, removed], labels)(features)


def measured(kind: str, questions: Sequence[Question]) -> Floats:
    """Return coverage, the share of answered questions without a passage, and EM of the answers, as means."""
    articles, rows = sorted({question.article for question in questions}), []
    for seed in range(SPLITS):
        random.Random(seed).shuffle(articles)
        halves = [
            [question for question in questions if (question.article in articles[::2]) == first]
            for first in (True, False)
        ]
        for fitted, rest in (halves, halves[::-1]):
            threshold = np.quantile(scores_of(kind, fitted, [q.answerable for q in fitted]), 1 - COVERAGE)
            answered = scores_of(kind, fitted, [q.answerable for q in rest]) >= threshold
            wrongly = scores_of(kind, fitted, [q.removed for q in rest]) >= threshold
            correct = np.array([q.answerable.correct for q in rest])
            rows.append((answered.mean(), wrongly.mean(), correct[answered].mean()))
    return np.mean(rows, axis=0)


def by_threshold(questions: Sequence[Question]) -> Iterator[str]:
    """Yield the rows of a table by threshold.

    After the coverage and the share that is answered without the passage come the EM of the answers and the
    share of questions whose right answer is left out.
    """
    scores = np.array([(q.answerable.probability, q.removed.probability) for q in questions])
    correct = np.array([q.answerable.correct for q in questions])
    for threshold in THRESHOLDS:
        answered, wrongly = (scores >= threshold).T
        yield (
            f"| {threshold} | {answered.mean():.1%} | {wrongly.mean():.1%} | {correct[answered].mean():.1%}"
            f" | {np.mean(correct & ~answered):.1%} |"
        )


def draw(questions: Sequence[Question], path: Path) -> None:
    """Draw EM and the answered questions without their passage, against the coverage."""
    thresholds = np.linspace(0, 0.99, 100)
    scores = np.array([(q.answerable.probability, q.removed.probability) for q in questions])
    correct = np.array([q.answerable.correct for q in questions])
    covered = [(scores >= threshold).mean(0) for threshold in thresholds]
    kept = [scores[:, 0] >= threshold for threshold in thresholds]
    rows = [
        (100 * cover[0], 100 * cover[1], 100 * correct[keep].mean())
        for cover, keep in zip(covered, kept, strict=True)
        if keep.sum() >= 20
    ]
    coverage, wrongly, em = zip(*rows, strict=True)
    with figure(path) as axes:
        axes.plot(coverage, em, label="EM of the answers")
        axes.plot(coverage, wrongly, label="answered although the passage was removed")
        axes.set_xlabel("answered questions with their passage (coverage, %)")
        axes.set_ylabel("%")
        axes.legend()


def main() -> None:
    """Print the table and draw the plot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="questions with answers and right passages")
    parser.add_argument("--index", type=Path, required=True, help="index of its corpus")
    parser.add_argument("--questions", type=int, default=400)
    parser.add_argument("--readings", type=Path, help="file that keeps the readings")
    parser.add_argument("--plot", type=Path)
    chosen = parser.parse_args()
    questions = list(readings(chosen))
    print(f"{len(questions)} questions, threshold for a coverage of {COVERAGE:.0%} chosen on other articles")
    print("| score | coverage | answered without the passage | EM of the answers |\n|---|---|---|---|")
    for kind in ("probability", "best span", "logistic model"):
        coverage, wrongly, em = measured(kind, questions)
        print(f"| {kind} | {coverage:.1%} | {wrongly:.1%} | {em:.1%} |")
    print("\n| threshold | coverage | answered without the passage | EM of the answers | right, not given |")
    print("|---|---|---|---|---|", *by_threshold(questions), sep="\n")
    threshold = threshold_of([question.answerable.probability for question in questions], COVERAGE)
    print(f"\nthreshold of all questions: {threshold}")
    if chosen.plot:
        draw(questions, chosen.plot)


if __name__ == "__main__":
    main()
