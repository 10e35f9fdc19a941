"""Exporting an index for other engines: Pyserini's JSON vectors, or the Common Index File Format."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from sparta.base.errors import FREE_TEMPORARY, InputError, StorageError
from sparta.base.files import atomic_path, atomic_write, storage_errors, temporary_files_folder
from sparta.base.remedies import Option, remedy
from sparta.export import ciff
from sparta.index.inputs.impact_batches import PAIR_MARK, searched_text
from sparta.lucene.bridge import ImpactSearcher
from sparta.lucene.packing import TermPostings
from sparta.search.searcher import Searcher

FORMATS = ("pyserini-json", "ciff")
_POSTING = np.dtype([("passage", "<i4"), ("term", "<i4"), ("impact", "<i4")])


class BlockSizes(NamedTuple):
    """How much is in memory at once: postings by term, postings by passage, and records of passages."""

    page_postings: int = 2_000_000
    block_postings: int = 2_000_000
    records: int = 1000


USUAL_SIZES = BlockSizes()


def export_index(
    searcher: Searcher, form: str, output: Path, sizes: BlockSizes = USUAL_SIZES
) -> tuple[int, int]:
    """Write all impacts of an index to one file, and return the numbers of passages and postings.

    `pyserini-json` writes one object per line, `{"id", "contents", "vector": {term: impact}}`. `ciff`
    writes the Common Index File Format, version 1, with impacts as term frequencies and their sum as
    passage length. The space in the term of a pair of words is written as `!`, because other engines split
    terms at spaces: `pair!3f2a`, a hash of the words, or `new!york` if the model's `pair_bits` is 0.
    Both formats keep the corpus order and omit deleted passages. A name that ends in .gz gives a gzip file.
    The same index gives the same bytes. The file appears only when it is complete. Memory use is a few
    numbers per passage, the terms, and a few million postings.

    :param form: one of `FORMATS`
    :raises InputError: the format is unknown, or cannot represent the index.
    :raises StorageError: the output cannot be written.
    """
    if form not in FORMATS:
        raise InputError(f"unknown export format {form!r}; known formats: {', '.join(FORMATS)}")
    if output.is_dir():
        raise InputError(
            "the output is a folder, not a file", where=str(output), remedy="name a file in this folder"
        )
    with searcher.reader.snapshot() as snapshot, atomic_path(output) as temporary:
        snapshot.require_impacts()
        contents = Contents.read(snapshot.lucene, joined if snapshot.tokenizer.lexical else str, sizes)
        with _opened(temporary, zipped=output.suffix == ".gz") as stream:
            if form == "ciff":
                _write_ciff(contents, stream, f"{snapshot.generation.model['name']}; {scale(searcher)}")
            else:
                # The disk of the output has room for a temporary file. A pipe has no disk.
                _write_json(contents, stream, temporary.parent if temporary.is_file() else None)
    return len(contents.docids), int(contents.sizes.sum())


def joined(term: str) -> str:
    """Return a term without spaces: a mark that no lexical term has joins the words of a pair.

    Like the space, the mark sorts before all characters that occur within a word.
    """
    return term.replace(" ", PAIR_MARK)


def scale(searcher: Searcher) -> str:
    """Describe in words which weights the exported integers stand for."""
    with searcher.reader.snapshot() as snapshot:
        impact_step, query_step = snapshot.quantizer.step, snapshot.tokenizer.step
    return f"an impact of 1 is a weight of {impact_step:.6g}, a query weight of 1 is {query_step:.6g}"


def export_query_weights(searcher: Searcher, output: Path) -> int:
    """Write the query-term weights of the vocabulary, and return the number of terms with a weight.

    The file is one JSON object, `{term: integer}`, without terms of weight 0. It is the query side of an
    index whose model has query-term weights; formats for postings cannot hold them. Each distinct query
    term counts once.

    :raises InputError: the index's model has no query-term weights, so terms count as often as they occur.
    :raises StorageError: the output cannot be written.
    """
    query_tokenizer = searcher.tokenizer
    if query_tokenizer.weights is None:
        raise InputError(
            "the model of the index has no query-term weights",
            where=str(searcher.reader.folder.path),
            remedy=remedy("omit {}", Option("query_weights")),
        )
    term_weights = (
        (query_tokenizer.tokenizer.id_to_token(i), weight)
        for i, weight in enumerate(query_tokenizer.weights.tolist())
    )
    weights = {term: weight for term, weight in term_weights if term is not None and weight}
    atomic_write(output, json.dumps(weights, ensure_ascii=False, indent=0).encode() + b"\n")
    return len(weights)


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
    """The passages of an index in corpus order, with their numbers of postings.

    A passage's rank is its corpus position.

    :param lucene: the index
    :param docids: `(n_passages,) int32`, Lucene's passage numbers by rank
    :param ranks: `(highest docid + 1,) int32`, ranks by Lucene's passage number
    :param sizes: `(n_passages,) int64`, numbers of postings
    :param sums: `(n_passages,) int64`, sums of impacts
    :param terms: the number of terms with postings
    :param highest: the highest impact
    :param named: returns the exported name of a term; it keeps the byte order
    :param at_once: how much is in memory at once
    """

    lucene: ImpactSearcher
    docids: npt.NDArray[np.int32]
    ranks: npt.NDArray[np.int32]
    sizes: npt.NDArray[np.int64]
    sums: npt.NDArray[np.int64]
    terms: int
    highest: int
    named: Callable[[str], str] = str
    at_once: BlockSizes = USUAL_SIZES

    @staticmethod
    def read(
        lucene: ImpactSearcher, named: Callable[[str], str] = str, at_once: BlockSizes = USUAL_SIZES
    ) -> Contents:
        """Sort the passages and count their postings, in one pass over all postings."""
        docids = lucene.in_corpus_order()
        ranks = np.zeros(int(docids.max(initial=-1)) + 1, np.int32)
        ranks[docids] = np.arange(len(docids), dtype=np.int32)
        sizes, sums = np.zeros((2, len(ranks)), np.int64)
        terms = highest = 0
        for page in lucene.postings(at_once.page_postings):
            np.add.at(sizes, page.docids, 1)
            np.add.at(sums, page.docids, page.impacts)
            terms += len(page.terms)
            highest = max(highest, int(page.impacts.max(initial=0)))
        return Contents(lucene, docids, ranks, sizes[docids], sums[docids], terms, highest, named, at_once)

    def pages(self) -> Iterator[TermPostings]:
        """Yield all postings term by term, in byte order of the terms.

        Docids are ranks, ascending within each term.
        """
        for page in self.lucene.postings(self.at_once.page_postings):
            ranks = self.ranks[page.docids]
            posting_terms = np.repeat(np.arange(len(page.terms)), np.diff(page.indptr))
            order = np.argsort(posting_terms << 32 | ranks)
            terms = [*map(self.named, page.terms)]
            yield TermPostings(terms, page.indptr, ranks[order], page.impacts[order])


# ---------------------------------------------------------------- Common Index File Format


def _write_ciff(contents: Contents, stream: BinaryIO, model: str) -> None:
    _check_lengths(contents)
    description = f"sparta; model: {model}; tf: impact; doclength: sum of impacts"
    stream.write(
        ciff.Header(contents.terms, len(contents.docids), int(contents.sums.sum()), description).encode()
    )
    for page in contents.pages():
        stream.writelines(ciff.postings_lists(page.terms, page.indptr, page.docids, page.impacts))
    batch = contents.at_once.records
    for begin in range(0, len(contents.docids), batch):
        ids = contents.lucene.ids(contents.docids[begin : begin + batch])
        lengths = contents.sums[begin : begin + batch].tolist()
        pairs = zip(ids, lengths, strict=True)
        stream.writelines(ciff.doc_record(rank, *pair) for rank, pair in enumerate(pairs, begin))


def _check_lengths(contents: Contents) -> None:
    if not len(contents.sums) or contents.sums.max() <= ciff.LARGEST:
        return
    longest = int(contents.sums.argmax())
    raise InputError(
        f"the impacts of {contents.lucene.ids(contents.docids[longest : longest + 1])[0]!r} add up to"
        f" {contents.sums[longest]:,}; the maximum of CIFF is {ciff.LARGEST:,}",
        remedy="export pyserini-json, or quantize to fewer bits",
    )


# ---------------------------------------------------------------- Pyserini's JSON vectors


def _write_json(contents: Contents, stream: BinaryIO, spool_folder: Path | None) -> None:
    for passage in read_passages(contents, spool_folder):
        vector = dict(zip(passage.terms, passage.impacts, strict=True))
        text = searched_text(json.loads(passage.raw))
        line = {"id": passage.passage_id, "contents": text, "vector": vector}
        stream.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")


# ---------------------------------------------------------------- passage by passage


class StoredPassage(NamedTuple):
    """A passage in an index: its record as JSON, and its terms in byte order with their impacts."""

    passage_id: str
    position: int
    raw: str
    terms: list[str]
    impacts: list[int]


def read_passages(contents: Contents, room: Path | None = None, first: int = 0) -> Iterator[StoredPassage]:
    """Yield the passages of an index in corpus order, from rank `first` on.

    :param room: a folder on a disk with space for all postings; None means the folder for temporary files
    """
    with _spool(room) as spool:
        blocks = Blocks.of(contents.sizes, contents.at_once.block_postings)
        terms = np.array(_spread(contents, blocks, spool), np.object_)
        for block, block_end in enumerate(blocks.edges[1:]):
            if block_end <= first:
                continue
            postings = blocks.load(block, spool)
            for begin in range(max(blocks.edges[block], first), block_end, contents.at_once.records):
                end = min(begin + contents.at_once.records, block_end)
                block_range = slice(*np.searchsorted(postings["passage"], (begin, end)))
                yield from _stored(contents, begin, end, postings[block_range], terms)


@contextmanager
def _spool(folder: Path | None) -> Iterator[BinaryIO]:
    """Open a temporary file in a folder; errors such as a full disk name this folder."""
    place = folder or temporary_files_folder()
    try:
        with storage_errors(place), tempfile.TemporaryFile(dir=place) as spool:
            yield cast(BinaryIO, spool)
    except StorageError as error:
        if folder is None:
            error.remedy = FREE_TEMPORARY
        raise


def _stored(
    contents: Contents, begin: int, end: int, postings: npt.NDArray[np.void], terms: npt.NDArray[np.object_]
) -> Iterator[StoredPassage]:
    """Yield the passages with ranks from `begin` to `end`, from their postings."""
    docids = contents.docids[begin:end]
    passage_terms, impacts = terms[postings["term"]].tolist(), postings["impact"].tolist()
    ids, raws = contents.lucene.ids(docids), contents.lucene.raws(docids)
    positions = contents.lucene.positions(docids).tolist()
    end_posting = 0
    for row, size in enumerate(contents.sizes[begin:end].tolist()):
        begin_posting, end_posting = end_posting, end_posting + size
        yield StoredPassage(
            ids[row],
            positions[row],
            raws[row],
            passage_terms[begin_posting:end_posting],
            impacts[begin_posting:end_posting],
        )


def _spread(contents: Contents, blocks: Blocks, spool: BinaryIO) -> list[str]:
    """Write all postings to the blocks of their passages, and return the terms."""
    terms: list[str] = []
    for page in contents.lucene.postings(contents.at_once.page_postings):
        postings = np.empty(len(page.docids), _POSTING)
        postings["passage"] = contents.ranks[page.docids]
        postings["term"] = np.repeat(np.arange(len(page.terms)) + len(terms), np.diff(page.indptr))
        postings["impact"] = page.impacts
        blocks.store(postings, spool)
        terms += map(contents.named, page.terms)
    return terms


@dataclass(frozen=True, slots=True)
class Blocks:
    """Regions of a file that regroup postings from terms to passages, on disk.

    Each posting is written and read once. Block b holds the postings of the passages with ranks `[edges[b],
    edges[b+1])`.

    :param block_of: `(n_passages,) int`, the block of each rank
    :param starts: `(n_blocks + 1,) int64`, the number of postings before each block
    :param filled: `(n_blocks,) int64`, the position for the next posting of each block
    """

    edges: list[int]
    block_of: npt.NDArray[np.integer]
    starts: npt.NDArray[np.int64]
    filled: npt.NDArray[np.int64]

    @staticmethod
    def of(sizes: npt.NDArray[np.int64], max_postings: int) -> Blocks:
        """Group passages into blocks of at most `max_postings` postings, but of at least one passage.

        :param sizes: `(n_passages,) int64`, the number of postings of each passage
        """
        postings_before = np.concatenate(([0], np.cumsum(sizes)))
        edges = [0]
        while edges[-1] < len(sizes):
            next_edge = (
                int(np.searchsorted(postings_before, postings_before[edges[-1]] + max_postings, "right")) - 1
            )
            edges.append(max(next_edge, edges[-1] + 1))
        # The smallest integer type, since NumPy sorts 16-bit integers in linear time.
        numbers = np.arange(len(edges) - 1, dtype=np.min_scalar_type(len(edges)))
        return Blocks(
            edges, np.repeat(numbers, np.diff(edges)), postings_before[edges], postings_before[edges[:-1]]
        )

    def store(self, postings: npt.NDArray[np.void], spool: BinaryIO) -> None:
        """Append postings of any passages to the blocks of their passages."""
        blocks = self.block_of[postings["passage"]]
        postings = postings[np.argsort(blocks, kind="stable")]
        counts = np.bincount(blocks, minlength=len(self.filled))
        first = 0
        for block in np.flatnonzero(counts):
            spool.seek(int(self.filled[block]) * _POSTING.itemsize)
            spool.write(postings[first : first + counts[block]].tobytes())
            first += counts[block]
        self.filled[:] += counts

    def load(self, block: int, spool: BinaryIO) -> npt.NDArray[np.void]:
        """Read a block's postings, sorted by passage and term."""
        begin, end = (int(start) * _POSTING.itemsize for start in self.starts[block : block + 2])
        spool.seek(begin)
        postings = np.frombuffer(spool.read(end - begin), _POSTING)
        return postings[np.argsort(postings["passage"].astype(np.int64) << 32 | postings["term"])]
