"""Reranking over HTTP: the hits and answers of a search with the same cross-encoder, in this process."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from hybrid.retrieval.limits import Limits
from hybrid.service.settings import Settings
from sparta import Index
from sparta.base.errors import InputError
from sparta.reader.records import Span, Text
from tests.hybrid.service.services import QUESTION, GivenReader
from tests.hybrid.service.test_serve_command import refused
from tests.sparta.rerank.cross_encoders import save_cross_encoder

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("one_thread")]

QUERIES = ["the moon", "a star of the year", "zebra"]


@pytest.fixture(scope="module")
def reranker(tiny_tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a cross-encoder."""
    return str(save_cross_encoder(tiny_tokenizer, tmp_path_factory.mktemp("cross")))


def hits_of(answer: dict[str, Any]) -> list[tuple[str, float, str]]:
    return [(hit["id"], hit["score"], hit["text"]) for hit in answer["hits"]]


def test_hits_are_those_of_a_search_in_python(
    built: Path, reranker: str, open_client: Callable[..., Any]
) -> None:
    client = open_client(built, reranker=reranker, rerank_depth=7)
    assert client.get("/info").json()["rerank"] == 7

    def ask(**body: Any) -> Any:
        response = client.post("/search", json={"k": 12, **body})
        assert response.status_code == 200, response.json()
        return response.json()

    with Index(built) as index:
        for query in QUERIES:
            for fields, depth in (({}, 7), ({"rerank": 3}, 3), ({"rerank": 12, "offset": 2}, 12)):
                expected = index.search(
                    query, 12, offset=fields.get("offset", 0), rerank=reranker, rerank_depth=depth
                )
                answer = ask(query=query, **fields)
                assert answer["rerank"] == depth
                scores = [score for _, score, _ in hits_of(answer)]
                assert scores == pytest.approx([hit.score for hit in expected], abs=1e-5)
                assert [(i, text) for i, _, text in hits_of(answer)] == [
                    (hit.passage_id, hit.text) for hit in expected
                ]
        plain = ask(query="the moon", rerank=0)
        assert plain["rerank"] == 0
        assert [hit["id"] for hit in plain["hits"]] == [
            hit.passage_id for hit in index.search("the moon", 12)
        ]
    several = ask(query=QUERIES)
    assert [hits_of(one) for one in several["results"]] == [hits_of(ask(query=query)) for query in QUERIES]
    assert hits_of(client.get("/search?q=the+moon&k=12&rerank=3").json()) == hits_of(
        ask(query="the moon", rerank=3)
    )
    fused = ask(query="the moon", channels="impact,bm25", rerank=5)
    assert len({hit["score"] for hit in fused["hits"][:5]}) > 1
    assert all(0 < hit["score"] < 1 for hit in fused["hits"][:5]), "the model's scores are sigmoids"
    explained = ask(query="the moon", rerank=3, explain=True, facets=["lang"])
    assert [hit["id"] for hit in explained["hits"]] == [
        hit["id"] for hit in ask(query="the moon", rerank=3)["hits"]
    ]
    assert all(hit["terms"] for hit in explained["hits"])
    assert explained["facets"] == ask(query="the moon", rerank=0, facets=["lang"])["facets"]


def test_an_answer_is_read_from_the_reranked_passages(
    built: Path, reranker: str, open_client: Callable[..., Any]
) -> None:
    texts: list[Text] = []

    def read_nothing(text: Text) -> list[Span]:
        texts.append(text)
        return []

    client = open_client(built, GivenReader(read_nothing), reranker=reranker)
    read: list[list[str]] = []
    for body in ({}, {"rerank": 4}, {"rerank": 0}):
        assert client.post("/answer", json={"query": QUESTION, "depth": 6, **body}).status_code == 200
        read.append([text.text for text in texts])
        texts.clear()
    with Index(built) as index:
        ranked = [
            [hit.text for hit in index.search(QUESTION, 6, rerank=reranker, rerank_depth=depth)]
            for depth in (20, 4)
        ]
        ranked.append([hit.text for hit in index.search(QUESTION, 6)])
    assert read == ranked
    assert read[0] != read[2]


def test_a_service_without_a_cross_encoder_refuses_to_rerank(
    built: Path, open_client: Callable[..., Any]
) -> None:
    client = open_client(built)
    assert client.get("/info").json()["rerank"] == 0
    assert client.post("/search", json={"query": "moon", "rerank": 0}).status_code == 200
    for path in ("/search", "/answer"):
        response = client.post(path, json={"query": "moon", "rerank": 5})
        assert response.status_code == 400
        error = response.json()["error"]
        assert error["message"] == "the service has no cross-encoder for rerank"
        assert "sparta serve --rerank reranker-minilm-en" in error["remedy"]


def test_limits(built: Path, reranker: str, open_client: Callable[..., Any]) -> None:
    client = open_client(built, reranker=reranker)
    for body in (
        {"query": "moon", "rerank": 101},
        {"query": ["moon"] * 6},
        {"query": "moon", "rerank": -1},
    ):
        response = client.post("/search", json=body)
        assert response.status_code == 400, body
        assert "rerank" in response.json()["error"]["message"]
    assert client.get("/search?q=moon&rerank=x").status_code == 400
    with pytest.raises(InputError, match="reranks at most 4 hits, found 5"):
        Settings(built, reranker=reranker, rerank_depth=5, limits=Limits(reranked=4))


def test_a_wrong_folder_is_refused_before_the_service_begins(
    built: Path, reranker: str, tiny_model_folder: Path, tmp_path: Path
) -> None:
    options = ("--index", built, "--rerank")
    assert "no such folder of a cross-encoder" in refused(*options, tmp_path / "nothing")
    assert "expected a cross-encoder" in refused(*options, tiny_model_folder)
    assert "reranks at most 100 hits" in refused(*options, reranker, "--rerank-depth", 101)
    assert "--rerank" in refused("--index", built, "--rerank-depth", 5)
    lacking = Path(shutil.copytree(reranker, tmp_path / "lacking"))
    (lacking / "tokenizer.json").unlink()
    assert "no usable tokenizer" in refused(*options, lacking)


@pytest.mark.slow
def test_the_command_serves_reranked_hits(built: Path, reranker: str, running: Callable[..., Any]) -> None:
    service = running(built, "--rerank", reranker, "--rerank-depth", "9")
    answer = service.search("the moon", k=9)
    assert answer["rerank"] == 9
    with Index(built) as index:
        expected = index.search("the moon", 9, rerank=reranker, rerank_depth=9)
    assert [hit["id"] for hit in answer["hits"]] == [hit.passage_id for hit in expected]
    described = json.loads(json.dumps(service.ask("GET", "/openapi.json").body))
    fields = described["components"]["schemas"]["SearchAnswer"]["properties"]
    assert "cross-encoder" in fields["rerank"]["description"]
    names = [parameter["name"] for parameter in described["paths"]["/search"]["get"]["parameters"]]
    assert "rerank" in names
