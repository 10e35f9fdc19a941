"""A stream of the documents of a dataset of ir_datasets."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from sparta.base.records import Passage
from sparta.data.formats.fields import USUAL_FIELDS, Fields
from sparta.data.formats.irds import check_irds, document_count, irds_documents
from sparta.data.formats.reading import Outcome, object_outcomes
from sparta.data.formats.sqlite import no_database
from sparta.data.readers.corpus_reader import CorpusReader


class IrdsReader(CorpusReader):
    """A stream of the documents of a dataset of ir_datasets, such as `irds:beir/scifact`.

    ir_datasets downloads the files at the first use, and checks their published hashes. So the name
    identifies the content, and the fingerprint is a hash of the name.

    :raises InputError: the dataset is unknown or has no documents.
    """

    def __init__(
        self,
        source: str,
        *,
        skip_invalid: bool = False,
        fields: Fields = USUAL_FIELDS,
        query: str | None = None,
    ) -> None:
        super().__init__(source, skip_invalid=skip_invalid, fields=fields, query=query)
        if query is not None:
            raise no_database(source)
        check_irds(source, "docs")

    @property
    def size(self) -> tuple[int | None, bool]:
        """The number of documents (None if unknown), and False: the size is not in bytes."""
        return document_count(self.source), False

    @property
    def is_rereadable(self) -> bool:
        """True: ir_datasets keeps the documents on disk."""
        return True

    def identity(self) -> dict[str, Any]:
        """Return the name of the dataset, and the hash of the name."""
        return {"source": self.source, "bytes": None, "sha256": sha256(self.source.encode()).hexdigest()}

    def _outcomes(self) -> Iterator[tuple[int, Outcome]]:
        for number, record in enumerate(irds_documents(self.source), 1):
            self._tally.size = number
            for outcome in object_outcomes(record, f"{self.source}:{number}", self.fields):
                yield len(outcome.text) if isinstance(outcome, Passage) else 0, outcome
