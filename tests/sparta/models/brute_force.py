"""Texts, and their weights computed one term at a time."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from sparta.base.records import Passage
from sparta.models.sparta import SpartaModel

Make = Callable[..., SpartaModel]

TEXTS = [
    "Larry Page and Sergey Brin founded Google in a small house.",
    "moon",
    "北京 is a city, a large city in China",
    "the earth of all the years and the west of the east " * 4,
    "",
    "who wrote the paper about relativity and the energy of light?",
]


def brute_force(
    model: SpartaModel, text: str, *, segments: bool = True, special: bool = False, logs: int = 1
) -> np.ndarray:
    """Eq. 4 to 6 for one text alone: a loop over terms and over tokens, in plain Python numbers."""
    ids = model.tokenizer.encode(text).ids
    marks = [0] + [1 if segments else 0] * (len(ids) - 2) + [0]
    with torch.no_grad():
        states = model.encoder(
            input_ids=torch.tensor([ids]),
            token_type_ids=torch.tensor([marks]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        ).last_hidden_state[0]
    positions = range(len(ids)) if special else range(1, len(ids) - 1)
    tied = model.encoder.get_input_embeddings().weight
    table = (tied if model.config.tied else model.term_embeddings).detach()
    weights = np.zeros(len(table))
    for term in range(len(table)):
        piece = model.tokenizer.id_to_token(term)
        if piece in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") or piece.startswith("[unused"):
            continue
        if piece in set(".,;:!?'\"()"):
            continue
        products = [float(torch.dot(table[term], states[j])) for j in positions]
        if not products:
            continue
        feature = max(0.0, max(products) * model.scale.item() + model.bias.item())
        for _ in range(logs):
            feature = np.log(1 + feature)
        weights[term] = feature
    return weights


def terms_of(model: SpartaModel) -> list[int]:
    """The entries that may have weights: not the 15 that are special or unused, not punctuation."""
    marks = {model.tokenizer.token_to_id(mark) for mark in ".,;:!?'\"()"}
    return [i for i in range(15, model.tokenizer.get_vocab_size()) if i not in marks]


def dense(model: SpartaModel, texts: Sequence[str | Passage], **options: object) -> np.ndarray:
    return model.encode_document(texts, **{"dtype": "fp32", **options}).toarray()


def passages(texts: Sequence[str]) -> list[Passage]:
    return [Passage(str(i), text) for i, text in enumerate(texts)]


CONTEXT_TEXT = "one two three four five who was king six seven eight"

IN_CONTEXT = Passage("1", "who was king", context=CONTEXT_TEXT, start=24, end=36)


def broken_copy(source: Path, target: Path, change: Callable[[dict[str, object]], object]) -> Path:
    shutil.copytree(source, target)
    config = json.loads((target / "config.json").read_text())
    change(config)
    (target / "config.json").write_text(json.dumps(config))
    return target
