"""Opens the network of an index's queries while Java starts."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from sparta.runtime.ahead import begin


def begin_query_network(index: Path) -> None:
    """Begin to open the network that encodes the queries of an index; do nothing if it has none."""
    begin(partial(open_network_of, index))


def open_network_of(index: Path) -> None:
    """Open the network that encodes the queries of an index; do nothing if it has none.

    :raises IndexStateError: the model was moved or has changed.
    """
    from sparta.index.folder import IndexFolder

    folder = IndexFolder(index)
    searched = folder.state().searchable
    if searched is not None and searched.model.get("query_network"):
        folder.query_tokenizer(searched).open_network()
