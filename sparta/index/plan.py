"""Which generation of an index a job writes into, and why it may not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sparta.base.errors import IndexStateError, InputError
from sparta.data.units import unit_options
from sparta.index.folder import BM25, BOTH_CHANNELS, GROWING, Generation, IndexFolder, IndexState, codec_name
from sparta.index.jobs import JSON_VECTORS, Progress, Source, WriteOptions, input_of, job_id, new_job
from sparta.lucene.bridge import ImpactSearcher

logger = logging.getLogger(__name__)

_OVERWRITE = "--overwrite (overwrite=True)"


def plan(
    index: IndexFolder, state: IndexState, source: Source, options: WriteOptions
) -> Callable[[], Generation] | None:
    """What opens the generation to write into; None when the index holds this input. Writes nothing."""
    job = {**source.job, "mode": options.mode}
    if options.mode in GROWING:
        return _grow(index, state, source, job, options)
    job["language"] = options.language
    job["codec"] = codec_name(options.codec)
    building = state.building
    if options.resume and building:
        _check_same_job(index, building, source, job)
        return lambda: building
    live = state.live
    if live and (options.mode == "create" or options.resume) and _holds(index, live, source, job):
        return None
    adds_impacts = live is not None and _adds_impacts(index, live, source, job)
    taken = live or has_passages(index, state.building)
    if options.mode == "create" and taken and not (adds_impacts and options.resume):
        raise _exists(index, state, adds_impacts=adds_impacts)
    return lambda: index.begin(source.side, options.language, new_job(job), job["codec"])


def _adds_impacts(index: IndexFolder, live: Generation, source: Source, job: dict[str, Any]) -> bool:
    """Whether this job gives impacts to the very passages that an index holds for BM25 alone."""
    own = {name: live.job.get(name) for name in ("channels", "top_k", "min_weight")}
    return "channels" in live.job and "channels" not in job and _holds(index, live, source, {**job, **own})


def _holds(index: IndexFolder, live: Generation, source: Source, job: dict[str, Any]) -> bool:
    """Whether a generation was made from just this input; what cannot be compared is never the same."""
    old, new = ({k: v for k, v in input_of(one).items() if k != "mode"} for one in (live.job, job))
    whole = live.complete and live.job["mode"] not in GROWING
    same = whole and old == new and new.get("sha256") is not None and not _misfits(live, source)
    return same and not committed(index, live).deleted


def _grow(
    index: IndexFolder, state: IndexState, source: Source, job: dict[str, Any], options: WriteOptions
) -> Callable[[], Generation] | None:
    """Append to, or update, the live generation; the manifest names the job before anything is written."""
    live = index.require_live()
    _check_model(index, live, source)
    _check_options(index, live, source, options)
    comparable = job.get("sha256") is not None
    if input_of(live.job) == job and (comparable or (options.resume and not live.complete)):
        if not live.complete:
            return lambda: live
        if not committed(index, live).deleted:
            return None
    left = None if live.complete else _interrupted(index, live)
    if left and not _replaces(job, live.job):
        raise IndexStateError(
            f"expected the {live.job.get('mode')} of {live.job.get('source')} to be finished first,"
            " found it interrupted",
            where=str(index.path),
            remedy="repeat that command with --resume; if its input was mended since, sparta update with it",
        )
    grown = replace(live, job=new_job(job), complete=False, origin=live.first_source)

    def begin() -> Generation:
        if left and not comparable:
            logger.warning(
                "the %s of %s was interrupted after %s passages; the rest of its input is missing unless this"
                " update holds it",
                live.job.get("mode"),
                live.job.get("source"),
                f"{left.consumed:,}",
            )
        index.write_state(replace(state, live=grown))
        return grown

    return begin


def _check_options(index: IndexFolder, live: Generation, source: Source, options: WriteOptions) -> None:
    """Refuse to add to an index in another form than its own."""
    own = {"codec": live.codec, **live.form}
    language = _language_that_counts(source)
    given = {
        **source.job,
        "channels": source.job.get("channels", BOTH_CHANNELS),
        "codec": codec_name(options.codec or live.codec),
        "language": language or live.language,
    }
    for name in own:
        if name not in given or own[name] == given[name]:
            continue
        option = f"--{name.replace('_', '-')} {own[name]}" if name != "unit" else unit_options(own[name])
        raise InputError(
            f"expected the index's own {name.replace('_', '-')} {_shown(own[name])},"
            f" found {_shown(given[name])}",
            where=str(index.path),
            remedy=(f"leave {option.split()[0]} out" if own[name] is None else f"give {option}")
            + ", or rebuild with --overwrite",
        )


def _shown(value: object) -> str:
    return "none" if value is None else repr(value)


def _language_that_counts(source: Source) -> str | None:
    """The language that a source's sentences were cut in; vectors of whole passages know of none."""
    return source.language if source.job.get("unit") == "sentence" else None


def _interrupted(index: IndexFolder, live: Generation) -> Progress | None:
    """How far the live generation's job came, if a part of it was committed and a part was not."""
    progress = committed(index, live)
    return progress if progress.job == job_id(live.job) and not progress.done else None


def _replaces(job: dict[str, Any], interrupted: dict[str, Any]) -> bool:
    """Whether a job can do all that an interrupted one had to do: it updates from the same place.

    Of a pipe, or of records in memory, nothing tells whether it holds the rest: the user is warned.
    """
    return job["mode"] == "update" and job["source"] == interrupted["source"]


def has_written(index: IndexFolder, generation: Generation) -> bool:
    """Whether the last commit is of the job that the manifest names."""
    return committed(index, generation).job == job_id(generation.job)


def committed(index: IndexFolder, generation: Generation) -> Progress:
    """What the last commit carries."""
    with ImpactSearcher(index.lucene_path(generation), language=generation.analysis) as searcher:
        return Progress.loads(searcher.user_data or "")


def has_passages(index: IndexFolder, building: Generation | None) -> bool:
    """Whether an unfinished build has committed anything; one that has not may be started again."""
    return building is not None and any(index.lucene_path(building).glob("segments_*"))


def _exists(index: IndexFolder, state: IndexState, *, adds_impacts: bool) -> IndexStateError:
    if adds_impacts:
        return IndexStateError(
            "an index of this corpus for BM25 alone is here",
            where=str(index.path),
            remedy="repeat the command with --resume to add impacts",
        )
    if state.building:
        return IndexStateError(
            f"an unfinished index of {state.building.job.get('source')} is here",
            where=str(index.path),
            remedy=f"continue with --resume (resume=True), or start again with {_OVERWRITE}",
        )
    return IndexStateError(
        "an index of other input, or made with other options, is here",
        where=str(index.path),
        remedy=f"add to it with --append (Index.append), replace it with {_OVERWRITE},"
        " or name another with --index (path)",
    )


def _check_same_job(index: IndexFolder, generation: Generation, source: Source, job: dict[str, Any]) -> None:
    """Refuse to resume with another input or other options than the build was started with."""
    _check_model(index, generation, source)
    old, new = generation.job, job
    differing = [k for k in new if k != "mode" and old.get(k) != new[k]]
    if differing:
        raise IndexStateError(
            "expected the input and options that this index was started with, found another"
            f" {', '.join(differing)}",
            where=str(index.path),
            remedy="repeat the original command with --resume, or start again with --overwrite",
        )


def _check_model(index: IndexFolder, generation: Generation, source: Source) -> None:
    """Refuse vectors of another model, tokenizer or quantizer."""
    old, new = generation.model, source.side.identity()
    differing = _misfits(generation, source)
    if differing:
        raise IndexStateError(
            f"expected vectors of the index's own model {old['name']!r}, found those of {new['name']!r}"
            f" (differing: {', '.join(differing)})",
            where=str(index.path),
            remedy=f"{_the_same_again(old['name'])}, or rebuild with --overwrite",
        )


def _the_same_again(model: str) -> str:
    if model.startswith(JSON_VECTORS):
        return "name the --tokenizer that the index was started with"
    return f"encode with --model {model} and its --bits"


def _misfits(generation: Generation, source: Source) -> list[str]:
    """In what a source's vectors differ from those of a generation."""
    old, new = generation.model, source.side.identity()
    if generation.channels == BM25 and not (old["name"] and new["name"]):
        return []  # no vectors, and no model: any may come
    return [k for k in new if k != "name" and old.get(k) != new[k]]
