"""The MCP server's tools, in memory and over standard input and output."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from sparta.base.errors import IndexStateError, ModelError
from tests.hybrid.integrations.conftest import QUESTIONS

pytestmark = pytest.mark.jvm
fastmcp = pytest.importorskip("fastmcp")
ROOT = Path(__file__).parents[3]


def call(server: Any, tool: str, **given: Any) -> list[dict[str, Any]]:
    async def ask() -> Any:
        async with fastmcp.Client(server) as client:
            return (await client.call_tool(tool, given)).structured_content

    return list(asyncio.run(ask())["result"])


@pytest.fixture
def server(index: Path, channels: str) -> Any:
    from hybrid.integrations import mcp_server

    return mcp_server(index, channels, k=4)


@pytest.mark.slow
def test_search_is_the_retrievers(server: Any, retriever: Any) -> None:
    import json

    def hits(question: str, k: int) -> Any:
        found = retriever.search(question, k)
        own = [{"rank": rank, **hit.as_dict()} for rank, hit in enumerate(found, 1)]
        return json.loads(json.dumps(own))

    for question in QUESTIONS:
        assert call(server, "search", query=question) == hits(question, 4)
    assert call(server, "search", query=QUESTIONS[0], k=9) == hits(QUESTIONS[0], 9)
    assert call(server, "search", query=QUESTIONS, k=2) == [
        {"query": question, "hits": hits(question, 2)} for question in QUESTIONS
    ]


def test_search_filters_collapses_and_turns_pages(server: Any, retriever: Any) -> None:
    given: dict[str, Any] = {"filter": {"lang": "de"}, "collapse": "title", "offset": 2}
    hits = retriever.search(QUESTIONS[1], 4, **given)
    found = call(server, "search", query=QUESTIONS[1], **given)
    assert [(f["rank"], f["id"], f["score"]) for f in found] == [
        (rank, hit.passage_id, hit.score) for rank, hit in enumerate(hits, 3)
    ]
    assert found
    with pytest.raises(fastmcp.exceptions.ToolError, match="expected"):
        call(server, "search", query="moon", filter={"lang": {"like": "d"}})


def test_explain_and_passage_are_the_indexs(index: Path, server: Any) -> None:
    from sparta import Index

    with Index(index) as opened:
        for ids in ("p3", ["p3", "twin-p7"]):
            listed = [ids] if isinstance(ids, str) else ids
            explanations = [opened.explain(QUESTIONS[1], passage_id).as_dict() for passage_id in listed]
            why = [{"channel": "impact", **explanation} for explanation in explanations]
            assert call(server, "explain", query=QUESTIONS[1], id=ids) == why
            read = call(server, "passage", id=ids)
            assert [(one["id"], one["title"]) for one in read] == [
                (i, opened.passage(i)["title"]) for i in listed
            ]
            for passage, record in zip(read, map(opened.passage, listed), strict=True):
                assert passage["text"] == record["text"]
                assert passage["metadata"] == {"lang": record["lang"], "year": record["year"]}


@pytest.mark.parametrize(
    ("searched", "explained"), [("bm25", "bm25"), ("dense", "impact"), ("bm25=1,dense", "bm25")]
)
def test_explain_is_of_a_channel_that_is_searched(dense_index: Path, searched: str, explained: str) -> None:
    """Terms do not explain the dense channel, so its hits have the explanation of another channel."""
    from hybrid.integrations import mcp_server
    from sparta import Index

    with Index(dense_index) as opened:
        expected = opened.explain("the moon", "moon", channel=explained).as_dict()
    explanations = call(mcp_server(dense_index, searched), "explain", query="the moon", id="moon")
    assert explanations == [{"channel": explained, **expected}]


def test_explain_in_an_index_without_impacts(tmp_path: Path) -> None:
    from hybrid.integrations import mcp_server
    from sparta import Index, IndexOptions

    options = IndexOptions(channels="bm25")
    Index.create(tmp_path / "ix", [{"id": "a", "text": "the moon"}], options=options).close()
    server = mcp_server(tmp_path / "ix")
    [hit], [why] = (call(server, "search", query="moon"), call(server, "explain", query="moon", id="a"))
    assert (why["channel"], why["rank"]) == ("bm25", 1)
    assert why["score"] == pytest.approx(hit["score"])


def test_what_is_wrong_is_told_with_a_remedy(server: Any) -> None:
    with pytest.raises(
        fastmcp.exceptions.ToolError, match=r"no passage with the id 'nobody'[^→]*→ take an id"
    ):
        call(server, "passage", id="nobody")
    with pytest.raises(fastmcp.exceptions.ToolError, match="collapse must be the name"):
        call(server, "search", query="moon", collapse="")
    for wrong in ({"query": "moon", "k": 0}, {"query": "moon", "k": 101}, {"query": 5}, {}):
        with pytest.raises(fastmcp.exceptions.ToolError, match="validation error"):
            call(server, "search", **wrong)


def test_a_page_of_a_fusion_ends_within_its_candidates(index: Path) -> None:
    from hybrid.integrations import mcp_server

    fused = mcp_server(index, "bm25,impact")
    with pytest.raises(
        fastmcp.exceptions.ToolError, match=r"at most 100 in a fusion, found 101[^→]*→ lower k or"
    ):
        call(fused, "search", query="moon", k=100, offset=1)
    call(fused, "search", query="moon", k=99, offset=1)


def test_every_kind_of_fusion_has_this_limit() -> None:
    from hybrid.integrations import mcp_server
    from hybrid.retrieval.fusion import Fusion
    from hybrid.retrieval.searcher import FusedRetriever

    fused = FusedRetriever(Mock(searchers={"bm25": Mock(language="en")}), Fusion({"bm25": 1.0}))
    with pytest.raises(fastmcp.exceptions.ToolError, match="at most 100 in a fusion, found 101"):
        call(mcp_server(fused), "search", query="moon", k=100, offset=1)


def test_no_tool_writes_and_a_folder_must_be_a_reader(
    index: Path, server: Any, retriever: Any, tmp_path: Path
) -> None:
    from hybrid.integrations import mcp_server

    async def tools(server: Any) -> dict[str, bool]:
        async with fastmcp.Client(server) as client:
            annotated = {tool.name: tool.annotations for tool in await client.list_tools()}
            return {name: each.model_dump(by_alias=True)["readOnlyHint"] for name, each in annotated.items()}

    assert set(asyncio.run(tools(server))) >= {"search", "explain", "passage"}
    assert set(asyncio.run(tools(server)).values()) == {True}
    assert set(asyncio.run(tools(mcp_server(retriever)))) == {"answer", "search"}
    with pytest.raises(ModelError, match="no such folder of a reader"):
        mcp_server(index, reader=tmp_path / "nowhere")
    with pytest.raises(IndexStateError):
        mcp_server(tmp_path / "nowhere")


def test_what_was_committed_since_is_found(
    tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hybrid.integrations import mcp_server
    from sparta import Index
    from sparta.index.inputs.options import IndexOptions

    options = IndexOptions(model=str(tiny_model_folder), dtype="fp32")
    with Index.create(tmp_path / "ix", [{"id": "a", "text": "the moon"}], options=options) as opened:
        server = mcp_server(tmp_path / "ix", "bm25,impact")
        assert [hit["id"] for hit in call(server, "search", query="moon")] == ["a"]
        opened.append([{"id": "b", "text": "moon moon moon"}], options=options)
        assert {hit["id"] for hit in call(server, "search", query="moon")} == {"a", "b"}
        assert call(server, "passage", id="b")[0]["text"] == "moon moon moon"
        opened.delete(["a"])
        home = sys.modules["hybrid.integrations.mcp"]
        with monkeypatch.context() as broken:
            broken.setattr(home, "open_source", Mock(side_effect=IndexStateError("not now")))
            with pytest.raises(fastmcp.exceptions.ToolError, match="not now"):
                call(server, "search", query="moon")
        assert [hit["id"] for hit in call(server, "search", query="moon")] == ["b"]


def test_answers_are_merged_as_in_the_language_of_the_index() -> None:
    """In German "die" is an article, so that both mentions are one answer."""
    from hybrid.integrations import mcp_server
    from sparta.base.records import Hit
    from sparta.reader.config import ReaderConfig
    from sparta.reader.records import Span

    hits = [Hit("a", 2.0, "", "die Alpen"), Hit("b", 1.0, "", "Alpen")]
    reader = Mock(config=ReaderConfig())
    reader.read_each = lambda query, texts, n: ([Span(0, 0, len(text.text), 1.0)] for text in texts)
    retriever = Mock(language="de", channel="fixed", rerank_depth=0, in_context=list)
    retriever.search = lambda query, k: hits
    server = mcp_server(retriever, reader=reader)
    found = call(server, "answer", query="?", n=5)
    assert [one["answer"] for one in found] == ["die Alpen"]


@pytest.mark.slow
def test_over_standard_input_and_output(index: Path) -> None:
    given = {
        "command": sys.executable,
        "args": ["-m", "cli._sparta", "mcp", "--index", str(index), "-k", "3"],
        "env": {**os.environ, "PYTHONPATH": str(ROOT)},
    }
    hits = call({"mcpServers": {"sparta": given}}, "search", query=QUESTIONS[0])
    assert [hit["rank"] for hit in hits] == [1, 2, 3]


def test_an_index_that_is_not_there_ends_the_command(tmp_path: Path) -> None:
    from tests.cli.commands import refused
    from tests.programs import sparta

    refused(sparta("mcp", "--index", tmp_path / "nowhere"), 2, "nowhere")


@pytest.mark.slow
def test_answers_are_the_answerers(index: Path) -> None:
    from hybrid.answering.answerer import open_answerer
    from hybrid.integrations import mcp_server
    from sparta.reader.config import reader_folder

    pytest.importorskip("torch")
    try:
        reader_folder()
    except ModelError:
        pytest.skip("no reader is in this checkout")
    server = mcp_server(index)
    with open_answerer(index) as answerer:
        answers = answerer.answer(QUESTIONS[0], 2)
    own = [found.as_dict() for found in answers]
    assert own or answers.abstained
    assert call(server, "answer", query=QUESTIONS[0], n=2) == own
    assert call(server, "answer", query=QUESTIONS[:1], n=2) == [{"query": QUESTIONS[0], "answers": own}]


def test_a_call_has_the_limits_of_the_service(server: Any) -> None:
    too_much: list[tuple[str, dict[str, Any]]] = [
        ("search", {"query": ["moon"] * 100_000}),
        ("search", {"query": "moon " * 1000}),
        ("search", {"query": "moon", "offset": 10**6}),
        ("search", {"query": "moon", "filter": {"lang": {"in": ["de"] * 2000}}}),
        ("explain", {"query": "moon", "id": ["p3"] * 101}),
        ("explain", {"query": "moon " * 1000, "id": "p3"}),
        ("passage", {"id": ["p3"] * 101}),
    ]
    for tool, given in too_much:
        with pytest.raises(fastmcp.exceptions.ToolError, match=r"may|takes 1 to"):
            call(server, tool, **given)
    assert call(server, "search", query=["moon"] * 100, k=1)


def test_a_panic_ends_one_call_and_not_the_server(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from hybrid.integrations.mcp import Index

    class Panic(BaseException):
        pass

    with monkeypatch.context() as patched:
        patched.setattr(Index, "passage", Mock(side_effect=Panic))
        with pytest.raises(fastmcp.exceptions.ToolError):
            call(server, "passage", id="p3")
    assert call(server, "passage", id="p3")
