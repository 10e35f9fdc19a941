"""An index says what encoded it, in a place that older releases ignore, and warns if another one goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparta.base.errors import InputError
from sparta.index.folder import IndexFolder
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from sparta.models.load import open_encoder
from sparta.models.model import SparseModel
from sparta.models.stored_model import StoredModel
from sparta.runtime import processor
from sparta.shards.encode import EncodeOptions, encode_corpus

pytestmark = pytest.mark.jvm
RECORDS = [{"id": str(i), "text": text} for i, text in enumerate(("the moon of the earth", "an old city"))]


def test_another_arithmetic_warns(
    tiny_model_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = IndexOptions(model=str(tiny_model_folder), device="cpu")
    build_index(tmp_path / "ix", RECORDS, options=options)
    manifest: dict[str, Any] = json.loads((tmp_path / "ix" / "manifest.json").read_text())
    assert manifest["arithmetic"] == {"live": "openvino fp32"}  # the tiny model gains nothing from 8 bits
    assert "arithmetic" not in manifest["live"]
    build_index(tmp_path / "ix", RECORDS[:1], "update", options)
    assert caplog.text == ""
    folder = IndexFolder(tmp_path / "ix")
    state = folder.state()
    assert state.live is not None
    folder.write_state(replace(state, live=replace(state.live, arithmetic="torch bf16")))
    build_index(tmp_path / "ix", RECORDS[:1], "update", options)
    assert "was encoded with torch bf16, this input with openvino fp32" in caplog.text
    assert folder.state().live == replace(folder.require_live(), arithmetic="torch bf16")


def test_auto_gives_each_device_its_own_arithmetic(
    tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A torch module on the CPU stands for the GPU, which cannot compute in OpenVINO's int8."""
    monkeypatch.setattr(processor, "WIDE", 16)
    if "int8" not in processor.capabilities():
        pytest.skip("the processor has no int8")
    on_device = StoredModel.on_device

    def with_gpu(model: StoredModel, device: str | None) -> SparseModel:
        return model.as_module() if device == "cuda:0" else on_device(model, device)

    monkeypatch.setattr(StoredModel, "on_device", with_gpu)
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    manifests = {}
    for devices in (("cpu",), ("cpu", "cuda:0"), ("cuda:0", "cpu")):
        folder = tmp_path / devices[0] if len(devices) == 1 else tmp_path / "-".join(devices)
        options = EncodeOptions(shard_size=1, devices=devices)
        model = open_encoder(str(tiny_model_folder))
        encode_corpus(corpus, folder, model, options)
        assert len(list(folder.glob("shard-*"))) == 2
        manifests[devices] = json.loads((folder / "manifest.json").read_text())
    alone, mixed, turned = manifests.values()
    int8 = "openvino int8" + processor.mixed_with("int8")
    torch_name = open_encoder(str(tiny_model_folder)).as_module().runtime_name("auto")
    assert (alone["options"]["dtype"], alone["arithmetic"]) == ("int8", int8)
    assert (mixed["options"]["dtype"], mixed["arithmetic"]) == ("auto", f"{int8}, {torch_name}")
    assert mixed["arithmetic"] == turned["arithmetic"]
    named = EncodeOptions(dtype="int8", devices=("cpu", "cuda:0"))
    with pytest.raises(InputError, match="int8"):
        encode_corpus(corpus, tmp_path / "named", str(tiny_model_folder), named)
