"""An index folder held open for reading, and opened anew when a writer has committed."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sparta.base.closing import Closing
from sparta.base.errors import IndexStateError, LackingError, SpartaError
from sparta.base.shared import Shared
from sparta.index.changes import carried, changed_by, how_to_add_impacts, how_to_finish, is_whole, job_name
from sparta.index.folder import (
    Generation,
    IndexFolder,
    IndexState,
    lasting_path,
    lost_commit,
    no_passages,
    require_fields,
)
from sparta.lucene.bridge import Bm25, ImpactSearcher
from sparta.models.quantize import Quantizer
from sparta.models.query_encoder import QueryTokenizer

logger = logging.getLogger(__name__)
_HEADER_BYTES = 33
"""Of a file segments_N: magic number, the name `segments`, version, and the commit's random name."""


class IndexVersion(NamedTuple):
    """What a reader sees: the generation (a new one with each `--overwrite`) and Lucene's commit in it."""

    generation: int
    commit: int


class Commit(NamedTuple):
    """Identifies a commit, even after the index folder is replaced.

    `header` holds the 16 random bytes with which Lucene names each commit, so neither clocks nor file times
    matter. It is None where a writer removed the file just now.
    """

    version: IndexVersion
    header: bytes | None


@dataclass
class IndexView(Closing):
    """One commit of an index, open for reading."""

    generation: Generation
    commit: Commit
    lucene: ImpactSearcher
    tokenizer: QueryTokenizer
    quantizer: Quantizer

    @property
    def version(self) -> IndexVersion:
        """The generation and the commit in it."""
        return self.commit.version

    @property
    def is_whole(self) -> bool:
        """Whether the commit is that of a finished job."""
        return is_whole(self.generation, done=carried(self.lucene.user_data).get("done", False))

    def close(self) -> None:
        """Close Lucene's reader."""
        self.lucene.close()

    def require_fields(self) -> None:
        """Refuse an index that was made before metadata was indexed."""
        require_fields(self.generation, self.lucene.path.parent)

    def require_impacts(self) -> None:
        """Refuse an index for BM25 alone."""
        if self.generation.channels == "bm25":
            path = self.lucene.path.parent
            changed = changed_by(self.generation, carried(self.lucene.user_data).get("deleted", 0))
            add = how_to_add_impacts(self.generation, path, changed)
            since = f", which was changed since by {changed}" if changed else ""
            raise LackingError(
                f"expected an index with impacts, found one for BM25 alone{since}",
                where=str(path),
                remedy=f"{add}; sparta search --channel bm25 does without",
            )


class OpenIndex(Shared[IndexView]):
    """The newest commit of an index folder when it was opened, or refreshed last.

    Threads may share it: a refresh lets searches that are running end on the commit that they began with.

    :raises IndexStateError: there is no index, it holds no passages, or it is of a newer format.
    """

    def __init__(self, path: str | Path, bm25: Bm25 | None = None) -> None:
        self.folder = IndexFolder(lasting_path(path))
        self.bm25 = bm25
        super().__init__(self._open(), str(path))

    @property
    def version(self) -> IndexVersion:
        """The generation and commit that are read."""
        with self.reading() as view:
            return view.version

    def refresh(self) -> bool:
        """See what was committed since; returns whether there was anything. Cheap if there was not."""
        with self.reading() as view:
            if self._newest()[1] == view.commit:
                return False
        self.replace(self._open())
        return True

    def _open(self) -> IndexView:
        view = self._newest_view()
        self._warn(view)
        return view

    def _newest_view(self) -> IndexView:
        generation, commit = self._newest()
        try:
            return self._view_of(generation, commit)
        except SpartaError:
            again, commit = self._newest()  # a writer finished just now and removed what was chosen
            if again == generation:
                raise
            return self._view_of(again, commit)

    def _view_of(self, generation: Generation, commit: Commit) -> IndexView:
        self.folder.refuse_links()
        side = self.folder.query_side(generation)
        path = self.folder.lucene_path(generation)
        lucene = ImpactSearcher(path, language=generation.analysis, bm25=self.bm25)
        return IndexView(
            generation, commit, lucene, side.query_tokenizer(generation.analysis), side.quantizer
        )

    def _newest(self) -> tuple[Generation, Commit]:
        """The generation that is searched, and its last commit."""
        return _last_commit(self.folder)

    def _warn(self, view: IndexView) -> None:
        """Warn of a job of which only a part is committed."""
        path, job = self.folder.path, view.generation.job
        if view.is_whole:
            return
        if self.folder.is_being_written():
            logger.warning("%s is being written: searching what is committed", path)
            return
        logger.warning(
            "%s is incomplete, the %s was interrupted: searching what is committed; %s",
            path,
            job_name(job),
            how_to_finish(view.generation, path),
        )


def newest_commit(path: str | Path) -> Commit:
    """What a reader that is opened now would see; opens nothing.

    :raises IndexStateError: there is no index, or it holds no passages.
    """
    return _last_commit(IndexFolder(path))[1]


def _last_commit(folder: IndexFolder) -> tuple[Generation, Commit]:
    """The generation that is searched, and its last commit."""
    state = folder.state()
    while True:
        try:
            return _commit_of(folder, state)
        except IndexStateError:
            before, state = state, folder.state()
            if state == before:  # else an overwrite ended just now and removed what was chosen
                raise


def _commit_of(folder: IndexFolder, state: IndexState) -> tuple[Generation, Commit]:
    """The generation that a manifest has searched, and its last commit."""
    generation = state.searchable
    found = folder.lucene_path(generation).glob("segments_*") if generation else ()
    commits = {int(path.name.removeprefix("segments_"), 36): path for path in found}
    if generation is not None and generation.complete and not commits:
        raise lost_commit(folder.lucene_path(generation))
    if generation is None or not commits:
        raise no_passages(folder.path)
    number = max(commits)
    try:
        with commits[number].open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except FileNotFoundError:
        header = None
    return generation, Commit(IndexVersion(generation.number, number), header)
