"""Checking the configuration of a model folder, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparta.base.checks import json_object
from sparta.base.errors import InputError, ModelError
from sparta.base.remedies import Option, remedy

ROW_SCALE = ".row_scale"
"""The name suffix of the row scales of an 8-bit matrix."""

_SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)
_RELATIVES_OF_ROBERTA = ("camembert", "data2vec-text", "esm", "ibert", "longformer", "luke", "mpnet", "xmod")
_RATES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "layer_norm_eps")


def is_plain_bert(config: dict[str, Any]) -> bool:
    """Return whether a config.json describes BERT's encoder with absolute positions and GELU."""
    return (
        config.get("model_type") == "bert"
        and config.get("hidden_act") == "gelu"
        and config.get("position_embedding_type", "absolute") == "absolute"
        and not config.get("is_decoder")
        and all(type(config.get(name)) is int and config[name] > 0 for name in _SIZES)
        and all(isinstance(config.get(name), float | int) for name in _RATES)
        and config["hidden_size"] % config["num_attention_heads"] == 0
    )


def is_plain_distilbert(config: dict[str, Any]) -> bool:
    """Return whether a config.json describes DistilBERT's encoder with learned positions and GELU."""
    return (
        config.get("model_type") == "distilbert"
        and config.get("activation") == "gelu"
        and all(
            type(config.get(name)) is int and config[name] > 0
            for name in ("vocab_size", "dim", "hidden_dim", "n_layers", "n_heads", "max_position_embeddings")
        )
        and config["dim"] % config["n_heads"] == 0
    )


_MAXIMA = {"num_hidden_layers": 1000, "n_layers": 1000, "n_layer": 1000, "num_layers": 1000, "experts": 1000}
_ALWAYS_ALLOWED = 1 << 20
_TABLES = (
    ("hidden_size", "hidden_size"),
    ("hidden_size", "intermediate_size"),
    ("max_position_embeddings",),  # alone, since positions need not have a table
    ("hidden_size", "type_vocab_size"),
    ("hidden_size", "num_hidden_layers"),
    ("hidden_size", "codes"),
    ("hidden_size", "global_tokens"),
    ("dim", "dim"),
    ("dim", "hidden_dim"),
    ("dim", "n_layers"),
    ("vocab_size",),
)
"""Sizes in a configuration whose product is a lower bound for the model's weights, and so for their bytes."""


def check_sizes(config: dict[str, Any], folder: Path) -> None:
    """Check that the sizes in a config.json fit the folder's weight files, before memory is allocated.

    :raises ModelError: a size is too large; the error names the sizes.
    """
    names = ("*.safetensors", "*.bin")
    weight_bytes = max(
        _ALWAYS_ALLOWED, sum(path.stat().st_size for name in names for path in folder.glob(name))
    )
    sizes = {
        name: value for section in _sections(config) for name, value in section.items() if type(value) is int
    }
    for name, maximum in _MAXIMA.items():
        if sizes.get(name, 0) > maximum:
            raise _too_large(f"{name} of at most {maximum}", f"{sizes[name]}", folder)
    for table in _TABLES:
        values = [sizes.get(name, 0) for name in table]
        product = values[0] * values[-1] if len(values) > 1 else values[0]
        if product > weight_bytes:
            shown = ", ".join(f"{name} {value}" for name, value in zip(table, values, strict=True))
            raise _too_large(f"sizes that fit {weight_bytes:,} bytes of weights", shown, folder)


def _sections(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a configuration and sparta's sections in it."""
    return [
        config,
        *(config[name] for name in ("sparta", "dense", "reader") if type(config.get(name)) is dict),
    ]


def _too_large(expected: str, sizes: str, folder: Path) -> ModelError:
    return ModelError(
        f"expected {expected}, found {sizes[:80]}",
        where=str(folder / "config.json"),
        remedy="copy the complete model folder again",
    )


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file of a model folder; the sizes in a config.json are checked.

    :raises ModelError: the file is missing or is not a JSON object, or a size is wrong.
    :raises StorageError: the file cannot be read, whatever its content.
    """
    value = json_object(path)
    if path.name == "config.json":
        check_sizes(value, path.parent)
    return value


def read_settings(path: Path | None) -> dict[str, Any]:
    """Return the JSON object in a file of settings, as `read_json` does; {} for None or a missing file."""
    return read_json(path) if path and path.is_file() else {}


def usable_positions(config: Mapping[str, Any]) -> int | None:
    """Return the number of wordpieces that an encoder of this configuration can read; None if unlimited.

    RoBERTa and its relatives number positions from behind the padding's.
    """
    positions, model_type = config.get("max_position_embeddings"), str(config.get("model_type"))
    if not isinstance(positions, int) or positions <= 0:
        return None
    if "roberta" not in model_type and model_type not in _RELATIVES_OF_ROBERTA:
        return positions
    padding = None if model_type == "mpnet" else config.get("pad_token_id")  # MPNet ignores its configuration
    return positions - (1 if padding is None else int(padding)) - 1


def check_length(length: int, config: dict[str, Any], folder: Path = Path(), option: str = "") -> None:
    """Check that an encoder of this configuration has enough positions for inputs of `length` wordpieces.

    :param folder: the folder of the model, whose config.json sets the length
    :param option: the option that sets the length in place of config.json
    :raises InputError: the encoder has fewer positions, and an option sets the length.
    :raises ModelError: the encoder has fewer positions, and config.json sets the length.
    """
    positions = usable_positions(config)
    if positions is None or length <= positions:
        return
    message = f"expected at most {positions} wordpieces, the encoder's number of positions, found {length}"
    if option:
        raise InputError(message, remedy=remedy("train with at most {}", Option(option, positions)))
    where = str(folder / "config.json")
    raise ModelError(message, where=where, remedy="correct max_length in config.json")


def config_object(value: Any, name: str, newest: int, where: str) -> dict[str, Any]:
    """Return a section of a config.json after checking its format version.

    :raises ModelError: the section is not an object, or has a format newer than `newest`.
    """
    if not isinstance(value, dict):
        raise ModelError(f"expected a {name} object, found {type(value).__name__}", where=where)
    version = value.get("format_version")
    if not isinstance(version, int) or version > newest:
        raise ModelError(
            f"expected a model of format {newest} or older, found {version}",
            where=where,
            remedy="upgrade sparta, or train the model again with this release",
        )
    return value
