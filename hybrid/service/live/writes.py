"""Writes uploads into the index, one at a time, and acknowledges each upload after its commit."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, BinaryIO

from hybrid.service.errors import BusyError, HttpError, contained
from hybrid.service.journal import shown, unexpected
from hybrid.service.live.ndjson import Line, LineErrors, as_lines, read_lines, value_bytes
from hybrid.service.schemas import DeleteRequest, parsed
from hybrid.service.settings import Settings
from sparta.base.closing import Closing
from sparta.data.formats.fields import USUAL_FIELDS
from sparta.data.units import is_cut, passage_of
from sparta.index.inputs.open_encoder import OpenEncoder
from sparta.index.inputs.options import IndexOptions, options_to_grow
from sparta.index.pipeline import build_index, delete_from_index
from sparta.index.reader import IndexReader

logger = logging.getLogger("sparta.serve")
_MOST_WAITING = 16
_MOST_PARSED = 2  # uploads with passages in memory: one is written while the next is parsed or waits
Report = dict[str, Any]


class Writer(Closing):
    """Writes into the index of a service, in its own thread; uploads run one after the other."""

    def __init__(
        self,
        reader: IndexReader,
        refresh: Callable[[], object],
        settings: Settings,
    ) -> None:
        self._reader, self._refresh, self._settings = reader, refresh, settings
        self._encoder = OpenEncoder()
        self._thread = ThreadPoolExecutor(1, "writer")
        self._parser = ThreadPoolExecutor(1, "parser")
        self._parsed = asyncio.Semaphore(_MOST_PARSED)
        self._waiting = 0
        self.writing = False
        """Whether a write runs; an index with vectors takes several commits for one write."""

    @contextmanager
    def place(self) -> Iterator[None]:
        """Reserve a place for an upload, from before its body is read until the response.

        :raises BusyError: all places are taken
        """
        if self._waiting >= _MOST_WAITING:
            raise BusyError(
                f"the upload queue is full: {self._waiting} uploads are waiting",
                remedy="try again in a moment",
            )
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    async def lines(self, stream: BinaryIO) -> BinaryIO:
        """Return a JSON body as a file with one value per line, as `as_lines` does, parsed like uploads."""
        limits = self._settings.limits
        try:
            async with asyncio.timeout(limits.upload_timeout):
                return await self._in_parser(partial(as_lines, stream, limits))
        except TimeoutError:
            raise _too_late(limits.upload_timeout, begun=False) from None

    async def put(self, stream: BinaryIO) -> Report:
        """Replace passages by id, and add new ones."""
        return await self._upload(stream, partial(self._write, "update"), ids=False)

    async def add(self, stream: BinaryIO) -> Report:
        """Add passages; a line whose id the index holds already is an error."""
        return await self._upload(stream, partial(self._write, "append"), ids=False)

    async def delete(self, stream: BinaryIO) -> Report:
        """Delete passages; a line whose id the index does not hold is an error."""
        return await self._upload(stream, self._delete, ids=True)

    async def delete_one(self, passage_id: str) -> Report:
        """Delete one passage.

        :raises HttpError: 404, the index holds no passage with this id; 400, the id is that of a part
        """
        if self._is_cut() and _is_part(passage_id):
            raise HttpError(400, f"expected the id of a passage, found that of its part {passage_id!r}")
        report = await self._run(partial(delete_from_index, self._settings.index, [passage_id]))
        if report.missing:
            raise HttpError(404, f"the index holds no passage with the id {passage_id!r}")
        return {"deleted": 1, **_told(LineErrors(), report.behind)}

    async def delete_matching(self, stream: BinaryIO) -> Report:
        """Delete all passages that match the filter of a `DeleteRequest`."""
        limits = self._settings.limits

        def parse() -> DeleteRequest:
            request = parsed(DeleteRequest, value_bytes(stream, limits))
            limits.check_filter(request.filter)
            return request

        def delete(request: DeleteRequest) -> Report:
            report = delete_from_index(self._settings.index, filter=request.filter, yes=request.yes)
            if not report.requested:
                raise HttpError(
                    400, "no passage matches the filter", remedy="check the filter with POST /search"
                )
            return {"deleted": report.requested, **_told(LineErrors(), report.behind)}

        return await self._parsed_and_written(parse, delete)

    def close(self) -> None:
        """Wait until all writes have ended."""
        self._parser.shutdown()
        self._thread.shutdown()

    async def _upload(
        self, stream: BinaryIO, write: Callable[[list[Line], LineErrors], Report], *, ids: bool
    ) -> Report:
        """Write the lines of an upload."""
        limits, errors = self._settings.limits, LineErrors()

        def parse() -> list[Line]:
            with self._reader.snapshot() as snapshot:
                fields = USUAL_FIELDS.or_those_of(snapshot.generation.job.named_fields)
            return list(read_lines(stream, limits, errors, fields, ids=ids))

        return await self._parsed_and_written(parse, lambda lines: write(lines, errors))

    async def _parsed_and_written[T](self, parse: Callable[[], T], write: Callable[[T], Report]) -> Report:
        """Parse an upload while another upload may be written, then write it."""
        seconds = self._settings.limits.upload_timeout
        try:
            async with asyncio.timeout(seconds) as parsing, self._parsed:
                request = await self._in_parser(parse)
                parsing.reschedule(None)  # `_run` has another timeout and message for writing
                return await self._run(lambda: write(request))
        except TimeoutError:
            raise _too_late(seconds, begun=False) from None

    async def _in_parser[T](self, parse: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._parser, contained, parse)

    async def _run[R](self, work: Callable[[], R]) -> R:
        """Run `work` in the writer's thread, and return its result once searches see the change."""
        begun, seconds = False, self._settings.limits.upload_timeout

        def write_and_refresh() -> R:
            nonlocal begun
            begun = self.writing = True
            try:
                report = work()
                self._open()
                return report
            finally:
                self.writing = False

        try:
            async with asyncio.timeout(seconds):  # work that still waits then never starts
                return await asyncio.get_running_loop().run_in_executor(
                    self._thread, contained, write_and_refresh
                )
        except TimeoutError:
            raise _too_late(seconds, begun=begun) from None

    def _open(self) -> None:
        try:
            self._refresh()
        except Exception as error:
            logger.warning(
                "the upload is committed, but the new commit cannot be opened yet: %s",
                shown(error),
                exc_info=unexpected(error),
            )

    def _write(self, mode: str, lines: list[Line], errors: LineErrors) -> Report:
        """Write passages into the index and return the report; mode "append" refuses ids of the index."""
        self._refresh()
        lines = self._without_ids_of_parts(lines, errors)
        held_ids = self._held([line.passage_id for line in lines])
        if mode == "append":
            for line in lines:
                if line.passage_id in held_ids:
                    errors.add(
                        line.number, f"expected a new id, found {line.passage_id!r}, which the index holds"
                    )
            lines = [line for line in lines if line.passage_id not in held_ids]
        _refuse_if_nothing(lines, errors)
        passages = [line.passage for line in lines if line.passage]
        behind: Sequence[str] = ()
        if passages:
            options, path = self._options(), self._settings.index
            behind = build_index(path, passages, mode, options, encoder=self._encoder).behind
        replaced = sum(line.passage_id in held_ids for line in lines)
        report: Report = {"added": len(lines) - replaced}
        if mode == "update":
            report["updated"] = replaced
        return {**report, **_told(errors, behind)}

    def _delete(self, lines: list[Line], errors: LineErrors) -> Report:
        if not lines and not errors:
            raise HttpError(400, "the request names no passage", remedy="send ids, one per line, or a filter")
        lines = self._without_ids_of_parts(lines, errors)
        _refuse_if_nothing(lines, errors)
        missing: set[str] = set()
        behind: Sequence[str] = ()
        if lines:
            deletion = delete_from_index(self._settings.index, [line.passage_id for line in lines])
            missing, behind = set(deletion.missing), deletion.behind
        for line in lines:
            if line.passage_id in missing:
                errors.add(line.number, f"the index holds no passage with the id {line.passage_id!r}")
        _refuse_if_nothing([line for line in lines if line.passage_id not in missing], errors)
        return {"deleted": len(lines) - len(missing), **_told(errors, behind)}

    def _options(self) -> IndexOptions:
        """Return the index's options, with the settings' model, if any, and a single commit."""
        options = IndexOptions(
            model=self._settings.model, device=self._settings.device, commit_seconds=math.inf
        )
        return options_to_grow(self._settings.index, options)

    def _without_ids_of_parts(self, lines: list[Line], errors: LineErrors) -> list[Line]:
        """Return the lines whose ids are no ids of parts, which an index of sentences or chunks reserves."""
        if not self._is_cut():
            return lines
        valid_lines = []
        for line in lines:
            if not _is_part(line.passage_id):
                valid_lines.append(line)
                continue
            errors.add(
                line.number,
                f"invalid id: expected one that does not end like a sentence's, found {line.passage_id!r}",
            )
        return valid_lines

    def _is_cut(self) -> bool:
        """Return whether this is an index of sentences or chunks, which reserves the ids of parts."""
        with self._reader.snapshot() as snapshot:
            return is_cut(snapshot.generation.unit)

    def _held(self, passage_ids: Sequence[str]) -> set[str]:
        """Return the ids that the index holds, as passages or as parts of passages."""
        with self._reader.snapshot() as snapshot:
            docids_by_id = zip(passage_ids, snapshot.lucene.docids(passage_ids), strict=True)
            held_ids = {passage_id for passage_id, docid in docids_by_id if docid >= 0}
            if is_cut(snapshot.generation.unit):
                held_ids |= set(map(passage_of, snapshot.lucene.sentences(passage_ids)))
            return held_ids


def _is_part(passage_id: str) -> bool:
    """Return whether an id has the form of a part of a passage."""
    return passage_of(passage_id) != passage_id


def _too_late(seconds: float, *, begun: bool) -> HttpError:
    """Return the error for an upload that is not written in time."""
    what, remedy = "nothing is written", "send the upload again later"
    if begun:
        what, remedy = (
            "it may still be committed",
            "check with GET /passages/ID before you send the upload again",
        )
    return HttpError(503, f"the upload took longer than {seconds:g} s; {what}", remedy=remedy)


def _refuse_if_nothing(lines: Sequence[Line], errors: LineErrors) -> None:
    if errors and not lines:
        raise HttpError(
            400, f"no line of the upload is valid; invalid lines: {errors.total:,}", lines=_told(errors)
        )


def _told(errors: LineErrors, behind: Sequence[str] = ()) -> dict[str, Any]:
    """Return the report of invalid lines, and the channels that failed to update."""
    failed_channels = {"behind": list(behind)} if behind else {}
    return {**errors.report(), **failed_channels}
