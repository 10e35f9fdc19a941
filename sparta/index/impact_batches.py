"""Impacts on their way into the index, from our shards or from Pyserini's JSON vectors."""

from __future__ import annotations

import itertools
import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from sparta.base.errors import InputError, JavaError
from sparta.base.files import numbered_lines, shown_name
from sparta.base.filters import LONGEST, term, text_of
from sparta.base.remedies import Option, remedy
from sparta.data.files import no_records
from sparta.data.parsing import BadRecordError, decoded, identifier, parse_object, placed, string_field
from sparta.data.seen_ids import SeenIds
from sparta.data.units import UNIT_ID, passage_of
from sparta.lucene.bridge import VectorReader
from sparta.models.quantize import QuantizationCounts, Quantizer
from sparta.shards.store import EncodedShard

LONGEST_TERM = 255
LARGEST_IMPACT = 2**16 - 1
JSON_BATCH = 1000
JSON_BATCH_BYTES = 2**24
MOST_VALUES = 256
_TEXTS = {"id", "contents", "context"}
_OFFSETS = {"start", "end"}
_WANTED = f"where it is no text, number, true or false, nor a list of up to {MOST_VALUES} of them"
_SUFFIXES = (".jsonl", ".json", ".jsonl.gz", ".json.gz")


@dataclass(frozen=True, slots=True)
class ImpactBatch:
    """Passages and their integer impacts, ready to be written; term ids are the writer's.

    `records` is the JSON that is stored, `objects` what it says, `texts` what BM25 reads. `indptr (n + 1,)
    int32`, `term_ids (m,) int32`, `impacts (m,) int32`, at least 1.
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
    windowed: int = 0
    objects: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        if len(self.objects) != len(self.records):
            object.__setattr__(self, "objects", [json.loads(record) for record in self.records])

    def __len__(self) -> int:
        return len(self.passage_ids)


def searched_text(record: Mapping[str, Any]) -> str:
    """What BM25 reads of a stored record, wherever it came from: title and text."""
    return f"{stored_title(record)} {record['contents']}".strip()


def stored_title(record: Mapping[str, Any]) -> str:
    """The title of a stored record; none where it is no text, as JSON vectors may have it."""
    title = record.get("title")
    return title if isinstance(title, str) else ""


def quantized_batch(shard: EncodedShard, quantizer: Quantizer) -> ImpactBatch:
    """A shard with its weights turned into impacts."""
    impacts, counts = quantizer.quantize(shard.rows.weights)
    objects = shard.objects or [json.loads(record) for record in shard.records]
    return ImpactBatch(
        shard.passage_ids,
        shard.records,
        list(map(searched_text, objects)),
        shard.rows.indptr.astype(np.int32),
        shard.rows.term_ids,
        impacts,
        quantization=counts,
        windowed=shard.windowed,
        objects=objects,
    )


logger = logging.getLogger(__name__)


class JsonVectors:
    """Pyserini's JSON vectors, `{"id", "contents", "vector": {term: impact}}` a line, as batches.

    `path` is a file or a folder of *.jsonl and *.json, each possibly gzipped. Impacts must be integers from 0
    to 65,535 (0 is the same as absent and is counted) and terms at most 255 characters: nothing is rounded or
    cut in silence.

    Java reads the vectors. Python reads the rest of each line, and the whole of a line that Java does not
    understand: to say what is wrong with it, or to write its vector down in plainer words.
    """

    def __init__(self, path: Path, tokenizer: Tokenizer | None = None) -> None:
        """Read this file or folder; with the tokenizer of queries, refuse lines that no query can find."""
        self.path, self.tokenizer = path, tokenizer
        self._unknown: npt.NDArray[np.bool_] = np.zeros(0, bool)
        self._first_unknown = ""

    def __iter__(self) -> Iterator[ImpactBatch]:
        reader = VectorReader()
        self._unknown = np.zeros(0, bool)
        with SeenIds() as seen:
            lines = self._lines()
            while block := list(_block(lines)):
                batch = _batch(block, reader, seen)
                self._check_terms(batch, [where for where, _ in block])
                yield batch
        if n := int(self._unknown.sum()):
            logger.warning("%d terms are no wordpieces, and no query finds them: %s", n, self._first_unknown)

    def _check_terms(self, batch: ImpactBatch, places: Sequence[str]) -> None:
        """Refuse a line none of whose terms the tokenizer knows; each term is looked up once."""
        if self.tokenizer is None:
            return
        known = self.tokenizer.token_to_id
        new = np.fromiter((known(term) is None for term in batch.new_terms), bool, len(batch.new_terms))
        if new.any() and not self._first_unknown:
            self._first_unknown = f"the first is {batch.new_terms[int(new.argmax())][:40]!r}"
        self._unknown = np.concatenate((self._unknown, new))
        if not self._unknown.any():
            return
        unknown = np.concatenate(([0], np.cumsum(self._unknown[batch.term_ids])))
        begin, end = batch.indptr[:-1], batch.indptr[1:]
        lost = (end > begin) & (unknown[end] - unknown[begin] == end - begin)
        if lost.any():
            raise InputError(
                "expected terms that the tokenizer of queries can make, found none: no query finds this line",
                where=places[int(lost.argmax())],
                remedy=remedy("name the model that the terms come from with {}", Option("tokenizer")),
            )

    def _lines(self) -> Iterator[tuple[str, bytes]]:
        for path in self.files():
            number = 0
            for number, line in numbered_lines(path):
                yield f"{shown_name(path)}:{number}", line
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
                remedy=remedy(
                    "give {} a folder that sparta encode wrote, or files of JSON vectors", Option("vectors")
                ),
            )
        return found


def _block(lines: Iterator[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """The next lines, so many as make a batch; the cut depends on the lines alone."""
    size = 0
    for where, line in itertools.islice(lines, JSON_BATCH):
        yield where, line
        size += len(line)
        if size >= JSON_BATCH_BYTES:
            return


def _batch(lines: Sequence[tuple[str, bytes]], reader: VectorReader, seen: SeenIds) -> ImpactBatch:
    read = reader.read([line for _, line in lines])
    new_terms = read.new_terms
    plainer: dict[int, bytes] = {}
    ids, raws, texts, objects = [], [], [], []
    for number, ((where, line), (begin, end)) in enumerate(zip(lines, read.spans.tolist(), strict=True)):
        with placed(where):
            if begin < 0:
                record = parse_object(decoded(line))
                plainer[number] = _plainer(_vector(record))
                _refuse_repeated_terms(line)
            else:
                record = _parsed_without_vector(line, begin, end)
            ids.append(identifier(record))
            stored = _stored(record, ids[-1], string_field(record, "contents", "text", of="the text"))
        raws.append(json.dumps(stored, ensure_ascii=False))
        objects.append(stored)
        texts.append(searched_text(stored))
    refuse_repeated([(i, where) for i, (where, _) in zip(ids, lines, strict=True)], seen)
    if plainer:
        read = reader.read([plainer.get(number, line) for number, (_, line) in enumerate(lines)])
        new_terms += read.new_terms
        if (read.spans < 0).any():
            raise JavaError("Java does not understand a vector that Python wrote", where=lines[0][0])
    return ImpactBatch(
        ids,
        raws,
        texts,
        read.indptr,
        read.term_ids,
        read.impacts,
        new_terms=new_terms,
        quantization=QuantizationCounts(len(read.impacts)),
        zeros=read.zeros,
        objects=objects,
    )


def _parsed_without_vector(line: bytes, begin: int, end: int) -> dict[str, Any]:
    """A line whose vector, valid JSON itself, is cut out; one that is broken elsewhere is read as a whole."""
    try:
        return parse_object(decoded(line[:begin] + b"{}" + line[end:]))
    except BadRecordError:
        return parse_object(decoded(line))


def _plainer(vector: dict[str, int]) -> bytes:
    """A line with a checked vector as Java understands it."""
    try:
        return json.dumps({"vector": vector}, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"a term that is not valid Unicode (a lone surrogate): {error.object[error.start : error.end]!a}",
            remedy="repair the encoding of the input",
        ) from error


def refuse_repeated(placed_ids: Sequence[tuple[str, str]], seen: SeenIds) -> None:
    """Refuse an id that was there before, in these pairs of an id and its `path:line` or in `seen`."""
    for number, first in seen.add(placed_ids).items():
        passage_id, where = placed_ids[number]
        raise InputError(
            f"duplicate id: {passage_id!r} was already the id of {first}",
            where=where,
            remedy="give every record an id of its own",
        )


def _vector(record: dict[str, Any]) -> dict[str, int]:
    """The impacts of one record, checked."""
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
    for term in vector:
        if not 1 <= len(term) <= LONGEST_TERM:
            raise InputError(
                f"expected terms of 1 to {LONGEST_TERM} characters, found one of {len(term)}: {term[:40]!r}",
                remedy="shorten the term; sparta does not cut it for you",
            )
    return vector


class _Keys(dict[str, Any]):
    """An object of JSON that knows which of its keys was there before."""

    repeated: tuple[str, ...] = ()

    @staticmethod
    def of(pairs: Sequence[tuple[str, Any]]) -> _Keys:
        """Take the pairs of an object as they stand in the line."""
        found = _Keys(pairs)
        if len(found) < len(pairs):
            counted = Counter(key for key, _ in pairs)
            found.repeated = tuple(key for key, n in counted.items() if n > 1)
        return found


def _refuse_repeated_terms(line: bytes) -> None:
    """Refuse a term with two impacts: decoders keep the last of them, and say nothing."""
    whole = json.loads(decoded(line), object_pairs_hook=_Keys.of)
    repeated = whole["vector"].repeated
    if repeated:
        raise InputError(
            f"expected each term of a vector once, found {repeated[0][:40]!r} again",
            remedy="add up its impacts, or leave all but one of them out",
        )
    if "vector" in whole.repeated:
        raise InputError("expected one vector, found another", remedy="write one vector a line")


def _stored(record: dict[str, Any], passage_id: str, text: str) -> dict[str, Any]:
    extra = {k: v for k, v in record.items() if k not in {"id", "_id", "contents", "text", "vector"}}
    return {"id": passage_id, "contents": text, **extra}


def field_terms(records: Sequence[Mapping[str, Any]], told: set[str] | None = None) -> list[list[bytes]]:
    """The metadata of stored records: of each the terms of all its values.

    :param told: fields with values that are not indexed, of which a warning was given; grows. None: none is
    """
    left_out = set[str]()
    terms = [list(_terms(record, left_out)) for record in records]
    if told is not None:
        for name in sorted(left_out - told):
            logger.warning("%s: kept with the passages, but nothing to filter by, %s", name, _WANTED)
        told |= left_out
    return terms


def _terms(record: Mapping[str, Any], left_out: set[str]) -> Iterator[bytes]:
    """One term for each value of each field.

    Texts, numbers, true and false count, and lists of up to 256 of them; null, objects and other lists do
    not. No title is the same as an empty one. Where a passage stands in its context is not indexed.
    """
    cut = "context" in record or _is_sentence(record)
    for name, value in record.items():
        if name in _TEXTS or (cut and name in _OFFSETS) or (name == "title" and not value):
            continue
        if not name or "\0" in name or len(name.encode()) > LONGEST:
            continue
        values = value if isinstance(value, list) else [value]
        if len(values) <= MOST_VALUES and all(isinstance(one, str | int | float) for one in values):
            yield from (term(name, text_of(one)) for one in values)
        elif value is not None and value != {}:
            left_out.add(name)


def _is_sentence(record: Mapping[str, Any]) -> bool:
    """Whether a record was cut from the passage that it names."""
    unit_id = str(record.get("id"))
    placed = all(type(record.get(name)) is int for name in _OFFSETS)
    return placed and bool(UNIT_ID.search(unit_id)) and passage_of(unit_id) == record.get("passage_id")
