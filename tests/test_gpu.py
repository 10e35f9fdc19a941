"""A GPU gives what the CPU gives: impacts, vectors, and a training that resumes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dense.models.bi_encoder import DenseConfig, DenseModel
from sparta.base.errors import Interrupted
from sparta.base.records import Passage
from sparta.models.config import SpartaConfig
from sparta.models.document_encoder import DocumentEncoder
from sparta.neural.inputs import InputLayout

TEXTS = ["the moon of the earth", "larry page founded google", "a king " * 40, "west"]


@pytest.fixture(autouse=True)
def cuda() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


@pytest.mark.gpu
def test_impacts(make_tiny_model: Callable[..., Any]) -> None:
    model = make_tiny_model()
    expected = model.encode_document(TEXTS, dtype="fp32").toarray()
    found = model.encode_document(TEXTS, dtype="fp32", device="cuda").toarray()
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.gpu
def test_impacts_of_many_batches(make_tiny_model: Callable[..., Any]) -> None:
    """Several windows, and sentences that share their context."""
    layout = InputLayout(use_context=True, share_context=True, answer_segment=0, max_length=24, overlap=4)
    model = make_tiny_model(SpartaConfig(layout=layout))
    story = ". ".join(TEXTS)
    places = [(story.index(text), text) for text in TEXTS]
    texts = [Passage("", text, context=story, start=at, end=at + len(text)) for at, text in places]
    expected, _ = DocumentEncoder(model, dtype="fp32").encode(texts * 5)
    found, _ = DocumentEncoder(model.to("cuda"), dtype="fp32", token_budget=60).encode(texts * 5)
    np.testing.assert_array_equal(found.term_ids, expected.term_ids)
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-4)


@pytest.mark.gpu
def test_vectors(make_tiny_model: Callable[..., Any]) -> None:
    tiny = make_tiny_model()
    layout = InputLayout(use_title=True, answer_segment=0, max_length=64, overlap=8)
    model = DenseModel(tiny.encoder, tiny.tokenizer, DenseConfig(layout))
    passages = [Passage("", text, "title") for text in TEXTS]
    expected = model.encode_passages(passages, "fp32"), model.encode_questions(TEXTS)
    model = model.to("cuda")
    found = model.encode_passages(passages, "fp32"), model.encode_questions(TEXTS)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-3)


@pytest.mark.gpu
def test_a_training_resumes(train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """With the random numbers of the device."""
    from sparta.training.sparta_training import SpartaTraining

    whole = train("whole", device="cuda")
    original = SpartaTraining.loss

    def stopped(self: Any, step: int) -> Any:
        if step == 4:
            raise KeyboardInterrupt
        return original(self, step)

    with monkeypatch.context() as patched:
        patched.setattr(SpartaTraining, "loss", stopped)
        with pytest.raises(Interrupted):
            train("part", device="cuda")
    part = train("part", device="cuda", resume=True)
    assert part.step == whole.step
    assert part.validation == pytest.approx(whole.validation, abs=1e-3)
    assert Path(part.folder, "config.json").is_file()
