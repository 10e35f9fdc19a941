"""What a model folder holds, as far as no torch is needed to read it."""

from __future__ import annotations

from typing import Any

from sparta.base.errors import ModelError

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


def config_object(value: Any, name: str, newest: int, where: str) -> dict[str, Any]:
    """Return the object of this name in a config.json; one of a format newer than `newest` is refused.

    :raises ModelError: it is no object, or of a newer format.
    """
    if not isinstance(value, dict):
        raise ModelError(f"expected a {name} object, found {type(value).__name__}", where=where)
    version = value.get("format_version")
    if not isinstance(version, int) or version > newest:
        raise ModelError(
            f"expected a model of format {newest} or older, found {version}",
            where=where,
            remedy="upgrade sparta, or train the model again with this version",
        )
    return value
