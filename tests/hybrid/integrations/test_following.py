"""Vectors that another process writes after its commit are searched as soon as they are there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparta import Index
from sparta.index.channels import Synced
from sparta.index.pipeline import IndexOptions, build_index

pytestmark = pytest.mark.jvm
PASSAGES = [{"id": "google", "text": "who founded google"}, {"id": "moon", "text": "the moon of the earth"}]


@pytest.fixture
def options(tiny_model_folder: Path) -> IndexOptions:
    return IndexOptions(model=str(tiny_model_folder), dtype="fp32")


@pytest.fixture
def dense_index(options: IndexOptions, make_tiny_model: Callable[..., Any], tmp_path: Path) -> Path:
    from dense.channel.sync import build_dense
    from dense.models.bi_encoder import DenseConfig, DenseModel
    from sparta.neural.inputs import InputLayout

    tiny = make_tiny_model()
    layout = InputLayout(use_title=True, use_context=True, answer_segment=0, max_length=64, overlap=8)
    DenseModel(tiny.encoder, tiny.tokenizer, DenseConfig(layout)).save_pretrained(tmp_path / "dense")
    build_index(tmp_path / "ix", PASSAGES, "create", options)
    build_dense(tmp_path / "ix", str(tmp_path / "dense"))
    return tmp_path / "ix"


@pytest.fixture
def commit(
    dense_index: Path, options: IndexOptions, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], None]:
    """Commit a passage to Lucene without its vector, as `sparta update` does at first."""
    monkeypatch.setattr("sparta.index.pipeline.sync_channels", lambda *_, **__: Synced())

    def write(passage_id: str) -> None:
        build_index(dense_index, [{"id": passage_id, "text": f"a city of {passage_id}"}], "update", options)

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
