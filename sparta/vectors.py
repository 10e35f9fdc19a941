"""Impacts on their way into the index, from our shards or from Pyserini's JSON vectors."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from sparta.base.corpus import SeenIds, decoded, identifier, no_records, parse_object, placed, string_field
from sparta.base.errors import InputError
from sparta.base.files import numbered_lines, shown_name
from sparta.quantize import QuantizationCounts, Quantizer
from sparta.shards import EncodedShard, searched_text

LONGEST_TERM = 255
LARGEST_IMPACT = 2**16 - 1
JSON_BATCH = 1000
_SUFFIXES = (".jsonl", ".json", ".jsonl.gz", ".json.gz")


@dataclass(frozen=True, slots=True)
class ImpactBatch:
    """Passages and their integer impacts, ready to be written; term ids are the writer's.

    `indptr (n + 1,) int32`, `term_ids (m,) int32`, `impacts (m,) int32`, at least 1.
    """

    passage_ids: Sequence[str]
    records: Sequence[str]
    texts: Sequence[str]
    indptr: npt.NDArray[np.int32]
    term_ids: npt.NDArray[np.int32]
    impacts: npt.NDArray[np.int32]
    new_terms: Sequence[str] = ()
    quantization: QuantizationCounts = field(default_factory=QuantizationCounts)
    zeros: int = 0

    def __len__(self) -> int:
        return len(self.passage_ids)


def quantized_batch(shard: EncodedShard, quantizer: Quantizer) -> ImpactBatch:
    """A shard with its weights turned into impacts."""
    impacts, counts = quantizer.quantize(shard.rows.weights)
    return ImpactBatch(
        shard.passage_ids,
        shard.records,
        [searched_text(json.loads(record)) for record in shard.records],
        shard.rows.indptr.astype(np.int32),
        shard.rows.term_ids,
        impacts,
        quantization=counts,
    )


class JsonVectors:
    """Pyserini's JSON vectors, `{"id", "contents", "vector": {term: impact}}` a line, as batches.

    `path` is a file or a folder of *.jsonl and *.json, each possibly gzipped. Impacts must be integers from 0
    to 65,535 (0 is the same as absent and is counted) and terms at most 255 characters: nothing is rounded or
    cut in silence.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ids: dict[str, int] = {}

    def __iter__(self) -> Iterator[ImpactBatch]:
        with SeenIds() as seen:
            records = self._records()
            while batch := self._batch(itertools.islice(records, JSON_BATCH), seen):
                yield batch

    def _records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for path in self.files():
            number = 0
            for number, line in numbered_lines(path):
                where = f"{shown_name(path)}:{number}"
                with placed(where):
                    record = _parsed(line)
                yield where, record
            if not number:
                raise no_records(path)

    def files(self) -> list[Path]:
        """Return the files that are read, in the order of their names."""
        if not self.path.is_dir():
            return [self.path]
        found = sorted(p for p in self.path.iterdir() if p.name.endswith(_SUFFIXES))
        if not found:
            raise InputError(
                "expected shards of sparta encode or JSON vectors, found neither",
                where=str(self.path),
                remedy="give --vectors a folder that sparta encode wrote, or files of JSON vectors",
            )
        return found

    def _batch(self, records: Iterable[tuple[str, dict[str, Any]]], seen: SeenIds) -> ImpactBatch:
        """Take records one at a time, so that a parsed vector is let go before the next is parsed."""
        ids, raws, texts, places = [], [], [], []
        terms: list[int] = []
        impacts: list[int] = []
        lengths = [0]
        known = len(self._ids)
        zeros = 0
        for where, record in records:
            with placed(where):
                names, values = _vector(record)
                ids.append(identifier(record))
                texts.append(string_field(record, "contents", "text", of="the text"))
            if not all(values):
                pairs = [(n, v) for n, v in zip(names, values, strict=True) if v]
                zeros += len(names) - len(pairs)
                names, values = [n for n, _ in pairs], [v for _, v in pairs]
            terms += self._term_ids(names, where)
            impacts += values
            lengths.append(len(names))
            raws.append(_stored(record, ids[-1], texts[-1]))
            places.append(where)
        _refuse_repeated(list(zip(ids, places, strict=True)), seen)
        return ImpactBatch(
            ids,
            raws,
            texts,
            np.cumsum(lengths, dtype=np.int32),
            np.array(terms, dtype=np.int32),
            np.array(impacts, dtype=np.int32),
            new_terms=list(itertools.islice(self._ids, known, None)),
            quantization=QuantizationCounts(sum(lengths)),
            zeros=zeros,
        )

    def _term_ids(self, names: Sequence[str], where: str) -> Sequence[int]:
        """Ids of terms; a term is checked once, when it is new."""
        if len(names) > 1:
            try:
                return itemgetter(*names)(self._ids)  # no Python code a posting: this is the hot path
            except KeyError:
                pass
        return [self._term(name, where) for name in names]

    def _term(self, term: str, where: str) -> int:
        known = self._ids.get(term)
        if known is not None:
            return known
        if not term or len(term) > LONGEST_TERM:
            raise InputError(
                f"expected terms of 1 to {LONGEST_TERM} characters, found one of {len(term)}: {term[:40]!r}",
                where=where,
                remedy="shorten the term; sparta does not cut it for you",
            )
        self._ids[term] = len(self._ids)
        return self._ids[term]


def _parsed(line: bytes) -> dict[str, Any]:
    """One JSON object; the quick decoder gives way to the reader that says what is wrong."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return parse_object(decoded(line))
    return record if isinstance(record, dict) else parse_object(decoded(line))


def _refuse_repeated(placed_ids: Sequence[tuple[str, str]], seen: SeenIds) -> None:
    repeated = seen.add(placed_ids)
    for passage_id, where in placed_ids:
        if where in repeated:
            raise InputError(
                f"duplicate id: {passage_id!r} was already the id of {repeated[where]}",
                where=where,
                remedy="give every record an id of its own",
            )


def _vector(record: dict[str, Any]) -> tuple[list[str], list[int]]:
    """The terms and impacts of one record, checked."""
    vector = record.get("vector")
    if not isinstance(vector, dict):
        raise InputError(
            f"expected a vector, an object of terms and impacts, found {type(vector).__name__}",
            remedy='one object a line: {"id": …, "contents": …, "vector": {term: impact}}',
        )
    values = list(vector.values())
    if values and (set(map(type, values)) != {int} or min(values) < 0 or max(values) > LARGEST_IMPACT):
        term, impact = next(
            (t, v) for t, v in vector.items() if type(v) is not int or not 0 <= v <= LARGEST_IMPACT
        )
        raise InputError(
            f"expected an integer impact from 0 to {LARGEST_IMPACT}, found {impact!r} for the term {term!r}",
            remedy="quantize the weights first; sparta neither rounds nor drops them in silence",
        )
    return list(vector), values


def _stored(record: dict[str, Any], passage_id: str, text: str) -> str:
    extra = {k: v for k, v in record.items() if k not in {"id", "_id", "contents", "text", "vector"}}
    return json.dumps({"id": passage_id, "contents": text, **extra}, ensure_ascii=False)
