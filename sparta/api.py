"""`Index`: one object that builds, changes, searches and explains an index."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sparta.base.checks import limit, list_of, queries_of, whole
from sparta.base.closing import Closing, open_again
from sparta.base.errors import IndexStateError, InputError, SpartaError
from sparta.base.filters import FilterLike
from sparta.base.records import Advance, Hit, Ranking
from sparta.base.remedies import Command, Option, remedy
from sparta.base.renames import renamed_arguments
from sparta.data.corpus import Corpus
from sparta.index.build import IndexReport
from sparta.index.channels import DENSE, other_channels
from sparta.index.folder import default_index, lasting_path
from sparta.index.inputs.open_encoder import OpenEncoder
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index, delete_from_index
from sparta.index.reader import IndexReader
from sparta.index.snapshot import IndexVersion
from sparta.lucene.bridge import Bm25
from sparta.models.resolve import default_name
from sparta.search.explain import Explanation, PassageTerm, explain, top_terms
from sparta.search.explain_bm25 import Bm25Explanation, explain_bm25
from sparta.search.facets import count_values
from sparta.search.ranked import DOCUMENTS
from sparta.search.retriever import Retriever
from sparta.search.searcher import BM25, Searcher, channel_name, is_fusion, no_channel

if TYPE_CHECKING:
    from hybrid.answering.answers import AnswerList
    from hybrid.answering.open_readers import OpenReaders
    from sparta.index.sync import SyncReport
    from sparta.sharing.backup import BackupReport


class Index(Closing):
    """An index folder: build it with `create`, or open it by its path.

        index = Index.create("ix", [{"id": "1", "text": "Bill Gates founded Microsoft."}])
        for hit in index.search("who founded microsoft", k=3):
            print(hit.passage_id, hit.score, hit.text)

    The base installation searches and writes. This object searches its own writes at once, and commits of
    other processes after `refresh`. Threads may share the object; only one writes at a time. A pickled or
    copied object opens the index again by its path. Models that `append`, `update`, `sync` and `answer` open
    stay open. `report` is the report of the last write (None before a write). Skipped records cause a
    warning.

    :param path: an index folder [default: `$SPARTA_INDEX` or `./sparta-index`]
    :param bm25: BM25's k1 and b [default: 0.9 and 0.4]
    :param refresh_seconds: seconds after which a search looks for commits of other processes; None means only
        `refresh` looks
    :raises IndexStateError: there is no index at the path, or its format is newer than this version
    """

    @renamed_arguments(every="refresh_seconds")
    def __init__(
        self,
        path: str | Path | None = None,
        *,
        bm25: Bm25 | None = None,
        refresh_seconds: float | None = None,
    ) -> None:
        self.path = lasting_path(path if path is not None else default_index())
        self.reader = IndexReader(self.path, bm25, refresh_seconds=refresh_seconds)
        self.searcher = Searcher(self.reader)
        self._readers: OpenReaders | None = None
        self._encoder = OpenEncoder()
        self._writing, self._writer = threading.Lock(), 0
        self.report: IndexReport | None = None

    def __reduce__(self) -> tuple[object, ...]:
        reader = self.reader
        create = partial(type(self), self.path, bm25=reader.bm25, refresh_seconds=reader.refresh_seconds)
        return open_again, (create,)

    @classmethod
    def create(
        cls,
        path: str | Path,
        passages: Corpus,
        *,
        overwrite: bool = False,
        options: IndexOptions | None = None,
        advance: Advance | None = None,
        progress: bool | None = False,
    ) -> Index:
        """Encode passages, write them into a new index, and return the open index.

        :param passages: a file or folder (docs/formats.md), or dictionaries, strings or `Passage`s
        :param overwrite: replace an existing index; searchers use the old index until the new one is complete
        :param advance: called with the number of newly encoded passages
        :param progress: show a progress bar
        :raises InputError: a record is invalid
        :raises IndexStateError: the path already holds an index
        """
        mode = "overwrite" if overwrite else "create"
        report = build_index(path, passages, mode, options, advance=advance, progress=progress)
        index = cls(path)
        index._keep(report, stacklevel=3)
        return index

    def append(
        self, passages: Corpus, *, options: IndexOptions | None = None, progress: bool | None = False
    ) -> IndexReport:
        """Add passages with new ids. Strings without ids are numbered from 0 in each call."""
        return self._grow(passages, "append", options, progress)

    def update(
        self, passages: Corpus, *, options: IndexOptions | None = None, progress: bool | None = False
    ) -> IndexReport:
        """Replace passages by id, and add passages with new ids."""
        return self._grow(passages, "update", options, progress)

    def _grow(
        self, passages: Corpus, mode: str, options: IndexOptions | None, progress: bool | None
    ) -> IndexReport:
        with self._write():
            report = build_index(self.path, passages, mode, options, progress=progress, encoder=self._encoder)
        return self._keep(report)

    def _keep(self, report: IndexReport, stacklevel: int = 4) -> IndexReport:
        """Store the report of the last write, and warn about skipped records."""
        self.report = report
        if skipped := report.skipped:
            warnings.warn(f"{self.path}: {skipped}", stacklevel=stacklevel)
        return report

    def delete(
        self,
        passage_ids: Iterable[str | int] = (),
        *,
        filter: FilterLike | None = None,
        yes: bool = False,
    ) -> int:
        """Delete passages by id, or all that match a filter; return how many existed.

        Unknown ids are not an error.

        :param yes: whether the filter may match more than half of the index
        :raises InputError: the filter matches more than half of the index; nothing is deleted
        """
        ids = [passage_ids] if isinstance(passage_ids, str) else list_of(passage_ids, "passage ids")
        wrong = [passage_id for passage_id in ids if not isinstance(passage_id, str | Integral)]
        if wrong:
            raise InputError(f"passage ids must be strings or whole numbers, found {wrong[0]!r}")
        if not ids and not filter:
            return 0
        with self._write():
            report = delete_from_index(self.path, [str(name) for name in ids], filter=filter, yes=yes)
        return report.requested - len(report.missing)

    def sync(
        self,
        corpus: str | Path,
        *,
        options: IndexOptions | None = None,
        dry_run: bool = False,
        yes: bool = False,
        progress: bool | None = False,
    ) -> SyncReport:
        """Add, update and delete passages, so that the index holds exactly those of a file or folder.

        :param dry_run: only report the differences
        :param yes: delete even more than half of the index
        :raises InputError: the corpus has no passages, or more than half of the index would be deleted
        """
        from sparta.index.sync import sync_index

        with self._write():
            report = sync_index(
                self.path,
                corpus,
                options,
                dry_run=dry_run,
                yes=yes,
                progress=progress,
                encoder=self._encoder,
            )
        if report.skipped:
            warnings.warn(f"{self.path}: {report.skipped}", stacklevel=2)
        return report

    def backup(self, destination: str | Path) -> BackupReport:
        """Copy the newest commit, with all channels, to a new folder, also while another process writes.

        :raises IndexStateError: the destination is not a new folder
        """
        from sparta.sharing.backup import backup_index

        return backup_index(self.path, destination)

    def push_to_hub(
        self, repo_id: str, *, private: bool = False, token: str | None = None, message: str = ""
    ) -> str:
        """Publish the newest commit, without local paths, on a Hugging Face hub. Returns the address.

        :param repo_id: `OWNER/NAME`; the repository is made if there is none
        :param private: make a new repository private
        :param token: an access token [default: `$HF_TOKEN`, or the token of `hf auth login`]
        :raises ServerError: the hub cannot be reached, or refuses the upload
        """
        from sparta.sharing.hub import push_index

        return push_index(self.path, repo_id, private=private, token=token, message=message)

    @classmethod
    def from_hub(
        cls,
        repo_id: str,
        path: str | Path | None = None,
        *,
        revision: str | None = None,
        token: str | None = None,
    ) -> Index:
        """Fetch an index from a Hugging Face hub into a new folder, verify it, and return the open index.

        :param path: the new folder [default: the repository's name in the working folder]
        :param revision: a branch, a tag or a commit [default: the newest commit of the main branch]
        :raises InputError: the repository holds no index
        :raises IndexStateError: the path is in use, or the index is damaged
        :raises ServerError: the hub cannot be reached, or has no such repository
        """
        from sparta.sharing.hub import pull

        return cls(pull(repo_id, path, revision=revision, token=token, kind="index").path)

    def search(
        self,
        query: str,
        k: int = 10,
        *,
        channel: str | None = None,
        offset: int = 0,
        filter: FilterLike | None = None,
        collapse: str | None = None,
        hits: str = DOCUMENTS,
        join: bool = False,
        rerank: str | Path | None = None,
        rerank_depth: int | None = None,
        candidates: int | None = None,
    ) -> Sequence[Hit]:
        """Return the `k` best passages for a query in a channel, best first.

        :param channel: `impact`, `bm25` or `dense`, or several, fused: `dense,impact`
            [default: `impact`; `bm25` if the index has no impacts]
        :param offset: skip this many of the best passages
        :param filter: condition on the metadata, such as `{"lang": "en", "year": {"gte": 1990}}`
        :param collapse: a metadata field; return only the best passage for each of its values
        :param hits: in an index of chunks: `documents` returns each document once, with its best chunk, and
            `chunks` returns the best chunks, each with `document_id`, `start` and `end`
        :param join: with `chunks`: join hits of neighboring chunks of a document into one hit
        :param rerank: the folder or the name of a cross-encoder, which orders the first hits anew
        :param rerank_depth: the number of hits that are ordered anew [default: 20]
        :param candidates: the number of passages that each channel contributes to a fusion [default: 100, or
            `k` or `rerank_depth` if this is larger]. It changes the ranking, because scores are normalized
            over the candidates, so pages of one ranking need the same number
        """
        retriever = self._retriever(channel, rerank, rerank_depth, candidates, whole("k", k))
        return retriever.search(
            query, k, offset=offset, filter=filter, collapse=collapse, hits=hits, join=join
        )

    def batch_search(
        self,
        queries: Iterable[str],
        query_ids: Iterable[str] | None = None,
        k: int = 10,
        threads: int = 1,
        *,
        channel: str | None = None,
        offset: int = 0,
        filter: FilterLike | None = None,
        collapse: str | None = None,
        hits: str = DOCUMENTS,
        join: bool = False,
        rerank: str | Path | None = None,
        rerank_depth: int | None = None,
        candidates: int | None = None,
    ) -> dict[str, Sequence[Hit]]:
        """Search for many queries; return the hits by query id (numbers from 0 without `query_ids`)."""
        texts, ids = queries_of(queries, query_ids)
        retriever = self._retriever(channel, rerank, rerank_depth, candidates, whole("k", k))
        hits_by_query = retriever.batch_search(
            texts, ids, k, threads, offset=offset, filter=filter, collapse=collapse, hits=hits, join=join
        )
        return dict(hits_by_query)

    def run(
        self,
        queries: Iterable[str],
        query_ids: Iterable[str] | None = None,
        k: int = 10,
        threads: int = 1,
        *,
        channel: str | None = None,
        offset: int = 0,
        filter: FilterLike | None = None,
        collapse: str | None = None,
        hits: str = DOCUMENTS,
        rerank: str | Path | None = None,
        rerank_depth: int | None = None,
        candidates: int | None = None,
    ) -> dict[str, Ranking]:
        """Rank passages for many queries; return passage ids and scores by query id (a TREC run)."""
        texts, ids = queries_of(queries, query_ids)
        retriever = self._retriever(channel, rerank, rerank_depth, candidates, whole("k", k))
        return retriever.run(
            texts, ids, k, threads, offset=offset, filter=filter, collapse=collapse, hits=hits
        )

    def answer(
        self,
        query: str,
        n: int = 1,
        *,
        channel: str | None = None,
        depth: int | None = None,
        reader: str | Path | None = None,
        threshold: float | None = None,
        rerank: str | Path | None = None,
        rerank_depth: int | None = None,
    ) -> AnswerList:
        """Return the `n` best answers to a question, best first, extracted from the best passages.

        The list is empty if no answer reaches the threshold; its `best_guess` is then the best answer below.
        The first call opens the reader, and a later call opens it again if its files have changed. `Answerer`
        has more options.

        :param depth: the number of passages that the reader reads [default: 10; with `rerank` all reranked
            passages, if they are more]
        :param reader: the folder or the name of a reader [default: the language's shipped reader]
        :param threshold: the lowest score of an answer [default: the reader's, if `tune-reader` calibrated it
            for this channel and depth, else 0]
        :param channel: as in `search`; also `rerank` and `rerank_depth`
        :raises ModelError: there is no such reader, or none for the index's language
        """
        from hybrid.answering.answerer import Answerer
        from hybrid.answering.open_readers import OpenReaders

        retriever = self._retriever(channel, rerank, rerank_depth, None, limit("depth", depth) or 0)
        self._readers = self._readers or OpenReaders()
        opened = self._readers.reader(retriever.language, reader)
        return Answerer(retriever, opened, depth=depth, threshold=threshold).answer(query, n)

    def retriever(
        self,
        channel: str | None = None,
        rerank: str | Path | None = None,
        rerank_depth: int | None = None,
        candidates: int | None = None,
    ) -> Retriever:
        """Return a retriever of one channel, or of several, fused: `dense,impact`, `bm25=1.2,impact`.

        `refresh` and `close` of this index also refresh and close the retriever.

        :param rerank: the folder or the name of a cross-encoder, which orders the first hits anew
        :param rerank_depth: the number of hits that are ordered anew [default: 20]
        :param candidates: the number of passages that each channel contributes to a fusion [default: 100, or
            `rerank_depth` if this is larger]
        """
        return self._retriever(channel, rerank, rerank_depth, candidates)

    def _retriever(
        self,
        channel: str | None,
        rerank: str | Path | None,
        rerank_depth: int | None,
        candidates: int | None,
        n_hits: int = 0,
    ) -> Retriever:
        """Return a retriever; `candidates` and `n_hits` as in `open_retriever`."""
        if rerank is not None:
            from sparta.rerank.reranked import RERANK_DEPTH, check_candidates, reranked

            depth = RERANK_DEPTH if rerank_depth is None else whole("rerank_depth", rerank_depth)
            ranked = self._retriever(channel, None, None, candidates, max(depth, n_hits))
            check_candidates(candidates, rerank_depth)
            return reranked(ranked, rerank, depth)
        if rerank_depth is not None:
            raise InputError(
                "rerank_depth has no effect without a cross-encoder",
                remedy=remedy("name it with {}", Option("rerank", default_name("reranker"))),
            )
        channel = self.searcher.channels[0] if channel is None else channel
        if not isinstance(channel, str):
            raise no_channel(channel, self.channels)
        if candidates is not None and not is_fusion(channel):
            raise InputError(
                f"candidates has no effect on the single channel {channel}",
                remedy=remedy("omit {}, or name several channels", Option("candidates")),
            )
        with self.reader.snapshot():  # a closed index opens nothing
            if channel != DENSE and not is_fusion(channel):
                try:
                    name = channel_name(channel)
                except InputError:
                    raise no_channel(channel, self.channels) from None
                return self.searcher.beside(name)
            if channel == DENSE and channel not in other_channels(self.path):
                raise InputError(
                    "the index has no dense channel",
                    where=str(self.path),
                    remedy=remedy(
                        "build the dense channel with: {}", Command.of("dense index", index=self.path)
                    ),
                )
        from hybrid.retrieval.searcher import open_retriever

        return open_retriever(self.reader, channel, candidates=candidates, n_hits=n_hits)

    @property
    def channels(self) -> list[str]:
        """The channels of the index, such as `["impact", "bm25", "dense"]`."""
        return [*self.searcher.channels, *other_channels(self.path)]

    def explain(
        self,
        query: str,
        passage_id: str | int,
        *,
        channel: str | None = None,
        filter: FilterLike | None = None,
    ) -> Explanation | Bm25Explanation:
        """Explain a passage's score: each query term's contribution, the sum and the rank.

        With a filter, the rank counts only passages that pass the filter.

        :param channel: `impact` or `bm25` [default: `impact`; `bm25` if the index has no impacts]
        """
        if channel_name(self.searcher.channels[0] if channel is None else channel) == BM25:
            return explain_bm25(self.searcher, query, str(passage_id), filter)
        return explain(self.searcher, query, str(passage_id), filter)

    def facets(
        self,
        query: str,
        fields: Sequence[str],
        *,
        channel: str | None = None,
        filter: FilterLike | None = None,
        hits: str = DOCUMENTS,
    ) -> dict[str, dict[str, int]]:
        """Return for each field how many hits of a query have each value, the most frequent value first.

        All hits count, not only the best `k`; in a fusion, its best candidates. In the dense channel, every
        passage is a hit.

        :param hits: in an index of chunks: count `documents` or `chunks`
        """
        names = [fields] if isinstance(fields, str) else list_of(fields, "metadata fields")
        return count_values(self.retriever(channel), query, names, filter=filter, hits=hits)

    def terms(self, passage_id: str | int, n: int | None = None) -> list[PassageTerm]:
        """Return the `n` terms with the highest impacts of a passage, as `(term, impact, weight)`."""
        return top_terms(self.searcher, str(passage_id), n)

    def passage(self, passage_id: str | int) -> dict[str, Any]:
        """Return a passage: `id`, `title`, `text` and metadata. A split passage is joined from its parts."""
        return self.searcher.passage(str(passage_id))

    @property
    def fields(self) -> list[str]:
        """The metadata fields of the passages, for filters and `collapse`."""
        return self.searcher.fields

    @property
    def version(self) -> IndexVersion:
        """The generation and commit that this object searches."""
        return self.searcher.version

    def refresh(self) -> bool:
        """Search the newest commit, in all channels; return whether anything changed."""
        return self.reader.refresh()

    def __len__(self) -> int:
        return self.searcher.num_docs

    def __repr__(self) -> str:
        try:
            return f"<Index {self.path}: {len(self):,} passages, channels {', '.join(self.channels)}>"
        except IndexStateError:
            return f"<Index {self.path}: closed>"
        except SpartaError as error:
            return f"<Index {self.path}: {error.message}>"

    def close(self) -> None:
        """Release the index and the models that are open."""
        self.reader.close()
        self._readers, self._encoder = None, OpenEncoder()

    def __enter__(self) -> Self:
        self._require_open()
        return self

    @contextmanager
    def _write(self) -> Iterator[None]:
        """Let one thread write at a time into the open index, then open the newest commit.

        A write that fails may have committed passages before its error.

        :raises IndexStateError: the passages of a write call a write, which would never return.
        """
        if self._writer == threading.get_ident():
            raise IndexStateError(
                "this thread is writing to the index already",
                where=str(self.path),
                remedy="write after the first call ends, not while it reads its passages",
            )
        with self._writing:
            self._writer = threading.get_ident()
            try:
                self._require_open()
                try:
                    yield
                except BaseException:
                    with suppress(SpartaError, OSError):  # the caller gets the error of the write
                        self.refresh()
                    raise
                self.refresh()
            finally:
                self._writer = 0

    def _require_open(self) -> None:
        """Raise IndexStateError if the index is closed."""
        with self.reader.snapshot():
            pass
