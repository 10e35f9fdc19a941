"""An index folder held open for reading, and opened anew when a writer has committed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sparta.base.closing import Closing
from sparta.base.errors import IndexStateError, SpartaError
from sparta.index.folder import (
    Generation,
    IndexFolder,
    IndexState,
    index_flag,
    lost_commit,
    no_passages,
    require_fields,
)
from sparta.lucene.bridge import Bm25, ImpactSearcher
from sparta.models.quantize import Quantizer
from sparta.models.query_encoder import QueryTokenizer

logger = logging.getLogger(__name__)


class IndexVersion(NamedTuple):
    """What a reader sees: the generation (a new one with each `--overwrite`) and Lucene's commit in it."""

    generation: int
    commit: int


@dataclass
class IndexView:
    """One commit of an index, open for reading."""

    generation: Generation
    version: IndexVersion
    lucene: ImpactSearcher
    tokenizer: QueryTokenizer
    quantizer: Quantizer
    readers: int = field(default=0)
    retired: bool = field(default=False)

    def require_fields(self) -> None:
        """Refuse an index that was made before metadata was indexed."""
        require_fields(self.generation, self.lucene.path.parent)

    def require_impacts(self) -> None:
        """Refuse an index for BM25 alone."""
        if self.generation.channels == "bm25":
            raise IndexStateError(
                "expected an index with impacts, found one for BM25 alone",
                where=str(self.lucene.path.parent),
                remedy="add them with: sparta index --corpus FILE --resume"
                f" {index_flag(self.lucene.path.parent)}; or search --channel bm25",
            )


class OpenIndex(Closing):
    """The newest commit of an index folder when it was opened, or refreshed last.

    Threads may share it: a refresh lets searches that are running end on the commit that they began with.

    :raises IndexStateError: there is no index, it holds no passages, or it is of a newer format.
    """

    def __init__(self, path: str | Path, bm25: Bm25 | None = None) -> None:
        self.folder = IndexFolder(path)
        self._bm25 = bm25
        self._lock = threading.Lock()
        self._view: IndexView | None = self._open()

    @property
    def version(self) -> IndexVersion:
        """The generation and commit that are read."""
        with self.reading() as view:
            return view.version

    @contextmanager
    def reading(self) -> Iterator[IndexView]:
        """Hold the present view open, whatever is refreshed or closed meanwhile."""
        with self._lock:
            view = self._view
            if view is None:
                raise IndexStateError(
                    "the index is closed", where=str(self.folder.path), remedy="open it again"
                )
            view.readers += 1
        try:
            yield view
        finally:
            with self._lock:
                view.readers -= 1
                unused = view.retired and not view.readers
            if unused:
                view.lucene.close()

    def refresh(self) -> bool:
        """See what was committed since; returns whether there was anything. Cheap if there was not."""
        with self.reading() as view:
            if self._newest()[1] == view.version:
                return False
        self._replace(self._open())
        return True

    def close(self) -> None:
        """Release the index as soon as the searches that are running have ended."""
        self._replace(None)

    def _replace(self, new: IndexView | None) -> None:
        with self._lock:
            old, self._view = self._view, new
            unused = old is not None and not old.readers
            if old is not None:
                old.retired = True
        if old is not None and unused:
            old.lucene.close()

    def _open(self) -> IndexView:
        generation, version = self._newest()
        try:
            return self._view_of(generation, version)
        except SpartaError:
            again, version = self._newest()  # a writer finished just now and removed what was chosen
            if again == generation:
                raise
            return self._view_of(again, version)

    def _view_of(self, generation: Generation, version: IndexVersion) -> IndexView:
        side = self.folder.query_side(generation)
        path = self.folder.lucene_path(generation)
        lucene = ImpactSearcher(path, language=generation.language, bm25=self._bm25)
        return IndexView(generation, version, lucene, side.query_tokenizer(), side.quantizer)

    def _newest(self) -> tuple[Generation, IndexVersion]:
        """The generation that is searched, and its last commit; warns of one that is not finished."""
        state = self.folder.state()
        found = _last_commit(self.folder, state)
        if state.live is None or not state.live.complete:
            why = (
                "is being written: searching what is committed"
                if self.folder.is_being_written()
                else "is incomplete, its command was interrupted: searching what is committed; repeat the"
                " command with --resume"
            )
            logger.warning("%s %s", self.folder.path, why)
        return found


def newest_version(path: str | Path) -> IndexVersion:
    """What a reader that is opened now would see; opens nothing.

    :raises IndexStateError: there is no index, or it holds no passages.
    """
    folder = IndexFolder(path)
    return _last_commit(folder, folder.state())[1]


def _last_commit(folder: IndexFolder, state: IndexState) -> tuple[Generation, IndexVersion]:
    """The generation that is searched, and the number of its last commit."""
    generation = state.searchable
    commits = [*folder.lucene_path(generation).glob("segments_*")] if generation else []
    if generation is not None and generation.complete and not commits:
        raise lost_commit(folder.lucene_path(generation))
    if generation is None or not commits:
        raise no_passages(folder.path)
    commit = max(int(path.name.removeprefix("segments_"), 36) for path in commits)
    return generation, IndexVersion(generation.number, commit)
