"""Whether an index is as it was written: each of its parts, with what to do about one that is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sparta.base.checks import check_vocabulary
from sparta.base.errors import REBUILD_INDEX, IndexStateError, SpartaError
from sparta.base.remedies import Command, Remedy, remedy
from sparta.index.changes import carried, how_to_finish, is_whole, job_name
from sparta.index.channels import CHANNELS, other_channels
from sparta.index.folder import Generation, IndexFolder, lost_commit
from sparta.index.reader import IndexReader
from sparta.lucene.bridge import ImpactSearcher, check_index


class Part(NamedTuple):
    """A part of an index: without damage `problem` is empty; an unfinished job has a remedy alone."""

    name: str
    found: str
    problem: str = ""
    remedy: str | Remedy = ""


def verify_index(path: str | Path, *, quick: bool = False) -> list[Part]:
    """Look at the manifest, the tokenizer, the Lucene index and the other channels of an index.

    :param quick: open everything, and compare the checksums of what is small; otherwise every file is read,
        Lucene's by its CheckIndex
    """
    folder = IndexFolder(path)
    return list(_parts(folder, quick))


def _parts(folder: IndexFolder, quick: bool) -> Iterator[Part]:
    manifest, generation = _manifest(folder)
    yield manifest
    if generation is None:
        return
    yield _part("tokenizer", lambda: _tokenizer(folder, generation))
    yield _part("Lucene index", lambda: _lucene(folder, generation, quick))
    for name in other_channels(folder.path):
        yield _part(f"{name} channel", partial(_channel, folder, name, quick))


def _manifest(folder: IndexFolder) -> tuple[Part, Generation | None]:
    try:
        generation = folder.state().searchable
        folder.refuse_links()
    except SpartaError as error:
        return _broken("manifest", error), None
    begun = generation and (generation.complete or any(folder.lucene_path(generation).glob("segments_*")))
    if not generation or not begun:
        command = Command.of("sparta index", corpus="FILE")
        advice = how_to_finish(generation, folder.path) if generation else remedy("{}", command)
        return Part("manifest", "", "no passages yet", advice), None
    if _finished(folder, generation):
        return Part("manifest", f"model {generation.model['name']}"), generation
    if folder.is_being_written():
        return Part("manifest", "being written", remedy="wait until it is done"), generation
    found = f"the {job_name(generation.job)} was interrupted"
    return Part("manifest", found, remedy=how_to_finish(generation, folder.path)), generation


def _finished(folder: IndexFolder, generation: Generation) -> bool:
    """Whether all of the last job is committed; of a damaged index, what the manifest says."""
    if generation.complete:
        return True
    try:
        with ImpactSearcher(folder.lucene_path(generation), language=generation.analysis) as searcher:
            return is_whole(generation, done=carried(searcher.user_data).get("done", False))
    except SpartaError:
        return False


def _part(name: str, look: Callable[[], str]) -> Part:
    try:
        return Part(name, look())
    except SpartaError as error:
        return _broken(name, error)


def _broken(name: str, error: SpartaError) -> Part:
    where = f"{error.where}: " if error.where else ""
    return Part(name, "", f"{where}{error.message}", error.remedy)


def _tokenizer(folder: IndexFolder, generation: Generation) -> str:
    side = folder.query_side(generation)
    check_vocabulary(side.tokenizer, folder.path / generation.tokenizer_name)
    return f"{side.tokenizer.get_vocab_size():,} terms"


def _lucene(folder: IndexFolder, generation: Generation, quick: bool) -> str:
    path = folder.lucene_path(generation)
    if not any(path.glob("segments_*")):
        raise lost_commit(path)
    if not quick and (wrong := check_index(path)):
        raise IndexStateError(
            f"the index is damaged ({wrong})",
            where=str(path),
            remedy=REBUILD_INDEX,
        )
    with ImpactSearcher(path, language=generation.analysis) as searcher:
        n = searcher.num_docs
        return f"{n:,} passage{'s' * (n != 1)}"


def _channel(folder: IndexFolder, name: str, quick: bool) -> str:
    if not quick:
        CHANNELS[name]().check(folder.path)
    IndexReader(folder.path, channels=[name]).close()
    return "whole"
