"""The dense channel as `sparta.index.channels` names it in its table; what is heavy is imported when used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dense.channel.folder import ChannelFolder
from sparta.index.folder import Generation, IndexFolder

if TYPE_CHECKING:
    from dense.channel.sync import DenseReport
    from dense.channel.vectors import DenseChannel


def exists(index: Path) -> bool:
    """Whether the live generation of an index has a dense channel."""
    folder = IndexFolder(index)
    live = folder.state().live if folder.exists() else None
    return live is not None and ChannelFolder(folder.dense_path(live)).exists()


def sync(index: Path, *, device: str | None = None, dtype: str = "auto") -> DenseReport:
    """Bring the dense channel to what the Lucene index holds."""
    from dense.channel.sync import build_dense

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
