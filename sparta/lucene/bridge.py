"""Call Java with batches of passages and queries as packed NumPy arrays.

Only packed `byte[]` values cross to Java, one value per batch. `java_errors` turns Java's exceptions into
sparta's errors.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparta.base.checks import is_number, not_unicode
from sparta.base.closing import Closing
from sparta.base.errors import IndexStateError, InputError
from sparta.base.filters import Filter
from sparta.data.languages import LANGUAGES, Language
from sparta.lucene import jvm
from sparta.lucene.java_errors import translate
from sparta.lucene.packing import (
    Hits,
    Integers,
    ReadVectors,
    TermPostings,
    composed,
    pack_bytes,
    pack_integers,
    pack_queries,
    pack_strings,
    pack_texts,
    unpack_hits,
    unpack_postings,
    unpack_strings,
    unpack_vectors,
)

_RECORDS_PER_READ = 128
"""Records that fit into one array of Java, which `raws` returns: 2 GiB, and a record has at most 16 MiB."""
_ALWAYS_FITS = 2**20
_LARGEST_INT = 2**31 - 1
"""Java's largest int. An index holds at most this many passages, and a search needs fewer threads."""
_LARGEST_FLOAT = float(np.finfo(np.float32).max)
"""Java's largest float, the limit of k1."""


class Bm25(NamedTuple):
    """BM25's parameters; the defaults are Pyserini's. They apply to searching only: an index stores none."""

    k1: float = 0.9
    b: float = 0.4


def _analyzer(language: str | Language) -> str:
    """Return Java's name of a language's analyzer."""
    if isinstance(language, Language):
        return language.analyzer
    if language not in LANGUAGES:
        raise InputError(f"unknown language {language!r}; known languages: {', '.join(LANGUAGES)}")
    return LANGUAGES[language].analyzer


def _parameters(bm25: Bm25 | None) -> Bm25:
    """Return BM25's parameters as floats. Java would check their ranges after it has opened the index."""
    parameters = Bm25() if bm25 is None else bm25
    if not isinstance(parameters, Bm25) or not all(map(is_number, parameters)):
        raise InputError(f"bm25 must be Bm25(k1=…, b=…) with two numbers, found {parameters!r}")
    k1, b = map(float, parameters)
    if not (0 <= k1 <= _LARGEST_FLOAT and 0 <= b <= 1):
        raise InputError(
            f"BM25's k1 must be at least 0 and below 3.4e38, and b from 0 to 1, found {k1:g} and {b:g}"
        )
    return Bm25(k1, b)


class ImpactWriter(Closing):
    """Writes passages with impacts into one Lucene index folder. Only `commit` makes passages permanent.

    Java threads index from a bounded queue: `add` returns once the batch is queued, and a failure raises at
    the next call. A `with` block closes the writer and commits nothing.

    :param path: the index folder, created if missing
    :param language: the language, or its code, whose analyzer reads the texts
    :param threads: the number of indexing threads
    :param ram_buffer_mb: memory for unflushed impacts, and the same amount for all other data
    :param codec: the codec of new segments: `fast` searches fastest and needs sparta's jar, `lucene` is
        readable by every Lucene
    :raises IndexStateError: another writer holds the folder, or the index cannot be opened.
    :raises StorageError: the folder is not writable.
    :raises InputError: the language or the codec is unknown.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        language: str | Language = "en",
        threads: int = 2,
        ram_buffer_mb: int = 64,
        codec: str = "fast",
    ) -> None:
        self.path = Path(path)
        analyzer = _analyzer(language)
        with _java(self.path) as autoclass:
            java = autoclass("sparta.lucene.ImpactWriter")
            self._java = java(jvm.java_path(self.path), analyzer, threads, ram_buffer_mb, codec)

    def add_terms(self, terms: Sequence[str]) -> None:
        """Append terms to the vocabulary; term ids count from 0 over all calls.

        :raises InputError: a term is longer than Lucene's 32,766 bytes.
        """
        packed = pack_strings(terms)
        with _java(self.path, packed):
            self._java.addTerms(packed)

    def add(
        self,
        ids: Sequence[str],
        raws: Sequence[str],
        texts: Sequence[str],
        positions: Integers,
        indptr: Integers,
        term_ids: Integers,
        impacts: Integers,
        *,
        own_terms: Sequence[str] = (),
        fields: Sequence[Sequence[bytes]] | None = None,
        update: bool = False,
    ) -> None:
        """Queue passages; wait while the queue is full. An invalid batch is rejected as a whole.

        :param ids: n passage ids
        :param raws: n records to store
        :param texts: n texts for BM25
        :param positions: `(n,)` integers, the corpus positions, which decide ties
        :param indptr: `(n + 1,)` integers; passage i has the postings `[indptr[i], indptr[i+1])`
        :param term_ids: `(n_postings,)` integers: terms of the vocabulary, then terms of this batch
        :param impacts: `(n_postings,)` integers, 1 or more
        :param own_terms: terms that the writer forgets after the batch, for many rare terms; their ids follow
            the vocabulary's ids. The vocabulary must not hold any of them
        :param fields: each passage's metadata terms, made by `sparta.base.filters.term`; None means no
            metadata
        :param update: first delete passages with the same ids; a repeated id in the batch keeps its last
            passage
        :raises InputError: lengths differ, an impact is below 1, or a term id is outside the vocabulary.
        :raises JavaError: the batch does not fit into Java's memory.
        """
        passage_fields = [()] * len(ids) if fields is None else fields
        values = [value for field_terms in passage_fields for value in field_terms]
        packed = (
            pack_strings(ids),
            pack_strings(raws),
            pack_texts(texts),
            pack_integers(positions, np.int64, "positions"),
            pack_integers(indptr, np.int32, "indptr"),
            pack_integers(term_ids, np.int32, "term_ids"),
            pack_integers(impacts, np.int32, "impacts"),
            pack_strings(own_terms),
            pack_bytes(values),
            pack_integers(np.cumsum([0, *map(len, passage_fields)]), np.int32, "ends of the fields"),
        )
        with _java(self.path, *packed):
            self._java.add(*packed, update)

    def delete(self, ids: Sequence[str]) -> int:
        """Delete passages by id. Returns the number of deleted passages."""
        packed = pack_strings(ids)
        with _java(self.path, packed):
            return int(self._java.delete(packed))

    def remove(self, ids: Sequence[str]) -> None:
        """Delete passages by id without counting them; many small deletions are much faster this way."""
        packed = pack_strings(ids)
        with _java(self.path, packed):
            self._java.remove(packed)

    def commit(self, user_data: str) -> None:
        """Wait for the queue to empty, then commit all passages together with this string."""
        with _java(self.path):
            self._java.commit(user_data)

    def force_merge(self, segments: int = 1) -> None:
        """Merge the index to at most this many segments. The next commit makes the merge permanent."""
        with _java(self.path):
            self._java.forceMerge(segments)

    def rollback(self) -> None:
        """Discard everything since the last commit, and close the writer."""
        with _java(self.path):
            self._java.rollback()

    def close(self) -> None:
        """Close the writer without a commit. Closing again does nothing."""
        with _java(self.path):
            self._java.close()


class VectorReader:
    """Parses the vectors of JSON lines. Term ids count over all calls of one reader."""

    def __init__(self) -> None:
        with _java(Path()) as autoclass:
            self._java = autoclass("sparta.lucene.VectorReader")()

    def read(self, lines: Sequence[bytes]) -> ReadVectors:
        """Parse lines.

        A line whose vector Java cannot parse gets the span −1, and the caller handles the line.
        """
        packed = pack_bytes(lines)
        with _java(Path(), packed):
            return unpack_vectors(_bytes(self._java.read(packed)))


class ImpactSearcher(Closing):
    """Searches the last commit of an index folder at the time of opening.

    Hits are sorted by descending score, then ascending corpus position. A score is Σ weight × impact, an
    integer: exact below 2^24, rounded to float32 above. Threads may share a searcher.

    All arguments are computed before a Java method is looked up. pyjnius stores the receiver in the method
    object, which all searchers share. Between the lookup of a method and its call, another thread could store
    its searcher there.

    :param path: the index folder
    :param language: the language whose analyzer reads text queries; use the language of the index
    :param bm25: the parameters of BM25
    :raises IndexStateError: there is no index, or the index is damaged or from a newer Lucene.
    :raises InputError: k1 is negative or above 3.4e38, or b is not between 0 and 1.
    """

    def __init__(
        self, path: str | Path, *, language: str | Language = "en", bm25: Bm25 | None = None
    ) -> None:
        self.path = Path(path)
        analyzer, parameters = _analyzer(language), _parameters(bm25)
        with _java(self.path, reading=True) as autoclass:
            java = autoclass("sparta.lucene.ImpactSearcher")
            self._java = java(jvm.java_path(self.path), analyzer, *parameters)
        self._finalizer = weakref.finalize(self, _close_collected, self._java)
        self._finalizer.atexit = False

    @property
    def num_docs(self) -> int:
        """The number of live passages."""
        with self._reading():
            return int(self._java.numDocs())

    @property
    def user_data(self) -> str | None:
        """The string stored with the commit; `None` if another program made the commit."""
        with self._reading():
            return self._java.userData()

    def search(
        self,
        queries: Sequence[Mapping[str, int]],
        texts: Sequence[str],
        k: int,
        threads: int = 1,
        filter: Filter | None = None,
    ) -> Hits:
        """Return each query's k best passages by impacts, then each text's k best passages by BM25.

        Java runs both searches at the same time, so the call takes as long as the slower search.

        :param threads: threads over queries; with both queries and texts, twice as many threads run
        :raises InputError: k is below 1; a weight is negative or not an integer; no passage has a field of
            the filter.
        """
        if not texts:
            return self.search_impacts(queries, k, threads, filter)
        if not queries:
            return self.search_text(texts, k, threads, filter)
        packed = pack_queries(queries), pack_texts(texts), _packed(filter)
        counts = _ints(k, threads)
        with self._reading(*packed):
            return unpack_hits(_bytes(self._java.searchBoth(*packed, *counts)))

    def search_impacts(
        self,
        queries: Sequence[Mapping[str, int]],
        k: int,
        threads: int = 1,
        filter: Filter | None = None,
    ) -> Hits:
        """Return the k best passages of each query by impacts; a query maps terms to weights."""
        packed, counts = (pack_queries(queries), _packed(filter)), _ints(k, threads)
        with self._reading(*packed):
            return unpack_hits(_bytes(self._java.searchImpacts(*packed, *counts)))

    def search_text(
        self, queries: Sequence[str], k: int, threads: int = 1, filter: Filter | None = None
    ) -> Hits:
        """Return the k best passages of each query by BM25 over the texts."""
        packed, counts = (pack_texts(queries), _packed(filter)), _ints(k, threads)
        with self._reading(*packed):
            return unpack_hits(_bytes(self._java.searchText(*packed, *counts)))

    def matching(self, filter: Filter) -> npt.NDArray[np.bool_]:
        """Return a boolean for each docid: live and matching the filter.

        The length is the number of docids, rounded up to a multiple of 64.

        :raises InputError: no passage has a field of the filter.
        """
        packed = _packed(filter)
        with self._reading(packed):
            bits = np.frombuffer(_bytes(self._java.matching(packed)), np.uint8)
        return np.unpackbits(bits, bitorder="little").view(np.bool_)

    def keys(self, docids: Integers, field: str) -> list[str | None]:
        """Return each passage's values of a metadata field as one string; None if it lacks the field.

        :raises InputError: no passage has the field.
        """
        packed = pack_integers(docids, np.int32, "docids")
        with self._reading(packed):
            keys = unpack_strings(_bytes(self._java.keys(packed, field)))
        return [key or None for key in keys]

    def fields(self) -> list[str]:
        """Return the names of all metadata fields in the index, sorted by their bytes."""
        with self._reading():
            return unpack_strings(_bytes(self._java.fields()))

    def ids(self, docids: Integers) -> list[str]:
        """Return passage ids."""
        packed = pack_integers(docids, np.int32, "docids")
        with self._reading(packed):
            return unpack_strings(_bytes(self._java.ids(packed)))

    def raws(self, docids: Integers) -> list[str]:
        """Return stored records."""
        packed = pack_integers(docids, np.int32, "docids")
        with self._reading(packed):
            return unpack_strings(_bytes(self._java.raws(packed)))

    def records(self, docids: Iterable[int]) -> Iterator[str]:
        """Yield stored records. A call of Java reads so many that their texts fit into an array of Java."""
        for some in itertools.batched(docids, _RECORDS_PER_READ):
            yield from self.raws(some)

    def positions(self, docids: Integers) -> npt.NDArray[np.int64]:
        """Return corpus positions, `(n,) int64`."""
        packed = pack_integers(docids, np.int32, "docids")
        with self._reading(packed):
            return np.frombuffer(_bytes(self._java.positions(packed)), "<i8")

    def docids(self, ids: Sequence[str]) -> npt.NDArray[np.int32]:
        """Return the docids of passage ids, `(n,) int32`; −1 if the index lacks the passage."""
        packed = pack_strings(ids)
        with self._reading(packed):
            return np.frombuffer(_bytes(self._java.docids(packed)), "<i4")

    def stored(self, ids: Sequence[str]) -> list[str]:
        """Return the ids whose passages the index holds, in the order of `ids`."""
        return [name for name, docid in zip(ids, self.docids(ids), strict=True) if docid >= 0]

    def sentences(self, passage_ids: Sequence[str]) -> list[str]:
        """Return the ids p#0, p#1, … of all stored sentences of these passages."""
        packed = pack_strings(passage_ids)
        with self._reading(packed):
            return unpack_strings(_bytes(self._java.sentences(packed)))

    def live(self) -> npt.NDArray[np.int32]:
        """Return all live docids, `(num_docs,) int32`, ascending."""
        with self._reading():
            return np.frombuffer(_bytes(self._java.live()), "<i4")

    def in_corpus_order(self, docids: npt.NDArray[np.int32] | None = None) -> npt.NDArray[np.int32]:
        """Return these docids, `(n,)`, in corpus order; without an argument, all live docids."""
        docids = self.live() if docids is None else docids
        return docids[np.argsort(self.positions(docids), kind="stable")]

    def impacts(self, docid: int, terms: Sequence[str]) -> npt.NDArray[np.int32]:
        """Return the impacts of these terms in one passage, `(n,) int32`; 0 if the passage lacks the term."""
        packed, docid = pack_strings(terms), int(docid)
        with self._reading(packed):
            return np.frombuffer(_bytes(self._java.impacts(docid, packed)), "<i4")

    def word_scores(self, text: str, docids: Integers) -> npt.NDArray[np.float32]:
        """Return each distinct word's contribution to the passages' BM25 scores, `(n_docids, n_words)`."""
        packed, text = pack_integers(docids, np.int32, "docids"), composed(text)
        with self._reading(packed):
            scores = np.frombuffer(_bytes(self._java.wordScores(text, packed)), "<f4")
        return scores.reshape(len(docids), -1)

    def word_places(self, query: str, text: str) -> list[tuple[int, int, int]]:
        """Return the places of a query's words in a text, as BM25 reads both: `(word, start, end)`.

        `word` numbers the query's words from 0, in order. `start` and `end` are offsets in the `composed`
        text.
        """
        packed = pack_texts([query, text])
        with self._reading(packed):
            places = np.frombuffer(_bytes(self._java.wordPlaces(packed)), "<i4")
        return [(word, start, end) for word, start, end in places.reshape(-1, 3).tolist()]

    def vector(self, docid: int) -> dict[str, int]:
        """Return all terms of one passage with their impacts, in byte order.

        The call reads the whole dictionary.
        """
        docid = int(docid)
        with self._reading():
            return _numbered(_bytes(self._java.vector(docid)))

    def words(self, text: str) -> dict[str, int]:
        """Return the distinct words of a text as BM25 reads it, in order, and how often each occurs."""
        text = composed(text)
        with self._reading():
            return _numbered(_bytes(self._java.words(text)))

    def counts(self, docids: Integers, field: str) -> dict[str, int]:
        """Return how many of the passages have each value of a metadata field, in byte order of the values.

        :raises InputError: no passage has the field.
        """
        packed = pack_integers(docids, np.int32, "docids")
        with self._reading(packed):
            return _numbered(_bytes(self._java.counts(packed, field)))

    def rank(self, query: Mapping[str, int], docid: int, filter: Filter | None = None) -> int:
        """Return the passage's rank among all hits of the query, from 1; 0 if the passage is not a hit."""
        packed = pack_queries([query]), _packed(filter), int(docid)
        with self._reading(*packed[:2]):
            return int(self._java.rank(*packed))

    def rank_text(self, text: str, docid: int, filter: Filter | None = None) -> int:
        """Return the passage's rank among all BM25 hits of a text, from 1; 0 if the passage is not a hit."""
        packed = pack_texts([text]), _packed(filter), int(docid)
        with self._reading(*packed[:2]):
            return int(self._java.rankText(*packed))

    def postings(self, budget: int = 4_000_000) -> Iterator[TermPostings]:
        """Yield all postings term by term, in pages of about `budget` postings and at least one term."""
        last_term: list[str] = []
        while True:
            packed = pack_strings(last_term)
            with self._reading(packed):
                page = unpack_postings(_bytes(self._java.postings(packed, budget)))
            if not page.terms:
                return
            yield page
            last_term = page.terms[-1:]

    def close(self) -> None:
        """Close the reader. Closing again does nothing, and so does closing in a fork.

        Python also closes a searcher that is garbage-collected.
        """
        self._finalizer.detach()
        if not jvm.is_fork():
            with self._reading():
                self._java.close()

    @contextmanager
    def _reading(self, *packed: bytes) -> Iterator[None]:
        with _java(self.path, *packed, reading=True):
            yield


def check_index(path: Path) -> str:
    """Return the damage that Lucene's CheckIndex reports; empty if none. CheckIndex reads every file.

    :raises IndexStateError: the index cannot be opened.
    """
    with _java(path, reading=True) as autoclass:
        return str(autoclass("sparta.lucene.IndexCheck").check(jvm.java_path(path)))


def commit_files(path: Path, commit: int) -> list[str]:
    """Return the names of all files of a commit of a Lucene index, without opening the index.

    :param commit: the commit's number, the N of its file segments_N in base 36
    :raises IndexStateError: the commit is damaged, or a writer has removed it.
    """
    if not path.is_dir():  # Lucene would create it
        raise IndexStateError("the commit was removed", where=str(path), remedy="open the index again")
    with _java(path, reading=True) as autoclass:
        directory = autoclass("org.apache.lucene.store.FSDirectory").open(
            autoclass("java.nio.file.Paths").get(jvm.java_path(path))
        )
        try:
            name = autoclass("org.apache.lucene.index.IndexFileNames").fileNameFromGeneration(
                "segments", "", commit
            )
            infos = autoclass("org.apache.lucene.index.SegmentInfos").readCommit(directory, name)
            return sorted(str(file) for file in infos.files(True).toArray())
        finally:
            directory.close()


def _close_collected(java: Any) -> None:
    """Close a Java reader whose Python object was garbage-collected, to free its files and memory."""
    with suppress(Exception):
        jvm.check_process()  # in a forked process, the call into Java would hang
        if not sys.is_finalizing():
            jvm.enter_thread()
            java.close()


def _numbered(data: bytes) -> dict[str, int]:
    """Return strings with a number each, from n, n numbers and a table of n strings."""
    count = int(np.frombuffer(data, "<i4", 1)[0])
    numbers = np.frombuffer(data, "<i4", count, 4)
    return dict(zip(unpack_strings(data, 4 + 4 * count), numbers.tolist(), strict=True))


@lru_cache(64)
def _packed(filter: Filter | None) -> bytes:
    """Return a filter in the form that Java reads; empty for no filter."""
    return pack_bytes(filter.packed()) if filter else b""


def _ints(*numbers: int) -> list[int]:
    """Return counts that fit into Java's int: larger counts become the largest int, which means "all"."""
    return [min(number, _LARGEST_INT) for number in numbers]


def _bytes(array: Any) -> bytes:
    """Copy a Java `byte[]` with one call."""
    return array.tostring()


@contextmanager
def _java(path: Path, *packed: bytes, reading: bool = False) -> Iterator[Any]:
    """Start Java if needed, yield pyjnius's `autoclass`, and translate Java exceptions.

    Before a large transfer, the function asks Java whether the `packed` bytes fit into memory: pyjnius would
    crash otherwise.
    """
    jvm.start_jvm()
    jvm.enter_thread()
    import jnius

    size = sum(map(len, packed))
    try:
        if size > _ALWAYS_FITS:
            jnius.autoclass("sparta.lucene.MemoryCheck").check(size)
        yield jnius.autoclass
    except jnius.JavaException as thrown:
        raise translate(thrown, path, reading=reading) from thrown
    except UnicodeEncodeError as error:  # a name with half a surrogate pair
        raise not_unicode(error) from error
