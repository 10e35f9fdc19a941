"""The state of an index: its generations, the job that wrote each of them, and the job's progress.

- `Job`: one call that writes an index, with its input, its options and its mode. `started()` adds a random
  run id. `id` names the job in Lucene's commits, so a resumed job knows its own commits.
- `Generation`: one build of the index, with its last job, its model and its form.
- `IndexState`: the whole manifest, with the generation that is searched and the one that is being built.
- `Progress`: what Lucene's commits store about the job.

The first three are immutable; change them with `dataclasses.replace`. Only this module knows their names in
JSON. A new field of `Job` needs a default, and `_OMITTED` must name it: then old manifests open, and the ids
of old jobs stay the same.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from sparta.base.errors import rebuild_index
from sparta.base.files import STANDARD_INPUT
from sparta.base.manifest import check_fields
from sparta.data.languages import Language, language_of
from sparta.data.units import UNIT
from sparta.lucene import LUCENE_VERSION
from sparta.models.query_encoder import MODEL_FIELDS

CHANNEL = "sparta"
DEFAULT_CODEC = "fast"
BOTH_CHANNELS, BM25 = "impact,bm25", "bm25"
NESTED = "nested"  # the metadata of indexes with nested fields; "all" means top-level fields only
GROWING = ("append", "update")  # modes that write into the live generation
CORPUS, SHARDS, JSON = "corpus", "shards", "json"
"""The kinds of inputs: a corpus to encode, folders of `sparta encode`, and vectors of another program."""

_STORED_NAMES = {"kind": "from", "size": "bytes"}
"""The manifest's names of the fields of a `Job` that have another name here."""
_ENCODING = ("size", "unit", "top_k", "min_weight")
"""The fields that only jobs of encoded passages have."""
_OMITTED = {
    "folders": (),
    "channels": BOTH_CHANNELS,
    "reading": {},
    "mode": "",
    "language": "",
    "codec": "",
    "run": "",
}
"""The fields that a manifest omits while they have these values."""
_NEWER_QUERIES = ("query_network", "lexical_terms")
"""The fields of a model that releases of format 2 would ignore: they would encode queries without them."""
_INTEGER, _STRING = (int, type(None)), (str, type(None))
_JOB_FIELDS: dict[str, Any] = {
    "from?": str,
    "source?": _STRING,
    "bytes?": _INTEGER,
    "sha256?": _STRING,
    "folders?": list,
    "unit?": UNIT,
    "top_k?": _INTEGER,
    "min_weight?": (int, float),
    "channels?": str,
    "reading?": {"id_field?": str, "text_field?": list, "title_field?": str, "query?": str},
    "mode?": str,
    "language?": str,
    "codec?": _STRING,
    "run?": str,
}
_GENERATION_FIELDS: dict[str, Any] = {
    "number": range(1, 1 << 40),
    "model": MODEL_FIELDS,
    "language?": str,
    "codec": _STRING,
    "unit?": UNIT,
    "complete?": bool,
    "job": _JOB_FIELDS,
    "counts?": dict,
    "lucene_version?": str,
    "origin?": str,
    "fields?": _STRING,
    "analyzer?": str,
}


FIELDS: dict[str, Any] = {
    "live": (dict, type(None)),
    "building": (dict, type(None)),
    "arithmetic?": dict,
}
"""The fields of an index's manifest."""


def codec_name(name: str | None) -> str:
    """Return a codec's current name: `sparta` is an old name of `fast`, and None means the default."""
    return {None: DEFAULT_CODEC, "sparta": "fast"}.get(name) or str(name)


def dtype_of(arithmetic: str) -> str:
    """Return the `--dtype` of a runtime's arithmetic: `int8` of `openvino int8+bf16`.

    Several devices with several arithmetics have `auto`; an unknown arithmetic has the empty string.
    """
    return "auto" if "," in arithmetic else arithmetic.rpartition(" ")[2].partition("+")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job that writes an index.

    `kind` is the kind of input: `corpus`, `shards` or `json`. `source` is the input's absolute path, or a
    name for standard input and for records. `size` in bytes and `sha256` identify the input's content; None
    if the input can be read only once. `folders` lists the folders of shards. `top_k` and `min_weight`
    describe the pruning. `reading` holds the options that name the fields of the records, and the query.
    `mode` is one of `jobs.MODES`. Jobs that append or update have neither `language`
    nor `codec`. `run` is a random id, empty before the job starts.
    """

    kind: str = CORPUS
    source: str | None = None
    size: int | None = None
    sha256: str | None = None
    folders: tuple[str, ...] = ()
    unit: str = "passage"
    top_k: int | None = None
    min_weight: float = 0.0
    channels: str = BOTH_CHANNELS
    reading: Mapping[str, Any] = field(default_factory=dict)
    mode: str = ""
    language: str = ""
    codec: str = ""
    run: str = ""

    @property
    def id(self) -> str:
        """16 hexadecimal digits that name the job in Lucene's commits."""
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def lacks_path(self) -> bool:
        """Whether the job no longer has the paths of its input, because an upload removed them."""
        from sparta.data.formats.reading import RECORDS

        sources = [
            name for name in (self.source, *self.folders) if name and name not in (STANDARD_INPUT, RECORDS)
        ]
        return any(not (Path(name).is_absolute() or name.startswith("irds:")) for name in sources)

    @property
    def grows(self) -> bool:
        """Whether the job adds passages to an existing index: an append or an update."""
        return self.mode in GROWING

    @property
    def named_fields(self) -> dict[str, Any]:
        """The options that name the fields of the records, without the query."""
        return {name: value for name, value in self.reading.items() if name != "query"}

    def started(self) -> Job:
        """Return the job with a random run id, so that two jobs with the same input differ."""
        return replace(self, run=secrets.token_hex(8))

    def differences(self, other: Job) -> list[str]:
        """Return the manifest's names of the fields that differ, apart from the mode and the run id."""
        names = [each.name for each in fields(self) if each.name not in ("mode", "run")]
        return [
            _STORED_NAMES.get(name, name) for name in names if getattr(self, name) != getattr(other, name)
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return the job as the manifest stores it."""
        names = [
            each.name
            for each in fields(self)
            if (each.name not in _OMITTED or getattr(self, each.name) != _OMITTED[each.name])
            and (each.name not in _ENCODING or self.kind != JSON)
        ]
        return {_STORED_NAMES.get(name, name): getattr(self, name) for name in names}

    @staticmethod
    def of(stored: Mapping[str, Any]) -> Job:
        """Return the job that a manifest stores, after the check of its fields."""
        names = {stored_name: name for name, stored_name in _STORED_NAMES.items()}
        values = {names.get(name, name): value for name, value in stored.items()}
        values["folders"] = tuple(values.get("folders", ()))
        if "codec" in values:
            values["codec"] = codec_name(values["codec"])
        return Job(**values)


@dataclass(frozen=True, slots=True)
class Generation:
    """One build of an index: its number, its job, its model and its form.

    `job` is the last or the running job. `counts` are for people; readers take a job's progress from the
    Lucene commit. `origin` is the source of the first job; the manifest stores it only after a second job.
    `arithmetic` names the runtime and the arithmetic that encoded the first job's passages, such as
    `openvino int8`; empty if unknown. `fields` names the indexed metadata: `nested`, `all` (top-level fields
    only, of older releases), or None for an index of format 1, which indexes no metadata. `analyzer` names
    the Lucene analyzer if it differs from the language's usual analyzer.
    """

    number: int
    model: dict[str, Any]
    language: str = "en"
    codec: str = DEFAULT_CODEC
    unit: str = "passage"
    complete: bool = False
    job: Job = Job()
    counts: dict[str, Any] = field(default_factory=dict)
    lucene_version: str = LUCENE_VERSION
    origin: str = ""
    fields: str | None = None
    analyzer: str = ""
    arithmetic: str = ""

    @property
    def analysis(self) -> Language:
        """The language settings for the index's texts and queries, with the analyzer that built the index.

        :raises InputError: sparta does not know the language.
        """
        language = language_of(self.language)
        if self.analyzer:
            return (
                language if language.analyzer == self.analyzer else replace(language, analyzer=self.analyzer)
            )
        return replace(language, analyzer=language.former or language.analyzer, fold=Language().fold)

    @property
    def first_source(self) -> str:
        """The source of the first job, as the job names it; empty if unknown."""
        return self.origin or ("" if self.job.grows else self.job.source or "")

    @property
    def corpus(self) -> Path | None:
        """The path of the corpus that built the index; None for standard input, and if unknown."""
        source = Path(self.first_source)
        return source if source.is_absolute() else None  # the folder of a relative path is unknown

    @property
    def form(self) -> dict[str, Any]:
        """The language, unit, channels and pruning, which every added passage must share."""
        form: dict[str, Any] = {"channels": self.channels, "language": self.language, "unit": self.unit}
        if self.job.kind == JSON:  # another program pruned the vectors
            return form
        return {**form, "top_k": self.job.top_k, "min_weight": self.job.min_weight}

    @property
    def channels(self) -> str:
        """The channels in the Lucene index: `impact,bm25` or `bm25`."""
        return self.job.channels

    @property
    def has_newer_queries(self) -> bool:
        """Whether releases of format 2 would encode the queries wrongly."""
        return not self.model.keys().isdisjoint(_NEWER_QUERIES)

    @property
    def name(self) -> str:
        """The name of the generation's Lucene folder."""
        return f"{CHANNEL}-{self.number:06d}"

    @property
    def lucene_channels(self) -> tuple[str, ...]:
        """The channels in the Lucene index, the default channel first."""
        return (BM25,) if self.channels == BM25 else ("impact", BM25)

    @property
    def tokenizer_name(self) -> str:
        """The name of the generation's tokenizer folder."""
        return f"tokenizer-{self.number:06d}"

    def as_dict(self) -> dict[str, Any]:
        """Return the generation as the manifest stores it, without `arithmetic`."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "arithmetic"}
        values["job"] = self.job.as_dict()
        return {name: value for name, value in values.items() if value or name not in ("origin", "analyzer")}

    @staticmethod
    def of(stored: Mapping[str, Any], path: Path, name: str, arithmetic: str) -> Generation:
        """Return the generation that a manifest stores.

        :param path: the manifest, for errors
        :param name: the name of the generation's field: `live` or `building`
        :raises IndexStateError: a field is missing, unknown or wrong.
        """
        check_fields(stored, _GENERATION_FIELDS, path, rebuild_index(path.parent), name, closed=True)
        codec, job = codec_name(stored["codec"]), Job.of(stored["job"])
        return Generation(**{**stored, "codec": codec, "job": job, "arithmetic": arithmetic})


@dataclass(frozen=True, slots=True)
class IndexState:
    """The manifest: the live generation, which is searched, and the generation that is being built."""

    live: Generation | None = None
    building: Generation | None = None

    @property
    def searchable(self) -> Generation | None:
        """The generation that a search opens: the live generation, or else the unfinished one."""
        return self.live or self.building

    @property
    def for_resuming(self) -> IndexState:
        """The state before a sync accepted an unfinished first build, unless the sync completed the build."""
        live = self.live
        if live and not live.complete and not live.job.grows and self.building is None:
            return IndexState(building=live)
        return self

    def extended_by(self, mode: str, *, resume: bool) -> Generation | None:
        """Return the generation that a job extends or resumes; None if the job makes a new one."""
        if mode in GROWING:
            return self.live
        resumed = self.for_resuming.building if resume else None
        return self.live if resumed is None and mode == "create" else resumed

    @property
    def has_newer_queries(self) -> bool:
        """Whether a generation has such queries."""
        return any(each.has_newer_queries for each in (self.live, self.building) if each)

    @property
    def next_number(self) -> int:
        """The lowest number above those of both generations."""
        return (
            max((generation.number for generation in (self.live, self.building) if generation), default=0) + 1
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the fields of the manifest."""
        generations = {"live": self.live, "building": self.building}
        stored: dict[str, Any] = {
            name: generation.as_dict() if generation else None for name, generation in generations.items()
        }
        arithmetics = {
            name: generation.arithmetic
            for name, generation in generations.items()
            if generation and generation.arithmetic
        }
        # Beside the generations: older releases refuse a generation with another field.
        return {**stored, "arithmetic": arithmetics} if arithmetics else stored

    @staticmethod
    def of(manifest: Mapping[str, Any], path: Path) -> IndexState:
        """Return the state that a manifest stores.

        :param path: the manifest, for errors
        :raises IndexStateError: a field is missing, unknown or wrong.
        """
        check_fields(manifest, FIELDS, path, rebuild_index(path.parent))
        arithmetics = manifest.get("arithmetic", {})
        return IndexState(
            *(
                Generation.of(manifest[name], path, name, str(arithmetics.get(name, "")))
                if manifest[name] is not None
                else None
                for name in ("live", "building")
            )
        )


@dataclass
class Progress:
    """A job's progress, stored in each Lucene commit: how far the input was read, and what was written.

    `job` is the id of the last job that wrote. `last_id` is the id of this job's last written passage.
    `source` holds the counts of the input once the job is done. `deleted` counts the passages deleted since
    the job began.
    """

    job: str = ""
    consumed: int = 0
    last_id: str = ""
    next_position: int = 0
    done: bool = False
    counts: dict[str, float] = field(default_factory=dict)
    source: dict[str, Any] = field(default_factory=dict)
    deleted: int = 0
    later: dict[str, Any] = field(default_factory=dict)
    """Fields that only later releases know; a writer of this release keeps them."""

    def add(self, passage_ids: Sequence[str], counts: Mapping[str, float]) -> None:
        """Count a batch after the writer has received it."""
        self.consumed += len(passage_ids)
        self.next_position += len(passage_ids)
        self.last_id = passage_ids[-1]
        for name, value in counts.items():
            self.counts[name] = self.counts.get(name, 0) + value

    def dumps(self) -> str:
        """Return the progress as the JSON string for a commit."""
        values = asdict(self)
        return json.dumps(values | values.pop("later"))

    @staticmethod
    def loads(text: str | None) -> Progress:
        """Return the progress from a commit's JSON string; None or an empty string means no progress yet."""
        stored: dict[str, Any] = json.loads(text or "{}")
        names = [each.name for each in fields(Progress) if each.name in stored]
        known = {name: stored.pop(name) for name in names}
        return Progress(**known, later=stored)
