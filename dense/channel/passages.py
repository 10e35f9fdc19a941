"""The live passages of a Lucene index, in corpus order: what a dense channel has to hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dense.search.store import Hashes, Rows, record_hashes, sentence_hashes
from sparta.base.closing import Closing
from sparta.base.files import storage_errors
from sparta.base.records import Passage
from sparta.data.languages import Language, folded, language_of
from sparta.index.folder import lost_commit
from sparta.index.impact_batches import stored_title
from sparta.index.snapshot import segments_of
from sparta.lucene.bridge import ImpactSearcher
from sparta.search.contexts import is_sentence, passages_of

BLOCK = 4096


def commit_of(path: Path) -> str:
    """Name the last commit of a Lucene folder, without Java: its file and what tells it from all others."""
    with storage_errors(path):
        newest = segments_of(path)
    if newest is None:
        raise lost_commit(path)
    number, segments = newest
    return commit_of(path) if segments is None else commit_name(number, segments)  # a writer replaced it


def commit_name(number: int, segments: bytes) -> str:
    """Name a commit by its number and the content of its file segments_N."""
    name = f"segments_{np.base_repr(number, 36).lower()}"
    return f"{name}-{int(record_hashes([segments.hex()])[0]):016x}"


class LivePassages(Closing):
    """The passages that Lucene's reader holds, in corpus order.

    `docids (n,) int32` are Lucene's numbers, `positions (n,) int64` the places in the corpus, `commit` the
    name of what is read, where `open` opened it.
    """

    def __init__(self, lucene: ImpactSearcher, language: str | Language, commit: str = "") -> None:
        self._language = language_of(language) if isinstance(language, str) else language
        self.lucene, self.commit = lucene, commit
        live = lucene.live()
        positions = lucene.positions(live)
        order = np.argsort(positions, kind="stable")
        self.docids: npt.NDArray[np.int32] = live[order]
        self.positions: Rows = positions[order]

    @classmethod
    def open(cls, path: Path, language: str | Language) -> LivePassages:
        """Open the last commit of a Lucene folder."""
        commit = commit_of(path)
        lucene = ImpactSearcher(path, language=language)
        while commit != (again := commit_of(path)):  # one fell between: which of them was opened?
            commit = again
            lucene.close()
            lucene = ImpactSearcher(path, language=language)
        return cls(lucene, language, commit)

    def __len__(self) -> int:
        return len(self.docids)

    def hashes(self, unit: str) -> Hashes:
        """`(n,) uint64`: hashes of all stored records; reads them all.

        A sentence is read in its passage: its hash is another one when any sentence of the passage is.
        """
        of_records, of_sentences = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
        passages: dict[str, int] = {}
        passage_of: list[int] = []
        for start in range(0, len(self), BLOCK):
            raws = self.lucene.raws(self.docids[start : start + BLOCK])
            of_records.append(record_hashes(raws))
            if unit == "sentence":
                records = [json.loads(raw) for raw in raws]
                of_sentences.append(sentence_hashes((r.get("start"), r["contents"]) for r in records))
                for record in records:
                    named = str(record["passage_id"]) if is_sentence(record) else None
                    passage_of.append(-1 if named is None else passages.setdefault(named, len(passages)))
        hashes = np.concatenate(of_records)
        if passages:
            number = np.array(passage_of)
            inside, sums = number >= 0, np.zeros(len(passages), np.uint64)
            np.add.at(sums, number[inside], np.concatenate(of_sentences)[inside])
            hashes[inside] += sums[number[inside]]
        return hashes

    def passages(self, docids: npt.NDArray[np.int32], *, context: bool) -> list[Passage]:
        """Read passages, folded, as an encoder wants them; with `context`, sentences in their passage."""
        records = [json.loads(raw) for raw in self.lucene.raws(docids)]
        texts = passages_of(self.lucene, (r["passage_id"] for r in records if context and is_sentence(r)))
        return [folded(_passage(record, texts), self._language) for record in records]

    def close(self) -> None:
        """Close the reader."""
        self.lucene.close()


def _passage(record: dict[str, Any], contexts: dict[str, str]) -> Passage:
    """A stored record as a passage; its context is the one it names or the text of its passage."""
    text = str(record["contents"])
    context = str(record.get("context") or contexts.get(str(record.get("passage_id")), ""))
    start, end = record.get("start"), record.get("end")
    if not context or not isinstance(start, int) or context[start:end] != text:
        context, start, end = "", 0, 0
    return Passage(str(record["id"]), text, stored_title(record), context, start, int(end or 0))
