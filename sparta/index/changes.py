"""What was interrupted in an index, and what changed it since it was made: for messages and remedies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sparta.base.files import STANDARD_INPUT
from sparta.base.remedies import Command, Option, Remedy, remedy
from sparta.data.languages import DEFAULT_LANGUAGE
from sparta.data.units import options_of_unit
from sparta.index.folder import BOTH_CHANNELS, GROWING, Generation, codec_name

_USUAL_BITS = 8
_DEFAULTS = {
    "codec": codec_name(None),
    "language": DEFAULT_LANGUAGE,
    "unit": "passage",
    "channels": BOTH_CHANNELS,
    "top_k": None,
    "min_weight": 0.0,
}
_OF_VECTORS = {"shards": ("codec",), "json": ("codec", "language")}
"""What of it a command says of vectors that are there."""


def carried(user_data: str | None) -> dict[str, Any]:
    """The fields of `jobs.Progress` that a commit carries."""
    fields: dict[str, Any] = json.loads(user_data or "{}")
    return fields


def is_whole(generation: Generation, *, done: bool) -> bool:
    """Whether the last commit of a generation is that of a job which was `done` with it.

    It is, too, where an append or update was killed before its first commit or after its last one: then only
    the manifest says that it began.
    """
    return generation.complete or (generation.job.get("mode") in GROWING and done)


def job_name(job: dict[str, Any]) -> str:
    """A job as messages name it: `update of /data/new.jsonl`."""
    mode, source = job.get("mode"), job.get("source")
    what = mode if mode in GROWING else "indexing"
    return f"{what} of {'standard input' if source == STANDARD_INPUT else source}"


def how_to_finish(generation: Generation, index: Path) -> Remedy:
    """Return what finishes the job of a generation, which was interrupted."""
    from sparta.data.corpus import RECORDS

    job, resume = generation.job, Option("resume", True)
    mode, source = str(job.get("mode")), str(job.get("source"))
    if source == RECORDS:
        if mode in GROWING:
            return remedy("update with the same records (Index.update)")
        return remedy("create it from the same records with {}", resume)
    own = [Option(mode, True)] if mode in ("append", "overwrite") else []
    read = "corpus" if job.get("from", "corpus") == "corpus" else "vectors"
    form = [] if mode in GROWING else _options(generation)
    options = (*own, Option(read, job.get("folders") or [source]), *form, resume, Option("index", index))
    command = Command("sparta update" if mode == "update" else "sparta index", options=options)
    return remedy("repeat its command with {}: {}", resume, command)


def _options(generation: Generation) -> list[Option]:
    """Return the options of `sparta index` that a generation was made with, but for defaults."""
    from sparta.models.resolve import shipped_for

    form, source = {"codec": generation.codec, **generation.form}, generation.job.get("from", "corpus")
    options: list[Option] = []
    for name in _OF_VECTORS.get(source, _DEFAULTS):
        if form.get(name, _DEFAULTS[name]) != _DEFAULTS[name]:
            options += options_of(name, form[name])
    if source == "corpus":
        name, bits = str(generation.model["name"]), generation.model["quantizer"]["bits"]
        options += [Option("model", name)] if name and name != shipped_for(form["language"]) else []
        options += [Option("bits", bits)] if bits != _USUAL_BITS else []
    return options


def options_of(name: str, value: object) -> list[Option]:
    """Return the options of `sparta index` that give a part of an index's form this value."""
    return options_of_unit(str(value)).options if name == "unit" else [Option(name, value)]


def changed_by(generation: Generation, deleted: int) -> str:
    """What changed a generation since its first job, as far as is known; empty where nothing did.

    :param deleted: how many passages were deleted since the last job
    """
    changes = []
    if generation.job.get("mode") in GROWING:
        changes.append(f"the {job_name(generation.job)}")
        changes[0] += "" if generation.complete else ", which was interrupted"
    if deleted:
        changes.append("sparta delete")
    return " and ".join(changes)


def how_to_add_impacts(generation: Generation, index: Path, changed: str) -> Remedy:
    """Return what gives impacts to an index for BM25 alone.

    :param changed: what changed it since its first job; empty where nothing did
    """
    named = {} if generation.model.get("name") else {"model": "FOLDER"}
    if changed:
        command = Command.of("sparta index", corpus="FILE", overwrite=True, **named, index=index)
        return remedy("build it again with impacts, from a corpus that holds the changes: {}", command)
    command = Command.of("sparta index", corpus="FILE", resume=True, **named, index=index)
    return remedy("add them with: {}", command)
