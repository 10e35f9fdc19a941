"""Finds the files of tasks in a folder by their usual names, and identifies the content of an index."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dense.channel.passages import commit_of
from sparta.base.errors import InputError
from sparta.base.files import short_hash
from sparta.base.remedies import Option, remedy
from sparta.index.folder import IndexFolder

_DEV = ("{}.dev.jsonl.gz", "{}.dev.jsonl", "{}-dev-kilt.jsonl")
_TRAIN = ("{}.train.json", "{}.train.json.gz", "{}.train.jsonl.gz", "{}.train.jsonl", "{}-train-kilt.jsonl")


def dev_file(folder: Path, task: str) -> Path:
    """Return the file with a task's dev questions.

    :raises InputError: the folder has no such file
    """
    path = _first(folder, task, _DEV)
    if path is None:
        raise InputError(
            f"the folder has none of the files {', '.join(name.format(task) for name in _DEV)}",
            where=str(folder),
            remedy=remedy(
                "name the folder of the tasks with {}, and the tasks with {}", Option("data"), Option("task")
            ),
        )
    return path


def train_file(folders: Sequence[Path], task: str) -> Path | None:
    """Return the file with a task's training examples, from the first folder that has one.

    A file from `dense mine` comes first, because it has negatives.
    """
    return next((path for folder in folders if (path := _first(folder, task, _TRAIN))), None)


def state_of(index: Path) -> str:
    """Return a hash that identifies the current passages and vectors of an index; "" without an index."""
    folder = IndexFolder(index)
    generation = folder.state().searchable if folder.exists() else None
    if generation is None:
        return ""
    vectors_manifest = folder.dense_path(generation) / "manifest.json"
    manifest_bytes = vectors_manifest.read_bytes() if vectors_manifest.exists() else b""
    return short_hash([commit_of(folder.lucene_path(generation)), manifest_bytes])


def _first(folder: Path, task: str, names: Sequence[str]) -> Path | None:
    """Return the first file that exists among name patterns for a task; None if none exists."""
    return next((path for name in names if (path := folder / name.format(task)).is_file()), None)
