"""Small trainings of bi-encoders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from cli._dense import main
from sparta.neural.inputs import InputLayout
from sparta.training.paragraphs import Paragraph, ParagraphSet

WHOLE = InputLayout(use_title=True, answer_segment=0, max_length=64, overlap=8)


def dense(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


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


def weights(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != "README.md"}
