"""Training a reader: one softmax over passages of a question (shared normalization, Clark and Gardner)."""

from __future__ import annotations

import hashlib
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch.nn import functional

from sparta.base.checks import path_of, several
from sparta.base.errors import InputError, ModelError
from sparta.base.files import short_hash
from sparta.base.remedies import Option, remedy
from sparta.data.answers import answer_spans, exact_match, token_f1
from sparta.models.resolve import shipped_for
from sparta.neural.encoding import arithmetic
from sparta.neural.processes import training_device
from sparta.reader.config import ReaderConfig, ReaderLayout
from sparta.reader.examples import ReadingExample, read_examples
from sparta.reader.reader import Reader
from sparta.reader.records import Text
from sparta.reader.span_reader import SpanReader
from sparta.reader.training import (
    ReadingRecipe,
    ReadingTraining,
    check_different,
    check_enough,
    span_loss,
    targets,
)
from sparta.reader.windows import Window, padded
from sparta.training.model_card import READER
from sparta.training.options import TrainResult
from sparta.training.run import check_output

logger = logging.getLogger(__name__)
_SORTED_TOGETHER = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderRecipe(ReadingRecipe):
    """How a reader is trained.

    A batch has `batch_size` questions, each with a passage that holds the answer; a share `negatives` of them
    also with some that do not, `passages` in all at most, from the question's own passages or near in the
    file. Of those, `unanswered` have no other passage: there the right answer is none. With `globally`, one
    softmax runs over the passages of a question (shared normalization, Clark and Gardner, 2018); otherwise
    over each. Without an `encoder`, what is trained further is the reader that ships for the language.
    """

    encoder: str | None = None
    steps: int = 1500
    batch_size: int = 12
    learning_rate: float = 6e-5
    validate_every: int = 300
    held_out: int = 300
    negatives: float = 0.4
    passages: int = 2
    unanswered: float = 0.15
    globally: bool = True
    global_tokens: int = 0
    train_length: int = 256
    language: str = "en"
    layout: ReaderLayout = field(default_factory=ReaderLayout)

    def beginning(self) -> str:
        """What is trained: the encoder, or the reader that ships.

        :raises ModelError: neither is there.
        """
        name = self.encoder or shipped_for(self.language, "reader")
        if name is None:
            raise ModelError(
                f"expected an encoder for the language {self.language!r}, for which no reader ships",
                remedy=remedy("name one with {}", Option("encoder")),
            )
        return name


class ReaderTraining(ReadingTraining[SpanReader, ReadingExample]):
    """The training of a reader: its examples, batches, loss and validation."""

    kind, heads, figure = READER, ("spans.", "encoder.global_states"), "F1 {:.1f}".format

    def __init__(self, recipe: ReaderRecipe, sets: Sequence[ReadingSet], folder: Path) -> None:
        if recipe.passages < 2:
            raise InputError(f"expected at least 2 passages of a question, found {recipe.passages}")
        self.recipe = recipe = replace(recipe, encoder=recipe.beginning())
        torch.manual_seed(recipe.seed)
        config = ReaderConfig(recipe.layout, recipe.global_tokens)
        model = SpanReader.from_encoder(recipe.beginning(), config).to(training_device(recipe.device))
        model.check_length(recipe.train_length, option="train_length")
        layout, positions = recipe.layout, model.positions
        if positions is not None and layout.max_length > positions:
            logger.warning("the encoder reads windows of %d wordpieces, not %d", positions, layout.max_length)
            layout = replace(layout, max_length=positions, overlap=min(layout.overlap, positions // 4))
            model.config = replace(config, layout=layout)
        least = 2 * layout.longest_question
        if recipe.train_length < least:
            raise InputError(
                f"expected training windows of at least {least} wordpieces, twice the longest question, found"
                f" {recipe.train_length}",
                remedy=remedy(
                    "give {}, or a smaller {}", Option("train_length", least), Option("longest_question")
                ),
            )
        overlap = min(layout.overlap, recipe.train_length // 4)
        self.layout = replace(layout, max_length=recipe.train_length, overlap=overlap)
        examples, held_out = split(sets, recipe.held_out)
        answerable = [example for example in examples if self._answerable(example)]
        if len(answerable) < len(examples):
            left_out = len(examples) - len(answerable)
            logger.warning("left out %d questions whose answer is longer than a reader gives", left_out)
        check_enough(answerable, recipe.batch_size)
        super().__init__(recipe, model, answerable, held_out, folder, fingerprint(answerable))
        self._right: dict[str, set[str]] = {}
        for example in examples:
            right = self._right.setdefault(example.question, set())
            right.update(example.passages[i].text for i in example.positives)
        self.lengths = [len(e.passages[e.positives[0]].text) for e in self.examples]

    def _answerable(self, example: ReadingExample) -> bool:
        """Whether some answer is no longer than those that are given, about 5 characters a wordpiece."""
        most = 5 * self.layout.longest_answer
        return any(b - a <= most for spans in example.spans for a, b in spans)

    # ------------------------------------------------------------------ batches

    def batch(self, step: int) -> list[tuple[int, list[Window]]]:
        """The questions of a step (their examples' numbers) with their windows: a function of the step."""
        numbers, draw = self.numbers(step)
        return [(i, self._windows(i, draw)) for i in numbers]

    def cut(self, order: Sequence[int], size: int, draw: random.Random) -> list[list[int]]:
        """Cut an epoch's examples into batches of texts of similar length."""
        block = size * _SORTED_TOGETHER
        blocks = [
            sorted(order[i : i + block], key=lambda e: self.lengths[e]) for i in range(0, len(order), block)
        ]
        batches = [b[i : i + size] for b in blocks for i in range(0, len(b) - size + 1, size)]
        rest = [e for b in blocks for e in b[len(b) - len(b) % size :]]
        batches += [rest[i : i + size] for i in range(0, len(rest) - size + 1, size)]
        draw.shuffle(batches)
        return batches

    def _windows(self, number: int, draw: random.Random) -> list[Window]:
        """A window with the answer, which names its passage, and perhaps some without, passage -1."""
        example = self.examples[number]
        negatives = self._negatives(number, draw) if draw.random() < self.recipe.negatives else []
        chosen: list[Window] = []
        if not negatives or draw.random() >= self.recipe.unanswered:
            chosen.append(self._positive(example, draw))
        for text in negatives:
            made = self.model.windows(example.question, [text], self.layout)
            if made:
                chosen.append(draw.choice(made)._replace(passage=-1))
        return chosen or [self._positive(example, draw)]

    def _positive(self, example: ReadingExample, draw: random.Random) -> Window:
        passage = draw.choice(example.positives)
        made = self.model.windows(example.question, [example.passages[passage]], self.layout)
        holding = [w for w in made if targets(w, example.spans[passage])]
        return draw.choice(holding or made)._replace(passage=passage)

    def _negatives(self, number: int, draw: random.Random) -> list[Text]:
        """Passages of the question without an answer, or texts that stand near in the file without one.

        A passage that answers the question in another example is none of them.
        """
        example, wanted = self.examples[number], self.recipe.passages - 1
        read = zip(example.passages, example.spans, strict=True)
        own = [p for p, spans in read if not spans and p.text not in self._right[example.question]]
        if own:
            return draw.sample(own, min(wanted, len(own)))
        found: dict[Text, None] = {}
        for by in draw.sample(range(1, 13), 12):
            if len(found) < wanted and (text := self._near(example, number + by)) is not None:
                found[text] = None
        return list(found)

    def _near(self, example: ReadingExample, number: int) -> Text | None:
        if number >= len(self.examples) or self.examples[number].source != example.source:
            return None
        other = self.examples[number].passages[0]
        known = other.text in self._right[example.question]
        own = known or any(other.text == p.text for p in example.passages)
        held = own or answer_spans(other.text, example.answers, language=self.recipe.language)
        return None if held else other

    # ------------------------------------------------------------------ loss and validation

    def loss(self, step: int) -> tuple[torch.Tensor, dict[str, float]]:
        """Minus the log-likelihood of all right starts, and of all right ends; "no answer" scores 0."""
        questions = self.batch(step)
        losses, at = [], 0
        scores = self._scores([own for _, own in questions])
        for number, own in questions:
            spans = [self._targets(number, window) for window in own]
            read, at = scores[:, at : at + len(own)], at + len(own)
            if self.recipe.globally:
                losses.append(span_loss(read, spans))
            else:
                losses += [span_loss(read[:, [i]], [one]) for i, one in enumerate(spans)]
        return torch.stack(losses).mean(), {}

    def _scores(self, questions: Sequence[Sequence[Window]]) -> torch.Tensor:
        """Scores `(2, windows, length)`; with global tokens, the windows of a question are a call each."""
        device, flat = self.model.device, [window for own in questions for window in own]
        if not self.recipe.global_tokens:
            return self.model(*(t.to(device) for t in padded(flat)))
        longest, parts = max(len(window.ids) for window in flat), []
        for own in questions:
            one = self.model(*(t.to(device) for t in padded(own)))
            parts.append(functional.pad(one, (0, longest - one.shape[2]), value=-torch.inf))
        return torch.cat(parts, dim=1)

    def _targets(self, number: int, window: Window) -> list[tuple[int, int]]:
        return targets(window, self.examples[number].spans[window.passage]) if window.passage >= 0 else []

    def validate(self) -> float:
        """F1 in percent on held-out questions, each with one passage that holds its answer."""
        reader = Reader(self.model)
        texts = [[e.passages[e.positives[0]]] for e in self.held_out]
        with arithmetic(self.device):
            found = reader.read_all([e.question for e in self.held_out], texts, 1)
        f1, em = 0.0, 0
        for example, [text], [spans] in zip(self.held_out, texts, found, strict=True):
            answer = text.text[spans[0].start : spans[0].end] if spans else ""
            f1 += token_f1(answer, example.answers, language=self.recipe.language)
            em += exact_match(answer, example.answers, language=self.recipe.language)
        n = max(1, len(self.held_out))
        logger.info("held-out questions: F1 %.1f, EM %.1f", 100 * f1 / n, 100 * em / n)
        return 100 * f1 / n


@dataclass(frozen=True, slots=True)
class ReadingSet:
    """Examples of one file; `size` is how many of them are used: a sample, or all and some again."""

    name: str
    examples: Sequence[ReadingExample]
    size: int | None = None

    def drawn(self, examples: Sequence[ReadingExample]) -> list[ReadingExample]:
        """Return `size` of these examples, the same ones each time; all where no size is given."""
        if self.size is None or not examples:
            return list(examples)
        whole, rest = divmod(self.size, len(examples))
        sample = random.Random(self.size).sample(range(len(examples)), rest)
        return [*examples] * whole + [examples[i] for i in sorted(sample)]


def split(sets: Sequence[ReadingSet], held_out: int) -> tuple[list[ReadingExample], list[ReadingExample]]:
    """Return what is trained on, and `held_out` questions, taken by the hash of their first passage.

    No first passage and no question is in both parts; where that would leave out more than half of the
    questions, as with few long texts, passages may be. The sizes of the sets are those of the first part.

    :raises InputError: nothing is left to train on.
    """
    every = [example for one in sets for example in one.examples]
    kept, may_train = _held_out(every, held_out, lambda e: e.passages[0].text)
    if 2 * sum(map(may_train, every)) < len(every) - held_out:
        kept, may_train = _held_out(every, held_out, lambda e: e.question.casefold())
        if any(map(may_train, every)):
            logger.warning("few texts: training and held-out questions share passages")
    drawn = [one.drawn([*filter(may_train, one.examples)]) for one in sets]
    if not any(drawn):
        raise InputError(
            f"expected questions beside those of {held_out} held-out examples, found none in {len(every)}",
            remedy=remedy("give more data, or a smaller {}", Option("held_out")),
        )
    if left_out := len(every) - len(kept) - sum(map(may_train, every)):
        logger.info("left out %d examples that share a text or a question with those held out", left_out)
    return [e for own in drawn for e in own], kept


def _held_out(
    examples: Sequence[ReadingExample], n: int, key: Callable[[ReadingExample], str]
) -> tuple[list[ReadingExample], Callable[[ReadingExample], bool]]:
    """Return `n` examples, those of the lowest hashes of their keys, and what may be trained on beside them.

    That is what shares neither key nor question with any of them.
    """
    by_key: dict[str, list[ReadingExample]] = {}
    for example in examples:
        by_key.setdefault(key(example), []).append(example)
    kept: list[ReadingExample] = []
    taken: set[str] = set()
    for one in sorted(by_key, key=lambda one: hashlib.sha256(one.encode()).digest()):
        if len(kept) >= n:
            break
        kept += by_key[one]
        taken.add(one)
    asked = {example.question.casefold() for example in kept}
    return kept[:n], lambda e: key(e) not in taken and e.question.casefold() not in asked


def fingerprint(examples: Sequence[ReadingExample]) -> str:
    """A short hash of what a training sees."""
    return short_hash((one.question, one.passages, one.spans) for one in examples)


def train_reader(
    data: Sequence[str | Path | tuple[str | Path, int | None]],
    recipe: ReaderRecipe,
    output: str | Path,
    *,
    resume: bool = False,
    command: str = "",
) -> TrainResult:
    """Train a reader; the best on held-out questions ends in `output/best`, with its model card.

    :param data: files as `read_examples` takes them, each maybe with how many of its questions are used
        (None: all; more than there are: some again)
    :param command: what the card names as the command; otherwise the recipe
    """
    output = check_output(output, resume=resume)
    pairs = [one if isinstance(one, tuple) else (one, None) for one in several(data, "files")]
    sized = [(path_of(path, "a file"), size) for path, size in pairs]
    check_different([path for path, _ in sized])
    sets = [ReadingSet(path.name, read_examples(path, recipe.language), size) for path, size in sized]
    training = ReaderTraining(recipe, sets, output)
    rows = [
        (each.name, f"{n:,}", f"{each.size or n:,}", f"`{fingerprint(each.examples)}`")
        for each in sets
        for n in [len(each.examples)]
    ]
    table = [("data", "questions", "used in an epoch", "fingerprint"), *rows]
    return training.train(training.recipe, table, resume=resume, command=command)
