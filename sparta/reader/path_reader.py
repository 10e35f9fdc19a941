"""The path reader (Chain-of-Skills, Appendix C): reads the passages of a path as one input.

The path reader scores how well each passage supports the question, which sentences support it, and the
answer, which may also be yes or no.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import batched
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from sparta.base.extras import optional_packages
from sparta.data.languages import language_of
from sparta.data.sentences import sentence_splitter
from sparta.reader.config import path_reader_folder
from sparta.reader.decode import PathScores, Scores, best_spans, check_scores
from sparta.reader.path_inputs import CHOICES, PathInput, PathLayout, Sentences
from sparta.reader.records import Text
from sparta.reader.stored_reader import StoredPathReader
from sparta.runtime.fallback import opened_on

_PATHS_PER_BATCH = 8


class PathSpan(NamedTuple):
    """An answer of a path, and its probability according to the reader, which is not calibrated.

    The answer lies in the passage of this number, from `start` to before `end`. The answers yes and no lie in
    no passage (`passage` is -1).
    """

    text: str
    score: float
    passage: int = -1
    start: int = 0
    end: int = 0


class PathReading(NamedTuple):
    """The result of reading a path: the score of each passage, the answer, and the supporting sentences.

    A passage with a score below 0 does not support the question: `threshold` is already subtracted.
    `sentences` lists each passage's supporting sentences; None means that the reader does not find sentences.
    """

    scores: list[float]
    answer: PathSpan
    sentences: list[list[tuple[int, int]]] | None
    threshold: float = 0.0


class PathScorer(Protocol):
    """Builds inputs and scores them: a `StoredPathReader` on a CPU, or a `PathModel` in torch."""

    layout: PathLayout

    @property
    def on_cpu(self) -> bool:
        """Whether the model computes on a CPU."""

    def make_input(self, question: str, texts: Sequence[Text], sentences: Sentences = ()) -> PathInput:
        """Return the input for a path."""

    def each(self, batches: Sequence[Sequence[PathInput]]) -> Generator[PathScores[Scores]]:
        """Yield the scores of each batch."""


class PathReader:
    """Reads paths: scores their passages and sentences, and finds the answer.

        reader = PathReader.open()
        [reading] = reader.read("who founded the firm that makes Android", [[Text(…), Text(…)]])

    :param model: scores inputs
    """

    def __init__(self, model: PathScorer, where: str = "") -> None:
        self.model, self.layout, self.where = model, model.layout, where

    @staticmethod
    def open(name: str | Path | None = None, *, device: str | None = None, dtype: str = "auto") -> PathReader:
        """Open a path reader's folder; None means the path reader that ships with sparta.

        :param dtype: fp32, bf16, fp16 (not on a CPU), or auto: bf16 if the device multiplies bf16 fast
        :raises ModelError: there is no such path reader, or the model has another layout.
        """
        folder = path_reader_folder(name)
        model = opened_on(
            folder,
            device,
            lambda: StoredPathReader(folder, dtype),
            lambda device: _path_model(folder, device, dtype),
        )
        return PathReader(model, str(folder))

    def read(
        self, question: str, paths: Sequence[Sequence[Text]], *, language: str = "en"
    ) -> list[PathReading]:
        """Read each path independently of the other paths.

        :param language: the language of the texts, which decides folding and sentence splitting
        :raises InputError: a path without passages, or with too many.
        """
        fold = language_of(language).fold
        split = sentence_splitter(language) if self.layout.sentences else lambda _text: []
        prepared = {
            text: (Text(fold(text.text), fold(text.title), text.focus), split(text.text))
            for texts in paths
            for text in texts
        }
        sentences_by_path = [[prepared[text][1] for text in texts] for texts in paths]
        inputs = [
            self.model.make_input(fold(question), [prepared[text][0] for text in texts], sentences)
            for texts, sentences in zip(paths, sentences_by_path, strict=True)
        ]
        order = sorted(range(len(inputs)), key=lambda i: -len(inputs[i].ids))
        paths_per_batch = 1 if self.model.on_cpu else _PATHS_PER_BATCH
        batches = [[inputs[i] for i in batch] for batch in batched(order, paths_per_batch)]
        scores = self.model.each(batches)
        rows = []
        for batch, batch_scores in zip(batches, scores, strict=True):
            for part in batch_scores:
                check_scores(part, self.where)
            rows += [(batch_scores, row) for row in range(len(batch))]
        scores_by_path = dict(zip(order, rows, strict=True))
        return [
            self._reading(inputs[i], paths[i], sentences_by_path[i], *scores_by_path[i])
            for i in range(len(inputs))
        ]

    def _reading(
        self,
        path_input: PathInput,
        texts: Sequence[Text],
        sentences_by_passage: Sentences,
        scores: PathScores[Scores],
        row: int,
    ) -> PathReading:
        threshold, *passages = scores.passages[row].tolist()[: 1 + len(texts)]
        threshold_of_sentences, *sentences = scores.sentences[row].tolist()[: 1 + len(path_input.sentences)]
        supporting: list[list[tuple[int, int]]] = [[] for _ in texts]
        for (passage, number, _, _), score in zip(path_input.sentences, sentences, strict=True):
            if score > threshold_of_sentences:
                supporting[passage].append(sentences_by_passage[passage][number])
        answer = self._answer(path_input, texts, scores.spans[:, row])
        supporting_sentences = supporting if self.layout.sentences else None
        return PathReading([score - threshold for score in passages], answer, supporting_sentences, threshold)

    def _answer(self, path_input: PathInput, texts: Sequence[Text], spans: Scores) -> PathSpan:
        """Return the most probable answer."""
        answers = [
            PathSpan(choice, float(spans[:, position].mean()))
            for choice, position in zip(CHOICES, path_input.choices, strict=True)
        ]
        for number, part in enumerate(path_input.parts):
            passage_scores = np.full_like(spans, -np.inf)
            inside = slice(part.text_start, part.text_start + len(part.offsets))
            passage_scores[:, inside] = spans[:, inside]
            window = path_input.window(number)
            for span in best_spans(passage_scores[:, None], [window], 1, self.layout.longest_answer):
                text = texts[number].text[span.start : span.end]
                answers.append(PathSpan(text, span.score, number, span.start, span.end))
        best = max(answers, key=lambda answer: answer.score)
        return best._replace(score=float(np.exp(2 * best.score - _log_sums(spans).sum())))


def _log_sums(scores: Scores) -> Scores:
    """Return the logarithm of the sum of exponentials of each row."""
    largest = scores.max(1)
    sums: Scores = largest + np.log(np.exp(scores - largest[:, None]).sum(1))
    return sums


def _path_model(folder: Path, device: str, dtype: str) -> PathScorer:
    with optional_packages():
        from sparta.reader.path_model import PathModel
    return PathModel.open(folder, device, dtype)
