"""Vectors that another process writes after its commit are searched as soon as they are there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sparta import Index
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index

pytestmark = pytest.mark.jvm


@pytest.fixture
def commit(dense_index: Path, built_dense_index: Path, options: IndexOptions) -> Callable[[str], None]:
    """Commit a passage to Lucene without its vector: the dense model is away meanwhile."""
    model = built_dense_index.parent / "dense"

    def write(passage_id: str) -> None:
        passages = [{"id": passage_id, "text": f"a city of {passage_id}"}]
        away = model.rename(model.with_name("away"))
        try:
            assert build_index(dense_index, passages, "update", options).behind == ("dense",)
        finally:
            away.rename(model)

    return write


def test_an_index_follows_its_vectors(dense_index: Path, commit: Callable[[str], None]) -> None:
    from dense.channel.sync import build_dense

    def ids() -> set[str]:
        return {hit.passage_id for hit in index.search("google", channel="dense")}

    with Index(dense_index) as index:
        assert ids() == {"google", "moon"}
        commit("paris")
        assert index.refresh()
        assert ids() == {"google", "moon"}
        build_dense(dense_index)
        assert index.refresh()
        assert ids() == {"google", "moon", "paris"}
        assert not index.refresh()


def test_the_tools_follow_the_vectors(dense_index: Path, commit: Callable[[str], None]) -> None:
    pytest.importorskip("fastmcp")
    from dense.channel.sync import build_dense
    from hybrid.integrations import mcp_server
    from tests.hybrid.integrations.test_mcp import call

    def ids() -> set[str]:
        return {hit["id"] for hit in call(server, "search", query="google")}

    server = mcp_server(dense_index, "dense")
    commit("paris")
    assert ids() == {"google", "moon"}
    build_dense(dense_index)
    assert ids() == {"google", "moon", "paris"}
