"""Pretrained encoders, loaded with their weights or created blank."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from sparta.base.errors import ModelError
from sparta.neural.bert import Bert
from sparta.neural.checkpoint import from_pretrained
from sparta.neural.stored import is_plain_bert, usable_positions

_WITH_POOLER = ("albert", "bert", "camembert", "mpnet", "roberta", "xlm-roberta")


def load_encoder(name: str | Path) -> nn.Module:
    """Return a pretrained encoder (folder or hub id) in float32, without a pooler.

    :raises ModelError: the model cannot be loaded.
    """
    from transformers import AutoConfig, AutoModel

    try:
        config = AutoConfig.from_pretrained(str(name), trust_remote_code=False)
    except Exception as error:
        raise ModelError(
            f"expected a transformers model, found no usable config.json: {error}",
            where=str(name),
            remedy="name the folder or the hub id of an encoder such as BERT",
        ) from error
    return from_pretrained(AutoModel, name, **without_pooler(config.model_type))


def without_pooler(model_type: str) -> dict[str, bool]:
    """Return the arguments that create an encoder of this type without a pooler."""
    return {"add_pooling_layer": False} if model_type in _WITH_POOLER else {}


def blank_encoder(config: dict[str, Any], where: str) -> nn.Module:
    """Return a float32 encoder with this configuration, but without weights.

    :param where: the model folder, for the error message
    :raises ModelError: the configuration is not valid.
    """
    if is_plain_bert(config):
        return Bert(config)
    try:
        return _of_transformers(config)
    except Exception as error:  # transformers checks configurations with errors of several packages
        raise ModelError(
            f"expected the configuration of an encoder: {(str(error).splitlines() or [''])[0][:200]}",
            where=where,
            remedy="copy the complete model folder again",
        ) from error


def _of_transformers(config: dict[str, Any]) -> nn.Module:
    """Return a blank encoder made by transformers."""
    from transformers import AutoConfig, AutoModel

    encoder_config = AutoConfig.for_model(**config)
    arguments = {"dtype": torch.float32, **without_pooler(encoder_config.model_type)}
    with torch.device("meta"):
        encoder: nn.Module = AutoModel.from_config(encoder_config, **arguments)
    buffers = {name.rpartition(".")[2] for name, _ in encoder.named_buffers()}
    if not buffers <= {
        "position_ids",
        "token_type_ids",
    }:  # the model computes other buffers, such as rotary tables, when it is created
        return AutoModel.from_config(encoder_config, **arguments)
    encoder = encoder.to_empty(device="cpu")
    for name, buffer in encoder.named_buffers():
        is_positions = name.endswith("position_ids")
        buffer.copy_(
            torch.arange(buffer.shape[-1]).expand_as(buffer) if is_positions else torch.zeros_like(buffer)
        )
    return encoder


def as_plain_bert(encoder: nn.Module) -> nn.Module:
    """Convert a BERT of transformers to sparta's `Bert`; return other encoders unchanged."""
    config = encoder_config(encoder)
    if isinstance(encoder, Bert) or not is_plain_bert(config):
        return encoder
    plain = Bert(config)
    plain.load_state_dict(encoder.state_dict())
    return plain


def encoder_width(encoder: nn.Module) -> int:
    """Return the hidden size of an encoder."""
    config: Any = encoder.config
    return int(config.hidden_size)


def longest_input(encoder: nn.Module, most: int) -> int:
    """Return the number of wordpieces that an encoder has positions for, at most `most`."""
    return min(most, usable_positions(encoder_config(encoder)) or most)


def token_types(config: Mapping[str, Any], segments: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the segments as an argument of an encoder; {} if its configuration has no segments."""
    return {"token_type_ids": segments} if int(config.get("type_vocab_size", 0)) >= 2 else {}


def encoder_config(encoder: nn.Module) -> dict[str, Any]:
    """Return an encoder's configuration, as in its config.json."""
    config: Any = encoder.config
    fields = vars(config) if isinstance(config, SimpleNamespace) else config.to_dict()
    return {name: value for name, value in fields.items() if name != "_name_or_path"}


def set_dropout(module: nn.Module, probability: float) -> None:
    """Set the dropout probability of all layers. On a CPU, 0 makes a training step several times faster."""
    layer: Any
    for layer in module.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = probability
        elif hasattr(layer, "dropout_prob"):  # attention of transformers 4
            layer.dropout_prob = probability


def use_fast_attention(encoder: nn.Module) -> None:
    """Choose the attention implementation with the fastest backward pass: on a CPU, plain matrix products.

    Torch's fused kernel is faster for inference, but its backward pass in bf16 took three times as long (12
    texts of 179 wordpieces, one thread).
    """
    choose = getattr(encoder, "set_attn_implementation", None)
    if choose and next(encoder.parameters()).device.type == "cpu":
        choose("eager")
