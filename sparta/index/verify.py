"""Check every part of an index for damage, and say how to repair each damaged part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sparta.base.checks import check_vocabulary
from sparta.base.errors import IndexStateError, SpartaError, rebuild_index
from sparta.base.files import storage_errors
from sparta.base.remedies import Command, Remedy, remedy
from sparta.index.changes import how_to_finish, is_whole, job_name
from sparta.index.channels import OTHER_CHANNELS, other_channels
from sparta.index.folder import IndexFolder, lost_commit, no_passages, progress_of
from sparta.index.generation import Generation, Progress
from sparta.index.reader import IndexReader
from sparta.index.snapshot import manifests_of, retry_if_replaced, segments_of
from sparta.lucene.bridge import check_index

_UNTIL_WRITTEN = "wait until it is done"


class Part(NamedTuple):
    """The state of one part of an index; an empty `problem` means that the part is undamaged.

    `state` describes an undamaged part. A part that is incomplete, but undamaged, has a remedy without a
    problem: it belongs to an interrupted job, or lacks vectors. `error` is the cause of the problem.
    """

    name: str
    state: str
    problem: str = ""
    remedy: str | Remedy = ""
    error: SpartaError | None = None


def verify_index(path: str | Path, *, quick: bool = False) -> list[Part]:
    """Check the manifest, the tokenizer, the Lucene index and the other channels of an index.

    Other processes may write meanwhile: if a commit replaces the checked files, the check starts again.

    :param quick: open every file, but compare only the checksums of small files. Otherwise the check reads
        every file, and Lucene's CheckIndex reads the Lucene index
    """
    folder = IndexFolder(path)
    return list(_check_parts(folder, quick))


def _check_parts(folder: IndexFolder, quick: bool) -> Iterator[Part]:
    manifest, generation = _check_manifest(folder)
    yield manifest
    if generation is None:
        return
    yield _check_part(folder, "tokenizer", partial(_check_tokenizer, folder))
    yield _check_part(folder, "Lucene index", partial(_check_lucene, folder, quick))
    for name in other_channels(folder.path):
        yield _check_part(folder, f"{name} channel", partial(_check_channel, folder, name, quick))


def _check_manifest(folder: IndexFolder) -> tuple[Part, Generation | None]:
    try:
        generation = folder.state().searchable
        folder.refuse_links()
        has_commit = generation and (generation.complete or segments_of(folder.lucene_path(generation)))
    except SpartaError as error:
        return _damaged_part("manifest", error), None
    if not generation or not has_commit:
        command = Command.of("sparta index", corpus="FILE", index=folder.path)
        advice = how_to_finish(generation, folder.path) if generation else remedy("{}", command)
        return Part("manifest", "", "no passages yet", advice), None
    if _is_finished(folder, generation):
        return Part("manifest", f"model {generation.model['name']}"), generation
    if folder.is_being_written():
        return Part("manifest", "being written", remedy=_UNTIL_WRITTEN), generation
    state = f"the {job_name(generation.job)} was interrupted"
    return Part("manifest", state, remedy=how_to_finish(generation, folder.path)), generation


def _is_finished(folder: IndexFolder, generation: Generation) -> bool:
    """Return whether the last job is fully committed; for a damaged index, the manifest decides."""
    if generation.complete:
        return True
    try:
        with folder.searcher(generation) as searcher:
            return is_whole(generation, done=Progress.loads(searcher.user_data).done)
    except SpartaError:
        return False


def _check_part(
    folder: IndexFolder, name: str, describe: Callable[[Generation], str | SpartaError | Part]
) -> Part:
    """Check a part of the newest commit, because a writer may remove the files of older commits meanwhile.

    :param describe: returns the state of the part, an error for damage, or the part if it is incomplete; it
        raises errors that the removal of files may also cause
    """

    def newest() -> tuple[Generation, *tuple[object, ...]]:
        with storage_errors(folder.path):
            generation = folder.state().searchable
            if generation is None:
                raise no_passages(folder.path)
            return generation, segments_of(folder.lucene_path(generation)), manifests_of(folder, generation)

    try:
        state = retry_if_replaced(lambda commit: describe(commit[0]), newest, newest(), folder.path)
        if isinstance(state, SpartaError):
            return _damaged_part(name, state)
        return Part(name, state) if isinstance(state, str) else state
    except SpartaError as error:
        return _damaged_part(name, error)


def _damaged_part(name: str, error: SpartaError) -> Part:
    where = f"{error.where}: " if error.where else ""
    return Part(name, "", f"{where}{error.message}", error.remedy, error)


def _check_tokenizer(folder: IndexFolder, generation: Generation) -> str:
    side = folder.query_side(generation)
    check_vocabulary(side.tokenizer, folder.path / generation.tokenizer_name)
    lexical = f", lexical terms {side.lexical.name}" if side.lexical else ""
    return f"{side.tokenizer.get_vocab_size():,} terms{lexical}"


def _check_lucene(folder: IndexFolder, quick: bool, generation: Generation) -> str | SpartaError:
    path = folder.lucene_path(generation)
    if segments_of(path) is None:
        raise lost_commit(path)
    if not quick and (damage := check_index(path)):
        return IndexStateError(
            f"the index is damaged ({damage})",
            where=str(path),
            remedy=rebuild_index(folder.path),
        )
    with folder.searcher(generation) as searcher:
        progress_of(generation, searcher)  # raises if the commit belongs to another manifest
        passage_count = searcher.num_docs
        return f"{passage_count:,} passage{'s' * (passage_count != 1)}"


def _check_channel(folder: IndexFolder, name: str, quick: bool, _: Generation) -> str | Part:
    if not quick:
        OTHER_CHANNELS[name]().check(folder.path)
    with IndexReader(folder.path, channels=[name]) as reader, reader.snapshot() as snapshot:
        missing, passages = snapshot.channel(name).missing, snapshot.lucene.num_docs
    if not missing:
        return "whole"
    update = remedy("{}", Command.of(f"{name} index", index=folder.path))
    advice = _UNTIL_WRITTEN if folder.is_being_written() else update
    return Part(f"{name} channel", f"{missing:,} of {passages:,} passages have no vector", remedy=advice)
