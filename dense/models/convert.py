"""Converts foreign checkpoints of any known layout into sparta's model folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dense.models.bi_encoder import DenseModel
from dense.models.checkpoints import (
    DPR_SIDES,
    dict_weights,
    dpr_side,
    is_dense_folder,
    load_dpr_dict,
    load_dpr_folders,
)
from dense.models.skill_checkpoints import is_released, load_released
from sparta.base.errors import InputError, ModelError
from sparta.base.remedies import Option, remedy
from sparta.models.resolve import model_folder

_FORMS = (
    "a dict file of DPR's, TASER's or Chain-of-Skills' code, a folder that holds one as pytorch_model.bin,"
    " or two folders of transformers' DPR"
)
DICT_NAME = "pytorch_model.bin"


def convert(sources: Sequence[str], tokenizer: str | None = None) -> DenseModel:
    """Return the model of a checkpoint in any known layout. A folder in sparta's format is loaded unchanged.

    :param sources: a file, a folder or hub id, or two folders (question and passage encoder, in any order)
    :param tokenizer: a folder or hub id, for checkpoints without a tokenizer
    :raises ModelError: the layout is unknown, or a part of the checkpoint is missing.
    """
    if len(sources) not in (1, 2):
        raise InputError(
            f"a conversion reads one or two checkpoints, found {len(sources)}", remedy=f"name {_FORMS}"
        )
    if len(sources) == 1 and Path(sources[0]).is_file():
        return _load_dict_file(Path(sources[0]), tokenizer)
    folders = [model_folder(source) for source in sources]
    if len(folders) == 2:
        sides = {dpr_side(folder): folder for folder in folders}
        if set(sides) != set(DPR_SIDES):
            side_names = " and ".join(str(dpr_side(folder)) for folder in folders)
            raise ModelError(
                f"expected a question encoder and a passage encoder, found {side_names}",
                where=", ".join(sources),
                remedy=f"name {_FORMS}",
            )
        return load_dpr_folders(sides["question"], sides["passage"], tokenizer)
    return _load_folder(folders[0], tokenizer)


def _load_folder(folder: Path, tokenizer: str | None) -> DenseModel:
    if is_dense_folder(folder):
        return DenseModel.load(folder)
    side = dpr_side(folder)
    if side is not None:
        missing_side = "passage" if side == "question" else "question"
        raise ModelError(
            f"expected both encoders, found the {side} encoder only",
            where=str(folder),
            remedy=remedy(
                f"also name the folder of the {missing_side} encoder, with a second {{}}", Option("from")
            ),
        )
    if not (folder / DICT_NAME).is_file():
        raise ModelError("no known checkpoint in this folder", where=str(folder), remedy=f"name {_FORMS}")
    return _load_dict_file(folder / DICT_NAME, tokenizer)


def _load_dict_file(path: Path, tokenizer: str | None) -> DenseModel:
    has_tokenizer = any((path.parent / name).is_file() for name in ("tokenizer.json", "vocab.txt"))
    if tokenizer is None and not has_tokenizer:
        raise ModelError(
            "the folder of the dict file has no tokenizer",
            where=str(path),
            remedy=remedy("name a tokenizer with {}, such as bert-base-uncased", Option("tokenizer")),
        )
    is_skills = is_released(dict_weights(path))
    return (load_released if is_skills else load_dpr_dict)(path, tokenizer or path.parent)
