"""Read impacts in batches, from shards or from Pyserini's JSON vectors."""

from __future__ import annotations

import itertools
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparta.base.disk.streams import numbered_lines
from sparta.base.errors import InputError, JavaError
from sparta.base.files import plain_name, shown_name
from sparta.base.filters import LONGEST, Scalar, term, text_of
from sparta.base.records import Passage
from sparta.base.remedies import Option, remedy
from sparta.data.files import no_records
from sparta.data.languages import Language, folded
from sparta.data.parsing import BadRecordError, decoded, identifier, parse_object, placed, string_field
from sparta.data.seen_ids import SeenIds
from sparta.data.units import PAGE_STARTS, SPACE_AFTER, context_of, is_sentence_of_passage
from sparta.index.inputs.lexical_postings import Postings, lexical_rows
from sparta.lucene.bridge import VectorReader
from sparta.models.lexical_terms import LexicalTerms
from sparta.models.quantize import QuantizationCounts
from sparta.models.query_encoder import QuerySide
from sparta.shards.store import EncodedShard

_WITH_LEXICAL = remedy(
    "if the file holds the model's lexical terms, build the index anew with {} and {}",
    Option("overwrite", True),
    Option("lexical_terms", True),
)
LONGEST_TERM = 255
LARGEST_IMPACT = 2**16 - 1
MOST_VALUES = 256
PAIR_MARK = "!"
"""Joins the words of a pair in JSON vectors and other exports, where terms have no spaces."""
_NOT_METADATA = {"id", "contents", "context", SPACE_AFTER, PAGE_STARTS}
_OFFSETS = {"start", "end"}
_FILTERABLE = (
    f"only strings, numbers, booleans, and objects and lists of up to {MOST_VALUES} of them are indexed"
)
_SUFFIXES = (".jsonl", ".ndjson", ".json")


@dataclass(frozen=True, slots=True)
class ImpactBatch:
    """A batch of passages with integer impacts, ready for the writer; term ids are the writer's.

    Ids from the size of the writer's vocabulary on name `own_terms`, which only this batch has. `records`
    holds the stored JSON strings, `objects` the same records parsed, `texts` the input of BM25.
    `indptr (n + 1,) int32`, `term_ids (m,) int32`, `impacts (m,) int32`, at least 1.
    """

    passage_ids: Sequence[str]
    records: Sequence[str]
    texts: Sequence[str]
    indptr: npt.NDArray[np.int32]
    term_ids: npt.NDArray[np.int32]
    impacts: npt.NDArray[np.int32]
    new_terms: Sequence[str] = ()
    own_terms: Sequence[str] = ()
    quantization: QuantizationCounts = field(default_factory=QuantizationCounts)
    zeros: int = 0
    windowed: int = 0
    objects: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        if len(self.objects) != len(self.records):
            object.__setattr__(self, "objects", [json.loads(record) for record in self.records])

    def __len__(self) -> int:
        return len(self.passage_ids)

    @property
    def counts(self) -> dict[str, float]:
        """The counts of the batch for the progress of its job."""
        return {
            "passages": len(self),
            "postings": len(self.term_ids),
            "clipped": self.quantization.clipped,
            "absolute_error": self.quantization.absolute_error,
            "zeros": self.zeros,
            "windowed": self.windowed,
        }


def searched_text(record: Mapping[str, Any]) -> str:
    """Return the text of a record that BM25 indexes: title and text."""
    return f"{stored_title(record)} {record['contents']}".strip()


def stored_title(record: Mapping[str, Any]) -> str:
    """Return the title of a record; empty if the title is not a string, as JSON vectors allow."""
    title = record.get("title")
    return title if isinstance(title, str) else ""


def quantized_batch(shard: EncodedShard, side: QuerySide, language: Language) -> ImpactBatch:
    """Return a shard's passages with their weights quantized to impacts, and with their lexical terms.

    With lexical terms, wordpieces that no query looks up are left out.

    :param language: the language whose rules fold the texts for lexical terms
    """
    objects = shard.objects or [json.loads(record) for record in shard.records]
    pieces, lexical = shard.rows, side.lexical
    if lexical:
        pieces = pieces.select(~lexical.unsearched[pieces.term_ids])
    impacts, counts = side.quantizer.quantize(pieces.weights)
    postings = Postings(pieces.indptr, pieces.term_ids, impacts)
    own_terms: Sequence[str] = ()
    if lexical:
        contexts = shard.contexts or [context_of(record) for record in objects]
        passages = (folded(_passage(*each), language) for each in zip(objects, contexts, strict=True))
        rows, own_terms = lexical_rows(passages, shard.rows, lexical)
        lexical_impacts, lexical_counts = side.quantizer.quantize(rows.weights)
        own_ids = rows.term_ids + len(lexical.unsearched)  # lexical terms follow the wordpieces
        postings = postings.beside(Postings(rows.indptr, own_ids, lexical_impacts))
        counts += lexical_counts
    return ImpactBatch(
        shard.passage_ids,
        shard.records,
        list(map(searched_text, objects)),
        postings.indptr.astype(np.int32),
        postings.term_ids,
        postings.impacts,
        own_terms=own_terms,
        quantization=counts,
        windowed=shard.windowed,
        objects=objects,
    )


def _passage(record: Mapping[str, Any], context: str) -> Passage:
    """Return the passage of a record, for its lexical terms."""
    start, end = (record["start"], record["end"]) if context else (0, 0)
    return Passage(record["id"], record["contents"], stored_title(record), context, start, end)


logger = logging.getLogger(__name__)


class JsonVectors:
    """Reads Pyserini's JSON vectors, `{"id", "contents", "vector": {term: impact}}` per line, in batches.

    `path` is a file, or a folder of *.jsonl, *.ndjson and *.json, possibly compressed. Impacts must be
    integers from 0 to 65,535 and terms at most 255 characters: the reader rounds and truncates nothing. An
    impact of 0 means the same as an absent term, and is counted.

    Java parses the vectors. Python parses the other fields of each line. If Java cannot parse a vector,
    Python parses the whole line, and either reports the error or passes the vector to Java in a simpler form.
    """

    def __init__(
        self,
        path: Path,
        side: QuerySide | None = None,
        offered: Callable[[], LexicalTerms | None] = lambda: None,
        *,
        batch_lines: int = 1000,
        batch_bytes: int = 2**24,
    ) -> None:
        """Read this file or folder. With the query side, raise for lines that no query can match.

        :param offered: returns the model's lexical terms, which advice for unknown terms may name
        """
        self.path, self.side, self.offered = path, side, offered
        self.batch_lines, self.batch_bytes = batch_lines, batch_bytes
        self._unknown: npt.NDArray[np.bool_] = np.zeros(0, bool)
        self._first_unknown = ""
        self._has_offered = False

    def __iter__(self) -> Iterator[ImpactBatch]:
        reader = VectorReader()
        self._unknown = np.zeros(0, bool)
        with SeenIds() as seen_ids:
            lines = self._lines()
            while block := list(self._block(lines)):
                batch = _batch(block, reader, seen_ids)
                if self.side and self.side.lexical:
                    batch = replace(batch, new_terms=[*map(self._with_space, batch.new_terms)])
                self._check_terms(batch, [where for where, _ in block])
                yield batch
        if count := int(self._unknown.sum()):
            logger.warning(
                "%d terms are neither wordpieces nor lexical terms, so no query can match the terms; %s%s",
                count,
                self._first_unknown,
                remedy(" → {}", _WITH_LEXICAL) if self._has_offered else "",
            )

    def _block(self, lines: Iterator[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
        """Yield the lines of the next batch; only the lines decide where a batch ends."""
        size = 0
        for where, line in itertools.islice(lines, self.batch_lines):
            yield where, line
            size += len(line)
            if size >= self.batch_bytes:
                return

    def _with_space(self, term: str) -> str:
        """Return a pair as the index has it; other terms do not change."""
        pair = term.replace(PAIR_MARK, " ")
        return pair if pair != term and self.side and self.side.has_term(pair) else term

    def _check_terms(self, batch: ImpactBatch, places: Sequence[str]) -> None:
        """Raise if a line has only terms that no query can have. Each term is looked up once."""
        if self.side is None:
            return
        is_known = self.side.has_term
        new_unknown = np.fromiter(
            (not is_known(term) for term in batch.new_terms), bool, len(batch.new_terms)
        )
        if new_unknown.any() and not self._first_unknown:
            self._first_unknown = f"the first is {batch.new_terms[int(new_unknown.argmax())][:40]!r}"
        self._has_offered = self._has_offered or self._is_any_offered(batch.new_terms, new_unknown)
        self._unknown = np.concatenate((self._unknown, new_unknown))
        if not self._unknown.any():
            return
        unknown_before = np.concatenate(([0], np.cumsum(self._unknown[batch.term_ids])))
        begin, end = batch.indptr[:-1], batch.indptr[1:]
        unmatchable = (end > begin) & (unknown_before[end] - unknown_before[begin] == end - begin)
        if unmatchable.any():
            raise InputError(
                "the query tokenizer knows none of the terms, so no query can match this passage",
                where=places[int(unmatchable.argmax())],
                remedy=_WITH_LEXICAL
                if self._has_offered
                else remedy("name the model that the terms come from with {}", Option("tokenizer")),
            )

    def _is_any_offered(self, terms: Sequence[str], is_unknown: npt.NDArray[np.bool_]) -> bool:
        """Return whether the model has one of the unknown terms as a lexical term."""
        lexical = self.offered() if is_unknown.any() else None
        return lexical is not None and any(
            lexical.is_term(term.replace(PAIR_MARK, " ")) for term in itertools.compress(terms, is_unknown)
        )

    def _lines(self) -> Iterator[tuple[str, bytes]]:
        for path in self.files():
            number = 0
            for number, line in numbered_lines(path):
                yield f"{shown_name(path)}:{number}", line
            if not number:
                raise no_records(path)

    def files(self) -> list[Path]:
        """Return the input files, sorted by name."""
        if not self.path.is_dir():
            return [self.path]
        files = [path for path in self._visible() if _is_vectors(path)]
        if not files:
            raise InputError(
                "the folder contains neither shards of sparta encode nor files of JSON vectors",
                where=str(self.path),
                remedy=remedy(
                    "name a folder of sparta encode, or files of JSON vectors, with {}", Option("vectors")
                ),
            )
        return files

    def ignored(self) -> list[str]:
        """Return the names of a folder's other files and folders, which are not read."""
        return [path.name for path in self._visible() if not _is_vectors(path)] if self.path.is_dir() else []

    def _visible(self) -> list[Path]:
        return sorted(path for path in self.path.iterdir() if not path.name.startswith("."))


def _is_vectors(path: Path) -> bool:
    return plain_name(path.name).lower().endswith(_SUFFIXES) and not path.is_dir()


def _batch(lines: Sequence[tuple[str, bytes]], reader: VectorReader, seen_ids: SeenIds) -> ImpactBatch:
    read = reader.read([line for _, line in lines])
    new_terms = read.new_terms
    simpler_lines: dict[int, bytes] = {}
    passage_ids, raws, texts, objects = [], [], [], []
    for line_number, ((where, line), (begin, end)) in enumerate(zip(lines, read.spans.tolist(), strict=True)):
        with placed(where):
            if begin < 0:
                record = parse_object(decoded(line))
                simpler_lines[line_number] = _vector_line(_checked_vector(record))
                _refuse_repeated_terms(line)
            else:
                record = _parsed_without_vector(line, begin, end)
            passage_ids.append(identifier(record))
            stored = _stored_record(
                record, passage_ids[-1], string_field(record, "contents", "text", of="the text")
            )
        raws.append(json.dumps(stored, ensure_ascii=False))
        objects.append(stored)
        texts.append(searched_text(stored))
    refuse_repeated([(i, where) for i, (where, _) in zip(passage_ids, lines, strict=True)], seen_ids)
    if simpler_lines:
        read = reader.read(
            [simpler_lines.get(line_number, line) for line_number, (_, line) in enumerate(lines)]
        )
        new_terms += read.new_terms
        if (read.spans < 0).any():
            raise JavaError("Java cannot parse a vector that Python wrote", where=lines[0][0])
    return ImpactBatch(
        passage_ids,
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
    """Parse a line without its vector, which is valid JSON, or the whole line if that fails."""
    try:
        return parse_object(decoded(line[:begin] + b"{}" + line[end:]))
    except BadRecordError:
        return parse_object(decoded(line))


def _vector_line(vector: dict[str, int]) -> bytes:
    """Return a JSON line that holds only the checked vector, in a form that Java can parse."""
    try:
        return json.dumps({"vector": vector}, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"a term contains the lone surrogate {error.object[error.start : error.end]!a}",
            remedy="repair the encoding of the input",
        ) from error


def refuse_repeated(placed_ids: Sequence[tuple[str, str]], seen_ids: SeenIds) -> None:
    """Raise if a passage id occurs twice in `placed_ids`, or also in `seen_ids`.

    :param placed_ids: pairs of a passage id and its `path:line`
    """
    for number, first in seen_ids.add(placed_ids).items():
        passage_id, where = placed_ids[number]
        raise InputError(
            f"duplicate id: {passage_id!r} was already the id of {first}",
            where=where,
            remedy="give every record a different id",
        )


def _checked_vector(record: dict[str, Any]) -> dict[str, int]:
    """Return the vector of a record after checking its terms and impacts."""
    vector = record.get("vector")
    if not isinstance(vector, dict):
        raise InputError(
            f"the field vector must be an object of terms and impacts, found {type(vector).__name__}",
            remedy='write each line as {"id": …, "contents": …, "vector": {term: impact}}',
        )
    values = list(vector.values())
    if values and (set(map(type, values)) != {int} or min(values) < 0 or max(values) > LARGEST_IMPACT):
        term, impact = next(
            (term, impact)
            for term, impact in vector.items()
            if type(impact) is not int or not 0 <= impact <= LARGEST_IMPACT
        )
        raise InputError(
            f"expected an integer impact from 0 to {LARGEST_IMPACT}, found {impact!r} for the term {term!r}",
            remedy="quantize the weights first; sparta does not round or drop impacts silently",
        )
    for term in vector:
        if not 1 <= len(term) <= LONGEST_TERM:
            raise InputError(
                f"a term must have 1 to {LONGEST_TERM} characters, found {len(term)}: {term[:40]!r}",
                remedy="shorten the term; sparta does not truncate terms",
            )
    return vector


class _KeyedObject(dict[str, Any]):
    """A JSON object that also knows its repeated keys."""

    repeated: tuple[str, ...] = ()

    @staticmethod
    def of(pairs: Sequence[tuple[str, Any]]) -> _KeyedObject:
        """Build the object from the key-value pairs of a JSON line."""
        record = _KeyedObject(pairs)
        if len(record) < len(pairs):
            counted = Counter(key for key, _ in pairs)
            record.repeated = tuple(key for key, n in counted.items() if n > 1)
        return record


def _refuse_repeated_terms(line: bytes) -> None:
    """Raise if a vector repeats a term: JSON decoders silently keep only the last impact."""
    record = json.loads(decoded(line), object_pairs_hook=_KeyedObject.of)
    repeated = record["vector"].repeated
    if repeated:
        raise InputError(
            f"the vector repeats the term {repeated[0][:40]!r}",
            remedy="add up the term's impacts, or keep only one of the impacts",
        )
    if "vector" in record.repeated:
        raise InputError("the record has several vectors", remedy="write one vector per line")


def _stored_record(record: dict[str, Any], passage_id: str, text: str) -> dict[str, Any]:
    extra = {k: v for k, v in record.items() if k not in {"id", "_id", "contents", "text", "vector"}}
    return {"id": passage_id, "contents": text, **extra}


def field_terms(
    records: Sequence[Mapping[str, Any]], unindexed_fields: set[str] | None = None, *, nested: bool = True
) -> list[list[bytes]]:
    """Return the metadata terms of each record: a term for each value of each field.

    :param unindexed_fields: names of fields with values that cannot be indexed; the function logs a warning
        for each new name and adds it. None means no warnings
    :param nested: whether to index the values of objects, under names such as `author.name`
    """
    not_indexed = set[str]()
    terms = [list(_terms(record, not_indexed, nested)) for record in records]
    if unindexed_fields is not None:
        for name in sorted(not_indexed - unindexed_fields):
            logger.warning(
                "the metadata field %s is stored with the passages, but is not filterable: %s",
                name,
                _FILTERABLE,
            )
        unindexed_fields |= not_indexed
    return terms


def _terms(record: Mapping[str, Any], left_out: set[str], nested: bool) -> Iterator[bytes]:
    """Yield a term for each metadata value of a record.

    Strings, numbers and booleans are indexed, also in objects and lists of up to 256 of them. Null is not,
    nor are lists of lists, larger objects and longer lists. A missing title counts as an empty title. The
    offsets of a passage in its context and of the pages in a PDF are not indexed.

    :param left_out: grows by the names of fields with values that cannot be indexed
    """
    has_offsets = "context" in record or is_sentence_of_passage(record)
    for name, value in record.items():
        if name in _NOT_METADATA or (has_offsets and name in _OFFSETS) or (name == "title" and not value):
            continue
        inner_left_out = set[str]()
        values = list(_field_values(name, value, inner_left_out, nested=nested and name != "vector"))
        if len(values) > MOST_VALUES:
            left_out.add(name)
        else:
            left_out |= inner_left_out
            yield from (term(field, text_of(value)) for field, value in values)


def _field_values(name: str, value: Any, left_out: set[str], *, nested: bool) -> Iterator[tuple[str, Scalar]]:
    """Yield the values of a field; those of an object have names such as `author.name`."""
    if value is None or not name or "\0" in name or len(name.encode()) > LONGEST:
        return
    if nested and isinstance(value, dict):
        for key, inner in value.items():
            if key:
                yield from _field_values(f"{name}.{key}", inner, left_out, nested=nested)
        return
    if nested and isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        for item in value:
            yield from _field_values(name, item, left_out, nested=nested)
        return
    values = value if isinstance(value, list) else [value]
    if len(values) <= MOST_VALUES and all(isinstance(item, str | int | float) for item in values):
        yield from ((name, item) for item in values)
    elif value != {}:
        left_out.add(name)
