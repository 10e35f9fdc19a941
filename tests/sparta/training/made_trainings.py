"""Small trainings, made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


def dense(model: Any, texts: list[Any]) -> np.ndarray:
    return model.encode_document(texts, dtype="fp32").toarray().astype(np.float64)


def bags(model: Any, questions: list[str]) -> np.ndarray:
    return model.encode_query(questions).toarray().astype(np.float64)


def hand_made() -> Any:
    from sparta.training.paragraphs import Paragraph, ParagraphSet

    def paragraph(text: str, *asked: tuple[str, int]) -> Any:
        spans, at = [], 0
        for part in text.split(". "):
            spans.append((at, at + len(part)))
            at += len(part) + 2
        return Paragraph(text, "", tuple(spans), asked)

    paragraphs = (
        paragraph("larry page founded google. google was sold", ("who founded google", 0), ("sold", 1)),
        paragraph("the moon of the earth. a house in the city", ("moon moon earth", 0)),
        paragraph("jupiter. the moon of the earth", ("the planet", 0)),  # an answer of another once more
        paragraph("paris", ("capital of france", 0)),
    )
    return ParagraphSet("hand", paragraphs, 1.0, 4)


def forget_the_words(model: Any) -> None:
    """Give the terms other embeddings than those of the words in the answers."""
    import torch

    with torch.no_grad():
        model.term_embeddings.normal_(generator=torch.Generator().manual_seed(4))


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file() and p.name != "README.md"}
