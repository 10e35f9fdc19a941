"""Copy one commit of an index, with all its channels, while other processes search and write.

Lucene and the dense channel never change a file after it is complete, and they replace a manifest by a new
file. So a hard link to a file of a commit keeps its content, whatever a writer does to the index.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sparta.base.checks import path_of
from sparta.base.disk.new_folders import appearing_folder
from sparta.base.errors import IndexStateError
from sparta.base.files import atomic_write, check_new_folder, storage_errors
from sparta.base.manifest import MANIFEST_NAME
from sparta.index.build import as_committed
from sparta.index.channels import OTHER_CHANNELS
from sparta.index.folder import IndexFolder, lasting_path
from sparta.index.generation import Generation, IndexState
from sparta.index.reader import IndexReader
from sparta.index.snapshot import Committed, last_commit, retry_if_replaced
from sparta.lucene.bridge import commit_files

_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES)


@dataclass(frozen=True, slots=True)
class BackupReport:
    """The result of a backup: `passages` live passages in `files` files of `size` bytes.

    `linked` counts the files that are hard links to files of the index, so they take no space on the disk.
    """

    path: Path
    passages: int
    files: int
    size: int
    linked: int
    seconds: float


def backup_index(path: str | Path, destination: str | Path) -> BackupReport:
    """Copy the newest commit of an index to a new folder, without waiting for a writer.

    The folder appears when it is complete. It holds all channels of the commit, so its rankings are those of
    the commit. While an update encodes vectors, the dense channel of the copy lacks them: `sparta verify`
    counts them, and `dense index` adds them. Files are hard links where the file system allows them, and
    copies otherwise, such as on another disk.

    :raises IndexStateError: there is no index, it holds no passages, or the destination is not a new folder.
    :raises StorageError: the disk is full, or the destination cannot be written.
    """
    started = time.monotonic()
    folder = IndexFolder(lasting_path(path))
    target = path_of(destination, "a folder")
    folder.state()  # a missing index fails before a folder is made
    folder.refuse_links()
    _check_destination(folder, target)
    with storage_errors(target), appearing_folder(target) as copy:

        def copy_commit(commit: tuple[Generation, Committed]) -> int:
            _empty(copy)
            return _copy_commit(folder, *commit, copy)

        linked = retry_if_replaced(copy_commit, lambda: last_commit(folder), last_commit(folder), folder.path)
        with IndexReader(copy) as reader, reader.snapshot() as snapshot:
            passages = snapshot.lucene.num_docs
        sizes = [file.stat().st_size for file in copy.rglob("*") if file.is_file()]
    return BackupReport(target, passages, len(sizes), sum(sizes), linked, time.monotonic() - started)


def _check_destination(folder: IndexFolder, target: Path) -> None:
    """Raise if the destination exists with content, or lies in the index."""
    check_new_folder(target, "name a new folder")
    if target.resolve().is_relative_to(folder.path.resolve()):
        raise IndexStateError(
            "the backup's folder lies in the index",
            where=str(target),
            remedy="name a folder outside the index",
        )


def _empty(folder: Path) -> None:
    for child in folder.iterdir():
        shutil.rmtree(child) if child.is_dir() else child.unlink()


def _copy_commit(folder: IndexFolder, generation: Generation, committed: Committed, copy: Path) -> int:
    """Copy the files of one commit, and write a manifest that names only this commit's generation.

    Returns the number of hard links.
    """
    files = list(_files(folder, generation, committed))
    linked = sum(_link(folder.path / file, copy / file) for file in files)
    for name, manifest in committed.manifests.items():
        channel = folder.channel_path(name, generation).relative_to(folder.path)
        atomic_write(copy / channel / MANIFEST_NAME, manifest)
    copied = as_committed(IndexFolder(copy), generation)  # the folder may have another state by now
    is_live = copied.complete or copied.job.grows
    IndexFolder(copy).write_state(IndexState(live=copied) if is_live else IndexState(building=copied))
    return linked


def _files(folder: IndexFolder, generation: Generation, committed: Committed) -> Iterator[Path]:
    """Yield the files of a commit, relative to the index folder, without the channels' manifests."""
    lucene = folder.lucene_path(generation)
    for name in commit_files(lucene, committed.version.commit):
        yield Path(lucene.name, name)
    for file in sorted((folder.path / generation.tokenizer_name).iterdir()):
        yield file.relative_to(folder.path)
    for name, manifest in committed.manifests.items():
        channel = folder.channel_path(name, generation)
        for file_name in OTHER_CHANNELS[name]().files(channel, manifest):
            yield (channel / file_name).relative_to(folder.path)


def _link(source: Path, target: Path) -> bool:
    """Make a hard link to a file, or a copy where links are impossible. Returns whether it is a link."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
        return True
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    with source.open("rb") as stream, target.open("xb") as copy:
        shutil.copyfileobj(stream, copy)
        copy.flush()
        os.fsync(copy.fileno())
    return False
