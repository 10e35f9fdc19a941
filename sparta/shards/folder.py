"""A folder of numbered shards that a corpus is encoded into, sparse or dense; what is done stays done.

Each shard is a safetensors file, there whole or not at all, whose metadata tell what it holds.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from sparta.base.errors import IndexStateError, InputError, Interrupted, folder_in_use
from sparta.base.files import disk_fails, make_folder, storage_error, storage_errors
from sparta.base.locks import lock
from sparta.base.manifest import MANIFEST_NAME, check_fields, read_manifest, write_manifest
from sparta.base.records import Advance, Passage
from sparta.base.remedies import Option, remedy
from sparta.data.languages import check_language

SHARD_SIZE = 2048
_NAME = re.compile(r"shard-(\d{5,})\.safetensors")
_LOCK = "lock"
_LEFT_OVER = ".sparta-*.tmp"  # of a process that was killed while it wrote
Block = tuple[int, int, Sequence[Passage]]
"""Number, first position and passages of a shard that is still to be encoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOptions:
    """How a corpus is cut and shared, whatever its passages become.

    `language` decides where sentences end, `dtype` is the arithmetic of the encoder. `part` is (i, n): this
    machine takes the shards with number ≡ i modulo n.
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
                f"expected the part i of n with 0 ≤ i < n, found {i}/{n}", remedy="count from 0: 0/2, 1/2"
            )
        if self.shard_size < 1:
            raise InputError(f"a shard holds at least one passage, found {self.shard_size}")
        check_language(self.language)

    def identity(self) -> dict[str, Any]:
        """What must be the same for work to be continued."""
        return {**asdict(self), "part": list(self.part)}


@dataclass
class ShardReport:
    """Counts of one encoding: what was read and used was `encoded + kept + elsewhere` units."""

    encoded: int = 0
    kept: int = 0
    elsewhere: int = 0


def blocks_of(passages: Iterable[Passage], size: int) -> Iterator[Block]:
    """Cut a stream into numbered blocks: `(number, first position, passages)`."""
    for number, block in enumerate(itertools.batched(passages, size)):
        yield number, number * size, block


def missing_blocks(
    units: Iterable[Passage],
    options: ShardOptions,
    done: Mapping[int, Path],
    report: ShardReport,
    keep: Callable[[Path, Sequence[Passage]], object],
    advance: Advance | None = None,
) -> Iterator[Block]:
    """Yield the blocks of this machine's part that are still to be encoded; count the others.

    :param done: the shards that are there, by number
    :param keep: called with each of them and the passages it must hold
    :raises InputError: the corpus ends before one of them.
    """
    i, n = options.part
    number = -1
    for number, first, block in blocks_of(units, options.shard_size):
        if number % n != i:
            report.elsewhere += len(block)
        elif number in done:
            keep(done[number], block)
            report.kept += len(block)
            if advance:
                advance(len(block))
        else:
            yield number, first, block
    if stale := [path for later, path in done.items() if later > number]:
        raise corpus_changed(stale[0])


def shard_files(folder: Path) -> dict[int, Path]:
    """The shards that are there, by number, ascending."""
    found = ((_NAME.fullmatch(path.name), path) for path in folder.iterdir())
    return dict(sorted((int(match.group(1)), path) for match, path in found if match))


@contextmanager
def reading_shard(path: Path) -> Iterator[None]:
    """Turn what a damaged file makes of reading it into an InputError."""
    try:
        yield
    except (SafetensorError, OSError, LookupError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, OSError) and disk_fails(error):
            raise storage_error(path, error) from error
        raise InputError(
            f"expected an encoded shard, could not read it: {error}",
            where=str(path),
            remedy=remedy(
                "delete this file and repeat the command that wrote it with {}", Option("resume", True)
            ),
        ) from error


def shard_facts(path: Path) -> dict[str, Any]:
    """Number, first position, count and whatever else a shard says of itself, without reading its vectors."""
    with reading_shard(path), safe_open(str(path), framework="np") as stored:
        facts: dict[str, Any] = json.loads(stored.metadata()["shard"])
    return facts


@contextmanager
def kept_on_interrupt(folder: Path) -> Iterator[None]:
    """Make Ctrl-C say how many passages the shards of a folder hold."""
    try:
        yield
    except KeyboardInterrupt:
        files = shard_files(folder).values() if folder.is_dir() else ()
        raise Interrupted(sum(shard_facts(path)["count"] for path in files), "passage") from None


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Hold a folder, which is made, for one command that encodes; its workers need no lock of their own.

    Where the file system has no locks, nothing is held.

    :raises IndexStateError: another process holds it, or it has files of others.
    """
    if not _is_new(folder) and not (folder / MANIFEST_NAME).is_file():
        raise folder_in_use(folder, resumable=False)
    make_folder(folder)
    with ExitStack() as stack:
        with storage_errors(folder):
            is_free = lock(stack.enter_context((folder / _LOCK).open("ab")))
        if not is_free:
            raise IndexStateError(
                "another process is writing here",
                where=str(folder),
                remedy=remedy("wait until it is done, or choose another {}", Option("output")),
            )
        yield


def _is_new(folder: Path) -> bool:
    """Whether a folder is not there, or has nothing but what a process left that was killed at its start."""
    own = ("tokenizer", _LOCK)
    return not folder.exists() or all(p.name in own or p.match(_LEFT_OVER) for p in folder.iterdir())


def remove_left_overs(folder: Path) -> None:
    """Remove what a process left that was killed while it wrote."""
    for path in folder.glob(_LEFT_OVER):
        path.unlink()


def open_output(
    folder: Path,
    manifest: dict[str, Any],
    *,
    resume: bool,
    prepare: Callable[[], object] | None = None,
) -> dict[int, Path]:
    """Begin in a folder that `writing` made, or check that it holds the beginning of the same work; return
    the shards it has.

    :param manifest: of the new work; `model` (whatever its name) and `options` must be the same
    :param prepare: writes `tokenizer`, before there is a manifest
    """
    if _is_new(folder):
        remove_left_overs(folder)
        if prepare:
            prepare()
        write_manifest(folder, manifest)
        return {}
    if not resume:
        raise folder_in_use(folder)
    found = read_manifest(folder, manifest["kind"], manifest["format_version"])
    check_fields(found, {"options": dict, "model": dict}, folder / MANIFEST_NAME)
    differing = [k for k, v in manifest["options"].items() if found["options"].get(k) != v]
    model = manifest["model"].items()
    if parts := [k for k, v in model if k != "name" and found["model"].get(k) != v]:
        differing.append(f"model ({', '.join(parts)})")
    if differing:
        raise IndexStateError(
            f"expected the settings that this encoding was started with, found another"
            f" {', '.join(differing)}",
            where=str(folder),
            remedy=remedy(
                "repeat the original command with {}, or choose another {}",
                Option("resume", True),
                Option("output"),
            ),
        )
    remove_left_overs(folder)
    return shard_files(folder)


def check_finished(folder: Path, manifest: Mapping[str, Any], command: str) -> None:
    """Refuse a folder whose encoding, by a command such as `sparta encode`, is still to be completed."""
    if not manifest.get("complete", True):
        raise InputError(
            "expected a finished encoding, found one that is still to be completed",
            where=str(folder),
            remedy=remedy("run the same {} command with {}", command, Option("resume", True)),
        )


def corpus_changed(path: Path) -> InputError:
    """Say that a shard holds other passages than the corpus now has at its place."""
    return InputError(
        "the corpus no longer has the passages that this shard holds",
        where=str(path),
        remedy="encode into a new folder: the corpus changed since this one was started",
    )
