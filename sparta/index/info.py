"""Describe the content of an index: passages, channels, model, sizes."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from sparta.index.changes import job_name
from sparta.index.channels import other_channels
from sparta.index.folder import IndexFolder
from sparta.index.generation import Generation
from sparta.index.reader import IndexReader


def describe_index(path: str | Path) -> dict[str, Any]:
    """Return path, passages, unit, language, codec, model, generation, commit, source, and bytes by channel.

    `complete` tells whether the last job is fully committed. `interrupted` names an interrupted job.

    :raises IndexStateError: there is no index, or it holds no passages.
    """
    folder = IndexFolder(path)
    with IndexReader(path) as reader, reader.snapshot() as snapshot:
        generation, version, passages = snapshot.generation, snapshot.version, snapshot.lucene.num_docs
        is_whole = snapshot.is_whole
    state = folder.state()
    return {
        "path": str(folder.path),
        "passages": passages,
        "channels": ",".join([generation.channels, *other_channels(folder.path)]),
        "unit": generation.unit,
        "language": generation.language,
        "codec": generation.codec,
        "model": generation.model["name"],
        "lexical_terms": generation.model.get("lexical_terms"),
        "complete": is_whole,
        "interrupted": None if is_whole or folder.is_being_written() else job_name(generation.job),
        "generation": version.generation,
        "commit": version.commit,
        "building": state.building.number if state.building and state.building != generation else None,
        "source": generation.first_source,
        "bytes": _sizes(folder, generation),
    }


def _sizes(folder: IndexFolder, generation: Generation) -> dict[str, int]:
    paths = {generation.channels: folder.lucene_path(generation)}
    paths |= {name: folder.channel_path(name, generation) for name in other_channels(folder.path)}
    return {name: folder_size(path) for name, path in paths.items()}


def folder_size(folder: Path) -> int:
    """Return the total bytes of all files in a folder.

    Files that a writer removes meanwhile are not counted.
    """
    size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                size += (Path(parent) / name).stat().st_size
    return size
