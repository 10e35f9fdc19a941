"""The object behind the endpoints: opens and closes the index, the search batches and the thread pools."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from hybrid.answering.answerer import default_depth
from hybrid.answering.open_readers import OpenReaders
from hybrid.service.errors import BusyError, HttpError, contained, within
from hybrid.service.journal import shown, unexpected
from hybrid.service.live.answers import Answers
from hybrid.service.live.batching import Batcher
from hybrid.service.live.page import example_questions, marks_of_text
from hybrid.service.live.search import BatchSearch, Job, Plan, weights_of
from hybrid.service.live.writes import Writer
from hybrid.service.metrics import IndexMetrics
from hybrid.service.schemas import AnswerRequest, SearchRequest
from hybrid.service.settings import Settings
from sparta.base.filters import Filter
from sparta.base.remedies import Command
from sparta.data.units import is_chunk
from sparta.index.channels import OTHER_CHANNELS
from sparta.index.reader import IndexReader
from sparta.models.resolve import default_name
from sparta.search.explain import explain, top_terms
from sparta.search.retriever import Page, passage_object

logger = logging.getLogger("sparta.serve")
_AT_ONCE = 64  # queries of a batch
_MOST_ASIDE = 32  # requests that run or wait in one thread pool, besides batched searches
READER = "reader"
"""Prefix of the reader thread's name."""


class Service:
    """Answers requests with one index. Call `open` first.

    :param readers: the readers, which other indexes of the process may share
    """

    def __init__(self, settings: Settings, metrics: IndexMetrics, readers: OpenReaders) -> None:
        self.settings, self.metrics = settings, metrics
        self._aside: Counter[ThreadPoolExecutor] = Counter()
        self._answers = Answers(readers)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Open the index and follow its new commits until the block ends."""
        settings = self.settings
        loop = asyncio.get_running_loop()
        self._reading, self._reranking = ThreadPoolExecutor(1, READER), ThreadPoolExecutor(1, "reranker")
        # New commits and the shutdown wait for no request: they have a separate thread.
        with ThreadPoolExecutor(2, "side") as self._side, ThreadPoolExecutor(1, "index") as index_thread:
            in_index_thread = partial(loop.run_in_executor, index_thread)
            self.reader = await in_index_thread(self._open_reader)
            self._search = BatchSearch(self.reader, settings.threads, self.metrics, settings.reranker)
            self._batcher, self._dense_batcher = self._batcher_named("search"), self._batcher_named("dense")
            self.writer = Writer(self.reader, self._refresh, settings)
            self._watch_metrics()
            self._examples = await in_index_thread(example_questions, settings.index)
            following = asyncio.create_task(self._follow(index_thread))
            try:
                yield
            finally:
                following.cancel()
                await in_index_thread(self._batcher.close)
                await in_index_thread(self._dense_batcher.close)
                await in_index_thread(self.writer.close)
                await in_index_thread(partial(self._reranking.shutdown, cancel_futures=True))
                self._reading.shutdown(
                    wait=False, cancel_futures=True
                )  # reading one passage may take a minute
                self._search.close()

    def _open_reader(self) -> IndexReader:
        """Open the index, and the network of its queries, which most searches need.

        The default channels of every commit must open. Another channel may be damaged.
        """
        settings = self.settings
        weights = weights_of(settings.channels) if settings.channels else ()
        required = [name for name, _ in weights if name in OTHER_CHANNELS]
        reader = IndexReader(settings.index, settings.bm25, channels=None, required=required)
        try:
            reader.folder.open_query_network()
        except BaseException:
            reader.close()
            raise
        return reader

    async def search(self, request: SearchRequest) -> bytes:
        """Return the answer to a search, as JSON."""
        queries, limits = request.queries, self.settings.limits
        limits.check_search(queries, request.k, request.offset, explain=request.explain)
        deepest = limits.hits // len(queries) if request.collapse else limits.hits
        passage_filter = self._filter(request.filter)
        page = Page(
            request.k,
            request.offset,
            passage_filter,
            request.collapse,
            deepest,
            request.hits,
            request.join,
        )
        limits.check_facets(queries, request.facets)
        depth = self._rerank_depth(request.rerank, queries)
        plan = self._plan(request.channels, page, request.explain, tuple(request.facets), depth)
        job = Job(queries, plan, isinstance(request.query, str))
        groups = request.collapse or (len(queries) > 1 and is_chunk(self._search.lucene.unit))
        if plan.rerank or request.explain or groups or request.facets:
            # Slow, so not batched: no other search waits. Reranking takes a second per query, and has a
            # separate thread: passages do not wait for it either.
            stop, threads = threading.Event(), self._reranking if plan.rerank else None
            return await self.aside(
                lambda: self._search.answers(plan, [job], stop)[0], threads=threads, stop=stop
            )
        batcher = self._dense_batcher if plan.is_dense else self._batcher
        return await batcher.ask(job, len(queries), limits.timeout)

    def _batcher_named(self, name: str) -> Batcher[Job, bytes]:
        """Return a queue of searches. Searches with vectors have a separate queue: others need not wait."""
        limits = self.settings.limits
        return Batcher(self._search, most=_AT_ONCE, queue=limits.queue, refusal=limits.refusal, name=name)

    async def answer(self, request: AnswerRequest) -> dict[str, Any]:
        """Return answers to a question, extracted from the best passages."""
        limits = self.settings.limits
        limits.check_query(request.query)
        depth = self._rerank_depth(request.rerank, [request.query])
        k, passage_filter = request.depth or default_depth(depth), self._filter(request.filter)
        page = Page(k, filter=passage_filter, deepest=limits.hits)
        plan = self._plan(request.channels, page, rerank=depth)
        stop = threading.Event()

        def read() -> dict[str, Any]:
            answers = self._answers.answer(
                self._search, request.query, plan, request.n, stop, threshold=request.threshold
            )
            return {"query": request.query, **answers, "version": self.reader.version._asdict()}

        return await self.aside(read, limits.answer, self._reading, stop)

    def _plan(
        self,
        channels: str | None,
        page: Page,
        explain: bool = False,
        facets: tuple[str, ...] = (),
        rerank: int = 0,
    ) -> Plan:
        name = self.default_channels if channels is None else channels
        return Plan(name, weights_of(name), page, explain, facets, rerank)

    @property
    def default_rerank(self) -> int:
        """The number of hits that a search reranks whose request names none."""
        return self.settings.rerank_depth if self.settings.reranker else 0

    def _rerank_depth(self, depth: int | None, queries: Sequence[str]) -> int:
        """Return how many first hits of each query are ordered anew.

        :raises HttpError: 400, the service has no cross-encoder
        :raises InputError: the depth is too large
        """
        if depth and self.settings.reranker is None:
            start = Command.of("sparta serve", rerank=default_name("reranker")).for_command_line()
            raise HttpError(
                400, "the service has no cross-encoder for rerank", remedy=f"omit rerank, or start: {start}"
            )
        depth = self.default_rerank if depth is None else depth
        self.settings.limits.check_rerank(queries, depth)
        return depth

    def _filter(self, conditions: dict[str, Any] | None) -> Filter | None:
        self.settings.limits.check_filter(conditions or {})
        return Filter.of(conditions)

    async def aside[R](
        self,
        work: Callable[[], R],
        seconds: float = 0.0,
        threads: ThreadPoolExecutor | None = None,
        stop: threading.Event | None = None,
    ) -> R:
        """Run `work` outside the search batches, in a thread and on one commit of the index.

        :param seconds: timeout; 0 for the timeout of a search
        :param threads: the thread pool; None for the shared one. The slow reader has a separate pool
        :param stop: set at the end, also if the client left or the time is over; `work` should then stop
        :raises BusyError: too many requests use this pool
        :raises HttpError: 503, `work` takes too long
        """

        def run() -> R:
            with self.reader.holding():
                return work()

        chosen = threads or self._side
        if self._aside[chosen] >= _MOST_ASIDE:
            raise BusyError(
                f"the request queue is full: {self._aside[chosen]} requests are waiting",
                remedy="try again in a moment",
            )
        self._aside[chosen] += 1
        try:
            async with within(seconds or self.settings.limits.timeout):  # waiting work never starts
                return await asyncio.get_running_loop().run_in_executor(chosen, contained, run)
        finally:
            self._aside[chosen] -= 1
            if stop is not None:
                stop.set()

    async def passage(self, passage_id: str) -> dict[str, Any]:
        """Return a passage as stored."""

        def read() -> dict[str, Any]:
            return passage_object(passage_id, self._search.lucene.passage(passage_id))

        return await self.aside(read)

    async def terms(self, passage_id: str, n: int) -> dict[str, Any]:
        """Return the `n` terms of a passage with the highest impacts, and the number of all its terms."""
        terms = await self.aside(lambda: top_terms(self._search.lucene, passage_id))
        return {"id": passage_id, "terms": [term._asdict() for term in terms[:n]], "of": len(terms)}

    async def explain(self, query: str, passage_id: str) -> dict[str, Any]:
        """Explain a passage's impact score for a query, with the words to mark in the passage's text."""
        self.settings.limits.check_query(query)

        def look() -> dict[str, Any]:
            explanation = explain(self._search.lucene, query, passage_id)
            return {**explanation.as_dict(), "marks": marks_of_text(self._search.lucene, explanation)}

        return await self.aside(look)

    async def info(self) -> dict[str, Any]:
        """Return the facts of the searched index."""

        def look() -> dict[str, Any]:
            lucene = self._search.lucene
            return {
                "index": self.settings.shown_name,
                "passages": lucene.num_docs,
                "channels": self._search.channels,
                "default_channels": self.default_channels,
                "rerank": self.default_rerank,
                "fields": lucene.fields,
                "version": lucene.version._asdict(),
                "writable": self.settings.writable,
                "answers": self._answers.can_answer(lucene.language),
                "examples": self._examples,
            }

        return await self.aside(look)

    @property
    def default_channels(self) -> str:
        """The channels of a search whose request names none."""
        if self.settings.channels:
            return self.settings.channels
        return self._search.lucene.channels[0]

    def _refresh(self) -> None:
        """Let searches use the newest commit from now on."""
        if self.reader.refresh():
            facts = {"index": self.settings.shown_name, **self.reader.version._asdict()}
            logger.info("new commit of the index opened", extra=facts)

    async def _follow(self, thread: ThreadPoolExecutor) -> None:
        """Open every new commit in a thread; log a commit that cannot be opened, and try again."""
        last_error = ""
        while True:
            await asyncio.sleep(self.settings.watch)
            if self.writer.writing:  # the writer refreshes once its last commit is there
                continue
            try:
                await asyncio.get_running_loop().run_in_executor(thread, contained, self._refresh)
                last_error = ""
            except Exception as error:  # the next commit may open again
                if shown(error) != last_error:
                    last_error = shown(error)
                    logger.warning(
                        "the new commit cannot be opened, so searches use the previous commit: %s",
                        last_error,
                        exc_info=unexpected(error),
                        extra={"index": self.settings.shown_name},
                    )

    def _watch_metrics(self) -> None:
        self.metrics.watch("queue", lambda: self._batcher.size + self._dense_batcher.size)
        self.metrics.watch("passages", lambda: self._search.lucene.num_docs)
        self.metrics.watch("generation", lambda: self.reader.version.generation)
        self.metrics.watch("commit", lambda: self.reader.version.commit)
