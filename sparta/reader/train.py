"""Train a reader; one softmax covers a question's passages (shared normalization, Clark and Gardner)."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch.nn import functional

from sparta.base.checks import list_of, path_of
from sparta.base.errors import InputError
from sparta.base.files import by_hash, short_hash
from sparta.base.records import Passage
from sparta.base.remedies import Option, remedy
from sparta.data.answers import answer_spans, exact_match, token_f1
from sparta.models.resolve import no_model, shipped_for
from sparta.neural.encoding import arithmetic
from sparta.neural.processes import training_device
from sparta.neural.stored import check_length, usable_positions
from sparta.reader.config import ReaderConfig, ReaderLayout
from sparta.reader.examples import ReadingExample, read_examples
from sparta.reader.reader import Reader
from sparta.reader.records import Text
from sparta.reader.span_reader import SpanReader, padded
from sparta.reader.training import (
    ReadingRecipe,
    ReadingTraining,
    check_different,
    check_enough,
    span_loss,
    targets,
)
from sparta.reader.windows import Window
from sparta.training.known import KnownAnswers, keys_of, question_key
from sparta.training.model_card import READER
from sparta.training.options import TrainResult
from sparta.training.run import check_output

logger = logging.getLogger(__name__)
_BATCHES_PER_SORT = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderRecipe(ReadingRecipe):
    """The options for training a reader.

    A batch has `batch_size` questions, each with a passage that contains the answer. A share `negatives` of
    the questions also gets negative passages, up to `passages` passages in all, from the question or from
    nearby questions in the file. A share `unanswered` of these questions gets negative passages only, and "no
    answer" is right. With `globally`, one softmax covers all passages of a question (shared normalization,
    Clark and Gardner, 2018); otherwise each passage has its own softmax. Without an `encoder`, the training
    continues with the language's shipped reader.
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
        """Return the encoder's name, or the name of the language's shipped reader.

        :raises ModelError: the recipe names no encoder, and no reader for the language is installed.
        """
        name = self.encoder or shipped_for(self.language, "reader")
        if name is None:
            raise no_model(self.language, "reader", "encoder")
        return name


class ReaderTraining(ReadingTraining[SpanReader, ReadingExample]):
    """The training of a reader: examples, batches, loss and validation."""

    kind, heads, figure = READER, ("spans.", "encoder.global_states"), "F1 {:.1f}".format
    in_percent = True

    def __init__(self, recipe: ReaderRecipe, sets: Sequence[ReadingSet], folder: Path) -> None:
        if recipe.passages < 2:
            raise InputError(f"training reads at least 2 passages per question, found {recipe.passages}")
        self.recipe = recipe = replace(recipe, encoder=recipe.beginning())
        torch.manual_seed(recipe.seed)
        config = ReaderConfig(recipe.layout, recipe.global_tokens)
        model = SpanReader.from_encoder(recipe.beginning(), config).to(training_device(recipe.device))
        check_length(recipe.train_length, model.encoder_config, option="train_length")
        layout, positions = recipe.layout, usable_positions(model.encoder_config)
        if positions is not None and layout.max_length > positions:
            logger.warning(
                "the encoder has %d positions, so windows have %d wordpieces instead of %d",
                positions,
                positions,
                layout.max_length,
            )
            layout = replace(layout, max_length=positions, overlap=min(layout.overlap, positions // 4))
            model.config = replace(config, layout=layout)
        shortest_window = 2 * layout.longest_question
        if recipe.train_length < shortest_window:
            raise InputError(
                f"training windows need at least {shortest_window} wordpieces (twice the question length),"
                f" found {recipe.train_length}",
                remedy=remedy(
                    "set {}, or a smaller {}",
                    Option("train_length", shortest_window),
                    Option("longest_question"),
                ),
            )
        overlap = min(layout.overlap, recipe.train_length // 4)
        self.layout = replace(layout, max_length=recipe.train_length, overlap=overlap)
        examples, held_out = split(sets, recipe.held_out)
        short = [_short_answered(example, model.tokenizer, layout.longest_answer) for example in examples]
        answerable = [example for example, numbers in zip(examples, short, strict=True) if numbers]
        if len(answerable) < len(examples):
            left_out = len(examples) - len(answerable)
            logger.warning("left out %d questions whose answer is too long for the reader", left_out)
        check_enough(answerable, recipe.batch_size)
        super().__init__(recipe, model, answerable, held_out, folder, fingerprint(answerable))
        self._short_answered = [numbers for numbers in short if numbers]
        self._known = KnownAnswers()
        for example in examples:
            self._known.add(example.question, (_passage(example.passages[i]) for i in example.positives))
        self.lengths = [len(example.passages[example.positives[0]].text) for example in self.examples]

    # ------------------------------------------------------------------ batches

    def batch(self, step: int) -> list[tuple[int, list[Window]]]:
        """Return a step's example numbers and their windows; the result depends only on seed and step."""
        numbers, draw = self.numbers(step)
        return [(i, self._windows(i, draw)) for i in numbers]

    def cut(self, order: Sequence[int], size: int, draw: random.Random) -> list[list[int]]:
        """Split an epoch's examples into batches of texts of similar length."""
        block = size * _BATCHES_PER_SORT
        blocks = [
            sorted(order[i : i + block], key=lambda number: self.lengths[number])
            for i in range(0, len(order), block)
        ]
        batches = [
            block_numbers[i : i + size]
            for block_numbers in blocks
            for i in range(0, len(block_numbers) - size + 1, size)
        ]
        left_over = [
            number
            for block_numbers in blocks
            for number in block_numbers[len(block_numbers) - len(block_numbers) % size :]
        ]
        batches += [left_over[i : i + size] for i in range(0, len(left_over) - size + 1, size)]
        draw.shuffle(batches)
        return batches

    def _windows(self, number: int, draw: random.Random) -> list[Window]:
        """Return a window with the answer and perhaps negative windows, whose passage number is -1."""
        example = self.examples[number]
        negatives = self._negatives(number, draw) if draw.random() < self.recipe.negatives else []
        chosen: list[Window] = []
        if not negatives or draw.random() >= self.recipe.unanswered:
            chosen.append(self._positive(number, draw))
        for text in negatives:
            text_windows = self.model.windows(example.question, [text], self.layout)
            if text_windows:
                chosen.append(draw.choice(text_windows)._replace(passage=-1))
        return chosen or [self._positive(number, draw)]

    def _positive(self, number: int, draw: random.Random) -> Window:
        example, passage = self.examples[number], draw.choice(self._short_answered[number])
        text_windows = self.model.windows(example.question, [example.passages[passage]], self.layout)
        longest, spans = self.layout.longest_answer, example.spans[passage]
        holding = [window for window in text_windows if targets(window, spans, longest)]
        return draw.choice(holding or text_windows)._replace(passage=passage)

    def _negatives(self, number: int, draw: random.Random) -> list[Text]:
        """Return the question's passages without an answer, or else nearby texts without an answer.

        A passage that answers the same question in another example is never a negative.
        """
        example, count = self.examples[number], self.recipe.passages - 1
        passages_with_spans = zip(example.passages, example.spans, strict=True)
        own_negatives = [
            passage
            for passage, spans in passages_with_spans
            if not spans and not self._known.answers_all([example.question], _passage(passage))
        ]
        if own_negatives:
            return draw.sample(own_negatives, min(count, len(own_negatives)))
        nearby_texts: dict[Text, None] = {}
        for by in draw.sample(range(1, 13), 12):
            if len(nearby_texts) < count and (text := self._near(example, number + by)) is not None:
                nearby_texts[text] = None
        return list(nearby_texts)

    def _near(self, example: ReadingExample, number: int) -> Text | None:
        if number >= len(self.examples) or self.examples[number].source != example.source:
            return None
        text = self.examples[number].passages[0]
        passage = _passage(text)
        is_right = self._known.answers_all([example.question], passage)
        is_known = is_right or keys_of(passage) in map(keys_of, map(_passage, example.passages))
        has_answer = is_known or answer_spans(text.text, example.answers, language=self.recipe.language)
        return None if has_answer else text

    # ------------------------------------------------------------------ loss and validation

    def loss(self, step: int) -> tuple[torch.Tensor, dict[str, float]]:
        """Return minus the log-likelihood of all right starts and right ends; "no answer" scores 0."""
        questions = self.batch(step)
        losses, first_row = [], 0
        scores = self._scores([question_windows for _, question_windows in questions])
        for number, question_windows in questions:
            spans = [self._targets(number, window) for window in question_windows]
            end_row = first_row + len(question_windows)
            question_scores = scores[:, first_row:end_row]
            first_row = end_row
            if self.recipe.globally:
                losses.append(span_loss(question_scores, spans))
            else:
                losses += [
                    span_loss(question_scores[:, [i]], [window_spans]) for i, window_spans in enumerate(spans)
                ]
        return torch.stack(losses).mean(), {}

    def _scores(self, questions: Sequence[Sequence[Window]]) -> torch.Tensor:
        """Return scores `(2, windows, length)`. With global tokens, the model reads one question per call."""
        device, flat = (
            self.model.device,
            [window for question_windows in questions for window in question_windows],
        )
        if not self.recipe.global_tokens:
            return self.model(*(t.to(device) for t in padded(flat)))
        longest, all_scores = max(len(window.ids) for window in flat), []
        for question_windows in questions:
            question_scores = self.model(*(t.to(device) for t in padded(question_windows)))
            all_scores.append(
                functional.pad(question_scores, (0, longest - question_scores.shape[2]), value=-torch.inf)
            )
        return torch.cat(all_scores, dim=1)

    def _targets(self, number: int, window: Window) -> list[tuple[int, int]]:
        if window.passage < 0:
            return []
        spans = self.examples[number].spans[window.passage]
        return targets(window, spans, self.layout.longest_answer)

    def validate(self) -> float:
        """Return F1 in percent on held-out questions, each read with one passage that contains an answer."""
        reader = Reader(self.model)
        texts = [
            [held_out_example.passages[held_out_example.positives[0]]] for held_out_example in self.held_out
        ]
        with arithmetic(self.device):
            spans_by_question = reader.read_all(
                [held_out_example.question for held_out_example in self.held_out], texts, 1
            )
        f1, em = 0.0, 0
        for example, [text], [spans] in zip(self.held_out, texts, spans_by_question, strict=True):
            answer = text.text[spans[0].start : spans[0].end] if spans else ""
            f1 += token_f1(answer, example.answers, language=self.recipe.language)
            em += exact_match(answer, example.answers, language=self.recipe.language)
        n = max(1, len(self.held_out))
        logger.info("held-out questions: F1 %.1f, EM %.1f", 100 * f1 / n, 100 * em / n)
        return 100 * f1 / n


def _short_answered(example: ReadingExample, tokenizer: Tokenizer, longest: int) -> list[int]:
    """Return the numbers of the passages with an answer of at most `longest` wordpieces."""

    @cache
    def is_short(answer: str) -> bool:
        return len(tokenizer.encode(answer, add_special_tokens=False).ids) <= longest

    return [
        i
        for i in example.positives
        if any(is_short(example.passages[i].text[a:b]) for a, b in example.spans[i])
    ]


def _passage(text: Text) -> Passage:
    """Return a text as a passage without id, whose keys tell whether it equals another text."""
    return Passage("", text.text)


@dataclass(frozen=True, slots=True)
class ReadingSet:
    """The examples of one file; `size` is the number of examples to use: a sample, or some repeated."""

    name: str
    examples: Sequence[ReadingExample]
    size: int | None = None

    def drawn(self, examples: Sequence[ReadingExample]) -> list[ReadingExample]:
        """Return `size` of these examples, the same at every call; all examples if no size is set."""
        if self.size is None or not examples:
            return list(examples)
        repetitions, sample_size = divmod(self.size, len(examples))
        sample = random.Random(self.size).sample(range(len(examples)), sample_size)
        return [*examples] * repetitions + [examples[i] for i in sorted(sample)]


def split(sets: Sequence[ReadingSet], held_out: int) -> tuple[list[ReadingExample], list[ReadingExample]]:
    """Return the training examples and the held-out examples, chosen by the hash of their right passage.

    The first right passage counts. Training and held-out examples share no question and no such passage. If
    this rule would drop more than half of the questions, as with few long texts, both may share passages. A
    set's `size` counts training examples.

    :param held_out: the number of held-out examples
    :raises InputError: no training example is left.
    """
    all_examples = [example for reading_set in sets for example in reading_set.examples]
    held_out_examples, may_train = _held_out(
        all_examples, held_out, lambda example: example.passages[example.positives[0]].text
    )
    if 2 * sum(map(may_train, all_examples)) < len(all_examples) - held_out:
        held_out_examples, may_train = _held_out(
            all_examples, held_out, lambda example: question_key(example.question)
        )
        if any(map(may_train, all_examples)):
            logger.warning("the data has few texts, so training and held-out questions share passages")
    drawn = [reading_set.drawn([*filter(may_train, reading_set.examples)]) for reading_set in sets]
    if not any(drawn):
        raise InputError(
            f"no training questions are left: {held_out} of {len(all_examples)} examples are held out",
            remedy=remedy("add data, or set a smaller {}", Option("held_out")),
        )
    if left_out := len(all_examples) - len(held_out_examples) - sum(map(may_train, all_examples)):
        logger.info("left out %d examples that share a text or a question with a held-out example", left_out)
    return [example for set_examples in drawn for example in set_examples], held_out_examples


def _held_out(
    examples: Sequence[ReadingExample], n: int, key: Callable[[ReadingExample], str]
) -> tuple[list[ReadingExample], Callable[[ReadingExample], bool]]:
    """Return the `n` examples whose keys have the lowest hashes, and a test for training examples.

    The test accepts an example that shares neither key nor question with any held-out example.
    """
    by_key: dict[str, list[ReadingExample]] = {}
    for example in examples:
        by_key.setdefault(key(example), []).append(example)
    held_out: list[ReadingExample] = []
    held_out_keys: set[str] = set()
    for example_key in by_hash(by_key):
        if len(held_out) >= n:
            break
        held_out += by_key[example_key]
        held_out_keys.add(example_key)
    held_out_questions = {question_key(example.question) for example in held_out}
    return (
        held_out[:n],
        lambda candidate: (
            key(candidate) not in held_out_keys and question_key(candidate.question) not in held_out_questions
        ),
    )


def fingerprint(examples: Sequence[ReadingExample]) -> str:
    """Return a short hash of the questions, passages and spans of a training."""
    return short_hash((example.question, example.passages, example.spans) for example in examples)


def train_reader(
    data: Sequence[str | Path | tuple[str | Path, int | None]],
    recipe: ReaderRecipe,
    output: str | Path,
    *,
    resume: bool = False,
    command: str = "",
) -> TrainResult:
    """Train a reader. The best model on held-out questions is saved in `output/best`, with a model card.

    :param data: files that `read_examples` can read, each optionally with the number of questions to use
        (None means all; a larger number repeats some)
    :param command: the command for the model card; empty means the recipe
    """
    output = check_output(output, resume=resume)
    pairs = [item if isinstance(item, tuple) else (item, None) for item in list_of(data, "files")]
    sized = [(path_of(path, "a file"), size) for path, size in pairs]
    check_different([path for path, _ in sized])
    sets = [ReadingSet(path.name, read_examples(path, recipe.language), size) for path, size in sized]
    training = ReaderTraining(recipe, sets, output)
    rows = [
        (reading_set.name, f"{n:,}", f"{reading_set.size or n:,}", f"`{fingerprint(reading_set.examples)}`")
        for reading_set in sets
        for n in [len(reading_set.examples)]
    ]
    table = [("data", "questions", "used in an epoch", "fingerprint"), *rows]
    return training.train(training.recipe, table, resume=resume, command=command)
