"""Encoders of passages that stay open, for an index or a service."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparta.base.extras import optional_packages
from sparta.models.resolve import hash_folder

if TYPE_CHECKING:
    from sparta.models.model import SparseModel


class OpenEncoders:
    """Opens each encoder once, and again when its files have changed. Threads may share this object."""

    def __init__(self) -> None:
        self._opened: dict[tuple[object, ...], tuple[str, SparseModel]] = {}
        self._lock = threading.Lock()

    @optional_packages()
    def encoder(
        self,
        name: str | None,
        bits: int | None = None,
        devices: Sequence[str] = (),
        query_encoder: str | None = None,
    ) -> SparseModel:
        """Return the encoder that `open_encoder` opens with these arguments.

        :raises ModelError: there is no such model.
        """
        from sparta.models.load import open_encoder

        key = name, bits, tuple(devices), query_encoder
        sha256 = hash_folder(Path(name)) if name and Path(name).is_dir() else ""
        with self._lock:
            opened = self._opened.get(key)
            if opened is None or opened[0] != sha256:
                opened = self._opened[key] = sha256, open_encoder(name, bits, devices, query_encoder)
            return opened[1]
