"""Remove the paths of this machine from a copy of an index, before the copy is published."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from sparta.base.errors import without_folders
from sparta.base.manifest import MANIFEST_NAME, write_manifest
from sparta.index.channels import OTHER_CHANNELS, other_channels
from sparta.index.folder import IndexFolder
from sparta.index.generation import Job
from sparta.index.plan import committed
from sparta.index.snapshot import last_commit

_READING = "reading"
"""The field of a job with the user's SQL query and field names, which are not paths."""


def remove_local_paths(index: Path) -> None:
    """Replace every absolute path in Lucene's commit and in an index's manifests by its last name.

    Passages stay as they are. The index must not be in use: Lucene's commit, and so the commit that the other
    channels name, may change.
    """
    folder = IndexFolder(index)
    generation, previous = last_commit(folder)
    progress = committed(folder, generation)
    without_paths = replace(progress, source=_without_paths(progress.source))
    if progress.job == generation.job.id:  # the id is a hash, also of the job's paths
        without_paths.job = Job.of(_without_paths(generation.job.as_dict())).id
    if without_paths != progress:
        with folder.writer(generation) as writer:
            writer.commit(without_paths.dumps())
        for name in other_channels(index):
            OTHER_CHANNELS[name]().recommit(index, previous.version.commit, previous.segments)
    for manifest in sorted(index.rglob(MANIFEST_NAME)):  # after all other changes: none may bring a path back
        stored = json.loads(manifest.read_bytes())
        cleaned = _without_paths(stored)
        if cleaned != stored:
            write_manifest(manifest.parent, cleaned)


def _without_paths(value: Any) -> Any:
    """Return a JSON value in which the last names of absolute paths replace the paths."""
    if isinstance(value, dict):
        return {name: part if name == _READING else _without_paths(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_without_paths(part) for part in value]
    if not isinstance(value, str):
        return value
    return Path(value).name if Path(value).is_absolute() else without_folders(value)
