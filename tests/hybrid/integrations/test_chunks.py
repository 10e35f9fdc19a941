"""Several chunks of one document as hits, with their offsets, through every interface."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sparta.api import Index
from sparta.base.errors import InputError
from sparta.data.units import chunk_unit
from sparta.index.inputs.options import IndexOptions
from tests.programs import sparta

pytestmark = pytest.mark.jvm
QUERY, K = "moon ice", 5
WORDS = ["moon", "sun", "star", "ice", "rock", "dust", "ash", "sand", "lake", "tree"]
SEPARATORS = [" ", "\n\n", "  ", "\n"]
Place = tuple[str, str, int, int]  # the text of a hit, its document, start and end


def sentences(n: int) -> list[str]:
    """Sentences of ten words; every seventh names the moon and the ice most often."""
    ends = ["moon ice" if i % 7 else "moon" for i in range(n)]
    words = [" ".join(WORDS[(i * j + j) % 10] for j in range(2, 9)) for i in range(n)]
    return [f"Number {i} {words[i]} {ends[i]}." for i in range(n)]


def text_of(parts: list[str]) -> str:
    return "\n " + "".join(part + SEPARATORS[i % 4] for i, part in enumerate(parts))


DOCUMENTS = {"long": text_of(sentences(70)), "short": "The ice of the moon. It is cold."}


@pytest.fixture(scope="module")
def chunk_index(tiny_model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A document of 70 chunks, one sentence each, and a short one."""
    folder = tmp_path_factory.mktemp("chunks") / "my-index"
    records = [{"id": name, "text": text} for name, text in DOCUMENTS.items()]
    options = IndexOptions(model=str(tiny_model_folder), dtype="fp32", unit=chunk_unit(12))
    with Index.create(folder, records, options=options) as index:
        assert len(index) == 71
    return folder


def by_command(index: Path) -> list[Place]:
    command = ["search", QUERY, "--index", str(index), "-k", str(K), "--hits", "chunks", "--json"]
    result = sparta(*command)
    assert result.exit_code == 0, result.stderr
    hits = [json.loads(line) for line in result.stdout.splitlines()]
    return [(hit["text"], hit["document_id"], hit["start"], hit["end"]) for hit in hits]


def by_python(index: Path) -> list[Place]:
    with Index(index) as opened:
        hits = opened.search(QUERY, K, hits="chunks")
    return [(hit.text, hit.document_id, hit.start, hit.end) for hit in hits]


def by_http(index: Path) -> list[Place]:
    testclient = pytest.importorskip("starlette.testclient")
    from hybrid.service.app import create_app
    from hybrid.service.settings import Settings

    with testclient.TestClient(create_app(Settings(index)), base_url="http://localhost") as client:
        response = client.post("/search", json={"query": QUERY, "k": K, "hits": "chunks"})
    assert response.status_code == 200, response.text
    hits = response.json()["hits"]
    return [(hit["text"], hit["document_id"], hit["start"], hit["end"]) for hit in hits]


def by_mcp(index: Path) -> list[Place]:
    fastmcp = pytest.importorskip("fastmcp")
    from hybrid.integrations import mcp_server

    async def ask() -> Any:
        async with fastmcp.Client(mcp_server(index)) as client:
            given = {"query": QUERY, "k": K, "hits": "chunks"}
            return (await client.call_tool("search", given)).structured_content

    hits = asyncio.run(ask())["result"]
    return [(hit["text"], hit["document_id"], hit["start"], hit["end"]) for hit in hits]


def by_langchain(index: Path) -> list[Place]:
    pytest.importorskip("langchain_core")
    from hybrid.integrations import LangChainRetriever

    documents = LangChainRetriever(index, k=K, search_kwargs={"hits": "chunks"}).invoke(QUERY)
    return [placed(document.page_content, document.metadata) for document in documents]


def by_llamaindex(index: Path) -> list[Place]:
    pytest.importorskip("llama_index.core")
    from hybrid.integrations import LlamaIndexRetriever

    nodes = [node.node for node in LlamaIndexRetriever(index, k=K, hits="chunks").retrieve(QUERY)]
    assert all(node.start_char_idx == node.metadata["start"] for node in nodes)
    assert all(node.end_char_idx == node.metadata["end"] for node in nodes)
    return [placed(node.text, node.metadata) for node in nodes]


def by_haystack(index: Path) -> list[Place]:
    pytest.importorskip("haystack")
    from hybrid.integrations import HaystackRetriever

    documents = HaystackRetriever(index, top_k=K, hits="chunks").run(QUERY)["documents"]
    return [placed(document.content, document.meta) for document in documents]


def placed(text: str, metadata: dict[str, Any]) -> Place:
    return text, metadata["document_id"], metadata["start"], metadata["end"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "search", [by_command, by_python, by_http, by_mcp, by_langchain, by_llamaindex, by_haystack]
)
def test_five_chunks_of_a_document_of_70(search: Callable[[Path], list[Place]], chunk_index: Path) -> None:
    with Index(chunk_index) as index:
        expected = [hit.text for hit in index.search(QUERY, K, hits="chunks")]
    places = search(chunk_index)
    assert [text for text, *_ in places] == expected
    assert len({text for text in expected if text != DOCUMENTS["short"]}) >= K - 1
    for text, document, start, end in places:
        assert DOCUMENTS[document][start:end] == text
        assert text.endswith(".")


@pytest.mark.parametrize("channel", ["impact", "bm25", "bm25=1.2,impact"])
def test_chunks_are_the_ranking_before_documents_are_grouped(chunk_index: Path, channel: str) -> None:
    with Index(chunk_index) as index:
        chunks = index.search(QUERY, 71, channel=channel, hits="chunks")
        assert index.search(QUERY, 31, channel=channel, hits="chunks", offset=40) == chunks[40:]
        best = {hit.document_id: hit for hit in reversed(chunks)}
        for hit in index.search(QUERY, 50, channel=channel):
            assert hit.passage_id in best
            if "," not in channel:
                assert (hit.text, hit.score) == (best[hit.passage_id].text, best[hit.passage_id].score)
        ranks = [index.explain(QUERY, hit.passage_id).rank for hit in chunks[:3]]
        if channel == "impact":
            scores = [hit.score for hit in chunks]
            assert [scores[rank - 1] for rank in ranks] == scores[:3]


def test_neighbors_are_joined_with_their_exact_text(chunk_index: Path) -> None:
    with Index(chunk_index) as index:
        chunks = index.search(QUERY, 40, hits="chunks")
        joined = index.search(QUERY, 40, hits="chunks", join=True)
        fused = index.batch_search([QUERY], ["q"], 40, hits="chunks", join=True, channel="bm25,impact")
    assert 1 < len(joined) < len(chunks)
    for hit in joined:
        assert DOCUMENTS[hit.document_id][hit.start : hit.end] == hit.text
        assert (hit.metadata["start"], hit.metadata["end"]) == (hit.start, hit.end)
    ends = sorted((hit.document_id, hit.start, hit.end) for hit in joined)
    for chunk in chunks:  # each chunk is inside one joined hit, whose score is at least the chunk's
        [around] = [
            hit
            for hit in joined
            if hit.document_id == chunk.document_id and hit.start <= chunk.start and chunk.end <= hit.end
        ]
        assert around.score >= chunk.score
    for (document, _, end), (next_document, start, _) in pairwise(ends):
        assert document != next_document or DOCUMENTS[document][end:start].strip()
    assert [hit.score for hit in joined] == sorted((hit.score for hit in joined), reverse=True)
    for hit in fused["q"]:
        assert DOCUMENTS[hit.document_id][hit.start : hit.end] == hit.text
        assert hit.channels


def test_the_document_is_restored_exactly(chunk_index: Path) -> None:
    with Index(chunk_index) as index:
        text = index.passage("long")["text"]
    assert text.strip() == DOCUMENTS["long"].strip()
    assert text.index("Number") == DOCUMENTS["long"].index("Number")


def test_an_answer_has_the_place_of_its_chunk(chunk_index: Path) -> None:
    from hybrid.answering.answers import combine
    from sparta.reader.config import ReaderConfig
    from sparta.reader.records import Span, Text

    with Index(chunk_index) as index:
        hits = index.search(QUERY, 2)
        texts = [Text(hit.text, hit.title) for hit in hits]
        spans = [[Span(number, 4, 12, 1.0)] for number in range(len(hits))]
        answers = combine(ReaderConfig(), hits, texts, [1.0, 0.5], spans, 0.0, 2)
        for answer in answers:
            start = answer.text_start + answer.start
            assert index.passage(answer.passage_id)["text"][start:].startswith(answer.answer)
    assert max(answer.as_dict()["text_start"] for answer in answers) > 0


def test_an_index_of_passages_refuses_chunks(index: Path) -> None:
    with Index(index) as opened:
        with pytest.raises(InputError, match="the index holds no chunks"):
            opened.search(QUERY, hits="chunks")
        with pytest.raises(InputError, match="only chunks can be joined"):
            opened.search(QUERY, join=True)
        with pytest.raises(InputError, match="hits must be documents or chunks, found 'words'"):
            opened.search(QUERY, hits="words")
    result = sparta("search", QUERY, "--index", index, "--hits", "chunks")
    assert (result.exit_code, "--chunk 200 --overlap 50" in result.stderr) == (2, True), result.stderr
    result = sparta("search", QUERY, "--index", index, "--join")
    assert (result.exit_code, "add --hits chunks" in result.stderr) == (2, True), result.stderr


def test_the_command_shows_the_place_of_a_chunk(chunk_index: Path) -> None:
    command = ["search", QUERY, "--index", str(chunk_index), "-k", "1", "--hits", "chunks"]
    [heading, _, _] = sparta(*command).stdout.splitlines()
    assert "characters" in heading
