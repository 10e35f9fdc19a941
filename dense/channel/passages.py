"""Reads the live passages of a Lucene index in corpus order, for the dense channel."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import batched
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dense.search.store import Hashes, Rows, record_hashes, sentence_hashes
from sparta.base.closing import Closing
from sparta.base.files import storage_errors
from sparta.base.records import Passage
from sparta.data.languages import DEFAULT_LANGUAGE, Language, folded, language_of
from sparta.data.units import context_of, is_sentence_of_passage
from sparta.index.folder import lost_commit
from sparta.index.generation import Generation
from sparta.index.inputs.impact_batches import stored_title
from sparta.index.snapshot import replaced, retry_if_replaced, segments_of
from sparta.lucene.bridge import ImpactSearcher
from sparta.search.contexts import whole_texts

_RECORDS_PER_BLOCK = 128
"""The number of records that are hashed together."""
BLOCK_SIZE = 32 << 20
"""A block ends when its records have this many characters. So blocks of long passages fit in memory."""


def commit_of(path: Path) -> str:
    """Return the name of a Lucene folder's last commit (name and hash of its segments file), without Java."""
    with storage_errors(path):
        newest = segments_of(path)
    if newest is None:
        raise lost_commit(path)
    number, segments = newest
    # `segments` is None if a writer deleted the file between the listing and the reading: list again.
    return commit_of(path) if segments is None else commit_name(number, segments)


def commit_name(number: int, segments: bytes) -> str:
    """Return the name of a commit, from its number and the content of its file segments_N."""
    name = f"segments_{np.base_repr(number, 36).lower()}"
    return f"{name}-{int(record_hashes([segments.hex()])[0]):016x}"


def folding_language(generation: Generation) -> str:
    """Return the code of a language that folds texts as an index does.

    The code differs from the index's language if an older release built the index, which folds no texts.
    """
    is_folded = language_of(generation.language).fold == generation.analysis.fold
    return generation.language if is_folded else DEFAULT_LANGUAGE


class LivePassages(Closing):
    """The live passages of a Lucene index, in corpus order.

    `docids (n,) int32` are Lucene's document numbers, `positions (n,) int64` the positions in the corpus.
    `commit` is the name of the commit, empty unless `open` made the object.
    """

    def __init__(self, lucene: ImpactSearcher, language: str | Language, commit: str = "") -> None:
        self._language = language_of(language) if isinstance(language, str) else language
        self.lucene, self.commit = lucene, commit
        live_docids = lucene.live()
        positions = lucene.positions(live_docids)
        order = np.argsort(positions, kind="stable")
        self.docids: npt.NDArray[np.int32] = live_docids[order]
        self.positions: Rows = positions[order]

    @classmethod
    def open(cls, path: Path, language: str | Language) -> LivePassages:
        """Open the last commit of a Lucene folder."""

        def read(commit: str) -> LivePassages:
            lucene = ImpactSearcher(path, language=language)
            if commit_of(path) != commit:  # the searcher may read a later commit
                lucene.close()
                raise replaced(path)
            return cls(lucene, language, commit)

        return retry_if_replaced(read, lambda: commit_of(path), commit_of(path), path)

    def __len__(self) -> int:
        return len(self.docids)

    def hashes(self, unit: str) -> Hashes:
        """Return a hash of each stored record, `(n,) uint64`. Reads all records.

        The encoder reads a sentence together with its passage, so a sentence's hash also depends on the other
        sentences of the passage.
        """
        record_parts, sentence_parts = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
        passage_numbers: dict[str, int] = {}
        passage_number_of_row: list[int] = []
        for raws in batched(self.lucene.records(self.docids.tolist()), _RECORDS_PER_BLOCK):
            record_parts.append(record_hashes(raws))
            if unit == "sentence":
                records = [json.loads(raw) for raw in raws]
                sentence_keys = ((record.get("start"), record["contents"]) for record in records)
                sentence_parts.append(sentence_hashes(sentence_keys))
                for record in records:
                    number = -1
                    if is_sentence_of_passage(record):
                        passage_id = str(record["passage_id"])
                        number = passage_numbers.setdefault(passage_id, len(passage_numbers))
                    passage_number_of_row.append(number)
        hashes = np.concatenate(record_parts)
        if passage_numbers:
            passage_of_row = np.array(passage_number_of_row)
            in_passage, sums = passage_of_row >= 0, np.zeros(len(passage_numbers), np.uint64)
            np.add.at(sums, passage_of_row[in_passage], np.concatenate(sentence_parts)[in_passage])
            hashes[in_passage] += sums[passage_of_row[in_passage]]
        return hashes

    def blocks(
        self, docids: npt.NDArray[np.int32], *, context: bool, block_size: int = BLOCK_SIZE
    ) -> Iterator[list[Passage]]:
        """Read passages in blocks, and normalize their text as the index's language does.

        :param context: read each sentence together with the text of its passage
        :param block_size: a block ends when its records have this many characters
        """
        block: list[str] = []
        size = 0
        for raw in self.lucene.records(docids.tolist()):
            block.append(raw)
            size += len(raw)
            if size >= block_size:
                yield self._passages(block, context=context)
                block, size = [], 0
        if block:
            yield self._passages(block, context=context)

    def _passages(self, raws: Sequence[str], *, context: bool) -> list[Passage]:
        """Return the passages of stored records."""
        records = [json.loads(raw) for raw in raws]
        passage_ids = (
            record["passage_id"] for record in records if context and is_sentence_of_passage(record)
        )
        texts = whole_texts(self.lucene, passage_ids)
        return [folded(_passage(record, texts), self._language) for record in records]

    def close(self) -> None:
        """Close the reader."""
        self.lucene.close()


def _passage(record: dict[str, Any], contexts: dict[str, str]) -> Passage:
    """Return the passage of a stored record, with its context.

    :param contexts: texts of passages by passage id: the contexts of their sentences
    """
    if is_sentence_of_passage(record):
        record = {**record, "context": contexts.get(record["passage_id"])}
    context = context_of(record)
    start, end = (record["start"], record["end"]) if context else (0, 0)
    return Passage(str(record["id"]), str(record["contents"]), stored_title(record), context, start, end)
