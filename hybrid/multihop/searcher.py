"""`ChainSearcher` and `ChainPassages`: chains as searchers and as retrievers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from hybrid.multihop.chain import Chain, ChainResult
from hybrid.multihop.paths import EvidencePath, distinct_evidence
from hybrid.multihop.steps import READ, RETRIEVE, read_chain
from hybrid.multihop.tools import IndexTools
from sparta.base.checks import queries_of, whole
from sparta.base.closing import Closing
from sparta.base.errors import InputError
from sparta.base.records import Hit, Ranking
from sparta.base.renames import renamed_attributes
from sparta.data.units import is_chunk, is_cut, passage_of
from sparta.models.query_encoder import QueryTokenizer
from sparta.search.ranked import DOCUMENTS
from sparta.search.retriever import DelegatingRetriever, Page

ALL = 2**31 - 1
"""The `k` that returns all paths."""


@renamed_attributes(search="find_paths", batch_search="batch_find_paths")
class ChainSearcher(Closing):
    """An open chain over an index.

    :param chain: a file of steps, or the name of an included chain
    :param index: an index folder; None is `$SPARTA_INDEX` or `./sparta-index`
    :param model: a model with skills, if the chain's steps need one
    :param entities: an index of entity descriptions, for links by the model
    :param channel: the channel of all retrieve steps, in place of the channels in the chain
    :param path_reader: a path reader, for a chain with a step `read`; None is the default path reader
    :param device: the device of the path reader; None is the best available device
    :raises InputError: the chain does not exist, or its steps are invalid.
    :raises IndexStateError: the index does not exist, or lacks something that a step needs.
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
                    f"cannot retrieve with channel {channel}: the chain has no step retrieve",
                    where=str(chain),
                    remedy="omit the channel, or add a step retrieve to the chain",
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
        """Whether the chain's path reader marks the sentences that support an answer."""
        return self.reads and self.tools.tells_sentences

    @property
    def tokenizer(self) -> QueryTokenizer:
        """The query tokenizer of the index."""
        return self.tools.tokenizer

    @property
    def num_docs(self) -> int:
        """The number of passages in the index."""
        return self.tools.num_docs

    def find_paths(self, question: str, k: int = 10) -> ChainResult:
        """Return the `k` best paths for a question."""
        with self.tools.holding():
            return self.chain.find_paths(question, k)

    def refresh(self) -> bool:
        """Open the newest commit of the index. Returns whether the snapshot changed."""
        return self.tools.refresh()

    def find(self, question: str, passage_id: str) -> tuple[int, EvidencePath | None, int]:
        """Return the rank (from 1) of the best path with a passage, the path, and the number of paths.

        If no path has the passage, the rank is 0 and the path is None.

        :raises NoPassageError: the index has no passage with this id.
        """
        words = self.tools.words
        words.first_part(passage_id)
        paths = self.find_paths(question, ALL).paths
        target_id = passage_of(passage_id) if is_chunk(words.unit) else passage_id

        def holds(path: EvidencePath) -> bool:
            passages = (
                map(passage_of, path.ids) if is_cut(words.unit) else ()
            )  # passages of the path's sentences
            return target_id in (*path.ids, *passages)

        ranked_paths = ((rank, path) for rank, path in enumerate(paths, 1) if holds(path))
        return *next(ranked_paths, (0, None)), len(paths)

    def batch_find_paths(
        self, queries: Iterable[str], query_ids: Iterable[str], k: int = 10, threads: int = 1
    ) -> dict[str, list[EvidencePath]]:
        """Return the `k` best paths of each question, by query id.

        A chain that reads its paths searches one question at a time and ignores `threads`.
        """
        texts, ids = queries_of(queries, query_ids)
        whole("k", k)
        threads = whole("threads", threads)
        with ThreadPoolExecutor(1 if self.reads else threads) as pool:
            paths = pool.map(lambda query: self.find_paths(query, k).paths, texts)
            return dict(zip(ids, paths, strict=True))

    def close(self) -> None:
        """Release the indexes."""
        self.tools.close()


class ChainPassages(DelegatingRetriever):
    """A retriever that returns the passages of a chain's best paths.

    A passage's score is the score of the best path with the passage.
    """

    def __init__(self, chain: ChainSearcher) -> None:
        self.chain, self.channel, self.retriever = chain, chain.channel, chain.tools.words

    def rank(self, queries: Sequence[str], page: Page, threads: int = 1) -> list[Ranking]:
        """Return, for each question, a ranking of the first distinct passages of its paths."""
        words = self.chain.tools.words
        rankings = []
        for hits in self.search_all(queries, page, threads):
            ids = [hit.passage_id for hit in hits]
            rankings.append(Ranking(ids, words.docids(ids), [hit.score for hit in hits]))
        return rankings

    def search_all(self, queries: Sequence[str], page: Page, threads: int = 1) -> list[list[Hit]]:
        """Return, for each question, the first distinct passages of its paths.

        :raises InputError: an offset, a filter, a collapse field or chunks; chains support none of them.
        """
        if page.offset or page.filter or page.collapse or page.hits != DOCUMENTS:
            raise InputError(
                "chains do not support offset, filter, collapse and hits of chunks",
                remedy="omit these arguments: the steps of a chain search the whole index",
            )
        query_ids = [str(number) for number in range(len(queries))]
        paths = self.chain.batch_find_paths(queries, query_ids, ALL, threads)
        return [distinct_evidence(question_paths, page.k) for question_paths in paths.values()]

    def close(self) -> None:
        """Release the indexes."""
        self.chain.close()
