"""Converts an index for OpenSearch: to a mapping, and to a document for each passage.

A document stores the passage's record, its corpus position (which breaks ties), and a hash that reveals
changes. It indexes, without storing them in `_source`, the text for BM25, the metadata, and the impacts as
`rank_features`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hybrid.opensearch.fields import FIELDS, NUMBERS, field_values
from hybrid.opensearch.query_side import feature_name, side_id
from sparta.base.batches import bounded_batches
from sparta.base.errors import InputError
from sparta.base.remedies import Option, remedy
from sparta.data.languages import LANGUAGES, Language, language_of
from sparta.data.units import is_cut, passage_of
from sparta.export.exporters import Contents, StoredPassage, read_passages
from sparta.index.generation import Generation
from sparta.index.inputs.impact_batches import searched_text
from sparta.index.snapshot import IndexVersion
from sparta.lucene.bridge import Bm25
from sparta.lucene.packing import composed
from sparta.models.query_encoder import QuerySide
from sparta.search.searcher import Searcher

KIND = "sparta-index"
FORMAT_VERSION = 1
IMPACTS, TEXT, POSITION, RECORD, HASH, PASSAGE = "impacts", "text", "position", "record", "hash", "passage"
HIGHEST_IMPACT = 511
"""OpenSearch keeps nine significant bits of an impact."""
_LONGEST_ID = 512
_TEXTS = "NFC"
"""Unicode form of the texts. Indices pushed before this form was used get another identity."""
_ENGLISH = {
    "type": "custom",
    "tokenizer": "standard",
    "filter": ["sparta_possessive", "lowercase", "sparta_stop", "porter_stem"],
}
_ENGLISH_FILTERS = {
    "sparta_possessive": {"type": "stemmer", "language": "possessive_english"},
    "sparta_stop": {"type": "stop", "stopwords": "_english_"},
}
_ANALYZERS = {
    "english": "sparta_english",
    "cjk.CJKAnalyzer": "cjk",
    "core.WhitespaceAnalyzer": "whitespace",
    "standard.StandardAnalyzer": "standard",
    "ar.ArabicAnalyzer": "arabic",
    "bn.BengaliAnalyzer": "bengali",
    "da.DanishAnalyzer": "danish",
    "de.GermanAnalyzer": "german",
    "es.SpanishAnalyzer": "spanish",
    "fa.PersianAnalyzer": "persian",
    "fi.FinnishAnalyzer": "finnish",
    "fr.FrenchAnalyzer": "french",
    "hi.HindiAnalyzer": "hindi",
    "hu.HungarianAnalyzer": "hungarian",
    "id.IndonesianAnalyzer": "indonesian",
    "it.ItalianAnalyzer": "italian",
    "nl.DutchAnalyzer": "dutch",
    "no.NorwegianAnalyzer": "norwegian",
    "pt.PortugueseAnalyzer": "portuguese",
    "ru.RussianAnalyzer": "russian",
    "sv.SwedishAnalyzer": "swedish",
    "th.ThaiAnalyzer": "thai",
    "tr.TurkishAnalyzer": "turkish",
}
"""OpenSearch's name of each supported analyzer (key: `Language.analyzer`)."""


class Action(NamedTuple):
    """An action that writes or deletes one document: the passage's id and the lines for a bulk request."""

    passage_id: str
    lines: bytes


@dataclass(frozen=True, slots=True)
class Source:
    """An open commit of an index, as the source of OpenSearch's documents.

    `identity` identifies the content: it differs between commits and between indices.
    """

    contents: Contents
    positions: npt.NDArray[np.int64]
    generation: Generation
    version: IndexVersion
    side: QuerySide

    def __len__(self) -> int:
        return len(self.contents.docids)

    @property
    def form(self) -> dict[str, Any]:
        """Return the settings that an update must not change: model, language, unit and query side."""
        generation = self.generation
        return {
            "model": generation.model,
            "language": generation.language,
            "unit": generation.unit,
            "query_side": side_id(self.side),
        }

    @property
    def identity(self) -> str:
        """Return 16 hexadecimal digits that identify the content of the index."""
        generation, commit = self.generation, self.contents.lucene.user_data
        job = generation.job.as_dict()
        fingerprint = [FORMAT_VERSION, _TEXTS, self.form, generation.form, job, commit, len(self)]
        if len(self) and int(self.positions.max()) >= len(self):  # the commit only counts deletions
            fingerprint.append(hashlib.sha256(self.positions.tobytes()).hexdigest())
        return hashlib.sha256(json.dumps(fingerprint, sort_keys=True).encode()).hexdigest()[:16]

    def documents(self, first: int = 0) -> Iterator[tuple[StoredPassage, bytes]]:
        """Yield the passages from rank `first` on in corpus order, each with its document as JSON."""
        cut = is_cut(self.generation.unit)
        for passage in read_passages(self.contents, first=first):
            yield passage, document(passage, cut=cut)

    def actions(self, first: int = 0) -> Iterator[Action]:
        """Yield the actions that write the passages from position `first` on."""
        for passage, fields in self.documents(first):
            yield index_action(passage.passage_id, fields)

    def meta(self, **more: Any) -> dict[str, Any]:
        """Return the description of the index for `_meta` in the mapping."""
        about = {"kind": KIND, "format_version": FORMAT_VERSION, "identity": self.identity, **self.form}
        return {"sparta": {**about, **more}}


@contextmanager
def opened_source(searcher: Searcher) -> Iterator[Source]:
    """Open the current commit of an index as a `Source`, after a check that OpenSearch can represent it.

    :raises InputError: the index has impacts above 511, or a language without an analyzer in OpenSearch
    :raises IndexStateError: the index has no impacts
    """
    with searcher.reader.snapshot() as snapshot:
        snapshot.require_impacts()
        side = searcher.reader.folder.query_side(snapshot.generation)
        contents = Contents.read(snapshot.lucene, feature_name if side.lexical else str)
        check_sayable(contents.highest, snapshot.generation.analysis)
        positions = snapshot.lucene.positions(contents.docids)
        yield Source(contents, positions, snapshot.generation, snapshot.version, side)


def check_sayable(highest: int, language: str | Language) -> None:
    """Raise InputError for an index whose rankings OpenSearch cannot reproduce.

    :param highest: highest impact of the index
    """
    if highest > HIGHEST_IMPACT:
        raise InputError(
            f"OpenSearch stores impacts up to {HIGHEST_IMPACT} exactly, but the index has {highest:,}",
            remedy=remedy("build the index again with {}", Option("bits", 8)),
        )
    analyzed = language_of(language) if isinstance(language, str) else language
    if not _can_analyze(analyzed):
        known = ", ".join(code for code, known_language in LANGUAGES.items() if _can_analyze(known_language))
        raise InputError(
            f"OpenSearch has no analyzer like {analyzed.analyzer}; known languages: {known}",
            remedy="search this index with sparta, or build the index with a known language",
        )


def _can_analyze(language: Language) -> bool:
    return language.analyzer in _ANALYZERS and language.fold is Language().fold


def index_body(source: Source, *, shards: int = 1) -> dict[str, Any]:
    """Return settings and mapping for `PUT /index`: no replicas and no refresh while the index is filled."""
    return {
        "settings": {
            "index": {
                "number_of_shards": shards,
                "number_of_replicas": 0,
                "refresh_interval": "-1",
                "similarity": {"sparta_bm25": {"type": "BM25", **Bm25()._asdict()}},
                "analysis": {"analyzer": {"sparta_english": _ENGLISH}, "filter": _ENGLISH_FILTERS},
            }
        },
        "mappings": {
            "dynamic": False,
            "_meta": source.meta(complete=False),
            "_source": {"excludes": [IMPACTS, TEXT, FIELDS, NUMBERS]},
            "properties": {
                POSITION: {"type": "long"},
                HASH: {"type": "keyword", "index": False},
                PASSAGE: {"type": "keyword"},
                RECORD: {"type": "object", "enabled": False},
                FIELDS: {"type": "keyword"},
                NUMBERS: {"type": "keyword", "doc_values": False},
                TEXT: {
                    "type": "text",
                    "analyzer": _ANALYZERS[source.generation.analysis.analyzer],
                    "similarity": "sparta_bm25",
                },
                IMPACTS: {"type": "rank_features"},
            },
        },
    }


def served_settings(replicas: int) -> dict[str, Any]:
    """Return the settings of a filled index: automatic refresh, up to `replicas` copies of each shard."""
    return {"index": {"refresh_interval": None, "auto_expand_replicas": f"0-{replicas}"}}


def document(passage: StoredPassage, *, cut: bool = False) -> bytes:
    """Return the document of a passage as JSON.

    :param cut: whether units are parts of passages; the document then also has the id of its passage
    :raises InputError: the id is longer than OpenSearch allows
    """
    if len(passage.passage_id.encode()) > _LONGEST_ID:
        raise InputError(
            f"the passage id {passage.passage_id[:40]!r}… has {len(passage.passage_id.encode())} bytes;"
            f" OpenSearch accepts at most {_LONGEST_ID}",
            remedy="give the passage a shorter id",
        )
    fields: dict[str, Any] = {POSITION: passage.position, **field_values(passage.raw)}
    if cut:
        fields[PASSAGE] = passage_of(passage.passage_id)
    fields[TEXT] = composed(searched_text(json.loads(passage.raw)))
    fields[IMPACTS] = dict(zip(passage.terms, passage.impacts, strict=True))
    fields_json = json.dumps(fields, ensure_ascii=False)
    fields_and_record = f'{fields_json[:-1]}, "{RECORD}": {passage.raw}}}'.encode()
    digest = hashlib.sha256(fields_and_record).hexdigest()[:16]
    return b'{"%s": "%s", ' % (HASH.encode(), digest.encode()) + fields_and_record[1:]


def hash_of(document: bytes) -> str:
    """Return the hash at the beginning of a document that `document` made."""
    start = len(HASH) + 6
    return document[start : start + 16].decode()


def index_action(passage_id: str, document: bytes) -> Action:
    """Return the action that writes a document, in place of an earlier document with the same id."""
    return _action("index", passage_id, document + b"\n")


def delete_action(passage_id: str) -> Action:
    """Return the action that deletes a document."""
    return _action("delete", passage_id)


def _action(name: str, passage_id: str, document: bytes = b"") -> Action:
    action_line = json.dumps({name: {"_id": passage_id}}, ensure_ascii=False).encode()
    return Action(passage_id, b"%s\n%s" % (action_line, document))


def batches(actions: Iterable[Action], most_bytes: int) -> Iterator[list[Action]]:
    """Return the actions in batches of at most `most_bytes`; a larger action is a batch by itself."""
    return bounded_batches(actions, lambda action: len(action.lines), most_bytes)
