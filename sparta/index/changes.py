"""Describe an interrupted job and later changes of an index, for messages and remedies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparta.base.files import STANDARD_INPUT
from sparta.base.remedies import Command, Option, Remedy, remedy
from sparta.data.languages import DEFAULT_LANGUAGE
from sparta.data.units import options_of_unit
from sparta.index.generation import BOTH_CHANNELS, CORPUS, JSON, SHARDS, Generation, Job, codec_name, dtype_of

RESUME = Option("resume", True, python="IndexOptions(resume=True)")
_USUAL_BITS, _USUAL_DTYPE = 8, "int8"
_DEFAULTS = {
    "codec": codec_name(None),
    "language": DEFAULT_LANGUAGE,
    "unit": "passage",
    "channels": BOTH_CHANNELS,
    "top_k": None,
    "min_weight": 0.0,
}
_OF_VECTORS = {SHARDS: ("codec",), JSON: ("codec", "language")}
"""The options of `_DEFAULTS` that apply to ready vectors, by the kind of vectors."""


def is_whole(generation: Generation, *, done: bool) -> bool:
    """Return whether the last commit of a generation contains a whole job.

    An append or update that was killed before its first commit or after its last commit leaves a whole job:
    only the manifest names the killed job.

    :param done: whether the commit says that its job is done
    """
    return generation.complete or (generation.job.grows and done)


def job_name(job: Job) -> str:
    """Return a job's name for messages, such as `update of /data/new.jsonl`."""
    action = job.mode if job.grows else "indexing"
    return f"{action} of {'standard input' if job.source == STANDARD_INPUT else job.source}"


def how_to_finish(generation: Generation, index: Path) -> Remedy:
    """Return the remedy that finishes a generation's interrupted job."""
    from sparta.data.formats.reading import RECORDS

    job = generation.job
    if job.source == RECORDS:
        if job.grows:
            return remedy("update with the same records (Index.update)")
        return remedy("create the index from the same records with {}", RESUME.for_python())
    mode_options = [Option(job.mode, True)] if job.mode in ("append", "overwrite") else []
    form_options = [] if job.grows else _options(generation, job.kind)
    options = (*mode_options, *_input_options(job), *form_options, RESUME, Option("index", index))
    command = Command("sparta update" if job.mode == "update" else "sparta index", options=options)
    return remedy("repeat the interrupted command with {}: {}", RESUME, command)


def how_to_sync(generation: Generation, index: Path) -> Command:
    """Return the command that keeps the passages of a first build whose corpus has changed since.

    A sync takes all other options from the index.
    """
    job = generation.job
    query = [Option(name, value) for name, value in job.reading.items() if name == "query"]
    options = (*query, *_dtype_option(generation))
    index_options = ", ".join(option.for_python() for option in options)
    python_options = f", options=IndexOptions({index_options})" if options else ""
    return Command(
        "sparta sync",
        (str(job.source),),
        (*options, Option("index", index)),
        python=f"Index({str(index)!r}).sync({job.source!r}{python_options})",
    )


def how_to_correct(generation: Generation, index: Path) -> Remedy:
    """Return the remedy for an interrupted append or update whose input has changed."""
    from sparta.data.formats.reading import RECORDS

    job = generation.job
    if job.source == RECORDS:
        return remedy("update with all of the corrected records (Index.update)")
    if job.kind != CORPUS:
        return remedy(
            "resume with the same input as before, or rebuild the index from all of its passages: {}",
            how_to_rebuild(index, generation),
        )
    command = Command("sparta update", options=(*_input_options(job), Option("index", index)))
    return remedy("resume with the same input as before, or write all of the corrected input: {}", command)


def _input_options(job: Job) -> list[Option]:
    """Return the options of `sparta index` and `sparta update` that name a job's input and its fields."""
    input_option = "corpus" if job.kind == CORPUS else "vectors"
    return [
        Option(input_option, list(job.folders) or [str(job.source)]),
        *(_options_of_fields(job.reading) if job.kind == CORPUS else []),
    ]


def _options_of_fields(reading: Mapping[str, Any]) -> list[Option]:
    """Return the options that name the fields of records; a list of names gives an option for each name."""
    return [
        Option(name, value)
        for name, values in reading.items()
        for value in (values if isinstance(values, list) else [values])
    ]


def _options(generation: Generation, kind: str) -> list[Option]:
    """Return the options of `sparta index` that give an index the form of a generation, without defaults.

    :param kind: the kind of the input that the command names; the options of encoding are for a corpus only
    """
    from sparta.models.resolve import shipped_for, sparta_folder

    form = {"codec": generation.codec, **generation.form}
    options: list[Option] = []
    for name in _OF_VECTORS.get(kind, _DEFAULTS):
        if form.get(name, _DEFAULTS[name]) != _DEFAULTS[name]:
            options += options_of(name, form[name])
    if kind == CORPUS:
        name, bits = str(generation.model["name"]), generation.model["quantizer"]["bits"]
        options += [Option("model", name)] if name and name != shipped_for(form["language"]) else []
        options += [Option("bits", bits)] if bits != _USUAL_BITS else []
        if name and not sparta_folder(name) and not generation.model.get("query_network"):
            options.append(Option("query_encoder", "none"))  # a model of another project may have a network
        options += _dtype_option(generation)
    return options


def _dtype_option(generation: Generation) -> list[Option]:
    """Return the option for the arithmetic of a generation's impacts, if it is not the usual arithmetic."""
    dtype = dtype_of(generation.arithmetic)
    return [Option("dtype", dtype)] if dtype not in ("", "auto", _USUAL_DTYPE) else []


def options_of(name: str, value: object) -> list[Option]:
    """Return the options of `sparta index` that set a field of an index's form to this value."""
    return options_of_unit(str(value)).options if name == "unit" else [Option(name, value)]


def changed_by(generation: Generation, deleted: int) -> str:
    """Name the jobs that changed a generation since its first job; empty if none is known.

    :param deleted: how many passages were deleted since the last job
    """
    changes = []
    if generation.job.grows:
        changes.append(f"the {job_name(generation.job)}")
        changes[0] += "" if generation.complete else ", which was interrupted"
    if deleted:
        changes.append("sparta delete")
    return " and ".join(changes)


def how_to_rebuild(index: Path, generation: Generation | None = None, **changes: Any) -> Command:
    """Return the command that builds an index anew, from a corpus that the user names.

    :param generation: the index gets its options, without a model that no longer ships
    :param changes: other values of these options; None leaves an option out
    """
    from sparta.models.resolve import FORMER_MODELS

    options: list[Option] = []
    if generation:
        if generation.model["name"] in FORMER_MODELS:
            changes = {"model": None, "query_encoder": None, **changes}
        kind = JSON if generation.job.kind == JSON else CORPUS  # the model of JSON vectors is unknown
        fields = _options_of_fields(generation.job.named_fields)  # other fields would give other ids
        options = [*fields, *_options(generation, kind)]
    kept = [option for option in options if option.name not in changes]
    changed = [Option(name, value) for name, value in changes.items() if value is not None]
    first = Option("corpus", "FILE"), Option("overwrite", True)
    return Command("sparta index", options=(*first, *kept, *changed, Option("index", index)))


def how_to_add_impacts(generation: Generation, index: Path, changed: str) -> Remedy:
    """Return the remedy that adds impacts to a BM25-only index.

    :param changed: the jobs that changed the index since its first job; empty if there were none
    """
    job = generation.job
    model = None if generation.model.get("name") else "FOLDER"
    rebuild = how_to_rebuild(index, generation, channels=None, model=model)
    if changed or job.sha256 is None:  # input that can be read only once is never the same
        return remedy(
            "rebuild the index with impacts, from a corpus that includes {}: {}",
            "the changes" if changed else "the same passages",
            rebuild,
        )
    corpus, *reading = _input_options(job)
    query = [option for option in reading if option.name == "query"]  # `rebuild` has the others
    options = (corpus, *query, RESUME, *rebuild.options[2:])
    return remedy("add impacts with: {}", Command("sparta index", options=options))
