"""Streams of passages from records in memory, and of a part of a corpus."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sparta.base.files import caller_errors
from sparta.base.records import Passage
from sparta.data.formats.fields import USUAL_FIELDS, Fields
from sparta.data.formats.irds import is_irds
from sparta.data.formats.objects import columns_of, is_rereadable, row_count, rows_of
from sparta.data.formats.reading import RECORDS, Outcome, record_outcomes
from sparta.data.parsing import TEXT_FIELDS
from sparta.data.readers.corpus_reader import CorpusReader

type Record = str | Mapping[str, Any] | Passage
"""A passage in memory: a text, a dictionary of record fields (docs/formats.md), or a Passage."""


class RecordReader(CorpusReader):
    """A stream of passages from records in memory.

    The checks are the same as for files. An iterator is read only once. Records in memory have no
    fingerprint, so an index cannot recognize them later.
    """

    def __init__(
        self, records: Iterable[Record], *, skip_invalid: bool = False, fields: Fields = USUAL_FIELDS
    ) -> None:
        super().__init__(RECORDS, skip_invalid=skip_invalid, fields=fields)
        self._records = records

    @property
    def size(self) -> tuple[int | None, bool]:
        """The number of records (None if unknown), and False: the size is not in bytes."""
        return row_count(self._records), False

    @property
    def is_rereadable(self) -> bool:
        """Whether the records can be read twice. An iterator cannot."""
        return is_rereadable(self._records)

    def _outcomes(self) -> Iterator[tuple[int, Outcome]]:
        if columns := columns_of(self._records):
            self.fields.check_columns(columns, self.source)
        for number, record in enumerate(self._rows()):
            self._tally.size = number + 1
            for outcome in record_outcomes(record, number, self.fields):
                yield len(outcome.text) if isinstance(outcome, Passage) else 0, outcome

    def _rows(self) -> Iterator[Any]:
        with caller_errors():
            yield from rows_of(self._records, self.fields.text or TEXT_FIELDS)


class PartOfCorpus(RecordReader):
    """The passages of a corpus with these ids. The index names the whole corpus as their source.

    `ids_read` holds the ids of the passages that were read; the corpus may have lost others meanwhile.

    :param whole: the reader of the corpus
    """

    def __init__(self, whole: CorpusReader, passage_ids: Container[str]) -> None:
        super().__init__(self._passages(whole, passage_ids))
        self.ids_read = set[str]()
        self.fields, self.query = whole.fields, whole.query
        self._whole = whole
        self.source = whole.source
        self._has_warned = True  # the reader of the corpus warns

    def _rows(self) -> Iterator[Any]:
        yield from self._records  # the errors are those of files, not of a caller's iterator

    def _passages(self, whole: CorpusReader, passage_ids: Container[str]) -> Iterator[Passage]:
        for passage in whole:
            if passage.passage_id in passage_ids:
                self.ids_read.add(passage.passage_id)
                yield passage

    def identity(self) -> dict[str, Any]:
        """Return the path of the corpus, without a hash: an index must not take the part for the whole."""
        source = self._whole.source
        named = source if is_irds(source) else str(Path(source).resolve())
        return {**super().identity(), "source": named}
