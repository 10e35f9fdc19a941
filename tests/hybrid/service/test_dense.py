"""The dense channel over HTTP: searched, fused, and followed when passages are written."""

from __future__ import annotations

import json
import shutil
import time

import pytest

from hybrid.retrieval.searcher import open_retriever
from sparta.index.pipeline import IndexOptions, build_index
from tests.hybrid.service.services import NDJSON, QUESTION, lines

pytestmark = pytest.mark.jvm


@pytest.fixture
def dense_index(index, make_tiny_model, tmp_path):
    from dense.channel.sync import build_dense
    from dense.models.bi_encoder import DenseConfig, DenseModel
    from sparta.neural.inputs import InputLayout

    tiny = make_tiny_model()
    layout = InputLayout(use_title=True, use_context=True, answer_segment=0, max_length=64, overlap=8)
    DenseModel(tiny.encoder, tiny.tokenizer, DenseConfig(layout)).save_pretrained(tmp_path / "dense")
    build_dense(index, str(tmp_path / "dense"))
    return index


def test_the_dense_channel_is_searched_fused_and_followed(dense_index, open_client) -> None:
    client = open_client(dense_index, writable=True)
    assert client.get("/info").json()["channels"] == ["bm25", "impact", "dense"]

    def check() -> list[str]:
        for channels in ("dense", "dense,impact", "dense=0.5,impact,bm25"):
            found = client.post("/search", json={"query": QUESTION, "k": 8, "channels": channels}).json()
            with open_retriever(dense_index, channels) as retriever:
                expected = retriever.search(QUESTION, 8)
            assert [(h["id"], h["title"]) for h in found["hits"]] == [
                (h.passage_id, h.title) for h in expected
            ]
            scores = [hit["score"] for hit in found["hits"]]
            assert scores == pytest.approx([hit.score for hit in expected], abs=1e-5)
        return [hit["id"] for hit in found["hits"]]

    before = check()
    service = client.app.state.service
    with service.reader.snapshot() as snapshot:
        old, model = snapshot, snapshot.channel("dense").model
    body = lines({"id": "twin", "text": "google was founded", "title": "Google"})
    assert client.put("/passages", content=body, headers=NDJSON).json()["added"] == 1
    assert "twin" in check()
    with service.reader.snapshot() as snapshot:
        assert snapshot is not old
        assert snapshot.channel("dense").model is model
    assert client.delete(f"/passages/{before[0]}").status_code == 200
    assert before[0] not in check()


def test_a_write_that_the_channel_cannot_follow_is_acknowledged(dense_index, open_client, tmp_path) -> None:
    client = open_client(dense_index, writable=True)
    (tmp_path / "dense").rename(tmp_path / "elsewhere")
    answer = client.post("/passages", content=lines({"id": "n", "text": "google"}), headers=NDJSON)
    assert answer.status_code == 200
    assert answer.json() == {"added": 1, "failed": 0, "errors": [], "behind": ["dense"]}
    assert client.get("/passages/n").status_code == 200
    assert client.delete("/passages/n").json()["behind"] == ["dense"]
    assert client.request("DELETE", "/passages", content=b'"moon"', headers=NDJSON).json()["behind"] == [
        "dense"
    ]


def test_a_write_warns_of_nothing(dense_index, open_client, caplog) -> None:
    client = open_client(dense_index, writable=True, watch=0.001)
    body = lines(*({"id": f"n{i}", "text": f"google {i}"} for i in range(3)))
    assert client.put("/passages", content=body, headers=NDJSON).json()["added"] == 3
    assert client.delete("/passages/n1").status_code == 200
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == []


def test_a_smaller_index_copied_into_a_served_folder(
    dense_index, running, tiny_model_folder, make_records, tmp_path
) -> None:
    """Nobody may do this, but the process goes on, and answers from the smaller index in the end."""
    smaller = shutil.copytree(dense_index, tmp_path / "smaller")
    options = IndexOptions(model=str(tiny_model_folder))
    build_index(dense_index, make_records(600, seed=3), "update", options)
    service = running(dense_index)
    body = json.dumps({"query": QUESTION, "k": 5, "channels": "dense"}).encode()
    assert service.ask("POST", "/search", body).status == 200
    shutil.copytree(smaller, dense_index, dirs_exist_ok=True)
    for _ in range(20):
        last = service.ask("POST", "/search", body)
        assert last.status in (200, 409, 500)
        time.sleep(0.05)
    assert service.process.poll() is None
    assert last.status == 200
