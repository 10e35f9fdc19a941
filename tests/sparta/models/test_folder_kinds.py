"""Which folders are read as sparse models, how, and with which words the others are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparta.base.errors import ModelError
from sparta.models.folders.kinds import Kind, kind_of
from sparta.models.folders.sparse_folder import read_sparse_folder

SPARSE = "sentence_transformers.sparse_encoder.models"


def modules(*names: str) -> list[dict[str, Any]]:
    return [{"idx": i, "name": str(i), "path": "", "type": f"{SPARSE}.{n}"} for i, n in enumerate(names)]


def architecture(name: str, **more: Any) -> dict[str, Any]:
    return {"config.json": {"architectures": [name], "model_type": "bert", **more}}


READ: dict[str, tuple[dict[str, Any], Kind]] = {
    "sparta": (architecture("SpartaModel", sparta={"format_version": 1}), Kind.SPARTA),
    "beir": (architecture("DistilBertModel"), Kind.BEIR),
    "beir-bert": (architecture("BertModel"), Kind.BEIR),
    "splade": (architecture("BertForMaskedLM"), Kind.SPLADE),
    "splade-distilbert": (architecture("DistilBertForMaskedLM"), Kind.SPLADE),
    "opensearch": ({**architecture("DistilBertForMaskedLM"), "idf.json": {"the": 1}}, Kind.INFERENCE_FREE),
    "sentence-transformers": (
        {**architecture("BertForMaskedLM"), "modules.json": modules("MLMTransformer", "SpladePooling")},
        Kind.SPARSE_ENCODER,
    ),
    "router": ({"modules.json": modules("Router")}, Kind.SPARSE_ENCODER),
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "empty": ({}, "no known kind of sparse model: it has no config.json"),
    "vectors": ({"0.jsonl": {"id": "1", "vector": {"the": 3}}}, "index them with vectors"),
    "no-architecture": ({"config.json": {"model_type": "bert"}}, "it has no architectures"),
    "cross-encoder": (architecture("BertForSequenceClassification"), "a cross-encoder reranks the hits"),
    "unicoil": (architecture("BertForTokenClassification"), "the architecture BertForTokenClassification"),
    "generator": (architecture("T5ForConditionalGeneration"), "architecture T5ForConditionalGeneration"),
    "dense": (architecture("DenseModel", dense={}), "the model is dense, not a SPARTA model"),
    "reader": (architecture("Reader", reader={}), "the model is a reader"),
    "bi-encoder": (
        {"modules.json": modules("Transformer", "Pooling"), "config.json": {}},
        "it has the modules Transformer + Pooling",
    ),
    "csr": (
        {"modules.json": modules("Transformer", "Pooling", "SparseAutoEncoder"), "config.json": {}},
        "it has the modules Transformer + Pooling + SparseAutoEncoder",
    ),
    "colbert": ({"modules.json": modules("Transformer", "Dense"), "config.json": {}}, "Transformer + Dense"),
    "no-json": ({"config.json": ["a list"]}, "expected a JSON object, found list"),
}


def written(files: dict[str, Any], folder: Path) -> Path:
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value))
    return folder


@pytest.mark.parametrize("case", READ)
def test_known_kinds(case: str, tmp_path: Path) -> None:
    files, kind = READ[case]
    assert kind_of(written(files, tmp_path)) is kind


@pytest.mark.parametrize("case", REFUSED)
def test_unknown_kinds_are_refused(case: str, tmp_path: Path) -> None:
    files, words = REFUSED[case]
    with pytest.raises(ModelError) as caught:
        read_sparse_folder(written(files, tmp_path))
    assert words in str(caught.value)
    if "no known kind" in str(caught.value):
        assert all(kind.value in str(caught.value) for kind in Kind), "a refusal lists all known kinds"
        assert str(tmp_path) in str(caught.value)
