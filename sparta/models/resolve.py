"""Finding a model's folder and identity, without torch."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Container
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from sparta.base.errors import (
    InputError,
    MissingPackageError,
    ModelError,
    ReplacedError,
    ServerError,
    SpartaError,
    first_line_of,
)
from sparta.base.extras import INSTALLED, Installation
from sparta.base.files import raise_if_unreadable, sha256_file, storage_errors
from sparta.base.remedies import Option, Remedy, remedy
from sparta.data.languages import DEFAULT_LANGUAGE, LANGUAGES, language_of
from sparta.models.folders.tokenizer import shared_tokenizer
from sparta.models.lexical_terms import TERMS_FILE, LexicalTerms
from sparta.models.quantize import Quantizer, QueryQuantizer
from sparta.models.query_encoder import QuerySide
from sparta.models.registered import how_to_install, local_folder, looks_like_path, package_folder

Kind = Literal["model", "dense", "reader", "path_reader", "multi_task", "reranker"]
"""The kinds of shipped models: SPARTA, dense, reader, reader for paths, bi-encoder for many tasks, and
cross-encoder.
"""


def default_name(kind: Kind) -> str:
    """Return the name of the default language's model of a kind."""
    return str(getattr(LANGUAGES[DEFAULT_LANGUAGE], kind))


DEFAULT_MODEL = default_name("model")
SHIPPED = tuple(
    name for language in LANGUAGES.values() for kind in get_args(Kind) if (name := getattr(language, kind))
)
"""The names of all shipped models."""
FORMER_MODELS = {"sparta-bge-small-en": "2882d5d5"}
"""The models that sparta no longer ships, each with the last commit of the repository that has its folder."""
QUERY_WEIGHTS = "query_term_weights"
"""The name of the tensor with a SPARTA model's query-term weights."""
_MODEL_FILES = ["*.json", "*.txt", "*.model", "*.safetensors", "*.bin", "artifact.metadata"]
_PROXIES = ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY")
_TIMEOUTS = ("HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT")


def shipped_folder(name: str, installation: Installation | None = None) -> Path:
    """Return the folder of a shipped model; the folder may not exist.

    The wheel of sparta holds the default SPARTA model and the default reader; the other models are packages
    of their own. A clone holds all models.
    """
    installation = installation or INSTALLED
    folder = installation.resources / "models" / name
    return folder if folder.is_dir() else package_folder(name, installation) or folder


def default_model_folder() -> Path:
    """Return the folder of the default SPARTA model, which is shipped inside the package."""
    return shipped_folder(DEFAULT_MODEL)


def installed_folder(name: str) -> Path:
    """Return the folder of a shipped model.

    :raises ModelError: the model is not installed; the remedy installs the model.
    """
    folder = shipped_folder(name)
    if folder.is_dir():
        return folder
    if name in (default_name("model"), default_name("reader")):
        raise ModelError(
            f"the default model {name} is missing from this installation of sparta",
            where=str(folder),
            remedy=remedy("set {} to a folder or a hub id, or install sparta again", Option("model")),
        )
    raise ModelError(f"the model {name} is not installed", remedy=how_to_install(name))


def model_folder(name: str | Path | None) -> Path:
    """Return the folder of a model, downloading the model from the hub if needed.

    The name is None (the default model), a shipped model, a folder, a registered name, or a hub id.

    :raises ModelError: there is no such model.
    """
    if name is None or is_shipped(name):
        return installed_folder(str(name or DEFAULT_MODEL))
    folder = local_folder(name)
    if folder.is_dir():
        return _trained(folder)
    if str(name) in FORMER_MODELS:
        raise ModelError(
            f"the model {name} no longer ships with sparta",
            remedy=remedy("use the model that ships; or {}", how_to_get(str(name))),
        )
    if looks_like_path(str(name)) or "/" not in str(name):
        raise ModelError(
            "no such model folder",
            where=str(name),
            remedy="check the path; a model on the hub is named OWNER/NAME",
        )
    return _download(str(name))


def how_to_get(former: str) -> Remedy:
    """Return how to get the folder of a model that no longer ships."""
    return remedy(
        "in the root folder of a clone with its whole history, run"
        " git archive {}:sparta/resources/models {} | tar -x and name the new folder with {}",
        FORMER_MODELS[former],
        former,
        Option("model", f"./{former}"),
    )


def lasting_name(name: str | Path) -> str:
    """Return a model's name for a manifest: the absolute path of a folder, otherwise the unchanged name."""
    return str(Path(name).absolute()) if Path(name).is_dir() else str(name)


def find_model(name: str, sha256: str, folder_of: Callable[[str], Path] = model_folder) -> str:
    """Return a name that opens the model with a given hash, which a manifest calls `name`.

    The model at `name` is used if its files have the hash. Otherwise, shipped models and a folder in the
    working folder are checked, in case the model was moved or the manifest comes from another machine.

    :param folder_of: returns the folder of a name; `model_folder` or `dense_model_folder`
    :raises ModelError: there is no such model; the remedy is the option `--model`.
    """
    folders = [Path(name), Path.cwd() / Path(name).name]
    for folder in folders:
        if folder.is_dir() and hash_folder(_trained(folder)) == sha256:
            return lasting_name(folder)
    for shipped in sorted(SHIPPED, key=lambda shipped: shipped != name):
        folder = shipped_folder(shipped)
        if folder.is_dir() and hash_folder(folder) == sha256:
            return shipped
    actual_hash = hash_folder(folder_of(name))
    if actual_hash != sha256:
        raise ModelError(
            f"the model has changed: its SHA-256 is {actual_hash[:12]}…, not {sha256[:12]}…",
            where=name,
            remedy=remedy("name the folder of the unchanged model with {}", Option("model")),
        )
    return name


def find_folder(name: str, sha256: str, folder_of: Callable[[str], Path] = model_folder) -> Path:
    """Return the folder of the model that `find_model` finds.

    sparta does not ask the hub if a cached revision has the hash, even if the hub has a newer revision.

    :raises ModelError: there is no such model; the remedy is the option `--model`.
    """
    for folder in _cached_revisions(name):
        if hash_folder(folder) == sha256:
            return folder
    return folder_of(find_model(name, sha256, folder_of))


def _cached_revisions(name: str) -> list[Path]:
    """Return the folders of a hub model's revisions in the hub's cache."""
    if "/" not in name or looks_like_path(name):
        return []
    try:
        from huggingface_hub import constants
    except ValueError:
        check_hub_variables()
        raise
    revisions = Path(constants.HF_HUB_CACHE, f"models--{name.replace('/', '--')}", "snapshots")
    with storage_errors(revisions):
        return sorted(revisions.iterdir()) if revisions.is_dir() else []


def sparta_folder(name: str | Path) -> Path | None:
    """Return the folder of a SPARTA model, from its folder, its training folder or a shipped model's name.

    Return None for all other models: other encoders, hub ids.
    """
    return folder_with("sparta", model_folder(name) if is_shipped(name) else local_folder(name))


def folder_with(section: str, folder: Path) -> Path | None:
    """Return the model's folder if its config.json has a section; otherwise None.

    The model may be in the subfolder `best` of the given folder.

    :raises StorageError: config.json cannot be read, whatever its content.
    """
    folder = _trained(folder)
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise_if_unreadable(path, error)
        return None
    return folder if isinstance(config, dict) and section in config else None


def is_shipped(name: str | Path, kind: Kind = "model") -> bool:
    """Return whether a name is the name of a shipped model of any language, and not also a folder."""
    return (
        any(str(name) == getattr(language, kind) for language in LANGUAGES.values())
        and not Path(name).is_dir()
    )


def languages_of_dense_model(name: str) -> list[str]:
    """Return the languages for which a dense model of this name ships; empty for other models."""
    return [code for code, language in LANGUAGES.items() if language.dense == name]


def shipped_for(language: str, kind: Kind = "model") -> str | None:
    """Return the name of the shipped model for a language, or None if there is none or it is not installed.

    The name of the default model is returned even if the model is missing.
    """
    name: str | None = getattr(language_of(language), kind)
    return name if name and (name == default_name(kind) or shipped_folder(name).is_dir()) else None


_DESCRIPTIONS = {
    "model": ("SPARTA model", "model"),
    "dense": ("dense model", "model"),
    "reader": ("reader", "reader"),
    "path_reader": ("reader of paths", "path_reader"),
    "multi_task": ("bi-encoder for tasks", "model"),
    "reranker": ("reranker", "rerank"),
}


def no_model(
    language: str, kind: Kind = "model", option: str = "", advice: Remedy | None = None
) -> ModelError:
    """Return the error for a language without a model: none is shipped, or it is not installed.

    :param option: the option that names a model of this kind, if it differs from the kind's usual option
    :param advice: says how to name a model, if an option is not enough
    """
    description, usual_option = _DESCRIPTIONS[kind]
    advice = advice or remedy("name a model with {}", Option(option or usual_option))
    if name := getattr(language_of(language), kind):
        return ModelError(
            f"the {description} {name} for the language {language!r} is not installed",
            remedy=remedy("{}; or {}", how_to_install(name), advice),
        )
    return ModelError(f"sparta ships no {description} for the language {language!r}", remedy=advice)


def model_for(
    name: str | None, language: str, kind: Kind = "model", advice: Remedy | None = None
) -> str | None:
    """Return the named model, or the shipped model for a language; None means the default model.

    :param advice: says how to name a model, if the kind's usual option is not enough
    :raises ModelError: no model is shipped for the language, or the model is not installed.
    """
    chosen_name = name or shipped_for(language, kind)
    if chosen_name is None:
        raise no_model(language, kind, advice=advice)
    return name if chosen_name == default_name(kind) else chosen_name


def named_or_shipped_folder(name: str | Path | None, language: str, kind: Kind) -> Path:
    """Return the folder of the named model; without a name, the folder of the language's shipped model.

    :raises ModelError: there is no name, and no model is shipped for the language; or the shipped model is
        not installed.
    """
    if name and not is_shipped(name, kind):
        return local_folder(name)
    return installed_folder(str(name or model_for(None, language, kind) or default_name(kind)))


def _trained(folder: Path) -> Path:
    """Return the model's folder: for the output folder of a training, its subfolder `best_folder`."""
    best_folder = folder / "best"
    return (
        best_folder
        if not (folder / "config.json").is_file() and (best_folder / "config.json").is_file()
        else folder
    )


def _download(name: str) -> Path:
    try:
        from huggingface_hub import constants, snapshot_download

        with storage_errors(f"{constants.HF_HUB_CACHE} ($HF_HUB_CACHE)"):
            return Path(
                snapshot_download(name, allow_patterns=_MODEL_FILES, ignore_patterns=["onnx/*", "openvino/*"])
            )
    except Exception as error:
        check_hub_variables()
        if not is_failed_download(error):
            raise
        raise ModelError(
            f"no such folder, and the download from the hub failed: {first_line_of(error)}",
            where=name,
            remedy=remedy("check the name and the network, or set {} to a folder", Option("model")),
        ) from error


def is_from_hub(error: Exception) -> bool:
    """Return whether `huggingface_hub` raised an error, or a client that it uses for requests or files.

    The client of files, hf_xet, raises Python's own errors of the network.
    """
    packages = {base.__module__.partition(".")[0] for base in type(error).__mro__}
    is_of_client = bool(packages & {"huggingface_hub", "httpx", "httpx2", "requests"})
    return is_of_client or isinstance(error, ConnectionError | TimeoutError)


def is_failed_download(error: Exception) -> bool:
    """Return whether the hub, the network, the disk, a wrong name or a missing package caused an error."""
    return is_from_hub(error) or isinstance(error, OSError | ValueError | ImportError)


def check_hub_variables() -> None:
    """Raise if an environment variable keeps the client of the hub from starting. Nothing is requested.

    :raises InputError: the address of the hub or of a proxy is invalid, or a time limit.
    :raises MissingPackageError: the proxy needs a package that is not installed.
    :raises ServerError: the file of certificates cannot be read.
    """
    _check_endpoint()
    try:
        from huggingface_hub import get_session
    except ValueError as error:
        raise InputError(
            f"huggingface_hub cannot start: {first_line_of(error)}",
            where=_variables_of(_TIMEOUTS),
            remedy=f"set {' and '.join(_TIMEOUTS)} to whole numbers of seconds, or unset them",
        ) from error
    try:
        get_session()
    except ImportError as error:
        raise MissingPackageError(
            "a SOCKS proxy needs the Python package socksio",
            where=_variables_of(_PROXIES),
            remedy="pip install socksio, or unset the variable of the proxy",
        ) from error
    except OSError as error:
        raise ServerError(
            f"the file of certificates cannot be read: {first_line_of(error)}",
            where="$SSL_CERT_FILE",
            remedy="unset SSL_CERT_FILE, or set it to a file of certificates (PEM)",
        ) from error
    except Exception as error:
        raise InputError(
            f"the address of the proxy is invalid: {first_line_of(error)}",
            where=_variables_of(_PROXIES),
            remedy="correct the address of the proxy, or unset the variable",
        ) from error


def _check_endpoint() -> None:
    value = os.environ.get("HF_ENDPOINT")
    if value is None:
        return
    try:
        address = urlsplit(value)
        _ = address.port  # raises ValueError for an invalid port
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ValueError(f"expected https:// or http:// and a host, found {value!r}")
    except ValueError as error:
        raise InputError(
            f"the address of the hub is invalid: {first_line_of(error)}",
            where="$HF_ENDPOINT",
            remedy="unset HF_ENDPOINT, or set it to an address such as https://huggingface.co",
        ) from error


def _variables_of(names: Container[str]) -> str:
    """Return which of the environment variables are set, in upper or lower case."""
    return " or ".join(f"${name}" for name in sorted(os.environ) if name.upper() in names)


def known_query_side(name: str | Path | None, bits: int | None) -> QuerySide | None:
    """Return the query side of `load_model(name, bits=bits)`, if the model can be read without torch.

    Return None for hub ids, models of other projects, and models that are broken or replaced meanwhile;
    loading the model then raises the error.
    """
    shipped = name is None or is_shipped(name)
    try:
        folder = shipped_folder(str(name or DEFAULT_MODEL)) if shipped else _trained(local_folder(name or ""))
        identity = hash_folder(folder)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        quantizer = Quantizer(**config["sparta"]["quantizer"])
        quantizer_with_bits = Quantizer(quantizer.max_weight, bits or quantizer.bits)
        if (folder / "modules.json").is_file() or not (folder / "tokenizer.json").is_file():
            return None
        tokenizer = shared_tokenizer(folder)
        weights, grid = _query_weights(folder, config["sparta"])
        lexical = LexicalTerms.load(folder, tokenizer)
        if hash_folder(folder) != identity:
            return None
    except (OSError, ValueError, RecursionError, LookupError, TypeError, SafetensorError, SpartaError):
        return None
    lasting = lasting_name(name or DEFAULT_MODEL)
    return QuerySide(tokenizer, weights, lasting, identity, quantizer_with_bits, grid, lexical=lexical)


def _query_weights(
    folder: Path, config: dict[str, Any]
) -> tuple[npt.NDArray[np.int32] | None, QueryQuantizer | None]:
    """Return a SPARTA model's query-term weights and their grid, without reading its other weights."""
    if not config.get("weighted_queries"):
        return None, None
    with safe_open(str(folder / "model.safetensors"), framework="numpy") as stored:
        weights = np.maximum(stored.get_tensor(QUERY_WEIGHTS), 0)
    grid_settings = config.get("query_quantizer")
    grid = QueryQuantizer(**grid_settings) if grid_settings else QueryQuantizer.fit(weights)
    return grid.integers(weights), grid


def _is_hashed(path: Path) -> bool:
    suffixes = (".safetensors", ".bin", ".json", ".txt")
    return path.is_file() and path.suffix in suffixes and path.name != TERMS_FILE


def check_unchanged(folder: Path, sha256: str) -> None:
    """Raise if a model's folder has other files than those of a hash, with which the model was opened.

    :raises ReplacedError: it has other files.
    """
    if hash_folder(folder) != sha256:
        raise ReplacedError(
            "the files of the model have changed since it was opened",
            where=str(folder),
            remedy="start the program again",
        )


def hash_folder(folder: Path) -> str:
    """Return the SHA-256 of a model's files (weights, configuration, tokenizer): names and contents.

    The definition of lexical terms is not part of the hash: an index may have the model without these terms.

    :raises StorageError: a file cannot be read, whatever its content.
    """
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if _is_hashed(p)):
        digest.update(path.relative_to(folder).as_posix().encode())
        state = path.stat()
        times = state.st_mtime_ns, state.st_ctime_ns  # a program can set the first, but not the second
        digest.update(_file_hash(path, state.st_dev, state.st_ino, state.st_size, *times))
    return digest.hexdigest()


def encoder_identity(encoder: str) -> str:
    """Return the hash of an encoder's folder, or the encoder's name: a fact of trainings and tables."""
    folder = Path(encoder)
    return hash_folder(model_folder(folder)) if folder.is_dir() else encoder


@lru_cache
def _file_hash(path: Path, *_state: int) -> bytes:
    """Return the SHA-256 of a file; a command asks for the same file several times.

    :param _state: what changes if the file changes
    """
    return bytes.fromhex(sha256_file(path))
