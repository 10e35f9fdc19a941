"""What a model folder holds, as far as no torch is needed to read it."""

from __future__ import annotations

from typing import Any

ROW_SCALE = ".row_scale"
"""Ends the name of an 8-bit matrix's scales, one a row."""

_SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)
_RATES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "layer_norm_eps")


def is_plain_bert(config: dict[str, Any]) -> bool:
    """Whether a config.json describes BERT's encoder with absolute positions and GELU."""
    return (
        config.get("model_type") == "bert"
        and config.get("hidden_act") == "gelu"
        and config.get("position_embedding_type", "absolute") == "absolute"
        and not config.get("is_decoder")
        and all(type(config.get(name)) is int and config[name] > 0 for name in _SIZES)
        and all(isinstance(config.get(name), float | int) for name in _RATES)
        and config["hidden_size"] % config["num_attention_heads"] == 0
    )
