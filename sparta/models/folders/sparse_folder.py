"""Reading the folders of other projects' sparse encoders, without torch.

`sparta.models.folders.kinds` decides which function reads a folder. sentence-transformers is not needed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from sparta.base.checks import vocabulary_size
from sparta.base.errors import ModelError
from sparta.base.extras import optional_packages
from sparta.base.remedies import Option
from sparta.models.config import SpartaConfig
from sparta.models.folders.kinds import IDF, Kind, kind_of, module_entries, unknown_modules
from sparta.models.folders.tokenizer import load_tokenizer
from sparta.neural.inputs import CONTEXT, InputLayout
from sparta.neural.stored import read_json, usable_positions
from sparta.runtime.weights import StoredWeights

logger = logging.getLogger(__name__)

BEIR_MAX_LENGTH = 500
_ROUTERS = ("Router", "Asym")
_TRANSFORMERS = ("Transformer", "MLMTransformer")
_DOCUMENT_ROUTES = ("document", "doc", "passage", "corpus")
_LOG_COUNTS = {"relu": 1, "log1p_relu": 2}
_NO_LIMIT = 512


class Network(NamedTuple):
    """The folder of a masked language model, and how it encodes texts into weights of terms."""

    folder: Path
    config: SpartaConfig


class SparseFolder(NamedTuple):
    """The parts of a sparse encoder's folder.

    :param network: the folder of the network that encodes passages
    :param query_weights: the weight of each query term, `(vocabulary,)`; None without
    :param query_network: encodes queries; None if queries need no network
    """

    network: Path
    tokenizer: Tokenizer
    config: SpartaConfig
    query_weights: npt.NDArray[np.float32] | None = None
    query_network: Network | None = None


def read_beir_folder(
    folder: Path, encoder_config: Mapping[str, Any], *, pool_special: bool = False
) -> SparseFolder:
    """Read a plain encoder's folder as BEIR reads SPARTA checkpoints.

    :param encoder_config: the encoder's configuration, with all its defaults
    """
    longest = min(BEIR_MAX_LENGTH, usable_positions(encoder_config) or _NO_LIMIT)
    layout = replace(_layout(longest), answer_segment=CONTEXT)  # BEIR uses no segments
    config = SpartaConfig(layout=layout, tied=True, pool_special=pool_special)
    return SparseFolder(folder, load_tokenizer(folder), config)


def read_sparse_folder(folder: Path) -> SparseFolder:
    """Read the folder of a masked language model that encodes passages: SPLADE and its inference-free forms.

    :raises ModelError: the folder is of another kind, or parts of the model are not supported.
    """
    kind = kind_of(folder)
    if kind is not Kind.SPARSE_ENCODER:
        return _read_language_model(folder, kind)
    try:
        return _read_sparse_encoder(folder)
    except (KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"the folder is not a valid sentence-transformers SparseEncoder: {error!r}",
            where=str(folder),
            remedy="save the model again with a current sentence-transformers",
        ) from error


def _read_language_model(folder: Path, kind: Kind) -> SparseFolder:
    """Read a masked language model that transformers saved: log(1 + ReLU(logit)), maximum over the tokens.

    The network also encodes queries, unless the folder holds a table of query-term weights.
    """
    module, tokenizer = _Module("", folder), load_tokenizer(folder)
    config = _config(module, log_count=1)
    if kind is Kind.INFERENCE_FREE:
        return SparseFolder(folder, tokenizer, config, _table(folder, folder / IDF, tokenizer))
    return SparseFolder(folder, tokenizer, config, query_network=Network(folder, config))


class _Module(NamedTuple):
    """A module of a saved SparseEncoder: its class name and its folder."""

    name: str
    folder: Path

    def settings(self, *names: str) -> dict[str, Any]:
        """Return the first existing JSON file of the given names; {} if none exists."""
        return next((read_json(self.folder / n) for n in names if (self.folder / n).is_file()), {})


def _read_sparse_encoder(folder: Path) -> SparseFolder:
    _check_settings(folder)
    query, document = _routes(folder)
    network = _network(folder, document)
    tokenizer = load_tokenizer(network.folder)
    if [module.name for module in query] == ["SparseStaticEmbedding"]:
        weights = _query_weights(folder, query[0], tokenizer)
        return SparseFolder(network.folder, tokenizer, network.config, weights)
    query_network = _network(folder, query)
    _check_tokenizer(query_network.folder, tokenizer)
    return SparseFolder(network.folder, tokenizer, network.config, query_network=query_network)


def _config(transformer: _Module, log_count: int) -> SpartaConfig:
    """Return how a masked language model encodes texts; [CLS] and [SEP] count in the maximum."""
    longest = _longest(transformer, read_json(transformer.folder / "config.json"))
    return SpartaConfig(
        layout=replace(_layout(longest), answer_segment=CONTEXT),  # SPLADE uses no segments
        tied=True,
        pool_special=True,
        log_count=log_count,
    )


def _check_settings(folder: Path) -> None:
    """Refuse prompts and other similarities, which would change all weights or scores.

    A limit on the number of terms leaves their weights as they are, so it is only named.
    """
    settings = _Module("", folder).settings("config_sentence_transformers.json")
    prompts = settings.get("prompts") or {}
    if prompts.get("query") or prompts.get("document"):
        raise ModelError("the model adds prompts to texts, which sparta does not support", where=str(folder))
    similarity = settings.get("similarity_fn_name")
    if similarity not in (None, "dot"):
        raise ModelError(
            f"the model must compare by dot product, but its similarity_fn_name is {similarity}",
            where=str(folder),
        )
    if limit := settings.get("max_active_dims"):
        logger.warning(
            "%s: the model keeps the %s strongest terms of a text, sparta keeps all; prune passages by %s",
            folder,
            limit,
            Option("top_k", limit).for_command_line(),
        )


def _routes(folder: Path) -> tuple[list[_Module], list[_Module]]:
    """Return the modules of the query side and of the document side."""
    modules = [_module(folder, entry["type"], entry["path"]) for entry in module_entries(folder)]
    if _is_splade(modules):
        return modules, modules
    if len(modules) != 1 or modules[0].name not in _ROUTERS:
        raise unknown_modules(folder, _names(modules))
    router = modules[0]
    settings = router.settings("router_config.json", "config.json")
    sides = {
        route: [_module(router.folder, settings["types"][key], key) for key in keys]
        for route, keys in settings["structure"].items()
    }
    document = next((sides[name] for name in _DOCUMENT_ROUTES if name in sides), None)
    if "query" not in sides or document is None:
        raise ModelError(
            f"the Router needs the routes query and document, found {', '.join(sides)}", where=str(folder)
        )
    return sides["query"], document


def _is_splade(modules: list[_Module]) -> bool:
    return len(modules) == 2 and modules[0].name in _TRANSFORMERS and modules[1].name == "SpladePooling"


def _module(folder: Path, kind: str, subfolder: str) -> _Module:
    if Path(subfolder).is_absolute() or ".." in Path(subfolder).parts:
        raise ModelError(
            f"a module of the model is outside the model's folder: {subfolder}", where=str(folder)
        )
    return _Module(kind.rpartition(".")[2], folder / subfolder)


def _names(modules: Iterable[_Module]) -> str:
    return " + ".join(module.name for module in modules) or "nothing"


def _network(folder: Path, modules: list[_Module]) -> Network:
    """Return the network of a route, if eq. 4 to 6 can express it."""
    if not _is_splade(modules):
        raise unknown_modules(folder, _names(modules))
    settings = modules[0].settings("sentence_bert_config.json")
    default_task = "fill-mask" if modules[0].name == "MLMTransformer" else "feature-extraction"
    task = settings.get("transformer_task", default_task)
    if task != "fill-mask":
        raise ModelError(f"the transformer must be for the task fill-mask, found {task}", where=str(folder))
    pooling = modules[1].settings("config.json").get("pooling_strategy", "max")
    if pooling != "max":
        raise ModelError(
            f"the model must pool by max, as in the SPARTA paper (eq. 4), found {pooling}",
            where=str(modules[1].folder),
            remedy="use a model that was trained with pooling_strategy max",
        )
    return Network(modules[0].folder, _config(modules[0], _log_count(modules[1])))


def _log_count(pooling: _Module) -> int:
    activation = pooling.settings("config.json").get("activation_function", "relu")
    if activation not in _LOG_COUNTS:
        raise ModelError(
            f"the activation must be one of {', '.join(_LOG_COUNTS)}, found {activation}",
            where=str(pooling.folder),
        )
    return _LOG_COUNTS[activation]


# ---------------------------------------------------------------------- query side


def _query_weights(folder: Path, module: _Module, tokenizer: Tokenizer) -> npt.NDArray[np.float32]:
    """Return the query weight of each token: `(vocabulary,) float32`."""
    _check_tokenizer(module.folder, tokenizer)
    path = module.settings("config.json").get("path")
    if path:
        return _table(folder, _weights_file(folder, module, path), tokenizer)
    return _checked_weights(folder, _stored_weights(module), tokenizer)


def _checked_weights(
    folder: Path, weights: npt.NDArray[np.float32], tokenizer: Tokenizer
) -> npt.NDArray[np.float32]:
    """Return query weights of at least 0; negative weights become 0, with a warning."""
    size = vocabulary_size(tokenizer)
    if weights.shape != (size,) or not np.isfinite(weights).all():
        raise ModelError(
            f"the model needs {size} finite query weights, one per term, found {weights.shape}",
            where=str(folder),
        )
    if not (weights > 0).any():
        raise ModelError("no term of the model has a query weight above 0", where=str(folder))
    if (weights < 0).any():
        logger.warning(
            "%s: %d query terms have negative weights, which sparta replaces by 0",
            folder,
            int((weights < 0).sum()),
        )
    return np.maximum(weights, 0)


def _check_tokenizer(query_folder: Path, tokenizer: Tokenizer) -> None:
    """Refuse a query side with a different tokenizer, since an index has only one tokenizer."""
    if not any((query_folder / name).is_file() for name in ("tokenizer.json", "vocab.txt")):
        return
    query_tokenizer = load_tokenizer(query_folder)
    document_settings, query_settings = json.loads(tokenizer.to_str()), json.loads(query_tokenizer.to_str())
    if tokenizer.get_vocab() != query_tokenizer.get_vocab() or any(
        document_settings[k] != query_settings[k] for k in ("normalizer", "pre_tokenizer")
    ):
        raise ModelError(
            "the model has different tokenizers for queries and documents", where=str(query_folder)
        )


def _weights_file(folder: Path, module: _Module, path: str) -> Path:
    """Return the JSON file of query weights in the model's folder.

    :param path: the file's path on its author's machine; only its name is used
    """
    name = Path(path).name if path.endswith(".json") else IDF
    weight_file = next((p for p in (module.folder / name, folder / name) if p.is_file()), None)
    if weight_file is None:
        raise ModelError(f"the file of query weights, {name}, is missing", where=str(folder))
    return weight_file


def _table(folder: Path, weight_file: Path, tokenizer: Tokenizer) -> npt.NDArray[np.float32]:
    """Return the query weights by wordpiece of a JSON file; wordpieces without a weight have 0."""
    weights = np.zeros(vocabulary_size(tokenizer), dtype=np.float32)
    for token, weight in read_json(weight_file).items():
        if not isinstance(weight, int | float):
            raise ModelError(
                f"the weight of the term {token!r} must be a number, found {type(weight).__name__}",
                where=str(weight_file),
            )
        term = tokenizer.token_to_id(token)
        if term is not None:
            weights[term] = weight
    return _checked_weights(folder, weights, tokenizer)


def _stored_weights(module: _Module) -> npt.NDArray[np.float32]:
    path = module.folder / "model.safetensors"
    if path.is_file():
        stored = StoredWeights(module.folder)
        return stored.floats("weight", *stored.shape("weight"))
    torch_file = module.folder / "pytorch_model.bin"
    if not torch_file.is_file():
        raise ModelError("the file of query weights, model.safetensors, is missing", where=str(module.folder))
    with optional_packages():
        from sparta.neural.checkpoint import load_torch_file
    content = load_torch_file(torch_file)
    weight: Any = content.get("weight") if isinstance(content, dict) else None
    if not hasattr(weight, "float"):
        raise ModelError("the file of query weights has no tensor named weight", where=str(torch_file))
    weights: npt.NDArray[np.float32] = weight.float().numpy()
    return weights


def _layout(longest: int) -> InputLayout:
    return InputLayout(use_title=True, max_length=longest, overlap=min(InputLayout().overlap, longest // 4))


def _longest(transformer: _Module, config: Mapping[str, Any]) -> int:
    """Return the smallest limit of the model's settings, its tokenizer and its encoder."""
    limits = [
        transformer.settings("sentence_bert_config.json").get("max_seq_length"),
        transformer.settings("tokenizer_config.json").get("model_max_length"),
        usable_positions(config) or _NO_LIMIT,
    ]
    return int(min(limit for limit in limits if limit))
