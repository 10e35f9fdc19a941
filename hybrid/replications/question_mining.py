"""Reads the questions for which hard negatives are mined, from files of any supported format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from dense.models.tasks import checks_facts, names_entity
from dense.training.mining import Question, questions_of_beir, questions_of_dpr, questions_of_queries
from hybrid.evaluation.questions import judged, questions_of
from hybrid.evidence.gold import beginnings_of_pages, names_pages_alone
from sparta.base.files import plain_name
from sparta.data.jsonlist import begins_list, json_list
from sparta.data.kilt import LEAST_BLEU, well_mapped
from sparta.index.folder import default_index
from sparta.training.formats import DPR_FORM


def is_dpr(path: Path) -> bool:
    """Return whether a file is DPR's training JSON, whose questions have positives."""
    if path.is_dir() or not plain_name(path.name).endswith(".json") or not begins_list(path):
        return False
    first = next(json_list(path, DPR_FORM), None)
    return isinstance(first, dict) and "positive_ctxs" in first


def mining_questions(path: Path, index: Path | None) -> Iterable[Question]:
    """Return the questions of a file: with positives, with judgments, or with answers only."""
    if is_dpr(path):
        return questions_of_dpr(path)
    if (path / "qrels" / "train.tsv").is_file():
        return questions_of_beir(path)
    questions, place = questions_of(path), index or default_index()
    known = every = judged(questions, place, least_bleu=LEAST_BLEU)
    if any(well_mapped(evidence) != evidence for evidence in known.evidence.values()):
        every = judged(questions, place)  # what was mapped badly is no positive, and no negative either
    of_pages = {q: evidence for q, evidence in known.evidence.items() if names_pages_alone(evidence)}
    first, pages = beginnings_of_pages(of_pages, place) if of_pages else ({}, {})
    noise = {q for q, evidence in known.evidence.items() if not well_mapped(evidence)}
    lacking = of_pages.keys() - first.keys()  # an entity's name stands on other pages too
    noise |= {q.query_id for q in known.queries if q.query_id in lacking and names_entity(q.text)}
    if checks_facts(path.name):  # SUPPORTS and REFUTES are no answers that a text may hold
        noise |= {q.query_id for q in known.queries} - known.qrels.keys() - first.keys()
    queries = (replace(q, answers=()) if q.query_id in noise else q for q in known.queries)
    return questions_of_queries(queries, {**known.qrels, **first}, {**every.qrels, **pages})
