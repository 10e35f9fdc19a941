"""The dense channel as `sparta.index.channels` knows it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dense.channel.sync import DenseReport, build_dense, has_dense

if TYPE_CHECKING:
    from dense.channel.searcher import DenseSearcher

exists = has_dense


def sync(index: Path, *, device: str | None = None, dtype: str = "auto") -> DenseReport:
    """Bring the dense channel to what the Lucene index holds."""
    return build_dense(index, device=device, dtype=dtype)


def open(index: Path) -> DenseSearcher:
    """A searcher of the dense channel."""
    from dense.channel.searcher import DenseSearcher

    return DenseSearcher(index)
