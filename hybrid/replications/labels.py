"""A classifier that labels claims from retrieved passages, instead of BART (Maillard et al., Table 4)."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional

from sparta.base.errors import InputError, ModelError
from sparta.base.files import by_hash
from sparta.base.records import Hit
from sparta.base.remedies import Option, remedy
from sparta.models.folders.tokenizer import load_tokenizer
from sparta.models.resolve import folder_with
from sparta.neural.backbones import blank_encoder, encoder_config, encoder_width, load_encoder, token_types
from sparta.neural.checkpoint import load_state, save_model, with_weights
from sparta.neural.inputs import EncoderInput, special_frame
from sparta.neural.pooling import pad_inputs
from sparta.neural.processes import training_device
from sparta.neural.stored import check_length, read_json
from sparta.reader.records import text_of
from sparta.training.model_card import LABELS
from sparta.training.options import TrainResult, TrainSettings
from sparta.training.run import TrainingRun, check_output, rate_groups, trainer_config

HEAD_RATE = 10.0
LONGEST_CLAIM = 64


class Claim(NamedTuple):
    """A claim with the texts of its passages, and its label."""

    text: str
    passages: tuple[str, ...]
    label: str = ""


def read_texts(hits: Sequence[Hit]) -> tuple[str, ...]:
    """Return the passages as the classifier reads them: title, then text."""
    return tuple(f"{text.title} {text.text}".strip() for text in map(text_of, hits))


class LabelModel(nn.Module):
    """An encoder whose [CLS] state decides between labels: `[CLS] claim [SEP] passage [SEP] …`."""

    def __init__(
        self, encoder: nn.Module, tokenizer: Tokenizer, labels: Sequence[str], max_length: int = 320
    ) -> None:
        super().__init__()
        self.encoder, self.tokenizer = encoder, tokenizer
        self.labels, self.max_length = tuple(labels), max_length
        self._encoder_config = encoder_config(encoder)
        self.head = nn.Linear(encoder_width(encoder), len(self.labels))

    def input(self, claim: Claim) -> EncoderInput:
        """Return the tokens of a claim and its passages, at most `max_length`.

        The passages share the tokens that the claim leaves; each is cut to an equal share.
        """
        cls_id, sep_id = special_frame(self.tokenizer)
        ids = [cls_id, *self._ids(claim.text)[: min(LONGEST_CLAIM, self.max_length - 2)], sep_id]
        tokens_left = self.max_length - len(ids)
        passages = claim.passages[: tokens_left // 2]
        tokens_per_passage = tokens_left // max(1, len(passages)) - 1
        for passage in passages:
            ids += [*self._ids(passage)[:tokens_per_passage], sep_id]
        return EncoderInput(ids, [0] * len(ids), 1, len(ids) - 1)

    def _ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def forward(self, claims: Sequence[Claim]) -> torch.Tensor:
        """`(n_claims, n_labels)`: logits."""
        device = self.head.weight.device
        ids, mask, segments = (
            tensor.to(device) for tensor in pad_inputs([self.input(claim) for claim in claims])
        )
        types = token_types(self._encoder_config, segments)
        states = self.encoder(input_ids=ids, attention_mask=mask, **types).last_hidden_state
        return self.head(states[:, 0].float())

    @torch.inference_mode()
    def predict(self, claims: Sequence[Claim]) -> list[str]:
        """Return the most probable label of each claim."""
        self.eval()
        label_numbers = [self(claims[i : i + 16]).argmax(1).tolist() for i in range(0, len(claims), 16)]
        return [self.labels[i] for batch_numbers in label_numbers for i in batch_numbers]

    def save_pretrained(self, folder: Path) -> None:
        """Write config.json, model.safetensors, tokenizer.json."""
        label_config = {"labels": list(self.labels), "max_length": self.max_length}
        config = {**self._encoder_config, "architectures": ["LabelModel"], "label_model": label_config}
        save_model(folder, self, config)

    @staticmethod
    def load(name: str | Path) -> LabelModel:
        """Return a model that `train_labels` wrote.

        :raises ModelError: the folder holds no classifier of labels
        """
        folder = folder_with("label_model", Path(name)) if Path(name).is_dir() else None
        if folder is None:
            raise ModelError(
                "the folder is not a classifier of labels",
                where=str(name),
                remedy="train a classifier of labels: hybrid train-labels",
            )
        raw = read_json(folder / "config.json")
        label_config = raw.pop("label_model")
        encoder = blank_encoder(raw, str(folder))
        model = LabelModel(
            encoder, load_tokenizer(folder), label_config["labels"], label_config["max_length"]
        )
        return with_weights(model, load_state(folder / "model.safetensors"), str(folder))


class LabelSolver:
    """Solves fact checking: the answer is a classifier's label of the claim."""

    name = "label"

    def __init__(self, model: LabelModel) -> None:
        self.model = model

    def solve(self, inputs: Sequence[str], hits: Sequence[Sequence[Hit]]) -> list[str]:
        """Return the label of each claim."""
        claims = [Claim(text, read_texts(passages)) for text, passages in zip(inputs, hits, strict=True)]
        return self.model.predict(claims)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRecipe(TrainSettings):
    """The training recipe of a classifier."""

    encoder: str
    steps: int = 600
    batch_size: int = 16
    max_length: int = 320
    dropout: float = 0.1
    held_out: int = 300
    validate_every: int = 100


class LabelTraining(TrainingRun[LabelModel]):
    """The training of a classifier: the claims with the lowest hashes are held out."""

    kind, validated = LABELS, ("held out",)

    def __init__(self, recipe: LabelRecipe, claims: Sequence[Claim], folder: Path) -> None:
        labels = sorted({claim.label for claim in claims})
        self.claims = by_hash(claims, key=lambda claim: claim.text)
        self.held_out, self.rest = self.claims[: recipe.held_out], self.claims[recipe.held_out :]
        if len(labels) < 2 or len(self.rest) < recipe.batch_size:
            raise InputError(
                f"training needs {recipe.held_out + recipe.batch_size} claims with two labels, found"
                f" {len(claims)} claims with {', '.join(labels)}",
                remedy=remedy("add claims, or set a smaller {}", Option("held_out")),
            )
        torch.manual_seed(recipe.seed)
        encoder, tokenizer = load_encoder(recipe.encoder), load_tokenizer(recipe.encoder)
        check_length(recipe.max_length, encoder_config(encoder), option="max_length")
        model = LabelModel(encoder, tokenizer, labels, recipe.max_length).to(training_device(recipe.device))
        schedule = trainer_config(recipe, model.head.weight.device, checkpoint_every=recipe.validate_every)
        facts = {"claims": hashlib.sha256(repr(self.claims).encode()).hexdigest()[:16]}
        super().__init__(model, schedule, folder, recipe, facts, encoders=[encoder], dropout=recipe.dropout)
        self.recipe = recipe
        self.measured_on = f" (accuracy on {len(self.held_out)} held-out claims)"

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the encoder's and the head's parameters; the head has 10 times the learning rate."""
        return rate_groups(
            self.model.named_parameters(), lambda name: HEAD_RATE if name.startswith("head.") else 1.0
        )

    def loss(self, step: int) -> tuple[torch.Tensor, dict[str, float]]:
        """Return the cross entropy of the labels in a random batch."""
        batch = random.Random(f"{self.recipe.seed} {step}").sample(self.rest, self.recipe.batch_size)
        target = torch.tensor([self.model.labels.index(claim.label) for claim in batch], device=self.device)
        return functional.cross_entropy(self.model(batch), target), {}

    def validate(self) -> float:
        """Return the accuracy on held-out claims."""
        predicted = self.model.predict(self.held_out)
        are_right = [label == claim.label for label, claim in zip(predicted, self.held_out, strict=True)]
        return sum(are_right) / max(1, len(are_right))


def train_labels(
    claims: Sequence[Claim], recipe: LabelRecipe, output: Path, *, resume: bool = False, command: str = ""
) -> TrainResult:
    """Train a classifier; the checkpoint with the best held-out accuracy goes to `output/best`.

    :param command: the command that the model card shows [default: the recipe]
    :raises InputError: there are fewer than two labels, or too few claims
    """
    training = LabelTraining(recipe, claims, check_output(output, resume=resume))
    counts = Counter(claim.label for claim in claims)
    table = [("label", "claims"), *sorted(counts.items())]
    return training.train(recipe, table, resume=resume, command=command)
