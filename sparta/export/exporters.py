"""Handing an index to another engine: Pyserini's JSON vectors, or the Common Index File Format."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from sparta.base.errors import FREE_TEMPORARY, InputError, StorageError
from sparta.base.files import atomic_path, atomic_write, storage_errors
from sparta.base.remedies import Option, remedy
from sparta.export import ciff
from sparta.index.impact_batches import searched_text
from sparta.lucene.bridge import ImpactSearcher
from sparta.lucene.packing import TermPostings
from sparta.search.searcher import Searcher

FORMATS = ("pyserini-json", "ciff")
PAGE_POSTINGS = 2_000_000
BLOCK_POSTINGS = 2_000_000
BATCH = 1000
_POSTING = np.dtype([("passage", "<i4"), ("term", "<i4"), ("impact", "<i4")])


def export_index(searcher: Searcher, form: str, output: Path) -> tuple[int, int]:
    """Write all impacts of an index into one file and return how many passages and postings it holds.

    `pyserini-json`: one object a line, `{"id", "contents", "vector": {term: impact}}`. `ciff`: the Common
    Index File Format, version 1, with impacts as term frequencies and their sum as the length of a passage.
    Both are in the order of the corpus, whatever the segments, leave out what was deleted, and are gzipped
    when the name ends in .gz; the same index gives the same bytes. The file is there whole or not at all.
    Memory holds a few numbers a passage and a few million postings.

    :param form: one of `FORMATS`
    :raises InputError: the format is unknown, or cannot say what the index holds.
    :raises StorageError: the output may not be written.
    """
    if form not in FORMATS:
        raise InputError(f"expected a format of {', '.join(FORMATS)}, found {form!r}")
    if output.is_dir():
        raise InputError(
            "expected a file to write, found a folder", where=str(output), remedy="name a file in it"
        )
    with searcher.reader.reading() as snapshot, atomic_path(output) as temporary:
        snapshot.require_impacts()
        contents = Contents.read(snapshot.lucene)
        with _opened(temporary, zipped=output.suffix == ".gz") as stream:
            if form == "ciff":
                _write_ciff(contents, stream, f"{snapshot.generation.model['name']}; {scale(searcher)}")
            else:
                # The disk that takes the output has room for its postings; beside a pipe there is none.
                _write_json(contents, stream, temporary.parent if temporary.is_file() else None)
    return len(contents.docids), int(contents.sizes.sum())


def scale(searcher: Searcher) -> str:
    """Return what the integers of an export stand for, as text."""
    with searcher.reader.reading() as snapshot:
        impact, query = snapshot.quantizer.step, snapshot.tokenizer.step
    return f"an impact of 1 is a weight of {impact:.6g}, a query weight of 1 is {query:.6g}"


def export_query_weights(searcher: Searcher, output: Path) -> int:
    """Write the query-term weights of the vocabulary and return how many terms have one.

    One JSON object, `{term: integer}`, without terms that count nothing: the query side of an index whose
    model has such weights, which no format for postings holds. A distinct query term counts once.

    :raises InputError: in this index every term counts as often as a question has it.
    :raises StorageError: the output may not be written.
    """
    side = searcher.tokenizer
    if side.weights is None:
        raise InputError(
            "expected a model with query-term weights, found one without",
            where=str(searcher.reader.folder.path),
            remedy=remedy("leave {} out", Option("query_weights")),
        )
    named = ((side.tokenizer.id_to_token(i), weight) for i, weight in enumerate(side.weights.tolist()))
    known = {term: weight for term, weight in named if term is not None and weight}
    atomic_write(output, json.dumps(known, ensure_ascii=False, indent=0).encode() + b"\n")
    return len(known)


@contextmanager
def _opened(path: Path, *, zipped: bool) -> Iterator[BinaryIO]:
    with path.open("wb") as plain:
        if not zipped:
            yield plain
            return
        with gzip.GzipFile("", "wb", compresslevel=3, fileobj=plain, mtime=0) as stream:
            yield cast(BinaryIO, stream)


@dataclass(frozen=True, slots=True)
class Contents:
    """The passages of an index in corpus order, and how much each holds; a passage's place in it is its rank.

    :param lucene: the index
    :param docids: `(n_passages,) int32`, Lucene's numbers by rank
    :param ranks: `(highest docid + 1,) int32`, the ranks by Lucene's number
    :param sizes: `(n_passages,) int64`, postings
    :param sums: `(n_passages,) int64`, summed impacts
    :param terms: how many terms have postings
    :param highest: the highest impact
    """

    lucene: ImpactSearcher
    docids: npt.NDArray[np.int32]
    ranks: npt.NDArray[np.int32]
    sizes: npt.NDArray[np.int64]
    sums: npt.NDArray[np.int64]
    terms: int
    highest: int

    @staticmethod
    def read(lucene: ImpactSearcher) -> Contents:
        """Put the passages in order and count, in one pass over all postings."""
        live = lucene.live()
        docids = live[np.argsort(lucene.positions(live), kind="stable")]
        ranks = np.zeros(int(live[-1]) + 1 if len(live) else 0, np.int32)
        ranks[docids] = np.arange(len(docids), dtype=np.int32)
        sizes, sums = np.zeros((2, len(ranks)), np.int64)
        terms = highest = 0
        for page in lucene.postings(PAGE_POSTINGS):
            np.add.at(sizes, page.docids, 1)
            np.add.at(sums, page.docids, page.impacts)
            terms += len(page.terms)
            highest = max(highest, int(page.impacts.max(initial=0)))
        return Contents(lucene, docids, ranks, sizes[docids], sums[docids], terms, highest)

    def pages(self) -> Iterator[TermPostings]:
        """Yield all postings term by term, terms in byte order; docids are ranks, ascending in each term."""
        for page in self.lucene.postings(PAGE_POSTINGS):
            ranks = self.ranks[page.docids]
            term = np.repeat(np.arange(len(page.terms)), np.diff(page.indptr))
            order = np.argsort(term << 32 | ranks)
            yield TermPostings(page.terms, page.indptr, ranks[order], page.impacts[order])


# ---------------------------------------------------------------- Common Index File Format


def _write_ciff(contents: Contents, stream: BinaryIO, model: str) -> None:
    _check_lengths(contents)
    about = f"sparta; model: {model}; tf: impact; doclength: sum of impacts"
    stream.write(ciff.Header(contents.terms, len(contents.docids), int(contents.sums.sum()), about).encode())
    for page in contents.pages():
        stream.writelines(ciff.postings_lists(page.terms, page.indptr, page.docids, page.impacts))
    for begin in range(0, len(contents.docids), BATCH):
        ids = contents.lucene.ids(contents.docids[begin : begin + BATCH])
        lengths = contents.sums[begin : begin + BATCH].tolist()
        pairs = zip(ids, lengths, strict=True)
        stream.writelines(ciff.doc_record(rank, *pair) for rank, pair in enumerate(pairs, begin))


def _check_lengths(contents: Contents) -> None:
    if not len(contents.sums) or contents.sums.max() <= ciff.LARGEST:
        return
    longest = int(contents.sums.argmax())
    raise InputError(
        f"expected passages whose impacts add up to at most {ciff.LARGEST:,}, what CIFF can say; found"
        f" {contents.sums[longest]:,} in {contents.lucene.ids(contents.docids[longest : longest + 1])[0]!r}",
        remedy="export pyserini-json, or quantize to fewer bits",
    )


# ---------------------------------------------------------------- Pyserini's JSON vectors


def _write_json(contents: Contents, stream: BinaryIO, room: Path | None) -> None:
    for passage in read_passages(contents, room):
        vector = dict(zip(passage.terms, passage.impacts, strict=True))
        text = searched_text(json.loads(passage.raw))
        line = {"id": passage.passage_id, "contents": text, "vector": vector}
        stream.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")


# ---------------------------------------------------------------- passage by passage


class StoredPassage(NamedTuple):
    """A passage as an index holds it: its record as JSON, its terms in byte order and their impacts."""

    passage_id: str
    position: int
    raw: str
    terms: list[str]
    impacts: list[int]


def read_passages(contents: Contents, room: Path | None = None, first: int = 0) -> Iterator[StoredPassage]:
    """Yield the passages of an index in corpus order, from rank `first` on.

    :param room: a folder on a disk that has room for all postings; None is the folder for temporary files
    """
    with _spool(room) as spool:
        blocks = Blocks.of(contents.sizes, BLOCK_POSTINGS)
        names = np.array(_spread(contents, blocks, spool), np.object_)
        for block, edge in enumerate(blocks.edges[1:]):
            if edge <= first:
                continue
            postings = blocks.load(block, spool)
            for begin in range(max(blocks.edges[block], first), edge, BATCH):
                end = min(begin + BATCH, edge)
                some = slice(*np.searchsorted(postings["passage"], (begin, end)))
                yield from _stored(contents, begin, end, postings[some], names)


@contextmanager
def _spool(room: Path | None) -> Iterator[BinaryIO]:
    """A temporary file in a folder; a disk that is full is told as that of this folder."""
    try:
        with storage_errors(room or tempfile.gettempdir()), tempfile.TemporaryFile(dir=room) as spool:
            yield cast(BinaryIO, spool)
    except StorageError as error:
        if room is None:
            error.remedy = FREE_TEMPORARY
        raise


def _stored(
    contents: Contents, begin: int, end: int, postings: npt.NDArray[np.void], names: npt.NDArray[np.object_]
) -> Iterator[StoredPassage]:
    """Yield the passages of these ranks, given their postings."""
    docids = contents.docids[begin:end]
    terms, impacts = names[postings["term"]].tolist(), postings["impact"].tolist()
    ids, raws = contents.lucene.ids(docids), contents.lucene.raws(docids)
    positions = contents.lucene.positions(docids).tolist()
    last = 0
    for row, size in enumerate(contents.sizes[begin:end].tolist()):
        first, last = last, last + size
        yield StoredPassage(ids[row], positions[row], raws[row], terms[first:last], impacts[first:last])


def _spread(contents: Contents, blocks: Blocks, spool: BinaryIO) -> list[str]:
    """Write all postings into the blocks of their passages, and return the terms."""
    names: list[str] = []
    for page in contents.lucene.postings(PAGE_POSTINGS):
        postings = np.empty(len(page.docids), _POSTING)
        postings["passage"] = contents.ranks[page.docids]
        postings["term"] = np.repeat(np.arange(len(page.terms)) + len(names), np.diff(page.indptr))
        postings["impact"] = page.impacts
        blocks.store(postings, spool)
        names += page.terms
    return names


@dataclass(frozen=True, slots=True)
class Blocks:
    """Places in a file for the postings of neighboring passages: how terms are turned into passages on disk.

    Each posting is written and read once. Block b has the passages of ranks `[edges[b], edges[b+1])`.

    :param block_of: `(n_passages,) int`, the block by rank
    :param starts: `(n_blocks + 1,) int64`, how many postings lie before each block
    :param filled: `(n_blocks,) int64`, where the next posting of each block goes
    """

    edges: list[int]
    block_of: npt.NDArray[np.integer]
    starts: npt.NDArray[np.int64]
    filled: npt.NDArray[np.int64]

    @staticmethod
    def of(sizes: npt.NDArray[np.int64], most: int) -> Blocks:
        """Cut passages of these sizes into blocks of at most `most` postings, but at least one passage."""
        before = np.concatenate(([0], np.cumsum(sizes)))
        edges = [0]
        while edges[-1] < len(sizes):
            fits = int(np.searchsorted(before, before[edges[-1]] + most, "right")) - 1
            edges.append(max(fits, edges[-1] + 1))
        # The smallest type: NumPy sorts 16 bits in linear time.
        numbers = np.arange(len(edges) - 1, dtype=np.min_scalar_type(len(edges)))
        return Blocks(edges, np.repeat(numbers, np.diff(edges)), before[edges], before[edges[:-1]])

    def store(self, postings: npt.NDArray[np.void], spool: BinaryIO) -> None:
        """Write postings of any passages, behind what is in their blocks already."""
        of = self.block_of[postings["passage"]]
        postings = postings[np.argsort(of, kind="stable")]
        counts = np.bincount(of, minlength=len(self.filled))
        first = 0
        for block in np.flatnonzero(counts):
            spool.seek(int(self.filled[block]) * _POSTING.itemsize)
            spool.write(postings[first : first + counts[block]].tobytes())
            first += counts[block]
        self.filled[:] += counts

    def load(self, block: int, spool: BinaryIO) -> npt.NDArray[np.void]:
        """Read a block, passage by passage, terms ascending."""
        begin, end = (int(start) * _POSTING.itemsize for start in self.starts[block : block + 2])
        spool.seek(begin)
        postings = np.frombuffer(spool.read(end - begin), _POSTING)
        return postings[np.argsort(postings["passage"].astype(np.int64) << 32 | postings["term"])]
