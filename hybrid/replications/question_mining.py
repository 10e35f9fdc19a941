"""Reads the questions for which hard negatives are mined, from files of any supported format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from dense.models.mentions import names_entity
from dense.models.tasks import checks_facts
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
    """Return the questions of a file, in any supported format: with positives, judgments or only answers."""
    if is_dpr(path):
        return questions_of_dpr(path)
    if (path / "qrels" / "train.tsv").is_file():
        return questions_of_beir(path)
    questions, index_folder = questions_of(path), index or default_index()
    well_judged = all_judged = judged(questions, index_folder, least_bleu=LEAST_BLEU)
    if any(well_mapped(evidence) != evidence for evidence in well_judged.evidence.values()):
        all_judged = judged(questions, index_folder)  # badly mapped evidence is neither positive nor negative
    page_evidence = {
        q: evidence for q, evidence in well_judged.evidence.items() if names_pages_alone(evidence)
    }
    first_passages, passages_of_pages = (
        beginnings_of_pages(page_evidence, index_folder) if page_evidence else ({}, {})
    )
    ids_with_misleading_answers = {
        q for q, evidence in well_judged.evidence.items() if not well_mapped(evidence)
    }
    # If an entity's page is not in the index, its name as an answer would match passages of other pages.
    pages_not_indexed = page_evidence.keys() - first_passages.keys()
    ids_with_misleading_answers |= {
        q.query_id for q in well_judged.queries if q.query_id in pages_not_indexed and names_entity(q.text)
    }
    if checks_facts(path.name):  # no passage contains the labels SUPPORTS and REFUTES
        ids_with_misleading_answers |= (
            {q.query_id for q in well_judged.queries} - well_judged.qrels.keys() - first_passages.keys()
        )
    queries = (
        replace(q, answers=()) if q.query_id in ids_with_misleading_answers else q
        for q in well_judged.queries
    )
    return questions_of_queries(
        queries, {**well_judged.qrels, **first_passages}, {**all_judged.qrels, **passages_of_pages}
    )
