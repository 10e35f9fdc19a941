"""Small trainings of bi-encoders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from sparta.neural.inputs import EncoderInput, InputLayout
from sparta.training.paragraphs import Paragraph, ParagraphSet
from tests.programs import dense

WHOLE = InputLayout(use_title=True, answer_segment=0, max_length=64, overlap=8)


def questions_on(words: list[str], name: str = "made", n: int = 40, size: int = 6) -> ParagraphSet:
    """The question asks with two words for which two others stand in the answer."""
    paragraphs = []
    for i in range(n):
        own = [(7 * i + 3 * j) % len(words) for j in range(5)]
        text = " ".join(words[n] for n in own)
        question = " ".join(words[(n + 11) % len(words)] for n in own[:2])
        paragraphs.append(Paragraph(text, "", ((0, len(text)),), ((question, 0),)))
    return ParagraphSet(name, tuple(paragraphs), 1.0, size)


USUAL: dict[str, Any] = {
    "steps": 6,
    "learning_rate": 3e-3,
    "validate_every": 3,
    "seed": 1,
    "checkpoint_every": 2,
    "held_out": 4,
    "candidates": 10,
    "device": "cpu",
}


def states_of_cls(bert: Any, inputs: Sequence[EncoderInput]) -> torch.Tensor:
    """The states of [CLS], from transformers' BERT; each text alone, so that there is no padding."""
    rows = [bert(input_ids=torch.tensor([item.ids])).last_hidden_state[0, 0] for item in inputs]
    return torch.stack(rows)


def assert_same_gradients(ours: torch.nn.Module, theirs: Any) -> None:
    """The gradients of two encoders with the same names of weights are equal."""
    gradients = {name: parameter.grad for name, parameter in ours.named_parameters()}
    for name, parameter in theirs.named_parameters():
        assert gradients[name] is not None, name
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-3, atol=1e-5, msg=name)


def weights(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != "README.md"}


def trained(folder: Path, *arguments: object) -> dict[str, Any]:
    """The settings and data of a training of one step, as its checkpoint has them."""
    result = dense("train", "--output", folder, "--steps", 1, *arguments)
    assert result.exit_code == 0, result.output
    facts: dict[str, Any] = torch.load(folder / "state.pt", weights_only=True)["facts"]
    return facts
