"""Files of training data as sets of examples, with the passages that they name."""

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
from sparta.base.errors import InputError
from sparta.base.files import numbered_lines, plain_name
from sparta.base.records import Passage
from sparta.base.remedies import Option, remedy
from sparta.data.corpus import CorpusReader
from sparta.data.parsing import decoded, parse_object, placed
from sparta.training.formats import form_of, read_records

logger = logging.getLogger("sparta.dense")
_FORMS = ("jsonl", "pairs", "triples", "dpr", "beir")


@dataclass(frozen=True, slots=True)
class SkillFile:
    """A file for one skill; its batches are drawn in proportion to `weight`."""

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
    """Return the examples of files, with the passages that they name taken from `texts`.

    Files are JSONL with hyperlinks (paragraphs or table rows), KILT's rows, pairs, DPR's JSON. Examples whose
    passages are not in `texts` are left out, with a warning; those of the same query become one.

    :param by_size: weights are multiplied by the number of examples
    :param largest: a set of more examples counts as so many (Maillard et al., 2021, §4.1)
    :param tasks: tell the class of each file's task by its name
    :param named: gives the passages that may be named, in place of `texts`
    :raises InputError: another form, a form without examples of the skill, a file with none left.
    """
    drafts = [list(_drafts(one)) for one in files]
    wanted = {name for own in drafts for name in names_in(own)}
    paths = paths_of(texts, "files of texts")
    if paths and not wanted:
        logger.warning("no file names passages by id or title: the texts are not read")
    passages = named() if named else (passage for path in paths for passage in CorpusReader(path))
    known = _find(wanted, passages)
    sets = []
    for one, own in zip(files, drafts, strict=True):
        examples = [e for draft in own if (e := _example(draft, known)) is not None]
        if len(examples) < len(own):
            lost = len(own) - len(examples)
            logger.warning("%s: left out %d of %d examples: no text of a passage", one.path, lost, len(own))
        if not examples:
            raise InputError(
                f"expected examples of the skill {one.skill}, found none"
                + (f" whose passages are known, of {len(own):,}" if own else ""),
                where=str(one.path),
                remedy=remedy("name the files that hold the passages with {}", Option("texts"))
                if own
                else "give another file",
            )
        examples = merged(examples)
        weight = one.weight * (min(len(examples), largest or len(examples)) if by_size else 1)
        task = class_of(one.path.name) if tasks and one.skill == SINGLE else ""
        sets.append(SkillSet(one.path.name, one.skill, tuple(examples), weight, batch_size, task))
    return sets


def _drafts(one: SkillFile) -> Iterator[Draft]:
    first = next(_records(one.path), None)
    if first is None:
        return
    form = form_of_record(first[1])
    where = str(one.path)

    def records() -> Iterator[dict[str, Any]]:
        nonlocal where
        for place, record in _records(one.path):
            where = place
            yield record

    try:
        yield from drafts_of(records(), form, one.skill)
    except InputError as error:
        error.where = error.where or where
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise InputError(
            f"expected {form}, found one that is not so ({type(error).__name__}: {error})",
            where=where,
            remedy="docs/chains.md says what each form must hold",
        ) from error


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the records of a file, each after its place: those of `read_records` where it is one of the
    trainings' forms.
    """
    form = "jsonl" if plain_name(path.name).endswith(".jsonl") else form_of(path)
    if form not in _FORMS:
        raise InputError(
            f"expected JSON lines named .jsonl, DPR's JSON list, triples or a BEIR folder, found {form}",
            where=str(path),
            remedy="rename JSON lines to .jsonl; docs/chains.md says what each form must hold",
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


def _find(wanted: set[Wanted], passages: Iterable[Passage]) -> dict[Wanted, Passage]:
    """Return the passages that are named, by id or as the first of their title."""
    ids = {w.passage_id for w in wanted if w.passage_id}
    titles = {w.title for w in wanted if w.title}
    found: dict[Wanted, Passage] = {}
    for passage in passages if wanted else ():
        short = Passage(passage.passage_id, passage.text, passage.title)
        if passage.passage_id in ids:
            found.setdefault(Wanted(passage_id=passage.passage_id), short)
        if passage.title in titles:
            found.setdefault(Wanted(title=passage.title), short)
    return found


def _example(draft: Draft, known: dict[Wanted, Passage]) -> SkillExample | None:
    """Return an example with its passages; None where a positive or its evidence is not there."""

    def texts(named: Sequence[Named]) -> tuple[Passage, ...]:
        found = (known.get(p) if isinstance(p, Wanted) else p for p in named)
        return tuple(p for p in found if p is not None)

    positives, evidence = texts(draft.positives), texts([draft.evidence] if draft.evidence else [])
    if len(positives) < bool(draft.positives) or len(evidence) < bool(draft.evidence):
        return None
    before = evidence[0] if evidence else None
    return SkillExample(draft.query, positives, texts(draft.negatives), before, draft.spans, draft.answers)
