"""What lies in an index folder, and how it changes without ever being half changed."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sparta.base.checks import path_of
from sparta.base.errors import REBUILD_INDEX, IndexStateError, LackingError, ModelError, NewerFormatError
from sparta.base.files import refuse_links_below, storage_errors
from sparta.base.locks import is_locked, lock
from sparta.base.manifest import check_fields, read_manifest, write_manifest
from sparta.base.remedies import Command, Option, Remedy, remedy
from sparta.data.languages import Language, language_of
from sparta.data.units import UNIT
from sparta.lucene import LUCENE_VERSION
from sparta.models.query_encoder import MODEL_FIELDS, QuerySide, QueryTokenizer

KIND = "sparta-index"
FORMAT_VERSION = 2
CHANNEL = "sparta"
DEFAULT_INDEX = "sparta-index"
DEFAULT_CODEC = "fast"
BOTH_CHANNELS, BM25 = "impact,bm25", "bm25"
GROWING = ("append", "update")  # modes of jobs that write into the live generation
_LOCK_SECONDS = 0.2  # a reader that looks whether there is a writer lets go sooner
_JOB_FIELDS = {
    "mode?": str,
    "source?": (str, type(None)),
    "from?": str,
    "folders?": list,
    "channels?": str,
    "unit?": UNIT,
    "top_k?": (int, type(None)),
    "min_weight?": (int, float),
}
_GENERATION_FIELDS: dict[str, Any] = {
    "number": range(1, 10**6),
    "model": MODEL_FIELDS,
    "language?": str,
    "codec": (str, type(None)),
    "unit?": UNIT,
    "complete?": bool,
    "job": _JOB_FIELDS,
    "counts?": dict,
    "lucene_version?": str,
    "origin?": str,
    "fields?": (str, type(None)),
    "analyzer?": str,
}
_OURS = re.compile(rf"({CHANNEL}|tokenizer|dense)-\d{{6}}")


def default_index() -> Path:
    """`$SPARTA_INDEX`, or `./sparta-index`."""
    return Path(os.environ.get("SPARTA_INDEX") or DEFAULT_INDEX)


def lasting_path(path: str | Path) -> Path:
    """Return the absolute path of a folder that exists, which holds after the program changed folder.

    The path of a missing folder stays as it was typed, for messages.
    """
    path = path_of(path, "an index folder")
    return path.absolute() if path.exists() else path


def codec_name(name: str | None) -> str:
    """Return the name of a codec; `sparta` is an older name of `fast`, None the default."""
    return {None: DEFAULT_CODEC, "sparta": "fast"}.get(name) or str(name)


def lost_commit(lucene: Path) -> IndexStateError:
    """The error of a finished Lucene index without `segments_*`."""
    message = "the Lucene index has lost its commit (segments_*)"
    return IndexStateError(message, where=str(lucene), remedy=REBUILD_INDEX)


@dataclass(frozen=True, slots=True)
class Generation:
    """One build of the index: its number, what made it, and what it holds.

    `job` describes the input that is being written or was written last (source, how it was cut); `counts` are
    for people, a reader takes progress from the Lucene commit. `origin` is the source of its first job, as
    soon as another follows; a manifest has it only then. `fields` names the metadata that is indexed; None is
    an index of format 1, which has none. `analyzer` is named where the language alone would not say how its
    texts were read.
    """

    number: int
    model: dict[str, Any]
    language: str = "en"
    codec: str = DEFAULT_CODEC
    unit: str = "passage"
    complete: bool = False
    job: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, Any] = field(default_factory=dict)
    lucene_version: str = LUCENE_VERSION
    origin: str = ""
    fields: str | None = None
    analyzer: str = ""

    @property
    def analysis(self) -> Language:
        """How its texts and questions are read: as its language has it, by the analyzer it was made with.

        :raises InputError: the language is unknown here.
        """
        own = language_of(self.language)
        if self.analyzer:
            return own if own.analyzer == self.analyzer else replace(own, analyzer=self.analyzer)
        return replace(own, analyzer=own.former or own.analyzer, fold=Language().fold)

    @property
    def first_source(self) -> str:
        """What its first job read, as that job names it; empty where nothing tells."""
        only_job = self.job.get("mode") not in GROWING
        return self.origin or (str(self.job.get("source") or "") if only_job else "")

    @property
    def corpus(self) -> Path | None:
        """The corpus that this index was made from; None for standard input, and where nothing tells."""
        source = Path(self.first_source)
        return source if source.is_absolute() else None  # a relative one is relative to nobody knows what

    @property
    def form(self) -> dict[str, Any]:
        """How its texts are read and pruned, which all that is added shares."""
        pruned: dict[str, Any] = {
            name: self.job[name] for name in ("top_k", "min_weight") if name in self.job
        }
        return {"channels": self.channels, "language": self.language, "unit": self.unit, **pruned}

    @property
    def channels(self) -> str:
        """What its Lucene index holds: impacts and BM25, or `bm25` alone."""
        return str(self.job.get("channels", BOTH_CHANNELS))

    @property
    def name(self) -> str:
        """The folder of its Lucene index."""
        return f"{CHANNEL}-{self.number:06d}"

    @property
    def lucene_channels(self) -> tuple[str, ...]:
        """The channels that lie in its Lucene index, the default one first."""
        return (BM25,) if self.channels == BM25 else ("impact", BM25)

    @property
    def tokenizer_name(self) -> str:
        """The folder of its tokenizer."""
        return f"tokenizer-{self.number:06d}"


@dataclass(frozen=True, slots=True)
class IndexState:
    """The manifest: the generation that is searched and the one that is being built, if there are such."""

    live: Generation | None = None
    building: Generation | None = None

    @property
    def searchable(self) -> Generation | None:
        """What search opens: the live generation or, when there is none yet, the one being built."""
        return self.live or self.building

    @property
    def next_number(self) -> int:
        """A number that no generation has."""
        return max((g.number for g in (self.live, self.building) if g), default=0) + 1


def _finish(path: Path) -> Remedy:
    """Return what finishes a first build."""
    return remedy(
        "finish it with: {}; if FILE has changed since, with {} in place of {}",
        Command.of("sparta index", corpus="FILE", resume=True, index=path),
        Option("overwrite", True),
        Option("resume", True),
    )


def no_passages(path: Path) -> IndexStateError:
    """Say that an index, whose first build was interrupted, has nothing to be searched yet."""
    return IndexStateError(
        "the index holds no passages yet",
        where=str(path),
        remedy=_finish(path),
    )


def require_fields(generation: Generation, path: Path) -> None:
    """Refuse a generation that was made before metadata was indexed."""
    if generation.fields is None:
        raise LackingError(
            "filter, collapse: expected an index whose metadata is indexed, found one of an older sparta",
            where=str(path),
            remedy=remedy(
                "build it again: {}",
                Command.of("sparta index", corpus="FILE", overwrite=True, index=path),
            ),
        )


class IndexFolder:
    """An index folder: its manifest, its paths, its lock."""

    def __init__(self, path: str | Path) -> None:
        self.path = path_of(path, "an index folder")

    def exists(self) -> bool:
        """Whether there is an index."""
        return (self.path / "manifest.json").is_file()

    def state(self) -> IndexState:
        """Read the manifest; a missing, broken or newer one is an IndexStateError."""
        if not self.exists():
            if self._holds_passages():
                raise IndexStateError(
                    "the manifest of the index is missing", where=str(self.path), remedy=REBUILD_INDEX
                )
            raise IndexStateError(
                "there is no index here",
                where=str(self.path),
                remedy=remedy(
                    "make one with: {}, or name another with {} or $SPARTA_INDEX",
                    Command.of("sparta index", corpus="FILE", index=self.path),
                    Option("index"),
                ),
            )
        try:
            manifest = read_manifest(self.path, KIND, FORMAT_VERSION)
        except NewerFormatError:
            raise
        except IndexStateError as error:
            error.remedy = REBUILD_INDEX
            raise
        path = self.path / "manifest.json"
        either = (dict, type(None))
        check_fields(manifest, {"live": either, "building": either}, path, REBUILD_INDEX)
        return IndexState(
            *(_generation(manifest[name], path, name) for name in ("live", "building")),
        )

    def refuse_links(self) -> None:
        """Refuse symbolic links among the files of the index; the folder itself may be one."""
        refuse_links_below(self.path)

    def _holds_passages(self) -> bool:
        """Whether a Lucene index lies here, whatever the manifest says."""
        return any(self.path.glob(f"{CHANNEL}-??????/segments_*"))

    def state_for(self, mode: str) -> IndexState:
        """The manifest as a job finds it; to an overwrite, one that cannot be read names nothing."""
        try:
            return self.state() if self.exists() or self._holds_passages() else IndexState()
        except IndexStateError as error:
            if mode != "overwrite" or isinstance(error, NewerFormatError):
                raise
            return IndexState()

    def require_live(self) -> Generation:
        """Return the live generation; an index that is still being built is an IndexStateError."""
        live = self.state().live
        if live is None:
            raise IndexStateError(
                "expected a finished index, found one that is still being built",
                where=str(self.path),
                remedy=_finish(self.path),
            )
        return live

    def write_state(self, state: IndexState) -> None:
        """Replace the manifest atomically."""
        manifest = {
            "kind": KIND,
            "format_version": FORMAT_VERSION,
            "live": _as_dict(state.live),
            "building": _as_dict(state.building),
        }
        write_manifest(self.path, manifest)

    def lucene_path(self, generation: Generation) -> Path:
        """Where its Lucene index lies."""
        return self.path / generation.name

    def channel_path(self, channel: str, generation: Generation) -> Path:
        """Return where another channel lies: the newest one that is not newer than the generation.

        A generation takes over the channel of the one before it, in its place: a vector belongs to a record,
        and those of records that are gone are never found. So a reader never meets a generation without.
        """
        own = f"{channel}-{generation.number:06d}"
        names = [path.name for path in self.path.glob(f"{channel}-??????") if path.name <= own]
        return self.path / max(names, default=own)

    def dense_path(self, generation: Generation) -> Path:
        """Return where its dense channel lies, if it has one."""
        return self.channel_path("dense", generation)

    def query_side(self, generation: Generation) -> QuerySide:
        """Its tokenizer, query weights and quantizer."""
        try:
            return QuerySide.load(self.path / generation.tokenizer_name, generation.model)
        except (IndexStateError, ModelError) as error:
            raise IndexStateError(error.message, where=error.where, remedy=REBUILD_INDEX) from error

    def query_tokenizer(self, generation: Generation) -> QueryTokenizer:
        """What makes bags of terms of its questions."""
        return self.query_side(generation).query_tokenizer(generation.analysis)

    def begin(
        self, side: QuerySide, language: str, job: dict[str, Any], codec: str = DEFAULT_CODEC
    ) -> Generation:
        """Start a new generation beside the live one; an unfinished older attempt is dropped.

        Where no generation is live, folders may be of one whose manifest was lost: they stay until the new
        one is finished.
        """
        with storage_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self.refuse_foreign()
            state = self.state_for(job.get("mode", "create"))
            unit = job.get("unit", "passage")
            number = max(state.next_number, self._highest_number() + 1)
            generation = Generation(number, side.identity(), language, codec, unit, job=job, fields="all")
            if generation.analysis != (own := language_of(language)):
                generation = replace(generation, analyzer=own.analyzer)
            side.save(self.path / generation.tokenizer_name)
            self.write_state(replace(state, building=generation))
            if state.live:
                self.sweep()
            elif state.building:
                shutil.rmtree(self.lucene_path(state.building), ignore_errors=True)
                shutil.rmtree(self.path / state.building.tokenizer_name, ignore_errors=True)
        return generation

    def _highest_number(self) -> int:
        """The highest number of a folder of ours that lies here, named by the manifest or not."""
        names = [child.name for child in self.path.iterdir() if _OURS.fullmatch(child.name)]
        return max((int(name.rpartition("-")[2]) for name in names), default=0)

    def finish(self, generation: Generation) -> None:
        """Make a generation the live one; what it replaces is removed, another that is being built stays."""
        building = self.state().building
        if building and building.number == generation.number:
            building = None
        self.write_state(IndexState(replace(generation, complete=True), building))
        self.sweep()

    def refuse_foreign(self) -> None:
        """A first index goes into an empty folder: nothing of somebody else's may be swept away."""
        if self.exists() or not self.path.is_dir():
            return
        ours = (f"{CHANNEL}-", "tokenizer-", "dense-", "lock", ".")
        foreign = [child.name for child in self.path.iterdir() if not child.name.startswith(ours)]
        foreign += [c.name for c in self.path.iterdir() if c.is_dir() and not _OURS.fullmatch(c.name)]
        if foreign:
            raise IndexStateError(
                f"expected an index, an empty or a new folder, found one that holds {min(foreign)}",
                where=str(self.path),
                remedy=remedy("name another folder with {}", Option("index")),
            )

    def sweep(self) -> None:
        """Remove folders of generations that the manifest does not name, but for the newest vectors."""
        for child in self._left_over(self.state()):
            if child.is_dir():
                shutil.rmtree(child, ignore_errors=True)
            else:
                child.unlink(missing_ok=True)

    def sweep_left_over(self) -> None:
        """Sweep what a process left that was killed before it swept; one that writes now does so itself."""
        if self._left_over(self.state()) and not self.is_being_written():
            with self.lock():
                self.sweep()

    def _left_over(self, state: IndexState) -> list[Path]:
        """Folders that the manifest does not name, and files of a process that was killed as it wrote."""
        kept = [g for g in (state.live, state.building) if g]
        named = {n for g in kept for n in (g.name, g.tokenizer_name, self.dense_path(g).name)}
        left = [c for c in self.path.iterdir() if c.is_dir() and _OURS.fullmatch(c.name)]
        return [c for c in left if c.name not in named] + list(self.path.glob(".sparta-*.tmp"))

    def is_being_written(self) -> bool:
        """Whether a process holds the lock now; one that was killed holds nothing."""
        return is_locked(self.path / "lock")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for writing; a second writer gets an IndexStateError, a dead one holds nothing."""
        with ExitStack() as stack:
            with storage_errors(self.path):
                self.path.mkdir(parents=True, exist_ok=True)
                self.refuse_links()
                stream = stack.enter_context((self.path / "lock").open("ab"))
                is_free = lock(stream, _LOCK_SECONDS)
            if not is_free:
                raise IndexStateError(
                    "another process is writing to this index",
                    where=str(self.path),
                    remedy=remedy("wait until it is done, or write to another {}", Option("index")),
                )
            yield


def _generation(value: dict[str, Any] | None, path: Path, name: str) -> Generation | None:
    if value is None:
        return None
    check_fields(value, _GENERATION_FIELDS, path, REBUILD_INDEX, name)
    if unknown := value.keys() - Generation.__dataclass_fields__.keys():
        raise IndexStateError(
            f"expected no field {name}.{min(unknown)}, found one", where=str(path), remedy=REBUILD_INDEX
        )
    job, codec = dict(value["job"]), codec_name(value["codec"])
    return Generation(**{**value, "codec": codec, "job": {**job, "codec": codec} if "codec" in job else job})


def _as_dict(generation: Generation | None) -> dict[str, Any] | None:
    if generation is None:
        return None
    values = {name: getattr(generation, name) for name in Generation.__dataclass_fields__}
    return {name: value for name, value in values.items() if value or name not in ("origin", "analyzer")}
