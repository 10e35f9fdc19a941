"""What was interrupted in an index, and what changed it since it was made: for messages and remedies."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from sparta.base.files import STANDARD_INPUT
from sparta.data.languages import DEFAULT_LANGUAGE
from sparta.data.units import unit_options
from sparta.index.folder import BOTH_CHANNELS, GROWING, Generation, codec_name, index_flag

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
_COMMANDS = {
    "append": "sparta index --append",
    "update": "sparta update",
    "overwrite": "sparta index --overwrite",
}


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


def how_to_finish(generation: Generation, index: Path) -> str:
    """What finishes the job of a generation, which was interrupted."""
    from sparta.data.corpus import RECORDS

    job = generation.job
    mode, source = str(job.get("mode")), str(job.get("source"))
    if source == RECORDS:
        again = "update with the same records (Index.update)"
        return again if mode in GROWING else "create it from the same records with IndexOptions(resume=True)"
    given = "--corpus" if job.get("from", "corpus") == "corpus" else "--vectors"
    command = f"{_COMMANDS.get(mode, 'sparta index')} {given} {shlex.join(job.get('folders') or [source])}"
    options = "" if mode in GROWING else _options(generation)
    return f"repeat its command with --resume: {command}{options} --resume {index_flag(index)}"


def _options(generation: Generation) -> str:
    """The options of `sparta index` that a generation was made with, where they are not the default."""
    from sparta.models.resolve import shipped_for

    form, source = {"codec": generation.codec, **generation.form}, generation.job.get("from", "corpus")
    given = [
        option_of(name, form[name])
        for name in _OF_VECTORS.get(source, _DEFAULTS)
        if form.get(name, _DEFAULTS[name]) != _DEFAULTS[name]
    ]
    if source == "corpus":
        name, bits = str(generation.model["name"]), generation.model["quantizer"]["bits"]
        given += [f"--model {shlex.quote(name)}"] if name and name != shipped_for(form["language"]) else []
        given += [f"--bits {bits}"] if bits != _USUAL_BITS else []
    return "".join(f" {one}" for one in given)


def option_of(name: str, value: object) -> str:
    """The option of `sparta index` that gives a part of an index's form this value."""
    return unit_options(str(value)) if name == "unit" else f"--{name.replace('_', '-')} {value}"


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


def how_to_add_impacts(generation: Generation, index: Path, changed: str) -> str:
    """What gives impacts to an index for BM25 alone; `changed` is what changed it since its first job."""
    model = "" if generation.model.get("name") else " --model FOLDER"
    rest = f"{model} {index_flag(index)}"
    if changed:
        return (
            "build it again with impacts, from a corpus that holds the changes:"
            f" sparta index --corpus FILE --overwrite{rest}"
        )
    return f"add them with: sparta index --corpus FILE --resume{rest}"
