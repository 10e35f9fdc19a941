"""MCP server: an index as tools for a language model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from pydantic import Field

from hybrid.answering.answerer import Answerer
from hybrid.answering.open_readers import OpenReaders
from hybrid.integrations.source import Source, open_source
from hybrid.retrieval.limits import Limits
from hybrid.retrieval.searcher import FusedRetriever
from sparta.api import Index
from sparta.base.errors import InputError, ModelError, SpartaError
from sparta.reader.config import reader_folder
from sparta.search.retriever import passage_object
from sparta.search.searcher import BM25, IMPACT

if TYPE_CHECKING:
    from sparta.reader.reader import Reader

MOST = 100
LIMITS = Limits()
_READS = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}
Objects = list[dict[str, Any]]
Number = Annotated[int, Field(ge=1, le=MOST)]
Questions = Annotated[str | list[str], Field(description="A question or keywords, or a list of them")]
Ids = Annotated[str | list[str], Field(description="An id as search gives it, or a list of ids")]
_FILTER = (
    'Which passages: {"lang": "en", "country": {"in": ["de", "fr"]}, "year": {"gte": 1990}};'
    ' {"lang": {"not": "en"}}, {"author.name": {"exists": true}}, {"or": [{"lang": "en"}, {"year": 1990}]}'
)
Wanted = Annotated[dict[str, Any], Field(description=_FILTER)]
Place = Annotated[int, Field(ge=0)]
Name = Annotated[str, Field(description="Only the best passage of each value of this field")]


def mcp_server(
    index: Source = None,
    channels: str | None = None,
    *,
    k: int = 10,
    reader: str | Path | Reader | None = None,
) -> FastMCP:
    """Return an MCP server with the tools search, explain and passage, and answer if there is a reader.

        from hybrid.integrations import mcp_server

        server = mcp_server("my-index")
        server.run(show_banner=False)  # over standard input and output, like `sparta mcp`

    No tool writes. Each call searches the newest commit of the index.

    :param index: an index folder; an open retriever offers only the tools search and answer
    :param channels: as in `open_retriever`
    :param k: number of hits, unless a call names another number
    :param reader: a reader or its folder; None means the reader shipped for the language, if
        there is one
    """
    if isinstance(reader, str | Path):
        reader_folder(reader)  # raises for a wrong path before the index is opened
    tools = _Tools(index, channels, k)
    if reader is None or isinstance(reader, str | Path):
        tools.folder = _folder_of_reader(reader, tools.language)
    else:
        tools.reader = reader
    server_tools: list[Callable[..., Objects]] = [tools.search]
    server_tools += [tools.explain, tools.passage] if tools.index is not None else []
    server_tools += [tools.answer] if tools.folder or tools.reader else []
    server: FastMCP = FastMCP("sparta", instructions="Searches a collection of passages; cite them by id.")
    for tool in server_tools:
        server.tool(tool, annotations=_READS)
    return server


def _folder_of_reader(reader: str | Path | None, language: str) -> Path | None:
    """Return the folder of a named reader, or of the reader for a language; None without a usable reader."""
    if reader is not None:
        return reader_folder(reader)
    try:
        return reader_folder(None, language)
    except ModelError:
        return None


def _several(named: str | list[str]) -> list[str]:
    """Return a list of queries or ids, also for a single one."""
    return [named] if isinstance(named, str) else named


def _in_time(queries: Sequence[str]) -> Iterator[str]:
    """Yield queries or ids until the time limit of a call.

    :raises InputError: there are too many queries or ids, or the time limit is over
    """
    if not 1 <= len(queries) <= LIMITS.queries:
        raise InputError(f"a call takes 1 to {LIMITS.queries} queries or ids, found {len(queries)}")
    deadline = monotonic() + LIMITS.answer
    for query in queries:
        if monotonic() > deadline:
            raise InputError(
                f"the call took longer than {LIMITS.answer:g} s", remedy="send fewer queries per call"
            )
        yield query


def _guarded(call: Callable[..., Objects]) -> Callable[..., Objects]:
    """Decorate a tool: one call runs at a time, on the newest commit; errors become ToolError."""

    @wraps(call)
    def guarded(self: _Tools, *args: Any, **kwargs: Any) -> Objects:
        if not self.lock.acquire(timeout=LIMITS.answer):
            raise ToolError("the server is busy with earlier calls → try again later")
        try:
            self.refresh()
            return call(self, *args, **kwargs)
        except SpartaError as error:
            raise ToolError(str(error)) from error
        except Exception:
            raise
        except BaseException as error:  # a panic of an extension would end the server
            raise ToolError(f"the call failed: {type(error).__name__}: {error}") from error
        finally:
            self.lock.release()

    return guarded


class _Tools:
    """The tools and their shared state. A list of queries or ids gets a result for each of them."""

    def __init__(self, source: Source, channels: str | None, k: int) -> None:
        self.open = lambda: open_source(source, channels, MOST)
        self.index = Index(source) if source is None or isinstance(source, str | Path) else None
        self.retriever = self.open()  # opened after the index, whose refresh says when to open again
        self.k, self.lock = k, Lock()
        self.folder: Path | None = None
        self.reader: Reader | None = None
        self.readers = OpenReaders()
        self.stale = False

    @property
    def language(self) -> str:
        """Language code of the passages; "en" if the retriever has none."""
        return getattr(self.retriever, "language", "en")

    @property
    def passages(self) -> Index:
        """The opened index folder; raises InputError if the tools have an open retriever instead."""
        if self.index is None:
            raise InputError("this tool needs an index folder, but the server has an open retriever")
        return self.index

    def refresh(self) -> None:
        """Open the channels again after another process wrote; if opening fails, the next call retries."""
        self.stale |= self.index is not None and self.index.refresh()
        if self.stale:
            previous, self.retriever = self.retriever, self.open()
            self.stale = False
            previous.close()

    def check_depth(self, depth: int) -> None:
        """Raise InputError if a fusion has too few candidates for a page; a caller cannot add candidates."""
        fusion = self.retriever.first_stage
        if isinstance(fusion, FusedRetriever) and depth > fusion.most_hits:
            raise InputError(
                f"offset + k may be at most {fusion.most_hits} in a fusion, found {depth}",
                remedy="lower k or offset",
            )

    @_guarded
    def search(
        self,
        query: Questions,
        k: Number | None = None,
        offset: Place = 0,
        filter: Wanted | None = None,
        collapse: Name | None = None,
        hits: Literal["documents", "chunks"] = "documents",
        join: bool = False,
    ) -> Objects:
        """Search the passages for a question, best first: rank, id, score, title, text, metadata.

        In an index of chunks, hits="chunks" gives several chunks of a document, with start and end in the
        document's text; join=true joins neighboring chunks.

        For a list of questions, returns an object with query and hits for each.
        """
        LIMITS.check_search(_several(query), k or self.k, offset, explain=False)
        LIMITS.check_filter(filter or {})
        self.check_depth((k or self.k) + offset)
        page: dict[str, Any] = {"offset": offset, "filter": filter, "collapse": collapse}
        page |= {"hits": hits, "join": join} if hits == "chunks" or join else {}

        def found(question: str) -> Objects:
            hit_list = self.retriever.search(question, k or self.k, **page)
            return [{"rank": rank, **hit.as_dict()} for rank, hit in enumerate(hit_list, offset + 1)]

        return (
            found(query)
            if isinstance(query, str)
            else [{"query": q, "hits": found(q)} for q in _in_time(query)]
        )

    @_guarded
    def explain(self, query: Annotated[str, Field(description="A question")], id: Ids) -> Objects:
        """Explain a passage's score for a query in one channel: the rank, and what each query term adds.

        Each result names its channel. If search uses several channels or the dense channel, its ranks and
        scores differ.
        """
        LIMITS.check_query(query)
        searched = self.retriever.channel.split("+")
        channel = BM25 if BM25 in searched and IMPACT not in searched else self.passages.channels[0]
        return [
            {"channel": channel, **self.passages.explain(query, passage_id, channel=channel).as_dict()}
            for passage_id in _in_time(_several(id))
        ]

    @_guarded
    def passage(self, id: Ids) -> Objects:
        """Return whole passages by their ids: id, title, text, metadata."""
        return [
            passage_object(passage_id, self.passages.passage(passage_id))
            for passage_id in _in_time(_several(id))
        ]

    @_guarded
    def answer(self, query: Questions, n: Number = 1) -> Objects:
        """Answer a question from the passages: answer, score (0 to 1), and the passage of the answer.

        For a list of questions, returns an object with query and answers for each. [] means no answer.
        """
        LIMITS.check_search(_several(query), n, 0, explain=False)
        reader = self.reader or self.readers.reader(self.language, self.folder)
        answerer = Answerer(self.retriever, reader, language=self.language)

        def answers(question: str) -> Objects:
            return [answer.as_dict() for answer in answerer.answer(question, n)]

        if isinstance(query, str):
            return answers(query)
        return [{"query": question, "answers": answers(question)} for question in _in_time(query)]
