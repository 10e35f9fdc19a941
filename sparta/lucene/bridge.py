"""The Java border: batches of passages and queries as NumPy arrays, there and back.

Only packed `byte[]` cross, one piece a batch. Java exceptions become the project's errors
here.
"""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparta.base.checks import is_number
from sparta.base.closing import Closing
from sparta.base.errors import (
    REBUILD_INDEX,
    IndexStateError,
    InputError,
    JavaError,
    NewerFormatError,
    SpartaError,
    StorageError,
)
from sparta.base.filters import Filter
from sparta.base.remedies import Option, Remedy, remedy
from sparta.data.languages import LANGUAGES, Language
from sparta.lucene import jvm
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

_SURELY_ROOM = 2**20
_MOST = 2**31 - 1
"""Java's largest int: no index holds more passages, and no search has use for more threads."""


class Bm25(NamedTuple):
    """BM25's parameters; the defaults are Pyserini's. They count in searching only: an index holds none."""

    k1: float = 0.9
    b: float = 0.4


def _analyzer(language: str | Language) -> str:
    """What Java calls the analyzer of a language."""
    if isinstance(language, Language):
        return language.analyzer
    if language not in LANGUAGES:
        raise InputError(f"unknown language {language!r}; known are {', '.join(LANGUAGES)}")
    return LANGUAGES[language].analyzer


def _parameters(bm25: Bm25 | None) -> Bm25:
    """BM25's parameters as Java takes them; whether it takes these numbers is its to say."""
    own = Bm25() if bm25 is None else bm25
    if not isinstance(own, Bm25) or not all(map(is_number, own)):
        raise InputError(f"expected Bm25(k1=…, b=…) of two numbers, found {own!r}")
    return Bm25(*map(float, own))


class ImpactWriter(Closing):
    """Writes passages with their impacts into one Lucene index folder; nothing lasts before `commit`.

    Indexing happens in Java threads behind a bounded queue: `add` returns when the batch is queued, and a
    failure shows at the next call. As a context manager it closes, and commits nothing.

    :param path: index folder, made when it is not there
    :param language: its analyzer reads the texts, which may be named by its code
    :param threads: indexing threads
    :param ram_buffer_mb: memory for impacts that are not flushed yet, and as much for everything else
    :param codec: of new segments: `fast`, the fastest to search, which needs sparta's jar, or `lucene`, which
        every Lucene reads
    :raises IndexStateError: another writer holds the folder, or what it holds cannot be opened.
    :raises StorageError: the folder may not be written.
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
        """Append to the vocabulary; the ids of its terms count on from 0.

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
        fields: Sequence[Sequence[bytes]] | None = None,
        update: bool = False,
    ) -> None:
        """Queue passages, waiting while the queue is full; a batch is refused as a whole.

        :param ids: n passage ids
        :param raws: n records to store
        :param texts: n texts for BM25
        :param positions: `(n,)` integers, the places in the corpus, which decide ties
        :param indptr: `(n + 1,)` integers; the postings of passage i are `[indptr[i], indptr[i+1])`
        :param term_ids: `(n_postings,)` integers
        :param impacts: `(n_postings,)` integers, 1 or more
        :param fields: of each passage its metadata, as `sparta.base.filters.term` gives it; None for none
        :param update: first remove what has the same ids; of several with one id in it the last remains
        :raises InputError: lengths that do not agree, an impact below 1, a term id outside the vocabulary.
        :raises JavaError: the batch does not fit into Java's memory.
        """
        own = [()] * len(ids) if fields is None else fields
        values = [value for of_one in own for value in of_one]
        packed = (
            pack_strings(ids),
            pack_strings(raws),
            pack_texts(texts),
            pack_integers(positions, np.int64, "positions"),
            pack_integers(indptr, np.int32, "indptr"),
            pack_integers(term_ids, np.int32, "term_ids"),
            pack_integers(impacts, np.int32, "impacts"),
            pack_bytes(values),
            pack_integers(np.cumsum([0, *map(len, own)]), np.int32, "ends of the fields"),
        )
        with _java(self.path, *packed):
            self._java.add(*packed, update)

    def delete(self, ids: Sequence[str]) -> int:
        """Delete passages by id and return how many there were."""
        packed = pack_strings(ids)
        with _java(self.path, packed):
            return int(self._java.delete(packed))

    def remove(self, ids: Sequence[str]) -> None:
        """Delete passages by id without counting them, which for many small deletions is much faster."""
        packed = pack_strings(ids)
        with _java(self.path, packed):
            self._java.remove(packed)

    def commit(self, user_data: str) -> None:
        """Wait for the queue, then make everything last together with this string."""
        with _java(self.path):
            self._java.commit(user_data)

    def force_merge(self, segments: int = 1) -> None:
        """Merge down to at most this many segments; lasts from the next commit on."""
        with _java(self.path):
            self._java.forceMerge(segments)

    def rollback(self) -> None:
        """Forget everything since the last commit, and close."""
        with _java(self.path):
            self._java.rollback()

    def close(self) -> None:
        """Let go of the folder; commits nothing. Closing again does nothing."""
        with _java(self.path):
            self._java.close()


class VectorReader:
    """Reads the impacts of lines of JSON vectors; terms are numbered over the life of the reader."""

    def __init__(self) -> None:
        with _java(Path()) as autoclass:
            self._java = autoclass("sparta.lucene.VectorReader")()

    def read(self, lines: Sequence[bytes]) -> ReadVectors:
        """Read lines; one whose vector is not as it should be is left to the caller, its span −1."""
        packed = pack_bytes(lines)
        with _java(Path(), packed):
            return unpack_vectors(_bytes(self._java.read(packed)))


class ImpactSearcher(Closing):
    """Searches what the last commit of an index folder held when this was opened.

    Order: score descending, then corpus position ascending. A score is Σ weight × impact, an integer: exact
    below 2^24, above it rounded to float32. Threads may share one.

    :param path: index folder
    :param language: analysis of text queries; the one the index was written with
    :param bm25: the parameters of BM25
    :raises IndexStateError: no index there, a damaged one or one of a newer Lucene.
    :raises InputError: k1 is negative, or b is not between 0 and 1.
    """

    def __init__(
        self, path: str | Path, *, language: str | Language = "en", bm25: Bm25 | None = None
    ) -> None:
        self.path = Path(path)
        analyzer, parameters = _analyzer(language), _parameters(bm25)
        with _java(self.path, reading=True) as autoclass:
            java = autoclass("sparta.lucene.ImpactSearcher")
            self._java = java(jvm.java_path(self.path), analyzer, *parameters)
        self._forgotten = weakref.finalize(self, _close_forgotten, self._java)
        self._forgotten.atexit = False

    @property
    def num_docs(self) -> int:
        """Number of live passages."""
        with self._reading():
            return int(self._java.numDocs())

    @property
    def user_data(self) -> str | None:
        """The string given to the commit; `None` when somebody else made it."""
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
        """Return the k best passages of each query by impacts, then those of each text by BM25.

        Of both together, the wait is that for the slower.

        :param threads: threads over queries; where there are queries and texts, twice as many work.
        :raises InputError: k is below 1; a weight is negative or not an integer; no passage has a field of
            the filter.
        """
        if not texts:
            return self.search_impacts(queries, k, threads, filter)
        if not queries:
            return self.search_text(texts, k, threads, filter)
        packed = pack_queries(queries), pack_texts(texts), _packed(filter)
        with self._reading(*packed):
            return unpack_hits(_bytes(self._java.searchBoth(*packed, *_ints(k, threads))))

    def search_impacts(
        self,
        queries: Sequence[Mapping[str, int]],
        k: int,
        threads: int = 1,
        filter: Filter | None = None,
    ) -> Hits:
        """Return the k best passages of each query, a mapping of terms to weights."""
        packed = pack_queries(queries), _packed(filter)
        with self._reading(*packed):
            return unpack_hits(_bytes(self._java.searchImpacts(*packed, *_ints(k, threads))))

    def search_text(
        self, queries: Sequence[str], k: int, threads: int = 1, filter: Filter | None = None
    ) -> Hits:
        """Return the k best passages of each query by BM25 over the texts."""
        packed = pack_texts(queries), _packed(filter)
        with self._reading(*packed):
            return unpack_hits(_bytes(self._java.searchText(*packed, *_ints(k, threads))))

    def matching(self, filter: Filter) -> npt.NDArray[np.bool_]:
        """Return which docids are live and kept by a filter, `(highest docid + 1,) bool`.

        :raises InputError: no passage has a field of the filter.
        """
        packed = _packed(filter)
        with self._reading(packed):
            bits = np.frombuffer(_bytes(self._java.matching(packed)), np.uint8)
        return np.unpackbits(bits, bitorder="little").view(np.bool_)

    def keys(self, docids: Integers, field: str) -> list[str | None]:
        """Return what passages have in a metadata field, as one text, None where nothing.

        :raises InputError: no passage has the field.
        """
        packed = pack_integers(docids, np.int32, "docids")
        with self._reading(packed):
            found = unpack_strings(_bytes(self._java.keys(packed, field)))
        return [key or None for key in found]

    def fields(self) -> list[str]:
        """Return the names of the metadata fields that passages have, sorted by their bytes."""
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

    def positions(self, docids: Integers) -> npt.NDArray[np.int64]:
        """Return corpus positions, `(n,) int64`."""
        packed = pack_integers(docids, np.int32, "docids")
        with self._reading(packed):
            return np.frombuffer(_bytes(self._java.positions(packed)), "<i8")

    def docids(self, ids: Sequence[str]) -> npt.NDArray[np.int32]:
        """Return docids, `(n,) int32`, −1 where there is no such passage."""
        packed = pack_strings(ids)
        with self._reading(packed):
            return np.frombuffer(_bytes(self._java.docids(packed)), "<i4")

    def sentences(self, passage_ids: Sequence[str]) -> list[str]:
        """Return the sentences p#0, p#1, … that the index holds of these passages, whichever are there."""
        packed = pack_strings(passage_ids)
        with self._reading(packed):
            return unpack_strings(_bytes(self._java.sentences(packed)))

    def live(self) -> npt.NDArray[np.int32]:
        """Return all live docids, `(num_docs,) int32`, ascending."""
        with self._reading():
            return np.frombuffer(_bytes(self._java.live()), "<i4")

    def impacts(self, docid: int, terms: Sequence[str]) -> npt.NDArray[np.int32]:
        """Return the impacts of some terms in one passage, `(n,) int32`, 0 where it lacks the term."""
        packed = pack_strings(terms)
        with self._reading(packed):
            return np.frombuffer(_bytes(self._java.impacts(int(docid), packed)), "<i4")

    def word_scores(self, text: str, docids: Integers) -> npt.NDArray[np.float32]:
        """Return what each different word of a text adds to passages' BM25 scores, `(n_docids, n_words)`."""
        packed = pack_integers(docids, np.int32, "docids")
        with self._reading(packed):
            scores = np.frombuffer(_bytes(self._java.wordScores(composed(text), packed)), "<f4")
        return scores.reshape(len(docids), -1)

    def word_places(self, query: str, text: str) -> list[tuple[int, int, int]]:
        """Return where words of a query stand in a text, as BM25 reads both: `(word, start, end)`.

        Words are numbered from 0 in the order of the query; start and end count in the text `composed`.
        """
        packed = pack_texts([query, text])
        with self._reading(packed):
            places = np.frombuffer(_bytes(self._java.wordPlaces(packed)), "<i4")
        return [(word, start, end) for word, start, end in places.reshape(-1, 3).tolist()]

    def vector(self, docid: int) -> dict[str, int]:
        """Return all terms of one passage with their impacts, in byte order. Reads the whole dictionary."""
        with self._reading():
            data = _bytes(self._java.vector(int(docid)))
        n = int(np.frombuffer(data, "<i4", 1)[0])
        impacts = np.frombuffer(data, "<i4", n, 4)
        return dict(zip(unpack_strings(data, 4 + 4 * n), impacts.tolist(), strict=True))

    def rank(self, query: Mapping[str, int], docid: int, filter: Filter | None = None) -> int:
        """Return the passage's place among all hits of the query, from 1; 0 when it is none of them."""
        packed = pack_queries([query]), _packed(filter)
        with self._reading(*packed):
            return int(self._java.rank(*packed, int(docid)))

    def postings(self, budget: int = 4_000_000) -> Iterator[TermPostings]:
        """Yield all impacts term by term, in pages of about `budget` postings, at least one term each."""
        after: list[str] = []
        while True:
            packed = pack_strings(after)
            with self._reading(packed):
                page = unpack_postings(_bytes(self._java.postings(packed, budget)))
            if not page.terms:
                return
            yield page
            after = page.terms[-1:]

    def close(self) -> None:
        """Close the reader. Closing again does nothing. One that nobody holds any more is closed too."""
        self._forgotten.detach()
        with self._reading():
            self._java.close()

    @contextmanager
    def _reading(self, *packed: bytes) -> Iterator[None]:
        with _java(self.path, *packed, reading=True):
            yield


def check_index(path: Path) -> str:
    """Return what Lucene's CheckIndex finds wrong with an index; "" if nothing. Every file is read.

    :raises IndexStateError: the index cannot be opened at all.
    """
    with _java(path, reading=True) as autoclass:
        return str(autoclass("sparta.lucene.IndexCheck").check(jvm.java_path(path)))


def _close_forgotten(java: Any) -> None:
    """Close a reader in Java that nothing in Python refers to: it would keep its files and memory."""
    with suppress(Exception):
        jvm.check_process()  # Java does not survive a fork: there, the call would hang
        if not sys.is_finalizing():
            jvm.enter_thread()
            java.close()


@lru_cache(64)
def _packed(filter: Filter | None) -> bytes:
    """A filter as Java reads it; nothing for none."""
    return pack_bytes(filter.packed()) if filter else b""


def _ints(*numbers: int) -> list[int]:
    """Counts as Java takes them: more than its largest int stands for as many as there are."""
    return [min(number, _MOST) for number in numbers]


def _bytes(array: Any) -> bytes:
    """Copy a Java `byte[]` in one piece."""
    return array.tostring()


@contextmanager
def _java(path: Path, *packed: bytes, reading: bool = False) -> Iterator[Any]:
    """Start Java if need be, give pyjnius's `autoclass`, and translate what Java throws.

    Java is asked first whether it has room for what is `packed` to be handed over: pyjnius would crash.
    """
    jvm.start_jvm()
    jvm.enter_thread()
    import jnius

    size = sum(map(len, packed))
    try:
        if size > _SURELY_ROOM:
            jnius.autoclass("sparta.lucene.MemoryCheck").check(size)
        yield jnius.autoclass
    except jnius.JavaException as thrown:
        raise translate(thrown, path, reading=reading) from thrown


def translate(thrown: Any, path: Path, *, reading: bool) -> SpartaError:
    """Turn a Java exception into the error that says what to do.

    :param thrown: `jnius.JavaException`
    :param path: the index folder it happened in
    :param reading: whether a reader met it: then a missing file means a damaged index, not an unwritable one.
    """
    causes = _causes(thrown)
    where = str(path)
    for name, message in reversed(causes):
        error = _known(name, message, where, reading)
        if error is not None:
            return error
    name, message = causes[-1]
    return JavaError(
        f"Java failed: {name}: {message}", where=where, remedy="sparta doctor looks for the reason"
    )


def _causes(thrown: Any) -> list[tuple[str, str]]:
    """Return class and message of the exception and of its causes, the root cause last."""
    lines = [str(line).strip() for line in thrown.stacktrace or ()]
    first = (str(thrown.classname), str(thrown.innermessage or ""))
    below = [lines[i + 1].partition(": ") for i, line in enumerate(lines[:-1]) if line == "Caused by:"]
    return [first, *((name, message) for name, _, message in below)]


def _known(name: str, message: str, where: str, reading: bool) -> SpartaError | None:
    """Recognize one exception by its class and, for the file system's, its words."""
    short = name.rpartition(".")[2]
    if short == "OutOfMemoryError":
        return JavaError(
            f"Java ran out of memory ({message})",
            where=where,
            remedy=f"give it more, as in {jvm.HEAP_VARIABLE}=8g, or use smaller batches or fewer threads",
        )
    if short == "UnsupportedOperationException" and "Thai" in message:
        return JavaError(
            f"this Java cannot find words in Thai: it lacks the module jdk.localedata ({message})",
            where=where,
            remedy=f"set {jvm.OWN_VARIABLE} to a JDK of version {jvm.OLDEST_JAVA} or newer, which has it",
        )
    if short in _STATES:
        found, advice = _STATES[short]
        kind = NewerFormatError if short == "IndexFormatTooNewException" else IndexStateError
        return kind(f"{found} ({message})", where=where, remedy=advice)
    if short == "IllegalArgumentException":
        advice = _NAMED_IN_JSON if _SIGN_IN_FIELDS.match(message) else ""
        return InputError(message, where=str(Path(where).parent) if reading else where, remedy=advice)
    if any(words in message for words in _NO_ROOM) or (short in _NOT_WRITABLE and not reading):
        return StorageError(
            f"the index cannot be written ({short}: {message})",
            where=where,
            remedy="free or choose a disk with room that may be written; what was committed is still there",
        )
    if _FAILED in message:
        return StorageError(
            f"the index cannot be {'read' if reading else 'written'} ({short}: {message})",
            where=where,
            remedy="the disk fails: look into the system log (dmesg); what was committed is still there",
        )
    if reading and short in _IMPOSSIBLE:
        return IndexStateError(
            f"the index is damaged: it holds what cannot be ({short}: {message})",
            where=where,
            remedy=_REBUILD,
        )
    if reading and short == "InternalError" and "memory access" in message:
        return IndexStateError(
            f"another program wrote into a file of the index while it was open ({message})",
            where=where,
            remedy="open the index again; to replace an index, rename a folder instead of copying into it",
        )
    if reading and short in _FILE_MISSING:
        return IndexStateError(
            f"a file of the index is missing or cut short ({message})", where=where, remedy=_REBUILD
        )
    return None


_REBUILD = REBUILD_INDEX
_STATES: dict[str, tuple[str, str | Remedy]] = {
    "LockObtainFailedException": (
        "another writer holds the index",
        "wait until it has finished, or end it; nothing was changed",
    ),
    "IndexNotFoundException": ("there is no Lucene index", REBUILD_INDEX),
    "IndexFormatTooNewException": (
        "the index was written by a newer Lucene",
        "use the version of sparta that wrote it",
    ),
    "IndexFormatTooOldException": ("the index was written by a Lucene too old to read", _REBUILD),
    "CorruptIndexException": ("the index is damaged", _REBUILD),
    "IllegalStateException": ("the index cannot be used", "open it again"),
    "AlreadyClosedException": ("the index is closed", "open it again"),
}
_NO_ROOM = ("No space left on device", "Disk quota exceeded", "Read-only file system", "File too large")
_FAILED = "Input/output error"
_SIGN_IN_FIELDS = re.compile(r"expected a metadata field of the passages \(.*[=<>].*\), found ", re.DOTALL)
_NAMED_IN_JSON = remedy(
    "write a condition on a name with =, < or > as JSON, as in {}", Option("filter", '{"a=b": "en"}')
)
_NOT_WRITABLE = (
    "AccessDeniedException",
    "FileSystemException",
    "NoSuchFileException",
    "NotDirectoryException",
    "FileAlreadyExistsException",
    "ReadOnlyFileSystemException",
)
_IMPOSSIBLE = ("ArrayIndexOutOfBoundsException", "IndexOutOfBoundsException")
_FILE_MISSING = ("NoSuchFileException", "FileNotFoundException", "EOFException")
