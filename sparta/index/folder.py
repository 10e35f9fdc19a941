"""Read and write an index folder; every change is atomic."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sparta.base.checks import path_of
from sparta.base.disk.locks import is_locked, lock
from sparta.base.errors import IndexStateError, LackingError, ModelError, NewerFormatError, rebuild_index
from sparta.base.files import TEMPORARY, is_file, refuse_links_below, storage_errors
from sparta.base.manifest import INDEX_KIND, MANIFEST_NAME, read_manifest, write_manifest
from sparta.base.remedies import Command, Option, Remedy, remedy
from sparta.data.languages import language_of
from sparta.index.changes import how_to_finish, how_to_rebuild
from sparta.index.generation import CHANNEL, FIELDS, NESTED, Generation, IndexState, Job, Progress
from sparta.lucene.bridge import Bm25, ImpactSearcher, ImpactWriter
from sparta.models.query_encoder import QuerySide

FORMAT_VERSION, WITH_NEWER_QUERIES = 2, 3
"""The format of most indexes, and of indexes that releases of format 2 would search wrongly."""
DEFAULT_INDEX = "sparta-index"
_LOCK_TIMEOUT = 0.2  # seconds; a reader that only tests the lock holds it for less
_OURS = re.compile(rf"({CHANNEL}|tokenizer|dense)-(\d{{6,}})")


def default_index() -> Path:
    """`$SPARTA_INDEX`, or `./sparta-index`."""
    return Path(os.environ.get("SPARTA_INDEX") or DEFAULT_INDEX)


def lasting_path(path: str | Path) -> Path:
    """Return the absolute path of an existing folder, so that a later change of directory does not matter.

    A missing folder keeps the path as typed, for messages.
    """
    path = path_of(path, "an index folder")
    return path.absolute() if path.exists() else path


def _generation_number(name: str) -> int:
    """Return the number of the generation that a folder belongs to; 0 for any other folder or file."""
    match = _OURS.fullmatch(name)
    return int(match[2]) if match else 0


def lost_commit(lucene: Path) -> IndexStateError:
    """Return the error for a finished Lucene index without a `segments_*` file."""
    message = "the Lucene index has lost its commit (segments_*)"
    return IndexStateError(message, where=str(lucene), remedy=rebuild_index(lucene.parent))


def progress_of(generation: Generation, lucene: ImpactSearcher) -> Progress:
    """Return the progress stored in the commit of a generation's open Lucene index.

    Manifests of earlier releases may hold a job in another form, so only the present form is compared. An
    upload of an earlier release removed the paths of the job from the manifest, so its id is another. A
    deletion keeps the job, so a backup that is copied over its index after deletions passes. Lucene's older
    commit beside the newer one proves no mixture: a kill in the middle of a commit also leaves two.

    :raises IndexStateError: the generation is complete, but its job did not make the commit.
    """
    progress, job = Progress.loads(lucene.user_data), generation.job
    is_compared = generation.complete and generation.fields == NESTED
    if is_compared and progress.job != job.id and not job.lacks_path:
        index = lucene.path.parent.absolute()
        place, aside = shlex.quote(str(index)), shlex.quote(str(_name_beside(index)))
        raise IndexStateError(
            "the Lucene index is not that of the manifest, as if an index or backup was copied over it",
            where=str(lucene.path),
            remedy=rebuild_index(index)
            + f". To restore a backup: mv {place} {aside} && cp -r BACKUP {place}",
        )
    return progress


def _name_beside(index: Path) -> Path:
    """Return a new name for an index folder: `mv` would move the index into an existing folder."""
    names = itertools.chain([f"{index.name}.old"], (f"{index.name}.old-{n}" for n in itertools.count(2)))
    return next(path for path in map(index.with_name, names) if not os.path.lexists(path))


def _finish_remedy(path: Path, unfinished: Generation | None = None) -> Remedy:
    """Return the remedy that finishes an index's first build."""
    if unfinished is not None:
        finish = how_to_finish(unfinished, path)
    else:
        finish = remedy("{}", Command.of("sparta index", corpus="FILE", resume=True, index=path))
    return remedy("{}; if the input has changed since, use {} instead", finish, Option("overwrite", True))


def no_passages(path: Path, unfinished: Generation | None = None) -> IndexStateError:
    """Return the error for an index whose first build was interrupted before its first commit.

    :param unfinished: the generation of the first build, if the manifest names it
    """
    return IndexStateError(
        "the index holds no passages yet",
        where=str(path),
        remedy=_finish_remedy(path, unfinished),
    )


def require_fields(
    generation: Generation, path: Path, fields: Iterable[str], known: Callable[[], Iterable[str]]
) -> None:
    """Raise if a generation was built before sparta indexed metadata, or before it indexed nested fields.

    :param fields: the fields of a search
    :param known: returns all fields of the passages
    """
    rebuild = remedy("rebuild the index: {}", how_to_rebuild(path, generation))
    if generation.fields is None:
        raise LackingError(
            "filter and collapse need metadata, but an older sparta built this index without metadata",
            where=str(path),
            remedy=rebuild,
        )
    nested = [field for field in fields if "." in field] if generation.fields != NESTED else []
    if nested and (nested := sorted(set(nested).difference(known()))):
        raise LackingError(
            f"an older sparta built this index without nested fields such as {nested[0]!r}",
            where=str(path),
            remedy=rebuild,
        )


class IndexFolder:
    """The paths, the manifest and the lock of an index folder."""

    def __init__(self, path: str | Path) -> None:
        self.path = path_of(path, "an index folder")
        self._lock_file: tuple[int, int] | None = None

    def exists(self) -> bool:
        """Return whether the folder holds an index."""
        return is_file(self.path / "manifest.json")

    def state(self) -> IndexState:
        """Read the manifest.

        :raises IndexStateError: the manifest is missing, broken or of a newer format.
        """
        if not self.exists():
            if self._holds_passages():
                raise IndexStateError(
                    "the manifest of the index is missing",
                    where=str(self.path),
                    remedy=rebuild_index(self.path),
                )
            raise IndexStateError(
                "there is no index here",
                where=str(self.path),
                remedy=remedy(
                    "build an index with: {}, or name another index with {} or $SPARTA_INDEX",
                    Command.of("sparta index", corpus="FILE", index=self.path),
                    Option("path", flag="index"),
                ),
            )
        try:
            manifest = read_manifest(self.path, INDEX_KIND, WITH_NEWER_QUERIES, fields=FIELDS)
        except NewerFormatError:
            raise
        except IndexStateError as error:
            error.remedy = rebuild_index(self.path)
            raise
        return IndexState.of(manifest, self.path / "manifest.json")

    def refuse_links(self) -> None:
        """Raise if the index contains symbolic links. The index folder itself may be a link."""
        refuse_links_below(self.path)

    def _holds_passages(self) -> bool:
        """Return whether the folder holds a Lucene index, even without a manifest."""
        return any(self.path.glob(f"{CHANNEL}-??????*/segments_*"))

    def state_for(self, mode: str) -> IndexState:
        """Read the manifest for a job of this mode. An overwrite treats a broken manifest as empty."""
        try:
            return self.state() if self.exists() or self._holds_passages() else IndexState()
        except IndexStateError as error:
            if mode != "overwrite" or isinstance(error, NewerFormatError):
                raise
            return IndexState()

    def require_live(self) -> Generation:
        """Return the live generation.

        :raises IndexStateError: the index's first build is unfinished.
        """
        state = self.state()
        live = state.live
        if live is None:
            raise IndexStateError(
                "the first build of this index is unfinished",
                where=str(self.path),
                remedy=_finish_remedy(self.path, state.building),
            )
        return live

    def write_state(self, state: IndexState) -> None:
        """Replace the manifest atomically.

        :raises IndexStateError: the folder was replaced since it was locked.
        """
        self.check_not_replaced()
        version = WITH_NEWER_QUERIES if state.has_newer_queries else FORMAT_VERSION
        facts = {"kind": INDEX_KIND, "format_version": version}
        write_manifest(self.path, {**facts, **state.as_dict()})

    def lucene_path(self, generation: Generation) -> Path:
        """Return the path of a generation's Lucene index."""
        return self.path / generation.name

    def searcher(self, generation: Generation, bm25: Bm25 | None = None) -> ImpactSearcher:
        """Open the last commit of a generation's Lucene index."""
        return ImpactSearcher(self.lucene_path(generation), language=generation.analysis, bm25=bm25)

    def writer(self, generation: Generation, **options: Any) -> ImpactWriter:
        """Open a generation's Lucene index to write into it.

        :param options: `threads` and `ram_buffer_mb` of `ImpactWriter`
        """
        path, language = self.lucene_path(generation), generation.analysis
        return ImpactWriter(path, language=language, codec=generation.codec, **options)

    def channel_path(self, channel: str, generation: Generation) -> Path:
        """Return the newest folder of another channel that is not newer than the generation.

        A finished folder, which has a manifest, goes before a begun folder. So a new generation keeps using
        the previous generation's channel, and no reader ever misses it. Each vector belongs to a record, and
        searches never return vectors of deleted records.
        """
        paths = {_generation_number(path.name): path for path in self.path.glob(f"{channel}-*")}
        numbers = [number for number in paths if 0 < number <= generation.number]
        finished = [number for number in numbers if is_file(paths[number] / MANIFEST_NAME)]
        number = max(finished or numbers, default=0)
        return paths.get(number, self.begun_path(channel, generation))

    def begun_path(self, channel: str, generation: Generation) -> Path:
        """Return the folder in which an indexing pass begins another channel of a generation."""
        return self.path / f"{channel}-{generation.number:06d}"

    def dense_path(self, generation: Generation) -> Path:
        """Return the path of a generation's dense channel."""
        return self.channel_path("dense", generation)

    def query_side(self, generation: Generation) -> QuerySide:
        """Return a generation's tokenizer, query weights and quantizer."""
        try:
            return QuerySide.load(self.path / generation.tokenizer_name, generation.model)
        except (IndexStateError, ModelError) as error:
            raise IndexStateError(
                error.message, where=error.where, remedy=rebuild_index(self.path)
            ) from error

    def open_query_network(self) -> None:
        """Open the network that encodes the queries of the index; do nothing if it has none.

        :raises IndexStateError: the model was moved or has changed.
        """
        generation = self.state().searchable
        if generation is not None and generation.model.get("query_network"):
            self.query_side(generation).query_tokenizer(generation.analysis).open_network()

    def begin(
        self,
        side: QuerySide,
        job: Job,
        arithmetic: str = "",
    ) -> Generation:
        """Start a new generation beside the live one, and remove an older unfinished generation.

        If no generation is live, old folders may belong to a lost manifest. They stay until the new
        generation is finished.
        """
        with storage_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self.refuse_foreign()
            state = self.state_for(job.mode)
            generation = Generation(
                max(state.next_number, self._highest_number() + 1),
                side.identity(),
                job.language,
                job.codec,
                job.unit,
                job=job,
                fields=NESTED,
                arithmetic=arithmetic,
            )
            if generation.analysis != (current_language := language_of(job.language)):
                generation = replace(generation, analyzer=current_language.analyzer)
            side.save(self.path / generation.tokenizer_name)
            self.write_state(replace(state, building=generation))
            if state.live:
                self.sweep()
            elif state.building:
                shutil.rmtree(self.lucene_path(state.building), ignore_errors=True)
                shutil.rmtree(self.path / state.building.tokenizer_name, ignore_errors=True)
        return generation

    def _highest_number(self) -> int:
        """Return the highest generation number of all folders, including folders outside the manifest."""
        return max((_generation_number(child.name) for child in self.path.iterdir()), default=0)

    def finish(self, generation: Generation) -> None:
        """Make a complete generation live and remove the replaced one. An unfinished generation stays."""
        building = self.state().building
        if building and building.number == generation.number:
            building = None
        self.write_state(IndexState(generation, building))
        self.sweep()

    def accept_unfinished_build(self) -> None:
        """Make the passages of an interrupted first build the live generation, which stays incomplete.

        An update from the same source then adds the other passages. Without such a build, nothing changes.
        """
        with self.lock():
            state = self.state()
            if state.live is None and state.building:
                self.write_state(IndexState(state.building))

    def reopen(self, building: Generation, live: Generation | None) -> Generation:
        """Return an unfinished generation, to continue it. It is not live, even if a sync had accepted it."""
        state = IndexState(live, building)
        if self.state() != state:
            self.write_state(state)
        return building

    def refuse_foreign(self) -> None:
        """Raise if a new index would share its folder with other files, which a cleanup could remove."""
        if self.exists() or not self.path.is_dir():
            return
        ours = (f"{CHANNEL}-", "tokenizer-", "dense-", "lock", ".")
        foreign = [child.name for child in self.path.iterdir() if not child.name.startswith(ours)]
        foreign += [
            child.name for child in self.path.iterdir() if child.is_dir() and not _OURS.fullmatch(child.name)
        ]
        if foreign:
            raise IndexStateError(
                f"the index folder contains a foreign file: {min(foreign)}",
                where=str(self.path),
                remedy=remedy("name another folder with {}", Option("path", flag="index")),
            )

    def sweep(self) -> None:
        """Remove the folders of old generations, except the newest vectors."""
        for child in self._left_over(self.state()):
            if child.is_dir():
                shutil.rmtree(child, ignore_errors=True)
            else:
                child.unlink(missing_ok=True)

    def sweep_left_over(self) -> None:
        """Remove the files of a killed process, unless a running writer holds the lock."""
        if self._left_over(self.state()) and not self.is_being_written():
            with self.lock():
                self.sweep()

    def _left_over(self, state: IndexState) -> list[Path]:
        """Return the folders that the manifest does not name, and the temporary files of killed processes."""
        generations = [generation for generation in (state.live, state.building) if generation]
        used_names = {
            name
            for generation in generations
            for name in (
                generation.name,
                generation.tokenizer_name,
                self.dense_path(generation).name,
                self.begun_path("dense", generation).name,
            )
        }
        folders = [child for child in self.path.iterdir() if child.is_dir() and _OURS.fullmatch(child.name)]
        unused = [folder for folder in folders if folder.name not in used_names]
        return unused + list(self.path.glob(TEMPORARY))

    def watch(self) -> None:
        """From now on, let `check_not_replaced` compare the folder at this path with the present one."""
        there = (self.path / "lock").stat()
        self._lock_file = there.st_dev, there.st_ino

    def check_not_replaced(self) -> None:
        """Raise if another folder has this path since the folder was locked, as after `mv new served`.

        Whoever writes into a locked folder by its path calls this before.
        """
        if self._lock_file is None:
            return
        try:
            there = (self.path / "lock").stat()
        except OSError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != self._lock_file:
            raise IndexStateError(
                "the index folder was replaced while it was written; the index now there is unchanged",
                where=str(self.path),
                remedy="repeat the command, if the new index needs this change too",
            )

    def is_being_written(self) -> bool:
        """Return whether a running process holds the lock."""
        return is_locked(self.path / "lock")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock for writing. The lock of a killed process counts as free.

        :raises IndexStateError: another process holds the lock.
        """
        with ExitStack() as stack:
            with storage_errors(self.path):
                self.path.mkdir(parents=True, exist_ok=True)
                self.refuse_links()
                stream = stack.enter_context((self.path / "lock").open("ab"))
                is_free = lock(stream, _LOCK_TIMEOUT)
            if not is_free:
                raise IndexStateError(
                    "another process is writing to this index",
                    where=str(self.path),
                    remedy=remedy(
                        "wait until the process ends, or choose another index folder with {}",
                        Option("path", flag="index"),
                    ),
                )
            locked = os.fstat(stream.fileno())
            self._lock_file = locked.st_dev, locked.st_ino
            stack.callback(setattr, self, "_lock_file", None)
            yield
