"""Where a model lies and what it is, found without torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from sparta.base.errors import ModelError, SpartaError
from sparta.base.remedies import Option, remedy
from sparta.data.languages import DEFAULT_LANGUAGE, LANGUAGES, language_of
from sparta.models.quantize import Quantizer, QueryQuantizer
from sparta.models.query_encoder import QuerySide, load_tokenizer
from sparta.models.registered import local_folder, looks_like_path

Kind = Literal["model", "dense", "reader", "path_reader", "multi_task"]
"""What ships for a language: SPARTA's model, the dense one, the readers of passages and of paths, the one for
many tasks."""


def default_name(kind: Kind) -> str:
    """Return the name of the model that ships for the default language."""
    return str(getattr(LANGUAGES[DEFAULT_LANGUAGE], kind))


DEFAULT_MODEL = default_name("model")
QUERY_WEIGHTS = "query_term_weights"
"""The tensor of a SPARTA model that says what a question's terms count."""
_WANTED = ["*.json", "*.txt", "*.safetensors", "*.bin"]


def shipped_folder(name: str) -> Path:
    """Return where a model that ships inside the package lies."""
    return Path(str(files("sparta.resources") / "models" / name))


def default_model_folder() -> Path:
    """Return the SPARTA model that ships inside the package."""
    return shipped_folder(DEFAULT_MODEL)


def _shipped_folder(name: str | Path | None) -> Path:
    own = str(name or DEFAULT_MODEL)
    return default_model_folder() if own == DEFAULT_MODEL else shipped_folder(own)


def installed(folder: Path, what: str) -> Path:
    """Return the folder of a model that ships, if this installation has it."""
    if not folder.is_dir():
        raise ModelError(
            f"the default {what} is not in this installation",
            where=str(folder),
            remedy=remedy("give {} a folder or a hub id, or install sparta again", Option("model")),
        )
    return folder


def model_folder(name: str | Path | None) -> Path:
    """Return the folder of a model: the English one for None, one that ships, a folder, a registered one, or
    one from the hub.

    :raises ModelError: there is none.
    """
    if name is None or is_shipped(name):
        return installed(_shipped_folder(name), "model")
    folder = local_folder(name)
    if folder.is_dir():
        return _trained(folder)
    if looks_like_path(str(name)) or "/" not in str(name):
        raise ModelError(
            "expected a model folder, found none",
            where=str(name),
            remedy="check the path; a model on the hub is named OWNER/NAME",
        )
    return _download(str(name))


def lasting_name(name: str | Path) -> str:
    """Return the name of a model for a manifest: a folder's absolute path, else the name as it is."""
    return str(Path(name).absolute()) if Path(name).is_dir() else str(name)


def find_model(name: str, sha256: str, folder_of: Callable[[str], Path] = model_folder) -> str:
    """Return a name that opens the model of this hash, whose manifest calls it `name`.

    The name counts if its files have the hash. Else a model that ships or a folder in the working folder
    may have it: the name is then that of a folder which was moved, or of another machine.

    :param folder_of: opens a name; `model_folder` or `dense_model_folder`
    :raises ModelError: no such model is there; says to name it with `--model`.
    """
    folders = [Path(name), Path.cwd() / Path(name).name]
    for folder in folders:
        if folder.is_dir() and hash_folder(_trained(folder)) == sha256:
            return lasting_name(folder)
    for folder in sorted(shipped_folder("").iterdir(), key=lambda shipped: shipped.name != name):
        if folder.is_dir() and hash_folder(folder) == sha256:
            return folder.name
    there = hash_folder(folder_of(name))
    if there != sha256:
        raise ModelError(
            f"expected the model whose SHA-256 begins with {sha256[:12]}, found another: {there[:12]}",
            where=name,
            remedy=remedy("name the place where that model lies now with {}", Option("model")),
        )
    return name


def sparta_folder(name: str | Path) -> Path | None:
    """Return the folder of a SPARTA model of ours, given that, its training's, or the shipped one's name.

    None for everything else: other encoders, hub ids.
    """
    return folder_with("sparta", model_folder(name) if is_shipped(name) else local_folder(name))


def folder_with(part: str, folder: Path) -> Path | None:
    """Return the folder, or that of the best model in it, if its configuration has the part; else None."""
    folder = _trained(folder)
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return folder if isinstance(config, dict) and part in config else None


def is_shipped(name: str | Path, kind: Kind = "model") -> bool:
    """Whether a name is that of a model that ships for some language, and no folder's."""
    return any(str(name) == getattr(one, kind) for one in LANGUAGES.values()) and not Path(name).is_dir()


def shipped_for(language: str, kind: Kind = "model") -> str | None:
    """Return the name of what ships for a language, if this installation has it; the default one must."""
    name: str | None = getattr(language_of(language), kind)
    return name if name and (name == default_name(kind) or shipped_folder(name).is_dir()) else None


_WHAT = {
    "model": ("SPARTA model", "model"),
    "dense": ("dense model", "model"),
    "reader": ("reader", "reader"),
    "path_reader": ("reader of paths", "path_reader"),
    "multi_task": ("bi-encoder for tasks", "model"),
}


def model_for(name: str | None, language: str, kind: Kind = "model") -> str | None:
    """Return the model that is named, or the one that ships for a language; None for the default one.

    :raises ModelError: none ships.
    """
    found = name or shipped_for(language, kind)
    if found is None:
        what, option = _WHAT[kind]
        raise ModelError(
            f"expected a {what} for the language {language!r}, for which none ships",
            remedy=remedy("name one with {}", Option(option)),
        )
    return name if found == default_name(kind) else found


def given_or_shipped(name: str | Path | None, language: str, kind: Kind) -> Path:
    """Return the folder that is named; that of what ships under this name, or, without one, for the language.

    :raises ModelError: none is named, and none ships.
    """
    if name and not is_shipped(name, kind):
        return local_folder(name)
    return shipped_folder(str(name or model_for(None, language, kind) or default_name(kind)))


def _trained(folder: Path) -> Path:
    """Return the folder itself or, of the output of a training, the model in it."""
    best = folder / "best"
    return best if not (folder / "config.json").is_file() and (best / "config.json").is_file() else folder


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=_WANTED, ignore_patterns=["onnx/*", "openvino/*"]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ModelError(
            f"expected a model folder or a model on the hub, could not get it: {_first_line(error)}",
            where=name,
            remedy=remedy("check the name and the network, or give {} a folder", Option("model")),
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def known_query_side(name: str | Path | None, bits: int | None) -> QuerySide | None:
    """Return what `load_model(name, bits=bits).query_side()` would, where that needs no torch.

    None for hub ids, models of other makers and whatever is not as it should be: loading the model tells.
    """
    shipped = name is None or is_shipped(name)
    try:
        folder = _shipped_folder(name) if shipped else _trained(local_folder(name or ""))
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        quantizer = Quantizer(**config["sparta"]["quantizer"])
        chosen = Quantizer(quantizer.max_weight, bits or quantizer.bits)
        if (folder / "modules.json").is_file() or not (folder / "tokenizer.json").is_file():
            return None
        tokenizer = load_tokenizer(folder)
        weights, grid = _query_weights(folder, config["sparta"])
    except (OSError, ValueError, RecursionError, LookupError, TypeError, SafetensorError, SpartaError):
        return None
    shown = lasting_name(name or DEFAULT_MODEL)
    return QuerySide(tokenizer, weights, shown, hash_folder(folder), chosen, grid)


def _query_weights(
    folder: Path, config: dict[str, Any]
) -> tuple[npt.NDArray[np.int32] | None, QueryQuantizer | None]:
    """Return a SPARTA model's query-term weights and their grid, without reading its other weights."""
    if not config.get("weighted_queries"):
        return None, None
    with safe_open(str(folder / "model.safetensors"), framework="numpy") as stored:
        weights = np.maximum(stored.get_tensor(QUERY_WEIGHTS), 0)
    given = config.get("query_quantizer")
    grid = QueryQuantizer(**given) if given else QueryQuantizer.fit(weights)
    return grid.integers(weights), grid


def hash_folder(folder: Path) -> str:
    """SHA-256 over the files that make a model: weights, configuration, tokenizer; names and contents."""
    digest = hashlib.sha256()
    wanted = (".safetensors", ".bin", ".json", ".txt")
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix in wanted):
        digest.update(path.relative_to(folder).as_posix().encode())
        with path.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()
