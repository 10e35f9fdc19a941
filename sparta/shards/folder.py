"""A folder of numbered shards, sparse or dense; finished shards survive interruptions.

Each shard is a safetensors file, written atomically, whose metadata describe its content.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from sparta.base.disk.locks import LOCK, locked_folder
from sparta.base.disk.new_folders import remove_left_overs
from sparta.base.errors import IndexStateError, InputError, Interrupted, folder_in_use
from sparta.base.files import TEMPORARY, make_folder, raise_if_unreadable
from sparta.base.manifest import MANIFEST_NAME, check_fields, read_manifest, write_manifest
from sparta.base.records import Advance, Passage
from sparta.base.remedies import Option, remedy
from sparta.data.languages import check_language
from sparta.data.units import check_unit

logger = logging.getLogger(__name__)

SHARD_SIZE = 2048
STORED_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""The names of arithmetics in the manifests of dense vectors; int8 has the same name there."""
_NAME = re.compile(r"shard-(\d{5,})\.safetensors")
Block = tuple[int, int, Sequence[Passage]]
"""A block is a shard before encoding: its number, the corpus position of its first passage, and its
passages.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOptions:
    """Options for splitting a corpus into shards, whatever the shards hold.

    `language` sets the rules for sentence ends. `dtype` is the number format of the encoder. `part` is (i,
    n): this machine encodes the shards with number ≡ i modulo n.
    """

    unit: str = "passage"
    language: str = "en"
    dtype: str = "auto"
    shard_size: int = SHARD_SIZE
    part: tuple[int, int] = (0, 1)

    def __post_init__(self) -> None:
        i, n = self.part
        if not 0 <= i < n:
            raise InputError(
                f"the part i/n must have 0 ≤ i < n, found {i}/{n}", remedy="count parts from 0: 0/2, 1/2"
            )
        if self.shard_size < 1:
            raise InputError(f"shard_size must be at least 1, found {self.shard_size}")
        check_language(self.language)
        check_unit(self.unit)

    def identity(self) -> dict[str, Any]:
        """Return the options that must not change when a job resumes."""
        return {**asdict(self), "part": list(self.part)}


@dataclass
class ShardReport:
    """Counts of one encoding: the corpus has `encoded + kept + elsewhere` units."""

    encoded: int = 0
    kept: int = 0
    elsewhere: int = 0


def blocks_of(passages: Iterable[Passage], size: int) -> Iterator[Block]:
    """Split a stream of passages into numbered blocks: `(number, first position, passages)`."""
    for number, block in enumerate(itertools.batched(passages, size)):
        yield number, number * size, block


def missing_blocks(
    units: Iterable[Passage],
    options: ShardOptions,
    existing_shards: Mapping[int, Path],
    report: ShardReport,
    keep: Callable[[Path, Sequence[Passage]], object],
    advance: Advance | None = None,
) -> Iterator[Block]:
    """Yield the blocks that this machine has yet to encode, and count all others in `report`.

    :param existing_shards: the existing shards by number
    :param keep: called with each existing shard and the passages that it must hold
    :raises InputError: the corpus ends before an existing shard.
    """
    machine, machines = options.part
    number = -1
    for number, first, block in blocks_of(units, options.shard_size):
        if number % machines != machine:
            report.elsewhere += len(block)
        elif number in existing_shards:
            keep(existing_shards[number], block)
            report.kept += len(block)
            if advance:
                advance(len(block))
        else:
            yield number, first, block
    if stale := [path for shard_number, path in existing_shards.items() if shard_number > number]:
        raise corpus_changed(stale[0])


def shard_files(folder: Path) -> dict[int, Path]:
    """Return the paths of the shards in a folder by number, ascending."""
    matches = ((_NAME.fullmatch(path.name), path) for path in folder.iterdir())
    return dict(sorted((int(match.group(1)), path) for match, path in matches if match))


@contextmanager
def shard_errors(path: Path) -> Iterator[None]:
    """Convert the errors from reading a damaged shard into an InputError."""
    try:
        yield
    except (SafetensorError, OSError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise_if_unreadable(path, error)
        raise InputError(
            f"the shard cannot be read: {error}",
            where=str(path),
            remedy=remedy(
                "delete this file and repeat the command that wrote it with {}", Option("resume", True)
            ),
        ) from error


def shard_facts(path: Path) -> dict[str, Any]:
    """Return the facts in a shard's metadata, without reading its vectors.

    The facts include the shard's number, first position and count.
    """
    with shard_errors(path), safe_open(str(path), framework="np") as stored:
        facts: dict[str, Any] = json.loads(stored.metadata()["shard"])
    return facts


@contextmanager
def kept_on_interrupt(folder: Path) -> Iterator[None]:
    """Convert Ctrl-C into an error that says how many passages are in the folder's shards."""
    try:
        yield
    except KeyboardInterrupt:
        files = shard_files(folder).values() if folder.is_dir() else ()
        raise Interrupted(sum(shard_facts(path)["count"] for path in files), "passage") from None


@contextmanager
def writing(
    folder: Path, joined: Callable[[], AbstractContextManager[object]] | None = None
) -> Iterator[None]:
    """Create a folder if needed, and lock it for one encoding command; its workers need no further lock.

    On a file system without locks, the folder is not locked.

    :param joined: joins a cluster, before a new folder is created; so a failure leaves no folder behind
    :raises IndexStateError: another process holds the lock, or the folder has other files.
    """
    is_file = folder.exists() and not folder.is_dir()
    if is_file or (not _is_new(folder) and not (folder / MANIFEST_NAME).is_file()):
        raise folder_in_use(folder, resumable=False)
    with ExitStack() as stack:
        if joined and _is_new(folder):
            stack.enter_context(joined())
        make_folder(folder)
        stack.enter_context(locked_folder(folder, "process"))
        yield


def _is_new(folder: Path) -> bool:
    """Return whether a folder is missing, or holds only files of a process that was killed at its start."""
    start_files = ("tokenizer", LOCK)
    return not folder.exists() or all(p.name in start_files or p.match(TEMPORARY) for p in folder.iterdir())


def open_output(
    folder: Path,
    manifest: dict[str, Any],
    *,
    resume: bool,
    prepare: Callable[[], object] | None = None,
) -> dict[int, Path]:
    """Start a job in a folder that `writing` created, or resume it; return the existing shards by number.

    :param manifest: the manifest of the job; `options` and `model` (except its name) must equal the
        folder's
    :param prepare: writes the subfolder `tokenizer`, before the manifest is written
    :raises IndexStateError: the folder holds shards and `resume` is not set, or it holds a different job.
    """
    if _is_new(folder):
        remove_left_overs(folder)
        if prepare:
            prepare()
        write_manifest(folder, manifest)
        return {}
    if not resume:
        raise folder_in_use(folder)
    existing = read_manifest(folder, manifest["kind"], manifest["format_version"])
    check_fields(existing, {"options": dict, "model": dict}, folder / MANIFEST_NAME)
    differing = [
        name for name, value in manifest["options"].items() if existing["options"].get(name) != value
    ]
    model_items = manifest["model"].items()
    if model_fields := [
        name for name, value in model_items if name != "name" and existing["model"].get(name) != value
    ]:
        differing.append(f"model ({', '.join(model_fields)})")
    if differing:
        stored = existing["options"].get("dtype")
        dtype = {stored: name for name, stored in STORED_DTYPES.items()}.get(stored, stored)
        repeat = remedy("repeat the original command with {}", Option("resume", True))
        if "dtype" in differing:  # `auto` may have meant another arithmetic then
            repeat += remedy(" and {}", Option("dtype", dtype))
        raise IndexStateError(
            f"the folder was encoded with different settings: {', '.join(differing)}",
            where=str(folder),
            remedy=repeat + remedy(", or choose another {}", Option("output")),
        )
    before, now = existing.get("arithmetic"), manifest.get("arithmetic")
    if before and now and before != now:
        logger.warning("%s: earlier shards were encoded with %s, the rest with %s", folder, before, now)
    remove_left_overs(folder)
    shards = shard_files(folder)
    if existing.get("complete") and _lacks_shards(existing, shards.values()):
        write_manifest(folder, {**existing, "complete": False})
    return shards


def _lacks_shards(manifest: Mapping[str, Any], shards: Iterable[Path]) -> bool:
    """Return whether shards of a complete encoding are missing."""
    counts = manifest.get("counts", {})
    passages = counts.get("encoded", 0) + counts.get("kept", 0)
    return sum(int(shard_facts(path)["count"]) for path in shards) < int(passages)


def check_finished(folder: Path, manifest: Mapping[str, Any], command: str) -> None:
    """Check that the encoding in a folder is complete.

    :param command: the command that made the folder, such as `sparta encode`
    :raises InputError: the encoding is not complete.
    """
    if not manifest.get("complete", True):
        raise InputError(
            "the encoding in this folder is unfinished",
            where=str(folder),
            remedy=remedy("repeat the {} command with {}", command, Option("resume", True)),
        )


def corpus_changed(path: Path) -> InputError:
    """Return the error for a shard whose passages differ from the corpus."""
    return InputError(
        "the corpus has changed: it no longer has the passages of this shard",
        where=str(path),
        remedy="encode the changed corpus into a new folder",
    )
