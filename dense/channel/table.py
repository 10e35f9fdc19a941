"""The dense channel's functions for `sparta.index.channels`. Heavy modules are imported at the first use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dense.channel.folder import ChannelFolder
from sparta.index.channels import DENSE
from sparta.index.folder import IndexFolder
from sparta.index.generation import Generation

if TYPE_CHECKING:
    from dense.channel.indexing import VectorPass
    from dense.channel.sync import DenseReport
    from dense.channel.vectors import DenseChannel


def exists(index: Path) -> bool:
    """Return whether the live generation of an index has a dense channel."""
    folder = IndexFolder(index)
    generation = folder.state().live if folder.exists() else None
    return generation is not None and ChannelFolder(folder.dense_path(generation)).exists()


def sync(
    index: Path, *, device: str | None = None, dtype: str = "auto", reencodes: bool = False
) -> DenseReport:
    """Update the dense channel to the passages of the Lucene index.

    :param reencodes: keep no vectors of another arithmetic than `dtype`
    """
    from dense.channel.sync import build_dense

    return build_dense(index, device=device, dtype=dtype, overwrite=reencodes)


def recommit(index: Path, number: int, segments: bytes | None) -> None:
    """Let the channel cover the newest commit if it covers the previous commit of the same passages.

    :param number: the number of the previous commit
    :param segments: the content of its file segments_N
    """
    from dense.channel.passages import commit_name, commit_of

    folder = IndexFolder(index)
    generation = folder.require_live()
    channel_folder = ChannelFolder(folder.dense_path(generation))
    channel = channel_folder.read()
    if segments is not None and channel.commit == commit_name(number, segments):
        channel_folder.write(replace(channel, commit=commit_of(folder.lucene_path(generation))))


def is_begun(index: Path, generation: Generation) -> bool:
    """Return whether an interrupted indexing pass has begun a new dense channel of a generation.

    Earlier releases did not mark the folder of such a pass, but in an unfinished build it has vectors.
    """
    channel_folder = ChannelFolder(IndexFolder(index).begun_path(DENSE, generation))
    if channel_folder.exists() or channel_folder.mark.exists():
        return not channel_folder.exists()
    is_build = not generation.complete and not generation.job.grows
    return is_build and any(channel_folder.stores())


def begin(index: Path, *, unit: str, language: str, device: str | None, dtype: str) -> VectorPass:
    """Return the object that encodes the channel's vectors while the corpus is indexed."""
    from dense.channel.indexing import VectorPass

    return VectorPass(index, unit=unit, language=language, device=device, dtype=dtype)


def check(index: Path) -> None:
    """Read every file of the channel, and raise an error that says how to repair the first damaged file."""
    folder = IndexFolder(index)
    channel_folder = ChannelFolder(folder.dense_path(folder.require_live()))
    channel_folder.check(channel_folder.read())


def files(channel: Path, manifest: bytes) -> list[str]:
    """Return the files that a manifest names, relative to the channel's folder, without the manifest.

    :param channel: the channel's folder
    :param manifest: the bytes of the channel's manifest
    """
    return ChannelFolder(channel).named_files(manifest)


def open(
    folder: IndexFolder, generation: Generation, manifest: bytes | None, kept: dict[str, Any]
) -> DenseChannel:
    """Open the vectors of the channel for search.

    :param manifest: the bytes of the channel's manifest; None if there is none
    :param kept: objects that successive snapshots of the channel share, such as the loaded model
    """
    from dense.channel.vectors import DenseChannel

    return DenseChannel(folder, generation, manifest, kept)
