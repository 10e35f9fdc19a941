"""A GPU gives what the CPU gives: impacts, vectors, commands, and a training that resumes.

The commands run with torch, also on the CPU in place of a GPU, so that they are tested everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dense.models.bi_encoder import DenseConfig, DenseModel
from dense.search.store import VectorFolder
from sparta.base.errors import Interrupted
from sparta.base.records import Passage
from sparta.models.config import SpartaConfig
from sparta.models.document_encoder import DocumentEncoder
from sparta.neural.inputs import InputLayout
from sparta.shards.store import read_shard, shard_series
from tests.programs import Program, dense, sparta

TEXTS = ["the moon of the earth", "larry page founded google", "a king " * 40, "west"]


@pytest.fixture(autouse=True)
def cuda(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


@pytest.fixture(params=[pytest.param("cuda", marks=pytest.mark.gpu), "cpu"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A GPU, and the CPU with torch in place of OpenVINO."""
    for module in ("sparta.runtime.fallback", "sparta.models.stored_model"):
        monkeypatch.setattr(f"{module}.uses_cpu", lambda name: False)
    return str(request.param)


@pytest.fixture
def corpus(write_jsonl: Any, make_records: Any, tmp_path: Path) -> Path:
    return Path(write_jsonl(tmp_path / "corpus.jsonl", make_records(40, seed=2)))


def run(program: Program, *command: object) -> None:
    result = program(*command)
    assert result.exit_code == 0, result.output


def test_the_command_encode(
    device: str, tiny_model_folder: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("encode", "--corpus", corpus, "--model", tiny_model_folder, "--shard-size", 16)
    run(sparta, *command, "--device", device, "--output", tmp_path / "torch", "--dtype", "fp32")
    monkeypatch.undo()
    run(sparta, *command, "--device", "cpu", "--output", tmp_path / "cpu", "--dtype", "fp32")
    manifests = [json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("torch", "cpu")]
    assert [manifest["arithmetic"] for manifest in manifests] == ["torch fp32", "openvino fp32"]
    pairs = [[read_shard(path) for path, _ in shard_series([tmp_path / name])] for name in ("torch", "cpu")]
    assert len(pairs[0]) == 3
    for found, expected in zip(*pairs, strict=True):
        assert found.passage_ids == expected.passage_ids
        np.testing.assert_array_equal(found.rows.term_ids, expected.rows.term_ids)
        np.testing.assert_allclose(found.rows.weights, expected.rows.weights, atol=1e-4)


def test_the_command_dense_encode(
    device: str, make_tiny_model: Any, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = make_tiny_model()
    layout = InputLayout(use_title=True, answer_segment=0, max_length=64, overlap=8)
    DenseModel(tiny.encoder, tiny.tokenizer, DenseConfig(layout)).save_pretrained(tmp_path / "model")
    command = ("encode", "--corpus", corpus, "--model", tmp_path / "model")
    run(dense, *command, "--device", device, "--output", tmp_path / "torch", "--dtype", "fp32")
    monkeypatch.undo()
    run(dense, *command, "--device", "cpu", "--output", tmp_path / "cpu", "--dtype", "fp32")
    found, expected = VectorFolder(tmp_path / "torch"), VectorFolder(tmp_path / "cpu")
    assert [found.arithmetic, expected.arithmetic] == ["torch fp32", "openvino fp32"]
    rows = np.arange(len(expected))
    np.testing.assert_allclose(found.take(rows), expected.take(rows), atol=5e-3)


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
