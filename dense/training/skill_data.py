"""Reads training files into sets of skill examples, with the passages that the files name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dense.models.skill_config import SINGLE
from dense.models.tasks import class_of
from dense.training.skill_examples import SkillExample, SkillSet, merged
from dense.training.skill_forms import PAIRS, Draft, Named, Wanted, drafts_of, form_of_record, names_in
from sparta.base.checks import paths_of
from sparta.base.disk.streams import numbered_lines
from sparta.base.errors import InputError
from sparta.base.files import plain_name
from sparta.base.records import Passage
from sparta.base.remedies import Option, remedy
from sparta.data.corpus import passages_in_file
from sparta.data.parsing import decoded, parse_object, placed
from sparta.training.formats import form_of, read_records

logger = logging.getLogger("sparta.dense")
_FORMS = ("jsonl", "pairs", "triples", "dpr", "beir")


@dataclass(frozen=True, slots=True)
class SkillFile:
    """A training file of one skill. Batches are drawn in proportion to `weight`."""

    skill: str
    path: Path
    weight: float = 1.0


def read_skill_sets(
    files: Sequence[SkillFile],
    texts: Sequence[str | Path],
    batch_size: int = 16,
    *,
    by_size: bool = False,
    largest: int | None = None,
    tasks: bool = False,
    named: Callable[[], Iterable[Passage]] | None = None,
) -> list[SkillSet]:
    """Return the examples of training files. Passages that the files only name are taken from `texts`.

    Files are JSONL with hyperlinks (paragraphs or table rows), KILT's rows, pairs, or DPR's JSON. Examples
    whose passages are missing in `texts` are left out, with a warning. Examples of the same query are merged.

    :param by_size: multiply each file's weight by its number of examples
    :param largest: the largest number of examples that `by_size` counts (Maillard et al., 2021, §4.1)
    :param tasks: set each set's task class, by the file's name
    :param named: returns the passages that files may name, instead of `texts`
    :raises InputError: unknown format, a format without examples of the skill, a file without usable
        examples.
    """
    drafts = [list(_drafts(file)) for file in files]
    names = {name for file_drafts in drafts for name in names_in(file_drafts)}
    paths = paths_of(texts, "files of texts")
    if paths and not names:
        logger.warning(
            "the training files name no passages by id or title, so the files of texts are ignored"
        )
    passages = named() if named else (passage for path in paths for passage in passages_in_file(path))
    known = _passages_by_name(names, passages)
    sets = []
    for file, file_drafts in zip(files, drafts, strict=True):
        examples = [example for draft in file_drafts if (example := _example(draft, known)) is not None]
        if len(examples) < len(file_drafts):
            n_skipped = len(file_drafts) - len(examples)
            logger.warning(
                "%s: skipped %d of %d examples without a passage text", file.path, n_skipped, len(file_drafts)
            )
        if not examples:
            raise InputError(
                f"the file has no examples of the skill {file.skill}"
                + (f" with a known passage, among {len(file_drafts):,} examples" if file_drafts else ""),
                where=str(file.path),
                remedy=remedy("name the files that hold the passages with {}", Option("texts"))
                if file_drafts
                else "name a file with examples of this skill",
            )
        examples = merged(examples)
        weight = file.weight * (min(len(examples), largest or len(examples)) if by_size else 1)
        task = class_of(file.path.name) if tasks and file.skill == SINGLE else ""
        sets.append(SkillSet(file.path.name, file.skill, tuple(examples), weight, batch_size, task))
    return sets


def _drafts(file: SkillFile) -> Iterator[Draft]:
    """Yield the examples of a file. Errors name the file and the line."""
    first = next(_records(file.path), None)
    if first is None:
        return
    format_name = form_of_record(first[1])
    where = str(file.path)

    def records() -> Iterator[dict[str, Any]]:
        nonlocal where
        for place, record in _records(file.path):
            where = place
            yield record

    try:
        yield from drafts_of(records(), format_name, file.skill)
    except InputError as error:
        error.where = error.where or where
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise InputError(
            f"a record does not fit the format {format_name} ({type(error).__name__}: {error})",
            where=where,
            remedy="correct the record: docs/chains.md lists the fields of each format",
        ) from error


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the records of a file, each after its place (file and line) for error messages."""
    form = "jsonl" if plain_name(path.name).endswith(".jsonl") else form_of(path)
    if form not in _FORMS:
        raise InputError(
            f"training data is JSONL, DPR's JSON, triples or a BEIR folder, not {form}",
            where=str(path),
            remedy="name files of JSON lines .jsonl; docs/chains.md lists the fields of each format",
        )
    if form != "jsonl":
        yield from ((str(path), record) for record in read_records(path, form))
        return
    lines = numbered_lines(path)
    first = next(lines, None)
    if first is None:
        return
    with placed(f"{path}:{first[0]}"):
        record = parse_object(decoded(first[1]))
    if form_of_record(record) == PAIRS:
        yield from ((str(path), record) for record in read_records(path, "pairs"))
        return
    yield f"{path}:{first[0]}", record
    for number, line in lines:
        with placed(f"{path}:{number}"):
            record = parse_object(decoded(line))
        yield f"{path}:{number}", record


def _passages_by_name(names: set[Wanted], passages: Iterable[Passage]) -> dict[Wanted, Passage]:
    """Return the named passages: the passage with an id, or the first passage of a title."""
    ids = {name.passage_id for name in names if name.passage_id}
    titles = {name.title for name in names if name.title}
    passages_by_name: dict[Wanted, Passage] = {}
    for passage in passages if names else ():
        passage_copy = Passage(passage.passage_id, passage.text, passage.title)
        if passage.passage_id in ids:
            passages_by_name.setdefault(Wanted(passage_id=passage.passage_id), passage_copy)
        if passage.title in titles:
            passages_by_name.setdefault(Wanted(title=passage.title), passage_copy)
    return passages_by_name


def _example(draft: Draft, known: dict[Wanted, Passage]) -> SkillExample | None:
    """Return an example with its passages; None if a positive or the evidence is missing."""

    def texts(named: Sequence[Named]) -> tuple[Passage, ...]:
        passages = (known.get(item) if isinstance(item, Wanted) else item for item in named)
        return tuple(passage for passage in passages if passage is not None)

    positives, evidence = texts(draft.positives), texts([draft.evidence] if draft.evidence else [])
    if len(positives) < bool(draft.positives) or len(evidence) < bool(draft.evidence):
        return None
    evidence_passage = evidence[0] if evidence else None
    return SkillExample(
        draft.query, positives, texts(draft.negatives), evidence_passage, draft.spans, draft.answers
    )
