"""The question side in NumPy: the vectors of torch's model, and torch itself where NumPy does not suffice."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from dense.encoding.question_encoder import BertQuestionEncoder, open_question_encoder
from dense.encoding.stored_model import StoredDenseModel
from dense.models.bi_encoder import DenseModel
from dense.models.config import DenseConfig
from dense.models.resolve import dense_model_folder
from sparta.base.errors import ModelError
from sparta.base.records import Passage

QUESTIONS = [
    "the moon",
    "",
    "who founded google",
    "the sun",
    "\u2603 北京",
    "larry page and sergey brin " * 9,
    "moon",
]
MEAN = DenseConfig(question_length=24)
CLS = replace(MEAN, pooling="cls", cosine=False)
FORMS = {
    "mean": MEAN,
    "cls": CLS,
    "scaled cls": replace(CLS, cosine=True),
    "plain mean": replace(MEAN, cosine=False),
    "two encoders": replace(CLS, shared=False),
    "question expert": replace(CLS, routing="det", period=1),
    "every second layer": replace(MEAN, routing="det", period=2),
    "codes": replace(MEAN, codes=3),
}


@pytest.fixture
def make(make_tiny_model: Callable[..., Any]) -> Callable[[DenseConfig], DenseModel]:
    """A model in which no two weights are alike, LayerNorms, experts and sides included."""

    def build(config: DenseConfig) -> DenseModel:
        tiny = make_tiny_model()
        model = DenseModel(tiny.encoder, tiny.tokenizer, config).eval()
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(0.2 * torch.randn_like(weight))
        return model

    return build


def largest_difference(found: np.ndarray, wanted: np.ndarray) -> float:
    """Of the vectors, in parts of their lengths."""
    assert (found.shape, found.dtype) == (wanted.shape, np.float32)
    return float((np.linalg.norm(found - wanted, axis=1) / np.linalg.norm(wanted, axis=1)).max())


@pytest.mark.parametrize("int8", [False, True], ids=["float32", "int8"])
@pytest.mark.parametrize("config", FORMS.values(), ids=FORMS.keys())
def test_the_vectors_of_torch(make: Any, config: DenseConfig, int8: bool, tmp_path: Path) -> None:
    make(config).save_pretrained(tmp_path, int8=int8)
    encoder = open_question_encoder(tmp_path)
    assert isinstance(encoder, BertQuestionEncoder)
    wanted = DenseModel.load(tmp_path).encode_questions(QUESTIONS)
    assert largest_difference(encoder.encode_questions(QUESTIONS), wanted) < 1e-5
    assert largest_difference(wanted[1:], wanted[:-1]) > 1e-3, "they differ by more than is allowed"


@pytest.mark.slow
def test_the_vectors_of_the_shipped_model() -> None:
    folder = dense_model_folder(None)
    found = BertQuestionEncoder(folder).encode_questions(QUESTIONS)
    assert largest_difference(found, DenseModel.load(folder).encode_questions(QUESTIONS)) < 1e-5


@pytest.mark.slow
def test_the_network_differs_by_less_than_bf16_rounds() -> None:
    folder = dense_model_folder(None)
    numpy_vectors = BertQuestionEncoder(folder).encode_questions(QUESTIONS)
    network_vectors = StoredDenseModel(folder).encode_questions(QUESTIONS)
    assert largest_difference(network_vectors, numpy_vectors) < 2**-6


def test_company_changes_nothing(make: Any, tmp_path: Path) -> None:
    make(MEAN).save_pretrained(tmp_path)
    encoder = BertQuestionEncoder(tmp_path)
    many = encoder.encode_questions(QUESTIONS * 40)
    for i, question in enumerate(QUESTIONS):
        alone = encoder.encode_questions([question])[0]
        np.testing.assert_allclose(many[i :: len(QUESTIONS)], np.tile(alone, (40, 1)), rtol=1e-4, atol=1e-5)
    assert encoder.encode_questions([]).shape == (0, 32)


def test_another_model_in_the_folder_does_not_take_over(
    make: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As after another training: its vectors would search the vectors of the first model."""
    make(MEAN).save_pretrained(tmp_path)
    encoder = BertQuestionEncoder(tmp_path)
    first_vectors = encoder.encode_questions(QUESTIONS)
    make(MEAN).save_pretrained(tmp_path)
    for _ in range(20):  # more wordpieces than NumPy reads before OpenVINO takes over
        np.testing.assert_allclose(encoder.encode_questions(QUESTIONS), first_vectors, atol=1e-5)
    assert "the files of the model have changed" in caplog.text


def test_one_question_needs_no_thread(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While Python ends, for example in a function of `atexit`, no thread starts."""
    make(MEAN).save_pretrained(tmp_path)
    encoder = BertQuestionEncoder(tmp_path)
    monkeypatch.setattr("concurrent.futures.thread._shutdown", True)
    assert encoder.encode_questions(["the moon"]).shape == (1, 32)


def test_another_precision_is_torchs(make: Any, tmp_path: Path) -> None:
    make(MEAN).save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    save_file({k: v.bfloat16() for k, v in load_file(weights).items()}, weights)
    assert isinstance(open_question_encoder(tmp_path), DenseModel)


def test_a_damaged_folder_is_told(make: Any, tmp_path: Path) -> None:
    make(MEAN).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "intermediate_size": 65}))
    with pytest.raises(ModelError, match="weights that fit"):
        open_question_encoder(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(ModelError, match="expected model weights in safetensors form"):
        open_question_encoder(tmp_path)


def test_weights_of_passages_are_released_with_the_first_questions(make: Any, tmp_path: Path) -> None:
    make(CLS).save_pretrained(tmp_path / "model")
    model = StoredDenseModel(tmp_path / "model").for_passages()
    held = weakref.ref(vars(model)["_passage_weights"].layers[0].query.weight)
    model.encode_questions(QUESTIONS)
    gc.collect()
    assert held() is None
    assert model.encode_passages([Passage("1", "the moon")]).shape == (1, 1, 32)
