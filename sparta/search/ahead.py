"""Opens the network of an index's queries while Java starts."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sparta.runtime.ahead import begin

if TYPE_CHECKING:
    from sparta.index.folder import IndexFolder


def begin_query_network(index: Path) -> None:
    """Begin to open the network that encodes the queries of an index; do nothing if it has none."""
    begin(partial(_open_network_at, index))


def _open_network_at(index: Path) -> None:
    from sparta.index.folder import IndexFolder

    open_network_of(IndexFolder(index))


def open_network_of(folder: IndexFolder) -> None:
    """Open the network that encodes the queries of an index; do nothing if it has none.

    :raises IndexStateError: the model was moved or has changed.
    """
    searched = folder.state().searchable
    if searched is not None and searched.model.get("query_network"):
        folder.query_tokenizer(searched).open_network()
