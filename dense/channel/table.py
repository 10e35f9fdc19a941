"""The dense channel as `sparta.index.channels` names it in its table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dense.channel.folder import ChannelFolder
from dense.channel.sync import DenseReport, build_dense, has_dense
from sparta.index.folder import Generation, IndexFolder

if TYPE_CHECKING:
    from dense.channel.vectors import DenseChannel

exists = has_dense


def sync(index: Path, *, device: str | None = None, dtype: str = "auto") -> DenseReport:
    """Bring the dense channel to what the Lucene index holds."""
    return build_dense(index, device=device, dtype=dtype)


def check(index: Path) -> None:
    """Read every file of the channel; a damaged one is an error that says what to do."""
    folder = IndexFolder(index)
    place = ChannelFolder(folder.dense_path(folder.require_live()))
    place.check(place.read())


def open(
    folder: IndexFolder, generation: Generation, manifest: bytes | None, kept: dict[str, Any]
) -> DenseChannel:
    """Open the vectors of the channel."""
    from dense.channel.vectors import DenseChannel

    return DenseChannel(folder, generation, manifest, kept)
