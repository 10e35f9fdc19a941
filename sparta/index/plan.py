"""Which generation of an index a job writes into, and why it may not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sparta.base.errors import IndexStateError, InputError
from sparta.base.remedies import Command, Option, Remedy, remedy
from sparta.index.changes import (
    changed_by,
    how_to_add_impacts,
    how_to_finish,
    is_whole,
    job_name,
    options_of,
)
from sparta.index.folder import (
    BM25,
    BOTH_CHANNELS,
    GROWING,
    Generation,
    IndexFolder,
    IndexState,
    codec_name,
)
from sparta.index.jobs import JSON_VECTORS, Progress, Source, WriteOptions, input_of, job_id, new_job
from sparta.lucene.bridge import ImpactSearcher

logger = logging.getLogger(__name__)

_OVERWRITE = Option("overwrite", True)


def plan(
    index: IndexFolder, state: IndexState, source: Source, options: WriteOptions
) -> Callable[[], Generation] | None:
    """What opens the generation to write into; None when the index holds this input. Writes nothing."""
    job = {**source.job, "mode": options.mode}
    if options.mode in GROWING:
        return _grow(index, state, source, job, options)
    job["language"] = options.language
    job["codec"] = codec_name(options.codec)
    building, live = state.building, state.live
    if options.resume and building:
        _check_same_job(index, building, source, job)
        if live and "overwrite" not in (options.mode, building.job.get("mode")):
            _check_unchanged(index, live, job, adds_impacts=True)
        return lambda: building
    if live and (options.mode == "create" or options.resume) and _made_from(live, source, job):
        if options.mode == "create":
            _check_unchanged(index, live, job, adds_impacts=False)
            return None
        if not changed_by(live, committed(index, live).deleted):
            return None
    if options.mode == "create":
        _check_free(index, state, source, job, resume=options.resume)
    return lambda: index.begin(source.side, options.language, new_job(job), job["codec"])


def _check_free(
    index: IndexFolder, state: IndexState, source: Source, job: dict[str, Any], *, resume: bool
) -> None:
    """Refuse to make an index where another one is, unless it is for BM25 alone and gets its impacts."""
    adds_impacts = state.live is not None and _adds_impacts(state.live, source, job)
    if state.live and adds_impacts:
        _check_unchanged(index, state.live, job, adds_impacts=True)
    if (state.live or has_passages(index, state.building)) and not (adds_impacts and resume):
        raise _exists(index, state, adds_impacts=adds_impacts)


def _adds_impacts(live: Generation, source: Source, job: dict[str, Any]) -> bool:
    """Whether this job gives impacts to passages that an index holds for BM25 alone."""
    own = {name: live.job.get(name) for name in ("channels", "top_k", "min_weight")}
    return "channels" in live.job and "channels" not in job and _made_from(live, source, {**job, **own})


def _made_from(live: Generation, source: Source, job: dict[str, Any]) -> bool:
    """Whether the first job of a generation had this input and these options.

    What cannot be compared is never the same. After an append or update, only the input's place is known.
    """
    if job.get("sha256") is None or _misfits(live, source):
        return False
    if live.job.get("mode") not in GROWING:
        old, new = ({k: v for k, v in input_of(one).items() if k != "mode"} for one in (live.job, job))
        return old == new
    own = {"source": live.origin, "codec": live.codec, **live.form}
    new = {"channels": BOTH_CHANNELS, "unit": "passage", **job}
    return all(new.get(name) == own[name] for name in own)


def _check_unchanged(
    index: IndexFolder, live: Generation, job: dict[str, Any], *, adds_impacts: bool
) -> None:
    """Refuse to make an index again that was changed since: the changes would be lost."""
    progress = committed(index, live)
    changed = changed_by(live, progress.deleted)
    if not changed:
        return
    replaced = remedy("replace it with {}, or name another with {}", _OVERWRITE, Option("index"))
    if adds_impacts:
        advice = how_to_add_impacts(live, index.path, changed)
    elif not is_whole(live, done=progress.done):
        advice = remedy("{}; or {}", how_to_finish(live, index.path), replaced)
    elif job.get("from") == "corpus":
        update = Command.of("sparta update", corpus=job["source"], index=index.path)
        advice = remedy("write its passages again with: {}; or {}", update, replaced)
    else:
        advice = replaced
    raise IndexStateError(
        f"an index of {job['source']} is here"
        + (" for BM25 alone" if adds_impacts else "")
        + f", and was changed since by {changed}",
        where=str(index.path),
        remedy=advice,
    )


def _grow(
    index: IndexFolder, state: IndexState, source: Source, job: dict[str, Any], options: WriteOptions
) -> Callable[[], Generation] | None:
    """Append to, or update, the live generation; the manifest names the job before anything is written."""
    live = index.require_live()
    _check_model(index, live, source)
    _check_options(index, live, source, options)
    progress = committed(index, live)  # one that cannot be opened is told before the manifest names the job
    comparable = job.get("sha256") is not None
    if input_of(live.job) == job and (comparable or (options.resume and not live.complete)):
        if not live.complete:
            return lambda: live
        if not progress.deleted:
            return None
    left = None if is_whole(live, done=progress.done) else progress
    if left and not _replaces(job, live.job):
        raise IndexStateError(
            f"expected the {job_name(live.job)} to be finished first, found it interrupted",
            where=str(index.path),
            remedy=how_to_finish(live, index.path) + "; if its input was mended since, sparta update with it",
        )
    grown = replace(live, job=new_job(job), complete=False, origin=live.first_source)

    def begin() -> Generation:
        if left and not comparable:
            logger.warning(
                "the %s was interrupted after %s passages; the rest of its input is missing unless this"
                " update holds it",
                job_name(live.job),
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
        same = options_of(name, own[name])
        if own[name] is None:
            advice = remedy("leave {} out", Option(same[0].name))
        else:
            advice = remedy("give" + " {}" * len(same), *same)
        raise InputError(
            f"expected the index's own {name.replace('_', '-')} {_shown(own[name])},"
            f" found {_shown(given[name])}",
            where=str(index.path),
            remedy=advice + remedy(", or rebuild with {}", _OVERWRITE),
        )


def _shown(value: object) -> str:
    return "none" if value is None else repr(value)


def _language_that_counts(source: Source) -> str | None:
    """The language that a source's sentences were cut in; vectors of whole passages know of none."""
    return source.language if source.job.get("unit") == "sentence" else None


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
            remedy=remedy("repeat the command with {} to add impacts", Option("resume", True)),
        )
    if state.building:
        return IndexStateError(
            f"an unfinished index of {state.building.job.get('source')} is here",
            where=str(index.path),
            remedy=remedy("continue with {}, or start again with {}", Option("resume", True), _OVERWRITE),
        )
    return IndexStateError(
        "an index of other input, or made with other options, is here",
        where=str(index.path),
        remedy=remedy(
            "add to it with {}, replace it with {}, or name another with {}",
            Option("append", True),
            _OVERWRITE,
            Option("index"),
        ),
    )


def _check_same_job(index: IndexFolder, generation: Generation, source: Source, job: dict[str, Any]) -> None:
    """Refuse to resume with another input or other options than the build was started with."""
    _check_model(index, generation, source)
    old, new = ({"channels": BOTH_CHANNELS, **input_of(one)} for one in (generation.job, job))
    differing = [k for k in {**old, **new} if k != "mode" and old.get(k) != new.get(k)]
    if differing and {*differing} <= {"bytes", "sha256"}:
        raise IndexStateError(
            "expected the input that this index was started with, found that it has changed since",
            where=str(index.path),
            remedy=remedy("start again with {}", _OVERWRITE),
        )
    if differing:
        raise IndexStateError(
            "expected the input and options that this index was started with, found another"
            f" {', '.join(differing)}",
            where=str(index.path),
            remedy=how_to_finish(generation, index.path) + remedy("; or start again with {}", _OVERWRITE),
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
            remedy=_the_same_again(old["name"]) + remedy(", or rebuild with {}", _OVERWRITE),
        )


def _the_same_again(model: str) -> Remedy:
    if model.startswith(JSON_VECTORS):
        return remedy("name the {} that the index was started with", Option("tokenizer"))
    return remedy("encode with {} and its {}", Option("model", model), Option("bits"))


def _misfits(generation: Generation, source: Source) -> list[str]:
    """In what a source's vectors differ from those of a generation."""
    old, new = generation.model, source.side.identity()
    if generation.channels == BM25 and not (old["name"] and new["name"]):
        return []  # no vectors, and no model: any may come
    return [k for k in new if k != "name" and old.get(k) != new[k]]
