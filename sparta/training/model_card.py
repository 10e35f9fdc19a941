"""Write a trained model's card: what the model is, its training data, and the command that trained it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from sparta.base.files import atomic_write, sha256_file

CARD = "README.md"
Table = Sequence[Sequence[object]]
"""Rows of cells; the first row is the header."""


class ModelKind(NamedTuple):
    """The card text of a kind of model: a sentence, tags for the Hugging Face hub, and a command."""

    about: str
    tags: str
    usage: str = ""


SPARTA = ModelKind(
    "A SPARTA model: passages become sparse vectors.",
    "sparse-retrieval, question-answering",
    "sparta index --model {} --corpus FILE",
)
DENSE = ModelKind(
    "A bi-encoder.", "dense-retrieval, question-answering", "dense index --model {} --index FOLDER"
)
SKILLS = ModelKind("A retriever with several skills.", "dense-retrieval, chain-of-skills", DENSE.usage)
READER = ModelKind(
    "A reader: it finds the answer to a question in passages.", "question-answering, extractive"
)
PATH_READER = ModelKind(
    "A path reader: it finds the passages of a path that a question needs, and the answer.",
    "question-answering, multi-hop",
)
LABELS = ModelKind("A classifier of claims: it reads a claim with its passages.", "text-classification")


def write_card(
    folder: Path,
    kind: ModelKind,
    encoder: str,
    data: Table,
    command: str,
    validation: str,
) -> None:
    """Write `README.md` into a model's folder, in the format of the Hugging Face hub.

    An existing card with the same checksum of the weights stays unchanged, including manual edits.

    :param encoder: the folder or hub id of the encoder that the training started from.
    :param data: the table of the training data; its first row is the header.
    :param command: the training command.
    :param validation: the best validation figure, its step, and the questions.
    """
    card, checksum = folder / CARD, sha256_file(folder / "model.safetensors")
    if card.is_file() and checksum in card.read_text(encoding="utf-8"):
        return
    from_hub = "/" in encoder and not Path(encoder).is_dir()
    name, (header, *rows) = folder.absolute().parent.name, data
    lines = [
        "---",
        "library_name: sparta",
        *([f"base_model: {encoder}"] if from_hub else []),
        f"tags: [{kind.tags}, sparta]",
        "---",
        "",
        f"# {name}",
        "",
        f"{kind.about} It began as `{encoder}`.",
        "",
        *([f"    {kind.usage.format(name)}", ""] if kind.usage else []),
        "## Training",
        "",
        *(f"| {' | '.join(map(str, cells))} |" for cells in (header, ["---"] * len(header), *rows)),
        "",
        "The command:",
        "",
        f"    {command}",
        "",
        f"sparta {_version()}. Validation: {validation}.",
        "",
        "## Before you publish it",
        "",
        "A training cannot know the licenses of the encoder and of the data, for what the model serves and in"
        " which languages, nor how good it is on other data (`sparta eval`, `hybrid eval`): write it here.",
        "",
        "## Checksum",
        "",
        f"`model.safetensors` SHA-256 `{checksum}`",
    ]
    atomic_write(card, ("\n".join(lines) + "\n").encode())


def _version() -> str:
    try:
        return version("sparta-search")
    except PackageNotFoundError:
        return "of a checkout that is not installed"
