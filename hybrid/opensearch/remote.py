"""Searches an index in OpenSearch: sends queries as JSON, returns rankings in columns."""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hybrid.opensearch.check import query_kind
from hybrid.opensearch.documents import PASSAGE, POSITION, RECORD
from hybrid.opensearch.fields import FIELDS, field_range, filter_queries
from hybrid.opensearch.queries import (
    Json,
    check_most,
    counts_words,
    following,
    impacts_query,
    search_body,
    text_query,
    within,
)
from hybrid.opensearch.query_side import feature_name
from hybrid.opensearch.server import BUSY, Patience, Server, reason_of
from hybrid.opensearch.state import count, indices_of, live_index, load_side
from sparta.base.errors import IndexStateError, InputError, ServerError
from sparta.base.filters import Filter, FilterLike
from sparta.base.records import PassageRecord, Ranking
from sparta.data.units import joined
from sparta.models.query_encoder import QuerySide, QueryTokenizer
from sparta.search.retriever import Page
from sparta.search.searcher import BM25

CHECK_SECONDS = 1.0
"""Seconds between two checks whether the alias points to another index; searches make the checks."""
_AT_ONCE = 100  # searches in a request
_AT_A_POSITION = 2  # documents with one position, while an update replaces a passage by another
_POSITION_BITS, _HASH_BITS = 44, 32
_POSITIONS = (1 << _POSITION_BITS) - 1
_VIEWS = 2  # the current index, and the index before it
Asked = tuple[str, str]
"""A channel, and a query for this channel."""


@dataclass(frozen=True, slots=True)
class View:
    """An index behind the alias. `stamp` distinguishes its passages from passages of other indices."""

    index: str
    meta: dict[str, Any]
    side: QuerySide
    tokenizer: QueryTokenizer
    kind: str

    @property
    def stamp(self) -> int:
        """32 bits of a hash of the index's name."""
        return _hash_of(self.index)

    def features(self, query: str) -> dict[str, int]:
        """Return the weight of each term of a query, by the term's name in OpenSearch."""
        terms = self.tokenizer.terms(query)
        return {feature_name(term): n for term, n in terms.items()} if self.side.lexical else terms


class RemoteIndex:
    """The index that an alias points to: its query side, and searches in it. Threads may share the object.

    Searches use the index itself, not the alias. A passage's number combines the index's stamp, a hash of
    the id and the corpus position. So rankings and records belong to the same passages, even if the alias
    moves or an update replaces a passage in between. If another thread follows the alias between a ranking
    and its records, the records come from the previous index while the previous index exists.

    A search through `newest` follows the alias, at most `CHECK_SECONDS` after the alias moves.

    :raises IndexStateError: the alias does not exist, or sparta did not push its index
    """

    def __init__(self, server: Server, name: str, kind: str | None = None) -> None:
        self.server, self.name, self._kind = server, name, kind
        self._known: set[tuple[str, str]] = set()
        self._lock, self._last_check = threading.Lock(), 0.0
        self._views: tuple[View, ...] = ()  # newest first
        self.open()

    @property
    def view(self) -> View:
        """The index that searches use."""
        return self._views[0]

    def open(self) -> View:
        """Open the index that has the alias now, and search it from now on."""
        index, meta = live_index(self.server, self.name)
        side = load_side(self.server, meta)
        kind = self._kind or query_kind(self.server, index)
        view = View(index, meta, side, side.query_tokenizer(), kind)
        with self._lock:
            self._views = (view, *(other for other in self._views if other.index != index))[:_VIEWS]
            self._last_check = time.monotonic()
        return view

    def rank(self, channel_queries: Sequence[Asked], page: Page, threads: int = 1) -> list[Ranking]:
        """Return a page of hits for each query in its channel; an index of chunks returns their documents."""
        check_most(page.depth, self.server.access.most_hits)
        view = self.view
        conditions = self.chosen(page.filter, view)
        self._require([page.collapse] if page.collapse else [], view)
        queries = [_query(view, channel, text) for channel, text in channel_queries]

        def search(depth: int, numbers: Sequence[int]) -> list[Ranking]:
            hits = self.hits([within(queries[i][0], *conditions) for i in numbers], depth, view, threads)
            rows = zip(numbers, hits, strict=True)
            return [
                _columns(query_hits, view, channel_queries[i][0], queries[i][1]) for i, query_hits in rows
            ]

        return page.rankings(search, len(channel_queries), view.meta["unit"], self.keys)

    def chosen(self, filter: FilterLike | None, view: View) -> list[Json]:
        """Return the OpenSearch queries of a filter; all its fields must exist."""
        parsed_filter = Filter.of(filter)
        self._require(parsed_filter.fields if parsed_filter else [], view)
        return filter_queries(parsed_filter)

    def _require(self, names: Sequence[str], view: View) -> None:
        """Raise InputError for a metadata field that no passage has."""
        for name in names:
            if not self._has_field(name, view):
                raise InputError(f"no passage has the field {name!r}", where=self._where(view))

    def _has_field(self, name: str, view: View) -> bool:
        if (view.index, name) not in self._known:
            if not count(self.server, view.index, field_range(name)):
                return False
            self._known.add((view.index, name))
        return True

    def fields_among(self, names: Iterable[str]) -> list[str]:
        """Return the names of metadata fields that a passage has."""
        view = self.view
        return [name for name in names if self._has_field(name, view)]

    def records(self, docids: Sequence[int]) -> list[dict[str, Any]]:
        """Return the records of passages, by document number."""
        return [PassageRecord.of(hit["_source"][RECORD]) for hit in self._at(docids, {"_source": [RECORD]})]

    def keys(self, docids: Sequence[int], field: str) -> list[str | None]:
        """Return each passage's values of a metadata field, joined into one string; None without values.

        :raises InputError: no passage has the field.
        """
        for view, _ in self._by_view(docids):
            self._require([field], view)
        hits = self._at(docids, {"docvalue_fields": [FIELDS]})
        prefix = f"{field}\0"
        values_of_hits = (
            [value for value in hit.get("fields", {}).get(FIELDS, ()) if value.startswith(prefix)]
            for hit in hits
        )
        return ["\0".join(sorted(values)) or None for values in values_of_hits]

    def texts(self, passage_ids: Iterable[str]) -> dict[str, str]:
        """Return the full text of each split passage by id, joined from the passage's parts."""
        distinct_ids = list(dict.fromkeys(passage_ids))
        most_hits = self.server.access.most_hits
        bodies = [
            search_body({"term": {PASSAGE: passage_id}}, most_hits, source=[RECORD])
            for passage_id in distinct_ids
        ]
        hits_of_passages = [response["hits"]["hits"] for response in self.search(bodies, self.view)]
        return {
            passage_id: joined(hit["_source"][RECORD] for hit in hits)
            for passage_id, hits in zip(distinct_ids, hits_of_passages, strict=True)
        }

    def _at(self, docids: Sequence[int], fields: Json) -> list[Json]:
        """Return the hits with these document numbers; `fields` names the fields that each hit has."""
        documents: dict[int, Json] = {}
        positions_at_once = self.server.access.most_hits // _AT_A_POSITION
        for view, view_docids in self._by_view(docids):
            for block in itertools.batched(view_docids, positions_at_once):
                positions = [docid & _POSITIONS for docid in block]
                n_hits = _AT_A_POSITION * len(block)
                body = {**search_body({"terms": {POSITION: positions}}, n_hits), **fields}
                (answer,) = self.search([body], view)
                documents |= {_docid(view, hit): hit for hit in answer["hits"]["hits"]}
            if any(docid not in documents for docid in view_docids):
                raise self._changed(view)
        return [documents[docid] for docid in docids]

    def _by_view(self, docids: Sequence[int]) -> list[tuple[View, list[int]]]:
        """Return the distinct document numbers of each index; an unknown index counts as the current one."""
        views = self._views
        docids_by_stamp: dict[int, list[int]] = {}
        for docid in dict.fromkeys(docids):
            docids_by_stamp.setdefault(docid >> _HASH_BITS + _POSITION_BITS, []).append(docid)
        return [
            (next((view for view in views if view.stamp == stamp), views[0]), stamp_docids)
            for stamp, stamp_docids in docids_by_stamp.items()
        ]

    def hits(self, queries: Sequence[Json], depth: int, view: View, threads: int = 1) -> list[list[Json]]:
        """Return the `depth` best hits of each query; each request returns at most `most_hits`."""
        hits: list[list[Json]] = [[] for _ in queries]
        unfinished, depth_left = list(range(len(queries))), depth
        while unfinished and depth_left > 0:
            size = min(depth_left, self.server.access.most_hits)
            answers = self.search([following(queries[i], size, hits[i]) for i in unfinished], view, threads)
            pages = [answer["hits"]["hits"] for answer in answers]
            for i, page in zip(unfinished, pages, strict=True):
                hits[i] += page
            unfinished = [i for i, page in zip(unfinished, pages, strict=True) if len(page) == size]
            depth_left -= size
        return hits

    def search(self, bodies: Sequence[Json], view: View, threads: int = 1) -> list[Json]:
        """Return the responses to searches; repeat a search while a shard does not answer.

        :raises ServerError: a search fails, or still lacks a shard when the patience ends
        :raises IndexStateError: the index no longer exists
        """
        answers: list[Json] = []
        for begin in range(0, len(bodies), _AT_ONCE):
            answers += self._patiently(bodies[begin : begin + _AT_ONCE], view, threads)
        return answers

    def _patiently(self, bodies: Sequence[Json], view: View, threads: int) -> list[Json]:
        answers: dict[int, Json] = {}
        patience = Patience(self.server.access.patience)
        while True:
            unanswered = [i for i in range(len(bodies)) if i not in answers]
            results = self._msearch([bodies[i] for i in unanswered], view, threads)
            busy: list[Json] = []
            for i, result in zip(unanswered, results, strict=True):
                if "error" not in result and not result["timed_out"] and not result["_shards"]["failed"]:
                    answers[i] = result
                elif result.get("status") in (*BUSY, 500, 200):
                    busy.append(result)
                else:
                    raise self._refused(result, view)
            if not busy:
                return [answers[i] for i in range(len(bodies))]
            if not patience.wait():
                raise self._refused(busy[0], view)

    def _msearch(self, bodies: Sequence[Json], view: View, threads: int) -> list[Json]:
        """Send searches once in one request. BM25 needs word counts over all shards (dfs); impacts do not."""
        lines: list[Json] = []
        for body in bodies:
            dfs = {"search_type": "dfs_query_then_fetch"} if counts_words(body["query"]) else {}
            lines += [{"allow_partial_search_results": False, **dfs}, body]
        request_body = b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines)
        path = f"/{view.index}/_msearch"
        answer = self.server.request(
            "POST", path, request_body, lines=True, max_concurrent_searches=max(1, threads)
        )
        return list(answer["responses"])

    def _refused(self, answer: Json, view: View) -> ServerError | IndexStateError:
        if answer.get("status") == 404:
            if view.index != self.view.index:
                return self._changed(view)
            return IndexStateError(
                "the index was replaced after it was opened",
                where=self._where(view),
                remedy="open the index again",
            )
        return ServerError(f"the search failed: {reason_of(answer)}", where=self._where(view))

    def _changed(self, view: View) -> IndexStateError:
        return IndexStateError(
            "passages were replaced or deleted during the search",
            where=self._where(view),
            remedy="repeat the search",
        )

    def _where(self, view: View) -> str:
        return f"{self.server.where}/{view.index}"

    def newest[T](self, work: Callable[[], T]) -> T:
        """Follow the alias, then return the result of `work`."""
        if self._is_check_due():
            self.refresh()
        return self.again(work)

    def refresh(self) -> bool:
        """Follow the alias now. Returns whether the alias points to another index."""
        indices = indices_of(self.server, self.name)
        has_moved = len(indices) == 1 and indices != [self.view.index]
        if has_moved:
            self.open()
        return has_moved

    def _is_check_due(self) -> bool:
        """Return whether to check the alias; of several threads, a single thread checks."""
        with self._lock:
            time_now = time.monotonic()
            is_due = time_now - self._last_check >= CHECK_SECONDS
            if is_due:
                self._last_check = time_now
            return is_due

    def again[T](self, work: Callable[[], T]) -> T:
        """Return the result of `work`; if the open index was replaced, open the new one and repeat once."""
        try:
            return work()
        except IndexStateError:
            self.open()
            return work()


def _hash_of(name: str) -> int:
    """Return 32 bits of a hash of a name or an id."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[: _HASH_BITS // 8])


def _query(view: View, channel: str, text: str) -> tuple[Json, int]:
    """Return the query of a text in a channel, and the factor that turns its scores into the channel's."""
    return (text_query(text), 1) if channel == BM25 else impacts_query(view.features(text), view.kind)


def _docid(view: View, hit: Mapping[str, Any]) -> int:
    """Return a hit's document number: the stamp of its index, a hash of its id, and its corpus position."""
    return (view.stamp << _HASH_BITS | _hash_of(hit["_id"])) << _POSITION_BITS | int(hit["sort"][1])


def _columns(hits: Sequence[Mapping[str, Any]], view: View, channel: str, scale: int) -> Ranking:
    """Return a query's hits in columns; impact scores are integers, BM25 scores the server's float32."""
    if channel == BM25:
        scores: list[Any] = np.array([hit["_score"] for hit in hits], np.float32).tolist()
    else:
        scores = [round(hit["_score"] * scale) for hit in hits]
    return Ranking([hit["_id"] for hit in hits], [_docid(view, hit) for hit in hits], scores)
