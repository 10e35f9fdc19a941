"""Opens the network of an index's queries while Java starts."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from sparta.runtime.ahead import begin


def begin_query_network(index: Path) -> None:
    """Begin to open the network that encodes the queries of an index; do nothing if it has none."""
    begin(partial(_open_query_network, index))


def _open_query_network(index: Path) -> None:
    from sparta.index.folder import IndexFolder

    folder = IndexFolder(index)
    searched = folder.state().searchable
    if searched is not None and searched.model.get("query_network"):
        folder.query_tokenizer(searched).open_network()
