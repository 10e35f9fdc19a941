"""The kind of a model folder. Only this module decides how the folder of a sparse model is read."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Any

from sparta.base.errors import ModelError
from sparta.base.files import raise_if_unreadable
from sparta.base.remedies import Command, Option, Remedy, remedy
from sparta.neural.stored import read_json

MODULES = "modules.json"
IDF = "idf.json"
"""The file of OpenSearch's inference-free models with the weight of each query term."""


class Kind(Enum):
    """The kinds of sparse models; the value describes a kind in messages."""

    SPARTA = "a SPARTA model (config.json with a sparta object)"
    BEIR = "BEIR's SPARTA (a plain encoder, such as DistilBertModel)"
    SPLADE = "SPLADE (a masked language model, such as BertForMaskedLM)"
    INFERENCE_FREE = f"OpenSearch's inference-free models (a masked language model with {IDF})"
    SPARSE_ENCODER = f"a SparseEncoder of sentence-transformers ({MODULES})"


def kind_of(folder: Path) -> Kind:
    """Return the kind of a model folder.

    The list of modules, the sections of config.json and the architecture decide; nothing is guessed.

    :raises ModelError: the folder is of no known kind.
    """
    if (folder / MODULES).is_file():
        return Kind.SPARSE_ENCODER
    if not (folder / "config.json").is_file():
        if any(folder.glob("*.jsonl*")):
            raise _unknown(
                folder,
                "JSON lines and no config.json",
                remedy(
                    "if these are ready vectors, such as uniCOIL's, index them with {}", Option("vectors")
                ),
            )
        raise _unknown(folder, "no config.json")
    config = read_json(folder / "config.json")
    if "sparta" in config:
        return Kind.SPARTA
    if "dense" in config:
        raise ModelError(
            "the model is dense, not a SPARTA model",
            where=str(folder),
            remedy=remedy("index with {}, or name a SPARTA model", Command.of("dense index", model=folder)),
        )
    if "reader" in config:
        raise ModelError(
            "the model is a reader, not a sparse model",
            where=str(folder),
            remedy=remedy(
                "answer with {}, or name a sparse model", Command.of("sparta answer", reader=folder)
            ),
        )
    architecture = architecture_of(config)
    if architecture.endswith("ForMaskedLM"):
        return Kind.INFERENCE_FREE if (folder / IDF).is_file() else Kind.SPLADE
    if architecture.endswith("ForSequenceClassification"):
        raise _unknown(
            folder,
            f"a classifier ({architecture})",
            remedy("a cross-encoder reranks the hits of a search: {}", Option("rerank", str(folder))),
        )
    if architecture.endswith("Model"):
        return Kind.BEIR
    raise _unknown(folder, f"the architecture {architecture}" if architecture else "no architectures")


def architecture_of(config: dict[str, Any]) -> str:
    """Return the class name that saved a model, such as BertForMaskedLM; empty if config.json names none."""
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def unknown_modules(folder: Path, names: str) -> ModelError:
    """Return the error for a folder of sentence-transformers that is no SparseEncoder of a known form."""
    return _unknown(folder, f"the modules {names}")


def _unknown(folder: Path, found: str, advice: Remedy | None = None) -> ModelError:
    kinds = "; ".join(kind.value for kind in Kind)
    text = f"set {{}} to a folder of a known kind: {kinds}; index JSON vectors, such as uniCOIL's, with {{}}"
    known = remedy(text, Option("model"), Option("vectors"))
    return ModelError(
        f"the folder is of no known kind of sparse model: it has {found}",
        where=str(folder),
        remedy=remedy("{}; or {}", advice, known) if advice else known,
    )


def module_entries(folder: Path) -> list[Any]:
    """Return the entries of a folder's modules.json.

    :raises ModelError: the file is missing or is not a list in JSON.
    :raises StorageError: the file cannot be read, whatever its content.
    """
    path = folder / MODULES
    try:
        return list(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        raise_if_unreadable(path, error)
        raise ModelError(
            f"the list of the model's modules cannot be read: {error}", where=str(path)
        ) from error
