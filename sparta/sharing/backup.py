"""Copy one commit of an index, with all its channels, while other processes search and write.

Lucene and the dense channel never change a file after it is complete, and they replace a manifest by a new
file. So an open file of a commit keeps its content, also after a writer has removed the file. If the machine
allows too few open files, a writer may remove another file before it is copied. Then the copy starts again.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sparta.base.checks import path_of
from sparta.base.disk.new_folders import appearing_folder, check_appearing_folder
from sparta.base.errors import IndexStateError
from sparta.base.files import allow_open_files, atomic_write, storage_errors
from sparta.base.manifest import MANIFEST_NAME
from sparta.index.build import as_committed
from sparta.index.channels import OTHER_CHANNELS
from sparta.index.folder import IndexFolder, lasting_path
from sparta.index.generation import Generation, IndexState
from sparta.index.reader import IndexReader
from sparta.index.snapshot import Committed, last_commit, retry_if_replaced
from sparta.lucene.bridge import commit_files

_BYTES_PER_CALL = 1 << 30
_BYTES_PER_READ = 1 << 20


@dataclass(frozen=True, slots=True)
class BackupReport:
    """The result of a backup: `passages` live passages in `files` files of `size` bytes."""

    path: Path
    passages: int
    files: int
    size: int
    seconds: float


def backup_index(path: str | Path, destination: str | Path) -> BackupReport:
    """Copy the newest commit of an index to a new folder, without waiting for a writer.

    The folder appears when it is complete. It holds all channels of the commit, so its rankings are those of
    the commit. While an update encodes vectors, the dense channel of the copy lacks them: `sparta verify`
    counts them, and `dense index` adds them. The backup shares no file with the index, so it keeps its
    content even if other files are copied over the index.

    :raises IndexStateError: there is no index, it holds no passages, or the destination is not a new folder.
    :raises StorageError: the disk is full, the destination cannot be written, or the index cannot be read.
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
            _copy_commit(folder, *commit, copy)
            with IndexReader(copy) as reader, reader.snapshot() as snapshot:
                return snapshot.lucene.num_docs

        passages = retry_if_replaced(
            copy_commit, lambda: last_commit(folder), last_commit(folder), folder.path
        )
        sizes = [file.stat().st_size for file in copy.rglob("*") if file.is_file()]
    return BackupReport(target, passages, len(sizes), sum(sizes), time.monotonic() - started)


def _check_destination(folder: IndexFolder, target: Path) -> None:
    """Raise if the destination exists with content, or lies in the index."""
    check_appearing_folder(target)
    if target.resolve().is_relative_to(folder.path.resolve()):
        raise IndexStateError(
            "the backup's folder lies in the index",
            where=str(target),
            remedy="name a folder outside the index",
        )


def _empty(folder: Path) -> None:
    for child in folder.iterdir():
        shutil.rmtree(child) if child.is_dir() else child.unlink()


def _copy_commit(folder: IndexFolder, generation: Generation, committed: Committed, copy: Path) -> None:
    """Copy the files of one commit, and write a manifest that names only this commit's generation."""
    with storage_errors(folder.path, reading=True):
        files = list(_files(folder, generation, committed))
    count = allow_open_files(len(files))
    with ExitStack() as stack:
        # Opening the files is quick, and the copies are slow. A writer may remove the files meanwhile.
        streams = [stack.enter_context(_open(folder.path / file)) for file in files[:count]]
        for file in files[count:]:  # first, because no open file keeps their content
            with _open(folder.path / file) as stream:
                _copy(stream, copy / file)
        for file, stream in zip(files, streams, strict=False):
            _copy(stream, copy / file)
    for name, manifest in committed.manifests.items():
        channel = folder.channel_path(name, generation).relative_to(folder.path)
        atomic_write(copy / channel / MANIFEST_NAME, manifest)
    copied = as_committed(IndexFolder(copy), generation)  # the folder may have another state by now
    is_live = copied.complete or copied.job.grows
    IndexFolder(copy).write_state(IndexState(live=copied) if is_live else IndexState(building=copied))


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


def _open(path: Path) -> BinaryIO:
    with storage_errors(path, reading=True):
        return path.open("rb")


def _read(stream: BinaryIO) -> bytes:
    with storage_errors(stream.name, reading=True):
        return stream.read(_BYTES_PER_READ)


def _copy(stream: BinaryIO, target: Path) -> None:
    """Copy an open file. File systems that can share blocks store both files in the same blocks."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as copy:
        with suppress(AttributeError, OSError):  # some systems lack the call
            while os.copy_file_range(stream.fileno(), copy.fileno(), _BYTES_PER_CALL):
                pass
        while data := _read(stream):  # the rest of the file: nothing, if the call has worked
            copy.write(data)
        copy.flush()
        os.fsync(copy.fileno())
