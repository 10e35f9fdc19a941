"""A chain as a retriever: paths for a question, rankings for many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from hybrid.multihop.chain import Chain, ChainResult
from hybrid.multihop.paths import EvidencePath, passages_of
from hybrid.multihop.steps import READ, RETRIEVE, read_chain
from hybrid.multihop.tools import IndexTools
from sparta.base.checks import queries_of, whole
from sparta.base.closing import Closing
from sparta.base.errors import InputError
from sparta.base.filters import FilterLike
from sparta.base.records import Hit, Ranking
from sparta.data.units import is_chunk, is_cut, passage_of
from sparta.models.query_encoder import QueryTokenizer
from sparta.search.retriever import Page, Retriever

ALL = 2**31 - 1


class ChainSearcher(Closing):
    """A chain over an index, opened.

    :param chain: a file of steps, or a chain that ships
    :param index: an index folder; None is `$SPARTA_INDEX` or `./sparta-index`
    :param model: a model with skills, if steps of the chain need one
    :param entities: an index of descriptions, for links by the model
    :param channel: what retrieves, in place of the channels that the chain names
    :param path_reader: a reader of paths, for a chain with a step `read`; None is the one that ships
    :param device: that of the reader of paths; None is the best there is
    :raises InputError: no such chain, or one whose steps do not go together.
    :raises IndexStateError: there is no index, or it lacks what a step needs.
    :raises ModelError: the model lacks a skill.
    """

    def __init__(
        self,
        chain: str | Path,
        index: str | Path | None = None,
        model: str | Path | None = None,
        entities: str | Path | None = None,
        channel: str | None = None,
        path_reader: str | Path | None = None,
        device: str | None = None,
    ) -> None:
        steps = read_chain(chain)
        if channel:
            if not any(step.skill == RETRIEVE for step in steps):
                raise InputError(
                    f"expected a chain that retrieves, to do it by {channel}, found one without such a step",
                    where=str(chain),
                    remedy="leave the channel out, or add a step retrieve",
                )
            steps = [replace(step, channel=channel) if step.skill == RETRIEVE else step for step in steps]
        self.channel = Path(chain).stem
        self.reads = steps[-1].skill == READ
        self.tools = IndexTools(index, model, entities, path_reader, device)
        try:
            self.chain = Chain(steps, self.tools)
        except BaseException:
            self.tools.close()
            raise

    @property
    def tells_sentences(self) -> bool:
        """Whether the chain reads its paths, with a reader that tells which sentences support the answer."""
        return self.reads and self.tools.tells_sentences

    @property
    def tokenizer(self) -> QueryTokenizer:
        """The query side of the index."""
        return self.tools.tokenizer

    @property
    def num_docs(self) -> int:
        """Number of passages."""
        return self.tools.num_docs

    def search(self, question: str, k: int = 10) -> ChainResult:
        """The `k` best paths for a question."""
        with self.tools.holding():
            return self.chain.search(question, k)

    def refresh(self) -> bool:
        """Search what was committed to the index since; returns whether there was anything."""
        return self.tools.refresh()

    def find(self, question: str, passage_id: str) -> tuple[int, EvidencePath | None, int]:
        """The rank of the best path that holds a passage, from 1, and this path (0, None: no path does);
        how many paths there are.

        :raises NoPassageError: the index holds no passage with this id.
        """
        words = self.tools.words
        words.first_part(passage_id)
        paths = self.search(question, ALL).paths
        wanted = passage_of(passage_id) if is_chunk(words.unit) else passage_id

        def holds(path: EvidencePath) -> bool:
            passages = map(passage_of, path.ids) if is_cut(words.unit) else ()  # of which it has a sentence
            return wanted in (*path.ids, *passages)

        holding = ((rank, path) for rank, path in enumerate(paths, 1) if holds(path))
        return *next(holding, (0, None)), len(paths)

    def batch_search(
        self,
        queries: Iterable[str],
        query_ids: Iterable[str],
        k: int = 10,
        threads: int = 1,
        *,
        offset: int = 0,
        filter: FilterLike | None = None,
        collapse: str | None = None,
    ) -> dict[str, list[EvidencePath]]:
        """The `k` best paths for each question, by its id; a chain that reads its paths asks one at a time.

        :raises InputError: an offset, a filter or a field to collapse by, which chains do not know.
        """
        texts, ids = queries_of(queries, query_ids)
        whole("k", k)
        if offset or filter or collapse:
            raise InputError(
                "expected a chain without offset, filter and collapse, found one of them",
                remedy="leave it out: the steps of a chain search the whole index",
            )
        threads = whole("threads", threads)
        with ThreadPoolExecutor(1 if self.reads else threads) as pool:
            found = pool.map(lambda query: self.search(query, k).paths, texts)
            return dict(zip(ids, found, strict=True))

    def run(
        self,
        queries: Iterable[str],
        query_ids: Iterable[str],
        k: int = 10,
        threads: int = 1,
        *,
        offset: int = 0,
        filter: FilterLike | None = None,
        collapse: str | None = None,
    ) -> dict[str, Ranking]:
        """The first `k` different passages of the paths, each with the score of its best path."""
        page: dict[str, Any] = {"offset": offset, "filter": filter, "collapse": collapse}
        return ChainPassages(self).run(queries, query_ids, k, threads, **page)

    def close(self) -> None:
        """Release the indexes."""
        self.tools.close()


class ChainPassages(Retriever):
    """The passages of a chain's best paths as a ranking, for whoever reads passages.

    A passage has the score of the best path that it stands in.
    """

    def __init__(self, chain: ChainSearcher) -> None:
        self.chain, self.channel = chain, chain.channel

    @property
    def num_docs(self) -> int:
        """Number of passages."""
        return self.chain.num_docs

    @property
    def tokenizer(self) -> QueryTokenizer:
        """The query side of the index."""
        return self.chain.tokenizer

    @property
    def language(self) -> str:
        """The code of the language that the texts are in."""
        return self.chain.tools.language

    @property
    def unit(self) -> str:
        """The unit of the index."""
        return self.chain.tools.words.unit

    def rank(self, queries: Sequence[str], page: Page, threads: int = 1) -> list[Ranking]:
        """Return the first different passages of the paths for each question."""
        words = self.chain.tools.words
        rankings = []
        for hits in self.search_all(queries, page, threads):
            ids = [hit.passage_id for hit in hits]
            rankings.append(Ranking(ids, words.docids(ids), [hit.score for hit in hits]))
        return rankings

    def records(self, docids: Sequence[int]) -> list[dict[str, Any]]:
        """Return the stored records of passages."""
        return self.chain.tools.words.records(docids)

    def search_all(self, queries: Sequence[str], page: Page, threads: int = 1) -> list[list[Hit]]:
        """Return the first different passages of the paths for each question.

        :raises InputError: an offset, a filter or a field to collapse by, which chains do not know.
        """
        numbers = [str(number) for number in range(len(queries))]
        options: dict[str, Any] = {"filter": page.filter, "collapse": page.collapse}
        paths = self.chain.batch_search(queries, numbers, ALL, threads, offset=page.offset, **options)
        return [passages_of(found, page.k) for found in paths.values()]

    def in_context(self, hits: Sequence[Hit]) -> list[Hit]:
        """Return hits as a reader reads them: sentences with the text of their passage as `context`."""
        return self.chain.tools.words.in_context(hits)

    def close(self) -> None:
        """Release the indexes."""
        self.chain.close()
