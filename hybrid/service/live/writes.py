"""Changes of the index: one upload at a time, acknowledged when it is committed."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from hybrid.service.errors import BusyError, HttpError, within
from hybrid.service.live.ndjson import Line, LineErrors, read_lines
from hybrid.service.live.snapshot import LiveIndex
from hybrid.service.settings import Settings
from sparta.base.closing import Closing
from sparta.base.errors import SpartaError
from sparta.base.extras import optional_packages
from sparta.data.units import passage_of
from sparta.index.pipeline import IndexOptions, build_index, delete_from_index
from sparta.models.resolve import is_shipped
from sparta.search.searcher import BM25

if TYPE_CHECKING:
    from sparta.models.sparse import SparseEncoder

logger = logging.getLogger("sparta.serve")
_MOST_WAITING = 16
Report = dict[str, Any]


class Writer(Closing):
    """Writes into the index of a service, in a thread of its own; uploads wait for each other."""

    def __init__(self, index: LiveIndex, settings: Settings) -> None:
        self._index, self._settings = index, settings
        self._thread = ThreadPoolExecutor(1, "writer")
        self._waiting = 0
        self._opened: tuple[tuple[str | None, int | None], SparseEncoder] | None = None

    async def put(self, stream: BinaryIO) -> Report:
        """Replace passages by id, and add those that are new."""
        return await self._run(partial(self._write, stream, "update"))

    async def add(self, stream: BinaryIO) -> Report:
        """Add passages; a line whose id the index holds already is an error."""
        return await self._run(partial(self._write, stream, "append"))

    async def delete(self, stream: BinaryIO) -> Report:
        """Delete passages; a line whose id the index does not hold is an error."""
        return await self._run(partial(self._delete, stream))

    async def delete_one(self, passage_id: str) -> Report:
        """Delete one passage; one that is not there is a 404."""
        report = await self._run(partial(delete_from_index, self._settings.index, [passage_id]))
        if report.missing:
            raise HttpError(404, f"the index holds no passage with the id {passage_id!r}")
        return {"deleted": 1, "errors": []}

    def close(self) -> None:
        """Wait for what is being written."""
        self._thread.shutdown()

    async def _run[R](self, work: Callable[[], R]) -> R:
        """Do it in the writer's thread, and have searches see it before it is acknowledged."""
        if self._waiting >= _MOST_WAITING:
            raise BusyError(f"{self._waiting} uploads wait already", remedy="try again in a moment")
        self._waiting += 1

        def done() -> R:
            report = work()
            try:
                self._index.refresh()
            except (SpartaError, OSError) as error:
                logger.warning("written, but not opened yet: %s", error)
            return report

        try:
            async with within(self._settings.limits.upload_timeout):
                return await asyncio.get_running_loop().run_in_executor(self._thread, done)
        finally:
            self._waiting -= 1

    def _write(self, stream: BinaryIO, mode: str) -> Report:
        errors = LineErrors()
        lines = list(read_lines(stream, self._settings.limits.line, errors, ids=False))
        held = self._held([line.passage_id for line in lines])
        if mode == "append":
            for line in lines:
                if line.passage_id in held:
                    errors.add(
                        line.number, f"expected a new id, found {line.passage_id!r}, which the index holds"
                    )
            lines = [line for line in lines if line.passage_id not in held]
        _refuse_if_nothing(lines, errors)
        passages = [line.passage for line in lines if line.passage]
        if passages:
            options = self._options()
            build_index(self._settings.index, passages, mode, options, encoder=self._encoder(options))
        replaced = sum(line.passage_id in held for line in lines)
        report: Report = {"added": len(lines) - replaced}
        if mode == "update":
            report["updated"] = replaced
        return {**report, "errors": _sorted(errors)}

    def _delete(self, stream: BinaryIO) -> Report:
        errors = LineErrors()
        lines = list(read_lines(stream, self._settings.limits.line, errors, ids=True))
        _refuse_if_nothing(lines, errors)
        missing: set[str] = set()
        if lines:
            missing |= set(
                delete_from_index(self._settings.index, [line.passage_id for line in lines]).missing
            )
        for line in lines:
            if line.passage_id in missing:
                errors.add(line.number, f"the index holds no passage with the id {line.passage_id!r}")
        return {"deleted": len(lines) - len(missing), "errors": _sorted(errors)}

    def _options(self) -> IndexOptions:
        """With the index's own model, where it lies where it lay; one commit for all."""
        with self._index.reading() as snapshot, snapshot.lucene.index.reading() as view:
            own, channels = view.generation.model, view.generation.channels
        name = str(own["name"])
        return IndexOptions(
            channels=channels,
            model=self._settings.model or (name if Path(name).is_dir() or is_shipped(name) else None),
            bits=own["quantizer"]["bits"],
            device=self._settings.device,
            commit_seconds=math.inf,
        )

    def _encoder(self, options: IndexOptions) -> SparseEncoder | None:
        """The model, which stays open from one upload to the next; None for BM25 alone, which needs none."""
        if options.channels == BM25:
            return None
        if self._opened is None or self._opened[0] != (options.model, options.bits):
            self._opened = (options.model, options.bits), _open_encoder(options)
        return self._opened[1]

    def _held(self, passage_ids: Sequence[str]) -> set[str]:
        """Those of some ids that the index holds, of passages or of what was cut from them."""
        self._index.refresh()
        with self._index.reading() as snapshot, snapshot.lucene.index.reading() as view:
            there = zip(passage_ids, view.lucene.docids(passage_ids), strict=True)
            held = {passage_id for passage_id, docid in there if docid >= 0}
            return held | set(map(passage_of, view.lucene.sentences(passage_ids)))


@optional_packages()
def _open_encoder(options: IndexOptions) -> SparseEncoder:
    from sparta.models.load import open_encoder

    return open_encoder(options.model, options.bits, options.for_encoding().devices)


def _refuse_if_nothing(lines: Sequence[Line], errors: LineErrors) -> None:
    if errors and not lines:
        raise HttpError(
            400, "expected at least one line that can be used, found none", errors=_sorted(errors)
        )


def _sorted(errors: LineErrors) -> list[dict[str, Any]]:
    return sorted(errors, key=lambda error: error["line"])
