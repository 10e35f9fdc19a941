"""The dense channel over HTTP: searched, fused, and followed when passages are written."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import pytest

from dense.channel.sync import build_dense
from dense.encoding.question_encoder import BertQuestionEncoder
from hybrid.retrieval.searcher import open_retriever
from hybrid.service.live.search import BatchSearch, Job, Plan, weights_of
from hybrid.service.metrics import IndexMetrics
from sparta.base.errors import IndexStateError
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from sparta.index.reader import IndexReader
from sparta.search.retriever import Page
from tests.conftest import WORDS
from tests.hybrid.service.services import NDJSON, QUESTION, lines

pytestmark = pytest.mark.jvm


@pytest.fixture
def dense_index(index, make_tiny_model, tmp_path):
    from dense.models.bi_encoder import DenseConfig, DenseModel
    from sparta.neural.inputs import InputLayout

    tiny = make_tiny_model()
    layout = InputLayout(use_title=True, use_context=True, answer_segment=0, max_length=64, overlap=8)
    DenseModel(tiny.encoder, tiny.tokenizer, DenseConfig(layout)).save_pretrained(tmp_path / "dense")
    build_dense(index, str(tmp_path / "dense"))
    return index


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_a_damaged_dense_channel_closes_no_other_channel(dense_index, open_client, caplog) -> None:
    client = open_client(dense_index, writable=True, watch=60)
    (shard,) = dense_index.glob("dense-*/vectors-*/shard-*")
    shard.write_bytes(shard.read_bytes()[:-1])
    written = client.put("/passages", content=lines({"id": "n", "text": "google"}), headers=NDJSON)
    assert written.json() == {"added": 1, "updated": 0, "failed": 0, "errors": [], "behind": ["dense"]}
    assert client.get("/passages/n").status_code == 200
    assert client.delete("/passages/moon").json()["deleted"] == 1
    assert client.get("/passages/moon").status_code == 404
    search = {"query": QUESTION, "channels": "dense"}
    assert client.post("/search", json=search).status_code == 409
    assert client.post("/search", json={**search, "channels": "bm25"}).json()["hits"]
    (warning,) = [r.getMessage() for r in caplog.records if "cannot be opened" in r.getMessage()]
    assert str(shard) in warning
    assert f"dense index --index {dense_index}" in warning
    assert open_client(dense_index).post("/search", json={"query": QUESTION}).json()["hits"]
    with pytest.raises(IndexStateError, match="cannot read the shard of vectors"):
        open_client(dense_index, channels="bm25,dense")
    shard.unlink()
    build_dense(dense_index)
    assert client.put("/passages", content=lines({"id": "n", "text": "moon"}), headers=NDJSON).json()[
        "updated"
    ]
    assert client.post("/search", json=search).json()["hits"]


def test_a_damaged_default_channel_leaves_the_previous_commit_open(dense_index, open_client, caplog) -> None:
    client = open_client(dense_index, writable=True, watch=60, channels="bm25,dense")
    search = {"query": QUESTION}
    before = client.post("/search", json=search).json()["hits"]
    assert before
    (shard,) = dense_index.glob("dense-*/vectors-*/shard-*")
    shard.write_bytes(shard.read_bytes()[:-1])
    passage = lines({"id": "n", "text": QUESTION})
    written = client.put("/passages", content=passage, headers=NDJSON)
    assert written.json() == {"added": 1, "updated": 0, "failed": 0, "errors": [], "behind": ["dense"]}
    assert client.post("/search", json=search).json()["hits"] == before
    (warning,) = [r.getMessage() for r in caplog.records if "cannot be opened yet" in r.getMessage()]
    assert f"dense index --index {dense_index}" in warning
    assert client.put("/passages", content=passage, headers=NDJSON).status_code == 409
    shard.unlink()
    build_dense(dense_index)
    assert client.put("/passages", content=passage, headers=NDJSON).json()["updated"] == 1
    assert client.post("/search", json=search).json()["hits"][0]["id"] == "n"


def test_a_write_warns_of_nothing(dense_index, open_client, caplog) -> None:
    client = open_client(dense_index, writable=True, watch=0.001)
    body = lines(*({"id": f"n{i}", "text": f"google {i}"} for i in range(3)))
    assert client.put("/passages", content=body, headers=NDJSON).json()["added"] == 3
    assert client.delete("/passages/n1").status_code == 200
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == []


@pytest.mark.slow
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


@pytest.fixture
def runs(calls: Callable[..., list[Any]]) -> list[Any]:
    """The runs of the network."""
    return calls(BertQuestionEncoder.encode_questions)


def job(query: str, channels: str, k: int) -> Job:
    return Job([query], Plan(channels, weights_of(channels), Page(k)))


def found(answer: Any) -> list[tuple[str, float]]:
    assert isinstance(answer, bytes), answer
    return [(hit["id"], hit["score"]) for hit in orjson.loads(answer)["hits"]]


def test_waiting_queries_of_all_plans_share_one_run_of_the_network(
    dense_index: Path, runs: list[Any]
) -> None:
    queries = [" ".join(WORDS[i : i + 3]) for i in range(0, 60, 3)] + [" "]
    channels = ("dense", "dense,impact", "dense=0.5,impact,bm25", "impact")
    jobs = [job(query, channels[i % 4], 1 + i % 6) for i, query in enumerate(queries + queries[:9])]
    with IndexReader(dense_index, channels=None) as index:
        search = BatchSearch(index, 2, IndexMetrics())
        together = [found(answer) for answer in search(jobs)]
        need_vectors = [job.queries[0] for job in jobs if job.plan.is_dense and job.queries[0].strip()]
        assert [list(run["texts"]) for _, run in runs] == [list(dict.fromkeys(need_vectors))]
        by_one = [found(search([job])[0]) for job in jobs]
    assert sum(map(len, by_one)) > 60
    for hits, expected in zip(together, by_one, strict=True):
        assert [passage_id for passage_id, _ in hits] == [passage_id for passage_id, _ in expected]
        assert [score for _, score in hits] == pytest.approx([score for _, score in expected], abs=1e-5)


def test_a_query_that_the_network_refuses_fails_alone(
    dense_index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = BertQuestionEncoder.encode_questions

    def refusing(self: BertQuestionEncoder, texts: list[str]) -> Any:
        if any("panic" in text for text in texts):
            raise ValueError("panic")
        return encode(self, texts)

    monkeypatch.setattr(BertQuestionEncoder, "encode_questions", refusing)
    with IndexReader(dense_index, channels=None) as index:
        search = BatchSearch(index, 2, IndexMetrics())
        answers = search([job("moon", "dense", 3), job("panic", "dense", 3), job("moon", "dense,bm25", 3)])
    assert [isinstance(answer, bytes) for answer in answers] == [True, False, True]
    assert len(found(answers[0])) == 3


def test_impact_queries_do_not_wait_for_the_network(
    dense_index: Path, open_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_running, may_end = threading.Event(), threading.Event()
    encode = BertQuestionEncoder.encode_questions

    def slow(self: BertQuestionEncoder, texts: list[str]) -> Any:
        is_running.set()
        assert may_end.wait(20)
        return encode(self, texts)

    monkeypatch.setattr(BertQuestionEncoder, "encode_questions", slow)
    client = open_client(dense_index)

    def ask(channels: str) -> Any:
        return client.post("/search", json={"query": QUESTION, "channels": channels})

    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(ask, "dense,impact")
        try:
            assert is_running.wait(20)
            for channels in ("impact", "bm25", "bm25,impact"):
                assert ask(channels).json()["hits"]
            assert not waiting.done()
        finally:
            may_end.set()
        assert waiting.result().json()["hits"]
