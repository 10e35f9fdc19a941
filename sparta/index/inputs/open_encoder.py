"""The encoder of passages that an index or a service keeps open between writes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from sparta.base.extras import optional_packages
from sparta.models.resolve import hash_folder

if TYPE_CHECKING:
    from sparta.models.model import SparseModel

_opening = threading.Lock()
_opened: WeakValueDictionary[tuple[object, ...], SparseModel] = WeakValueDictionary()


class OpenEncoder:
    """Keeps the encoder open that was needed last; all objects of a process share equal encoders.

    An encoder whose files have changed is opened again.
    """

    def __init__(self) -> None:
        self._last: SparseModel | None = None

    @optional_packages()
    def open(
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

        sha256 = hash_folder(Path(name)) if name and Path(name).is_dir() else ""
        key = name, sha256, bits, tuple(devices), query_encoder
        with _opening:
            encoder = _opened.get(key)
            if encoder is None:
                self._last = None  # two encoders need not fit into memory
                encoder = _opened[key] = open_encoder(name, bits, devices, query_encoder)
        self._last = encoder
        return encoder
