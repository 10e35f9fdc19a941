"""Checkpoints of others: DPR's (transformers folders, dict files) and TASER's released dict files."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import nn

from dense.encoders import DenseConfig, DenseModel
from sparta.base.errors import ModelError
from sparta.inputs import InputLayout
from sparta.neural.checkpoint import load_state
from sparta.tokenize import load_tokenizer

State = dict[str, torch.Tensor]
_SIDES = {"question": ("question_model.", "question_encoder."), "passage": ("ctx_model.", "ctx_encoder.")}
_EXPERT = re.compile(r"(encoder\.layer\.\d+)\.moe_layer\.(interm|output)_layers\.(\d+)\.(.+)")
LONGEST = 256
_SIZES = (
    "embeddings.word_embeddings.weight",
    "embeddings.position_embeddings.weight",
    "embeddings.token_type_embeddings.weight",
    "encoder.layer.0.intermediate.dense.weight",
)


def load_dpr_dict(path: str | Path, tokenizer: str | Path) -> DenseModel:
    """Return the model of a dict file of DPR's or TASER's code: `model_dict` with both encoders.

    Passages are `title [SEP] text`, cut at 256 wordpieces; vectors are the states of [CLS], and the score is
    the dot product.

    :param tokenizer: a folder or hub id, such as bert-base-uncased: the file holds none.
    :raises ModelError: another layout, or a file that needs more than weights to be opened.
    """
    path = Path(path)
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, pickle.UnpicklingError, EOFError) as error:
        raise ModelError(
            f"expected a dict file with weights, could not read it: {error}",
            where=str(path),
            remedy="save it again with plain encoder_params if it holds other objects (OmegaConf's, for one)",
        ) from error
    weights = stored.get("model_dict", stored) if isinstance(stored, dict) else None
    if not isinstance(weights, dict) or not any(k.startswith("ctx_model.") for k in weights):
        raise ModelError(
            "expected question_model and ctx_model in a dict file, found neither", where=str(path)
        )
    sides = {side: _side(weights, prefixes[0]) for side, prefixes in _SIDES.items()}
    return _assemble(sides, load_tokenizer(tokenizer), str(path))


def load_dpr_folders(question: str | Path, passage: str | Path) -> DenseModel:
    """Return the model of two folders of transformers' DPR (`facebook/dpr-question_encoder-…` and so on).

    :raises ModelError: a folder holds something else.
    """
    sides = {}
    for side, folder in (("question", Path(question)), ("passage", Path(passage))):
        file = folder / "model.safetensors"
        if not file.is_file():
            raise ModelError("expected model.safetensors of a DPR encoder, found none", where=str(folder))
        own = _side(load_state(file), _SIDES[side][1])
        sides[side] = {k.removeprefix("bert_model."): v for k, v in own.items()}
        if not sides[side]:
            raise ModelError(f"expected a DPR {side} encoder, found none of its weights", where=str(folder))
    return _assemble(sides, load_tokenizer(passage), str(passage))


def _side(weights: dict[str, Any], prefix: str) -> State:
    """Return the weights of one side by BERT's names, without what BERT does not need."""
    found = {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
    if any(k.startswith("encoder.embeddings.") for k in found):  # TASER's code wraps the encoder once more
        found = {k.removeprefix("encoder."): v for k, v in found.items() if k.startswith("encoder.")}
    return {k: v for k, v in found.items() if not k.endswith("position_ids") and "pooler." not in k}


def _assemble(sides: dict[str, State], tokenizer: Tokenizer, where: str) -> DenseModel:
    passage = sides["passage"]
    experts = {int(m[3]) for k in passage if (m := _EXPERT.fullmatch(k))}
    layout = InputLayout(use_title=True, answer_segment=0, max_length=LONGEST, overlap=0, separate_title=True)
    if experts:
        layers = sorted({int(m[1].split(".")[2]) for k in passage if (m := _EXPERT.fullmatch(k))})
        config = DenseConfig(
            layout,
            routing="det",
            experts=len(experts),
            period=layers[0] + 1,
            pooling="cls",
            cosine=False,
        )
        found = {"passage_encoder": {_expert_name(k): v for k, v in passage.items()}}
    else:
        config = DenseConfig(layout, shared=False, pooling="cls", cosine=False)
        found = {"passage_encoder": passage, "question_encoder": sides["question"]}
    model = DenseModel(_bert_for(passage, where), tokenizer, config)
    state = {f"{name}.{k}": v for name, own in found.items() for k, v in own.items()}
    if config.shared:
        state |= {k.replace("passage_", "question_", 1): v for k, v in state.items()}
    try:
        model.load_state_dict({**state, "log_scale": model.log_scale.detach()})
    except RuntimeError as error:
        raise ModelError(f"expected the weights of BERT encoders: {error}", where=where) from error
    return model.eval()


def _expert_name(name: str) -> str:
    """`…moe_layer.output_layers.1.dense.weight` is our `…output.experts.1.output.dense.weight`."""
    match = _EXPERT.fullmatch(name)
    if match is None:
        return name
    layer, kind, number, rest = match.groups()
    part = "intermediate" if kind == "interm" else "output"
    return f"{layer}.output.experts.{number}.{part}.{rest}"


def _bert_for(state: State, where: str) -> nn.Module:
    """Return an empty BERT of the weights' sizes; heads have 64 dimensions, as all released ones do."""
    from transformers import BertConfig, BertModel

    missing = [k for k in _SIZES if k not in state]
    if missing:
        raise ModelError(f"expected the weights of a BERT encoder, found no {missing[0]}", where=where)
    words, width = state["embeddings.word_embeddings.weight"].shape
    inner = state["encoder.layer.0.intermediate.dense.weight"].shape[0]
    config = BertConfig(
        vocab_size=words,
        hidden_size=width,
        num_hidden_layers=len({k.split(".")[2] for k in state if k.startswith("encoder.layer.")}),
        num_attention_heads=max(1, width // 64),
        intermediate_size=inner,
        max_position_embeddings=state["embeddings.position_embeddings.weight"].shape[0],
        type_vocab_size=state["embeddings.token_type_embeddings.weight"].shape[0],
    )
    return BertModel(config, add_pooling_layer=False)
