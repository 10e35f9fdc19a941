"""Choose the generation that an indexing job writes into, or raise if the job may not change the index."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sparta.base.errors import IndexStateError, InputError
from sparta.base.remedies import Command, Option, Remedy, remedy
from sparta.data.formats.reading import RECORDS
from sparta.data.languages import is_folded_alike
from sparta.index.changes import (
    RESUME,
    changed_by,
    how_to_add_impacts,
    how_to_finish,
    how_to_rebuild,
    how_to_sync,
    is_whole,
    job_name,
    options_of,
)
from sparta.index.folder import IndexFolder, progress_of
from sparta.index.generation import (
    BM25,
    CORPUS,
    Generation,
    IndexState,
    Job,
    Progress,
    codec_name,
)
from sparta.index.jobs import JSON_VECTORS, Source, WriteOptions
from sparta.index.snapshot import read_newest
from sparta.models.lexical_terms import LexicalTerms
from sparta.models.query_encoder import QuerySide
from sparta.models.resolve import hash_folder, model_folder

logger = logging.getLogger(__name__)

_OVERWRITE = Option("overwrite", True)
_PATH = Option("path", flag="index")


def plan(
    index: IndexFolder, state: IndexState, source: Source, options: WriteOptions
) -> Callable[[], Generation] | None:
    """Return a function that opens the generation to write into; None if the index already holds the input.

    The function `plan` itself writes nothing.
    """
    job = replace(source.job, mode=options.mode)
    if job.grows:
        return _plan_growth(index, state, source, job, options)
    _check_folding(source, options.language)
    job = replace(job, language=options.language, codec=codec_name(options.codec))
    if options.mode == "create" or options.resume:
        state = state.for_resuming
    building, live = state.building, state.live
    if options.resume and building:
        _check_same_job(index, state, building, source, job)
        _check_arithmetic(index, building, source)
        if live and "overwrite" not in (options.mode, building.job.mode):
            _check_unchanged(index, live, job, adds_impacts=True)
        return lambda: index.reopen(building, live)
    if live and not live.complete and not live.job.grows and options.mode == "create":
        raise _unfinished_error(index, state, live)  # beside an unfinished overwrite
    if live and (options.mode == "create" or options.resume) and _made_from(live, source, job):
        if options.mode == "create":
            _check_unchanged(index, live, job, adds_impacts=False)
            return None
        if not changed_by(live, committed(index, live).deleted):
            return None
    if options.mode == "create":
        _check_free(index, state, source, job, resume=options.resume)
    return lambda: index.begin(source.side, job.started(), source.arithmetic)


def with_lexical_terms(
    side: QuerySide,
    index: IndexFolder,
    options: WriteOptions,
    wanted: bool | None,
    offered: Callable[[], LexicalTerms | None] = lambda: None,
) -> QuerySide:
    """Return a query side with the lexical terms that a job writes.

    An index keeps its lexical terms, or stays without any: a job that extends or resumes it takes them from
    the index. A new index has those of `side`. In an index for BM25 alone, no passage has any yet, so a job
    that adds impacts may choose.

    :param wanted: whether the index must have lexical terms; None means as the index, or else as `side`
    :param offered: returns the lexical terms for a new index that must have some, if `side` has none
    :raises InputError: the index or the model does not agree with `wanted`.
    """

    def stored_terms() -> tuple[Generation | None, LexicalTerms | None]:
        generation = index.state_for(options.mode).extended_by(options.mode, resume=options.resume)
        has_model = generation and generation.model["name"]
        return generation, index.query_side(generation).lexical if generation and has_model else None

    existing, stored = read_newest(index, options.mode, stored_terms)
    has_model = existing is not None and bool(existing.model["name"])
    if has_model and wanted is None and not stored:
        return replace(side, lexical=None)
    if (
        existing and has_model and existing.channels != BM25
    ):  # for BM25 alone, no passage has lexical terms yet
        if wanted in (None, stored is not None):
            return replace(side, lexical=stored)
        flag = Option("lexical_terms", flag="" if wanted else "no_lexical_terms")
        raise InputError(
            f"the index has {'lexical' if stored else 'no lexical'} terms",
            where=str(index.path),
            remedy=remedy(
                "omit {}, or rebuild the index: {}",
                flag,
                how_to_rebuild(index.path, existing, **{flag.flag or flag.name: True}),
            ),
        )
    lexical = None if wanted is False else side.lexical or (offered() if wanted else None)
    if wanted and side.model and not lexical:
        raise InputError(
            f"the model {side.model!r} has no lexical terms",
            remedy=remedy("omit {}, or name another model", Option("lexical_terms", True)),
        )
    return replace(side, lexical=lexical)


def _check_free(index: IndexFolder, state: IndexState, source: Source, job: Job, *, resume: bool) -> None:
    """Raise if an index exists, unless the job only adds impacts to a BM25-only index of the same corpus."""
    adds_impacts = state.live is not None and _adds_impacts(state.live, source, job)
    if state.live and adds_impacts:
        _check_unchanged(index, state.live, job, adds_impacts=True)
    if (state.live or has_passages(index, state.building)) and not (adds_impacts and resume):
        raise _exists_error(index, state, adds_impacts=adds_impacts)


def _adds_impacts(live: Generation, source: Source, job: Job) -> bool:
    """Return whether the job adds impacts to the passages of a BM25-only index."""
    if live.channels != BM25 or job.channels == BM25:
        return False
    as_live = replace(job, channels=BM25, top_k=live.job.top_k, min_weight=live.job.min_weight)
    return _made_from(live, source, as_live)


def _made_from(live: Generation, source: Source, job: Job) -> bool:
    """Return whether the generation's first job had the same input and options as this job.

    Inputs without a hash never count as equal. After an append or update, only the input's path is compared.
    """
    if job.sha256 is None or _differing_model_fields(live, source):
        return False
    if not live.job.grows:
        return not live.job.differences(job)
    live_form = {"source": live.origin, "codec": live.codec, **live.form}
    return all(getattr(job, name) == value for name, value in live_form.items())


def _check_unchanged(index: IndexFolder, live: Generation, job: Job, *, adds_impacts: bool) -> None:
    """Raise if the index has changed since its first job, because a rebuild would lose the changes."""
    progress = committed(index, live)
    changed = changed_by(live, progress.deleted)
    if not changed:
        return
    replace_remedy = remedy("replace the index with {}, or name another {}", _OVERWRITE, _PATH)
    if adds_impacts:
        advice = how_to_add_impacts(live, index.path, changed)
    elif not is_whole(live, done=progress.done):
        advice = remedy("{}; or {}", how_to_finish(live, index.path), replace_remedy)
    elif job.kind == CORPUS:
        update = Command.of("sparta update", corpus=job.source, index=index.path)
        advice = remedy("write the passages of the corpus again: {}; or {}", update, replace_remedy)
    else:
        advice = replace_remedy
    raise IndexStateError(
        f"the {'BM25-only ' if adds_impacts else ''}index of {job.source}"
        f" was changed afterwards by {changed}",
        where=str(index.path),
        remedy=advice,
    )


def _plan_growth(
    index: IndexFolder, state: IndexState, source: Source, job: Job, options: WriteOptions
) -> Callable[[], Generation] | None:
    """Return a function that opens the live generation for an append or update, or None if nothing is to do.

    The function writes the job to the manifest before the writer adds passages.
    """
    live = index.require_live()
    if not job.reading and (job.kind != CORPUS or job.source == RECORDS):
        job = replace(job, reading=live.job.named_fields)  # for the next update from a file
    _check_model(index, live, source)
    _check_options(index, live, source, options)
    _check_arithmetic(index, live, source)
    progress = committed(index, live)  # a damaged index fails here, before the manifest names the job
    comparable = job.sha256 is not None
    if replace(live.job, run="") == job and (comparable or (options.resume and not live.complete)):
        if not live.complete:
            return lambda: live
        if not progress.deleted:
            return None
    unfinished = None if is_whole(live, done=progress.done) else progress
    if unfinished and not _covers(job, live.job):
        update: Command | str = Command("sparta update", python="Index.update")
        if live.job.source == RECORDS:  # only Python can update from records
            update = "Index.update"
        raise IndexStateError(
            f"the {job_name(live.job)} was interrupted and must be finished first",
            where=str(index.path),
            remedy=how_to_finish(live, index.path)
            + remedy("; if you have corrected the input, run {} with the corrected input", update),
        )
    grown = replace(live, job=job.started(), complete=False, origin=live.first_source)

    def begin() -> Generation:
        if unfinished and job.sha256 is None and not _is_of_sync(job):
            logger.warning(
                "the %s was interrupted after %s passages. The index misses the remaining passages unless"
                " this update contains them",
                job_name(live.job),
                f"{unfinished.consumed:,}",
            )
        index.write_state(replace(state, live=grown))
        return grown

    return begin


def _check_options(index: IndexFolder, live: Generation, source: Source, options: WriteOptions) -> None:
    """Raise if the source's unit, language, codec, channels or pruning differ from the index's."""
    _check_folding(source, live.language)
    codec = codec_name(options.codec or live.codec)
    as_first_job = replace(source.job, codec=codec, language=_sentence_language(source) or live.language)
    check_form(index, live, {name: getattr(as_first_job, name) for name in ("codec", *live.form)})


def _check_folding(source: Source, language: str) -> None:
    """Raise if a source's texts were folded in another way than those of an index in this language."""
    if not is_folded_alike(source.language or "", language):
        raise InputError(
            f"the texts were encoded for the language {source.language!r}, but the index has {language!r}",
            where=", ".join(source.job.folders),
            remedy=remedy("encode the texts again with {}", Option("language", language)),
        )


def check_form(index: IndexFolder, live: Generation, source_form: Mapping[str, Any]) -> None:
    """Raise InputError if a source's codec or form (`Generation.form`) differs from the index's."""
    index_form = {"codec": live.codec, **live.form}
    for name in source_form:
        if index_form[name] == source_form[name]:
            continue
        index_options = options_of(name, index_form[name])
        if index_form[name] is None:
            advice = remedy("omit {}", Option(index_options[0].name))
        else:
            advice = remedy("use" + " {}" * len(index_options), *index_options)
        raise InputError(
            f"the index has the {name.replace('_', '-')} {_quoted(index_form[name])},"
            f" but the input has {_quoted(source_form[name])}",
            where=str(index.path),
            remedy=advice
            + remedy(
                ", or rebuild the index: {}",
                how_to_rebuild(index.path, live, **_changes(name, source_form[name])),
            ),
        )


def _check_arithmetic(index: IndexFolder, live: Generation, source: Source) -> None:
    """Warn if the source's impacts come from another runtime or arithmetic than the index's impacts."""
    if live.arithmetic and source.arithmetic and live.arithmetic != source.arithmetic:
        logger.warning(
            "%s: the index was encoded with %s, this input with %s. Impacts of equal passages may differ"
            " slightly (docs/formats.md)",
            index.path,
            live.arithmetic,
            source.arithmetic,
        )


def _quoted(value: object) -> str:
    return "none" if value is None else repr(value)


def _sentence_language(source: Source) -> str | None:
    """Return the language that sentences were split in, or None if the source is not split into sentences."""
    return source.language if source.job.unit == "sentence" else None


def _covers(job: Job, interrupted: Job) -> bool:
    """Return whether a job covers everything an interrupted job had to do.

    An update from the same source does, and so does a sync from any source, such as a moved corpus. A pipe or
    in-memory records may miss the rest of the interrupted input, so `_plan_growth` warns the user.
    """
    is_same_source = (job.source, job.reading) == (interrupted.source, interrupted.reading)
    return job.mode == "update" and (is_same_source or _is_of_sync(job))


def _is_of_sync(job: Job) -> bool:
    """Return whether an update is a part of a sync: the index then has exactly the corpus's passages.

    Only a part of a file or folder has no hash.
    """
    return job.sha256 is None and _is_of_files(job)


def _is_of_files(job: Job) -> bool:
    """Return whether the input of a job is a file or folder that still exists."""
    source = Path(job.source or "")
    return source.is_absolute() and (source.is_file() or source.is_dir())


def has_written(index: IndexFolder, generation: Generation) -> bool:
    """Return whether the job in the manifest made the last commit."""
    return committed(index, generation).job == generation.job.id


def committed(index: IndexFolder, generation: Generation) -> Progress:
    """Return the progress stored in the last commit."""
    with index.searcher(generation) as searcher:
        return progress_of(generation, searcher)


def has_commit(index: IndexFolder) -> bool:
    """Return whether the live generation, or an unfinished first build, has made a commit."""
    state = index.state()
    return state.live is not None or has_passages(index, state.building)


def has_passages(index: IndexFolder, generation: Generation | None) -> bool:
    """Return whether a generation has made a commit. A build without a commit may be started again."""
    return generation is not None and any(index.lucene_path(generation).glob("segments_*"))


def _exists_error(index: IndexFolder, state: IndexState, *, adds_impacts: bool) -> IndexStateError:
    """Return the error for creating an index where an index or unfinished build exists."""
    if adds_impacts:
        return IndexStateError(
            "a BM25-only index of this corpus already exists",
            where=str(index.path),
            remedy=remedy("repeat the command with {} to add impacts", RESUME),
        )
    if state.building:
        return _unfinished_error(index, state, state.building)
    return IndexStateError(
        "an index of another input, or with other options, already exists",
        where=str(index.path),
        remedy=remedy(
            "add passages with {}, replace the index with {}, or name another {}",
            Option("append", True, python="Index.append"),
            _OVERWRITE,
            _PATH,
        ),
    )


def _unfinished_error(index: IndexFolder, state: IndexState, generation: Generation) -> IndexStateError:
    """Return the error for creating an index where an unfinished build exists."""
    sync = _how_to_keep(index, state, generation, generation.job)
    return IndexStateError(
        f"an unfinished index of {generation.job.source} already exists",
        where=str(index.path),
        remedy=remedy(
            "continue with {}; if the input has changed, {}; or start again with {}", RESUME, sync, _OVERWRITE
        )
        if sync
        else remedy("continue with {}, or start again with {}", RESUME, _OVERWRITE),
    )


def _how_to_keep(index: IndexFolder, state: IndexState, generation: Generation, job: Job) -> Remedy:
    """Return the remedy that keeps the committed passages of a first build after a change of its input.

    The remedy is empty if no sync can follow the input, or if a sync would change another generation.

    :param job: names the present input
    """
    is_first = generation == state.searchable and has_passages(index, generation)
    if not (is_first and job.kind == CORPUS and _is_of_files(job)):
        return Remedy()
    sync = how_to_sync(replace(generation, job=job), index.path)
    return remedy("keep the committed passages with: {}", sync)


def _check_same_job(
    index: IndexFolder, state: IndexState, generation: Generation, source: Source, job: Job
) -> None:
    """Raise if a resumed build has a different input or different options than when it started."""
    _check_model(index, generation, source)
    differing = generation.job.differences(job)
    if differing and {*differing} <= {"bytes", "sha256"}:
        sync = _how_to_keep(index, state, generation, generation.job)
        raise IndexStateError(
            "the input has changed since this index was started",
            where=str(index.path),
            remedy=sync + remedy("; or start again with {}" if sync else "start again with {}", _OVERWRITE),
        )
    if differing:
        is_moved = {*differing} <= {"source", "bytes", "sha256"} and not _is_of_files(generation.job)
        finish = _how_to_keep(index, state, generation, job) if is_moved else Remedy()
        finish = finish or how_to_finish(generation, index.path)
        raise IndexStateError(
            f"the input or options differ from those that started this index: {', '.join(differing)}",
            where=str(index.path),
            remedy=finish + remedy("; or start again with {}", _OVERWRITE),
        )


def _check_model(index: IndexFolder, generation: Generation, source: Source) -> None:
    """Raise if the source's model, tokenizer or quantizer differs from the index's."""
    old, new = generation.model, source.side.identity()
    differing = _differing_model_fields(generation, source)
    if differing:
        raise IndexStateError(
            f"the index is of the model {old['name']!r}, but the vectors are of {new['name']!r}"
            f" (differing: {', '.join(differing)})",
            where=str(index.path),
            remedy=_model_remedy(old, differing)
            + remedy(", or rebuild the index: {}", _rebuild_for(index.path, generation, new)),
        )


def check_named_model(index: IndexFolder, live: Generation, name: str | None, bits: int | None) -> None:
    """Raise if options name another model, or other bits, than those of an index with impacts.

    :raises IndexStateError: they differ
    :raises ModelError: there is no such model
    """
    old = live.model
    if live.channels == BM25:
        return
    is_other = name is not None and hash_folder(model_folder(name)) != old["sha256"]
    if is_other or bits not in (None, old["quantizer"]["bits"]):
        named = {"model": name} if is_other else {"bits": bits}
        [(option, value)] = named.items()
        raise IndexStateError(
            f"the index has the model {old['name']!r} with {old['quantizer']['bits']} bits,"
            f" but the options name the {option} {value!r}",
            where=str(index.path),
            remedy=remedy(
                "omit {}, or rebuild the index: {}",
                Option(option),
                how_to_rebuild(index.path, live, **named),
            ),
        )


def _changes(name: str, value: object) -> dict[str, Any]:
    """Return the changed options of `how_to_rebuild` for another value of a field of an index's form."""
    dropped = dict.fromkeys(("unit", "chunk", "overlap") if name == "unit" else (name,))
    new = [] if value is None else options_of(name, value)
    return {**dropped, **{option.name: option.value for option in new}}


def _rebuild_for(index: Path, generation: Generation, new: Mapping[str, Any]) -> Command:
    """Return the command that rebuilds an index for the model of another input."""
    if new["name"].startswith(JSON_VECTORS) or not new["name"]:
        return how_to_rebuild(index, generation)
    bits = (new.get("quantizer") or {}).get("bits")
    return how_to_rebuild(index, generation, model=new["name"], bits=bits)


def _model_remedy(model: Mapping[str, Any], differing: Sequence[str]) -> Remedy:
    if model["name"].startswith(JSON_VECTORS):
        return remedy("name the {} that the index was started with", Option("tokenizer"))
    if "query_network" in differing and "sha256" not in differing:
        query_encoder = "network" if model.get("query_network") else "none"
        return remedy("encode with {}", Option("query_encoder", query_encoder))
    return remedy("encode with {} and the index's {}", Option("model", model["name"]), Option("bits"))


def _differing_model_fields(generation: Generation, source: Source) -> list[str]:
    """Return the names of the model fields that differ between a source and a generation."""
    if generation.channels == BM25:
        return []  # none of its postings come from a model
    old, new = generation.model, source.side.identity()
    names = (*new, *(name for name in old if name not in new))
    return [name for name in names if name != "name" and old.get(name) != new.get(name)]
