"""What a model folder holds, as far as no torch is needed to read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sparta.base.errors import ModelError
from sparta.base.remedies import Option, remedy

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


_MOST = {"num_hidden_layers": 1000, "n_layers": 1000, "n_layer": 1000, "num_layers": 1000, "experts": 1000}
_HARMLESS = 1 << 20
_TABLES = (
    ("hidden_size", "hidden_size"),
    ("hidden_size", "intermediate_size"),
    ("max_position_embeddings",),  # which may have no table
    ("hidden_size", "type_vocab_size"),
    ("hidden_size", "num_hidden_layers"),
    ("hidden_size", "codes"),
    ("hidden_size", "global_tokens"),
    ("dim", "dim"),
    ("dim", "hidden_dim"),
    ("dim", "n_layers"),
    ("vocab_size",),
)
"""Sizes in a configuration whose product no weights of a model are fewer than: each takes a byte or more."""


def check_sizes(config: dict[str, Any], folder: Path) -> None:
    """Refuse sizes in a config.json that the folder's weights cannot have, before memory is taken for them.

    :raises ModelError: it names the sizes.
    """
    names = ("*.safetensors", "*.bin")
    held = max(_HARMLESS, sum(path.stat().st_size for name in names for path in folder.glob(name)))
    sizes = {k: v for part in _objects(config) for k, v in part.items() if type(v) is int}
    for name, most in _MOST.items():
        if sizes.get(name, 0) > most:
            raise _too_large(f"{name} of at most {most}", f"{sizes[name]}", folder)
    for table in _TABLES:
        values = [sizes.get(name, 0) for name in table]
        product = values[0] * values[-1] if len(values) > 1 else values[0]
        if product > held:
            shown = ", ".join(f"{n} {v}" for n, v in zip(table, values, strict=True))
            raise _too_large(f"sizes that fit {held:,} bytes of weights", shown, folder)


def _objects(config: dict[str, Any]) -> list[dict[str, Any]]:
    """A configuration and the objects of ours in it."""
    return [
        config,
        *(config[name] for name in ("sparta", "dense", "reader") if type(config.get(name)) is dict),
    ]


def _too_large(expected: str, found: str, folder: Path) -> ModelError:
    return ModelError(
        f"expected {expected}, found {found[:80]}",
        where=str(folder / "config.json"),
        remedy="copy the model folder again, whole",
    )


def check_length(length: int, config: dict[str, Any], where: str = "", option: str = "") -> None:
    """Refuse inputs longer than an encoder of this configuration has positions for.

    :param option: what sets the length; without it, a model folder does
    :raises ModelError: the encoder has fewer.
    """
    positions = config.get("max_position_embeddings")
    if isinstance(positions, int) and length > positions > 0:
        raise ModelError(
            f"expected at most {positions} wordpieces, the positions of the encoder, found {length}",
            where=where,
            remedy=remedy("train with {}, or less", Option(option, positions))
            if option
            else "correct max_length in config.json",
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
