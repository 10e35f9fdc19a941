"""Trains a path reader: one loss for passages, sentences and answers (Chain-of-Skills, Appendix C)."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from hybrid.replications.path_examples import (
    PathExample,
    PathPassage,
    read_path_examples,
    without_gold_negatives,
)
from sparta.base.checks import paths_of
from sparta.base.files import by_hash, short_hash
from sparta.data.answers import exact_match, token_f1
from sparta.neural.encoding import arithmetic
from sparta.neural.processes import training_device
from sparta.reader.config import DEFAULT_READER
from sparta.reader.path_inputs import PathInput, PathLayout
from sparta.reader.path_model import PathModel
from sparta.reader.path_reader import PathReader
from sparta.reader.training import (
    ReadingRecipe,
    ReadingTraining,
    check_different,
    check_enough,
    span_loss,
    targets,
)
from sparta.training.known import question_key
from sparta.training.model_card import PATH_READER
from sparta.training.options import TrainResult
from sparta.training.run import check_output

logger = logging.getLogger("sparta.hybrid")
SENTENCES_SHARE = 0.5
"""Weight of the sentence loss (Chain-of-Skills, eq. 10)."""
MOST_PASSAGES = 3
_NEEDED, _OF_A_KIND = (0, 1, 2, 2), 2
_RIVALS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRecipe(ReadingRecipe):
    """The recipe of a path reader.

    A batch has `batch_size` questions. Each question is one input of up to 3 passages in random order, drawn
    anew in each batch: 0 to 2 gold passages (2 in half of the inputs) and 0 to 2 others. The targets of the
    answer are its positions. The defaults suit a small encoder; the paper trains Electra-large for 20,000
    steps with batches of 128.
    """

    encoder: str = DEFAULT_READER
    steps: int = 700
    batch_size: int = 8
    learning_rate: float = 5e-5
    layer_decay: float = 0.9
    max_length: int = 320
    held_out: int = 150
    validate_every: int = 350


class Drawn(NamedTuple):
    """An example, the passages that were drawn from it, and the model's input made of them."""

    example: PathExample
    passages: list[PathPassage]
    input: PathInput


class PathTraining(ReadingTraining[PathModel, PathExample]):
    """The training of a path reader: its examples, batches, loss and validation."""

    kind, heads = PATH_READER, ("spans.", "passages.", "sentences.")
    figure = "mean of passage EM and F1 {:.1f}".format
    in_percent = True

    def __init__(self, recipe: PathRecipe, examples: Sequence[PathExample], folder: Path) -> None:
        torch.manual_seed(recipe.seed)
        trained, held_out = split(examples, recipe.held_out)
        check_enough(trained, recipe.batch_size)
        sentences = any(passage.sentences for example in examples for passage in example.passages)
        layout = PathLayout(max_length=recipe.max_length, sentences=sentences)
        model = PathModel.from_encoder(recipe.encoder, layout).to(training_device(recipe.device))
        fingerprint = short_hash([*trained, *held_out])
        super().__init__(recipe, model, trained, held_out, folder, fingerprint)

    # ------------------------------------------------------------------ batches

    def batch(self, step: int) -> list[Drawn]:
        """Return the inputs of a step; the same step always draws the same inputs."""
        numbers, draw = self.numbers(step)
        return [self._drawn(self.examples[i], draw) for i in numbers]

    def _drawn(self, example: PathExample, draw: random.Random) -> Drawn:
        """Return an input with random passages of an example, gold and others."""
        gold_passages = draw.sample(example.gold, min(draw.choice(_NEEDED), len(example.gold)))
        least_others = 0 if gold_passages else 1
        other_passages = draw.sample(
            example.others, min(draw.randint(least_others, _OF_A_KIND), len(example.others))
        )
        passages = [*gold_passages, *other_passages][:MOST_PASSAGES] or [draw.choice(example.gold)]
        draw.shuffle(passages)
        return self._read(example, passages)

    def _read(self, example: PathExample, passages: Sequence[PathPassage]) -> Drawn:
        texts, sentences = [passage.text for passage in passages], [passage.sentences for passage in passages]
        return Drawn(example, list(passages), self.model.make_input(example.question, texts, sentences))

    # ------------------------------------------------------------------ loss and validation

    def loss(self, step: int) -> tuple[torch.Tensor, dict[str, float]]:
        """Return the loss (Chain-of-Skills, eq. 10): passages, answers, and half of the sentences' loss.

        Each of the three is a mean over the inputs that have labels for it.
        """
        drawn = self.batch(step)
        scores = self.model([example.input for example in drawn])
        device = self.model.device
        passage_losses, answer_losses, sentence_losses = [], [], []
        for row, example in enumerate(drawn):
            gold = torch.tensor([passage.gold for passage in example.passages], device=device)
            passage_losses.append(list_mle(scores.passages[row, : 1 + len(gold)], gold))
            if answer_positions := answer_places(example):
                answer_losses.append(span_loss(scores.spans[:, [row]], [answer_positions], no_answer=False))
            if labels := supporting(example):
                is_supporting = torch.tensor(labels, device=device)
                sentence_losses.append(
                    list_mle(scores.sentences[row, : 1 + len(is_supporting)], is_supporting)
                )
        passages, answers, sentences = (
            torch.stack(losses).mean() if losses else torch.zeros((), device=device)
            for losses in (passage_losses, answer_losses, sentence_losses)
        )
        loss_parts = {"passages": passages, "answers": answers, "sentences": sentences}
        logs = {name: float(loss_part.detach()) for name, loss_part in loss_parts.items()}
        return passages + answers + SENTENCES_SHARE * sentences, logs

    def validate(self) -> float:
        """Return the mean of passage EM and answer F1 on held-out questions, in percent.

        Passage EM is the share of questions whose gold passages score above every set in which one of up to
        four other passages replaces a gold passage; questions without other passages do not count. Answer F1
        is measured when the model reads the gold passages.
        """
        is_gold_best, f1, em = [], 0.0, 0
        with arithmetic(self.device):
            for example in self.held_out:
                passage_sets = [example.gold, *replaced(example.gold, example.others[:_RIVALS])]
                readings = PathReader(self.model).read(
                    example.question, [[passage.text for passage in passages] for passages in passage_sets]
                )
                gold_score, *replaced_scores = [sum(reading.scores) for reading in readings]
                if replaced_scores:
                    is_gold_best.append(gold_score > max(replaced_scores))
                f1 += token_f1(readings[0].answer.text, example.answers)
                em += exact_match(readings[0].answer.text, example.answers)
        one_percent = max(1, len(self.held_out)) / 100
        passage_em = 100 * sum(is_gold_best) / max(1, len(is_gold_best))
        logger.info(
            "held-out questions: passage EM %.1f, F1 %.1f, EM %.1f",
            passage_em,
            f1 / one_percent,
            em / one_percent,
        )
        return (passage_em + f1 / one_percent) / 2


def list_mle(scores: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the ListMLE loss (Chain-of-Skills, eq. 9) for the order: relevant, threshold, irrelevant.

    :param scores: `(1 + n,)`: the score of the threshold (label 0.5), then of n passages or sentences (label
        1 if relevant, else 0)
    :param right: `(n,)` of bool: whether the passage or sentence is relevant
    """
    threshold, passage_scores = scores[:1], scores[1:]
    wrong_scores = passage_scores[~right]
    lower_scores = torch.cat([threshold, wrong_scores])  # all with a smaller label than relevant ones
    losses = [torch.cat([lower_scores, score[None]]).logsumexp(0) - score for score in passage_scores[right]]
    return torch.stack([*losses, lower_scores.logsumexp(0) - threshold[0]]).sum()


def answer_places(drawn: Drawn) -> list[tuple[int, int]]:
    """Return the first and last token position of each mention of the answer in an input; empty without any.

    Yes and no are targets only in an input with all gold passages of the question.
    """
    choice, path_input = drawn.example.choice, drawn.input
    if choice is not None:
        has_all_gold = sum(passage.gold for passage in drawn.passages) == len(drawn.example.gold)
        return [(path_input.choices[choice],) * 2] if has_all_gold else []
    return [
        place
        for number, passage in enumerate(drawn.passages)
        for place in targets(path_input.window(number), passage.spans)
    ]


def supporting(drawn: Drawn) -> list[bool]:
    """Return whether each sentence of an input supports the answer; empty for passages without sentences."""
    return [drawn.passages[row].supporting[number] for row, number, _, _ in drawn.input.sentences]


def replaced(gold: Sequence[PathPassage], others: Sequence[PathPassage]) -> list[list[PathPassage]]:
    """Return all sets in which one of the other passages replaces one gold passage."""
    return [[*gold[:i], other, *gold[i + 1 :]] for i in range(len(gold)) for other in others]


def split(examples: Sequence[PathExample], held_out: int) -> tuple[list[PathExample], list[PathExample]]:
    """Return the training examples and the held-out examples.

    :param held_out: number of held-out questions: those with the lowest hashes
    """
    questions = {question_key(example.question) for example in examples}
    held_out_questions = set(by_hash(questions)[:held_out])
    by_side: dict[bool, list[PathExample]] = {False: [], True: []}
    for example in examples:
        by_side[question_key(example.question) in held_out_questions].append(example)
    return by_side[False], by_side[True]


def train_path_reader(
    data: Sequence[str | Path],
    recipe: PathRecipe,
    output: str | Path,
    *,
    resume: bool = False,
    command: str = "",
) -> TrainResult:
    """Train a path reader; the best checkpoint on held-out questions goes to `output/best`.

    :param data: files that `read_path_examples` can read
    :param command: the command that the model card shows [default: the recipe]
    """
    output, files = check_output(output, resume=resume), paths_of(data, "files")
    check_different(files)
    by_file = [(path.name, read_path_examples(path)) for path in files]
    examples = [example for _, file_examples in by_file for example in file_examples]
    training = PathTraining(recipe, without_gold_negatives(examples), output)
    rows = [
        (name, f"{len(file_examples):,}", f"`{short_hash(file_examples)}`") for name, file_examples in by_file
    ]
    table = [("data", "questions", "fingerprint"), *rows]
    return training.train(recipe, table, resume=resume, command=command)
