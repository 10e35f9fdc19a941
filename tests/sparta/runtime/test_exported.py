"""Encoders of other architectures: exported once by torch, equal to torch, then read without torch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel, BertConfig
from transformers.modeling_outputs import BaseModelOutput

from dense.encoding.load import load_dense
from dense.encoding.question_encoder import open_question_encoder
from dense.encoding.stored_model import StoredDenseModel
from dense.models.bi_encoder import DenseModel
from dense.models.config import DenseConfig
from sparta.base.errors import SpartaError
from sparta.base.records import Passage
from sparta.neural.backbones import without_pooler
from sparta.neural.inputs import InputLayout
from sparta.runtime import processor
from sparta.runtime.exported import exported, fits_bf16

TEXTS = ["the moon of the earth", "the king was born in paris in the year", "larry page", "google " * 40]
SIZES: dict[str, dict[str, Any]] = {
    "roberta": {"max_position_embeddings": 66},
    "mpnet": {"max_position_embeddings": 66},
    "electra": {"embedding_size": 16, "max_position_embeddings": 64},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 48, "max_position_embeddings": 64},
}


@pytest.fixture
def make(tiny_tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that saves a bi-encoder of an architecture, and returns it and its folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def made(name: str) -> tuple[DenseModel, Path]:
        torch.manual_seed(3)
        sizes: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
        if name == "distilbert":
            sizes = {}
        vocabulary = tiny_tokenizer.get_vocab_size()
        config = AutoConfig.for_model(
            name, vocab_size=vocabulary, intermediate_size=48, **sizes, **SIZES[name]
        )
        encoder = AutoModel.from_config(config, **without_pooler(name))
        layout = InputLayout(answer_segment=0, max_length=48, overlap=4)
        model = DenseModel(encoder, tiny_tokenizer, DenseConfig(layout)).eval()
        model.save_pretrained(tmp_path / name)
        return DenseModel.load(tmp_path / name), tmp_path / name

    return made


def passages() -> list[Passage]:
    return [Passage(str(number), text) for number, text in enumerate(TEXTS)]


def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every later import of torch fail, as without the package."""
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in ("dense.models.bi_encoder", "sparta.neural.export_module"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_an_exported_encoder_equals_torch(name: str, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, folder = make(name)
    vectors, questions = model.encode_passages(passages(), "fp32"), model.encode_questions(TEXTS)
    first = load_dense(folder, "cpu")
    assert isinstance(first, StoredDenseModel)
    np.testing.assert_allclose(first.encode_passages(passages(), "fp32"), vectors, atol=1e-4)
    without_torch(monkeypatch)
    again = load_dense(folder, "cpu")
    np.testing.assert_allclose(again.encode_passages(passages(), "fp32"), vectors, atol=1e-4)
    np.testing.assert_allclose(open_question_encoder(folder).encode_questions(TEXTS), questions, atol=1e-4)


@pytest.mark.slow
def test_the_cache_is_written_once_and_mended(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, folder = make("roberta")
    load_dense(folder, "cpu").encode_questions(TEXTS)
    [file] = (tmp_path / "cache" / "sparta" / "graphs").iterdir()
    first = file.stat()
    load_dense(folder, "cpu").encode_passages(passages())
    [file] = file.parent.iterdir()
    assert file.stat()[:3] == first[:3], "questions and passages share a graph, which is not written again"
    for damage in (b"", file.read_bytes()[:-300]):
        file.write_bytes(damage)
        load_dense(folder, "cpu").encode_passages(passages())
        with np.load(file) as stored:  # raises if the file is cut
            assert stored["weights"].size
    (tmp_path / "no-folder").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no-folder"))
    assert isinstance(load_dense(folder, "cpu"), StoredDenseModel)


class Waves(torch.nn.Module):
    """An encoder whose states depend on positions; numbers above 256 lose their last digits in bf16."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(50, 8)
        self.scales = torch.nn.Parameter(factor * torch.rand(8))
        self.mixed = torch.nn.Linear(8, 8, bias=False)
        self.config = BertConfig(vocab_size=50)

    def forward(self, input_ids: Any, attention_mask: Any = None, **_: Any) -> Any:
        positions = attention_mask.cumsum(1).float()[..., None]
        waves = torch.sin(self.mixed(positions * self.scales))
        return BaseModelOutput(last_hidden_state=self.words(input_ids) + waves)


@pytest.mark.skipif("bf16" not in processor.capabilities(), reason="this processor has no bf16")
@pytest.mark.parametrize(("factor", "fits"), [(0.0, True), (9.0, False)])
def test_positions_that_bf16_rounds(
    factor: float, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    torch.manual_seed(5)
    assert fits_bf16(exported("waves", 300, lambda: Waves(factor)), 300) == fits


def test_a_failure_of_openvino_is_no_reading(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full folder for temporary files, for example: torch reads the model."""
    _, folder = make("electra")

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("basic_ios::clear: iostream error")

    monkeypatch.setattr(processor.runtime(), "save_model", fail)
    assert isinstance(load_dense(folder, "cpu"), DenseModel)


def test_torch_reads_an_encoder_that_openvino_cannot_convert(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, folder = make("electra")

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("tracing failed")

    monkeypatch.setattr(processor.runtime(), "convert_model", fail, raising=False)
    loaded = load_dense(folder, "cpu")
    assert isinstance(loaded, DenseModel)
    np.testing.assert_array_equal(loaded.encode_questions(TEXTS), model.encode_questions(TEXTS))


def test_without_torch_and_without_a_graph(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, folder = make("electra")
    without_torch(monkeypatch)
    with pytest.raises(SpartaError) as caught:
        load_dense(folder, "cpu")
    assert "sparta-search[train]" in str(caught.value)


def test_a_damaged_graph_is_exported_again(make: Any, tmp_path: Path) -> None:
    """The graph itself, not the weights beside it."""
    _, folder = make("roberta")
    expected = load_dense(folder, "cpu").encode_passages(passages(), "fp32")
    [path] = (tmp_path / "cache").rglob("*.npz")
    content = bytearray(path.read_bytes())
    content[content.index(b"<net") + 50] ^= 1
    path.write_bytes(content)
    np.testing.assert_allclose(
        load_dense(folder, "cpu").encode_passages(passages(), "fp32"), expected, atol=1e-6
    )
