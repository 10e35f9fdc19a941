"""Mines training examples of a path reader: passages that a chain retrieves for questions with evidence."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hybrid.evaluation.questions import judged
from hybrid.evaluation.testsets import QuestionSet
from hybrid.evidence.measures import EvidenceSets, Unit, evidence_by_passage
from hybrid.multihop.paths import distinct_evidence
from hybrid.multihop.searcher import ALL, ChainSearcher
from sparta.base.checks import path_of
from sparta.base.errors import InputError
from sparta.base.files import atomic_path
from sparta.base.records import Advance, Hit
from sparta.data.kilt import LEAST_BLEU
from sparta.data.kilt import Evidence as KiltEvidence
from sparta.data.units import is_cut, passage_of
from sparta.index.folder import IndexFolder, default_index
from sparta.reader.records import Text, text_of

DEPTH = 20


def mine_paths(
    questions: QuestionSet,
    chain: ChainSearcher,
    output: str | Path,
    *,
    depth: int = DEPTH,
    advance: Advance | None = None,
) -> int:
    """Write `{"question", "answers", "passages": [{"title", "text", "gold"}]}` for each question.

    The passages are the evidence (`gold` is true) and the first `depth` passages of the chain's paths. If the
    index has several complete evidence sets of a question, the set with most passages in the chain's paths is
    the gold one. Passages of the other sets and repeated texts are left out. KILT's evidence sets with a low
    BLEU score are ignored. Questions without an answer or without a complete evidence set are left out.

    :return: number of written questions
    """
    output = path_of(output, "a file")
    folder = Path(chain.tools.index or default_index())
    judged_set = judged(questions, folder)
    evidence_by_query = sets_by_query = evidence_by_passage(judged_set.gold, judged_set.qrels)
    well_mapped_evidence = {
        q: evidence_sets for q, sets in questions.evidence.items() if (evidence_sets := _well_mapped(sets))
    }
    if well_mapped_evidence != questions.evidence:
        well_mapped_set = judged(replace(questions, evidence=well_mapped_evidence), folder)
        sets_by_query = evidence_by_passage(well_mapped_set.gold, well_mapped_set.qrels)
    generation = IndexFolder(folder).state().searchable
    cut, written = bool(generation and is_cut(generation.unit)), 0
    with atomic_path(output) as temporary, temporary.open("w", encoding="utf-8") as stream:
        for query in judged_set.queries:
            sets = sets_by_query.get(query.query_id)
            if query.answers and sets:
                evidence = {i for units in evidence_by_query[query.query_id] for unit in units for i in unit}
                passages = list(_passages(chain, query.text, sets, evidence, depth, cut=cut))
                if passages:
                    line = {"question": query.text, "answers": list(query.answers), "passages": passages}
                    stream.write(json.dumps(line, ensure_ascii=False) + "\n")
                    written += 1
            if advance:
                advance(1)
        if not written:
            raise InputError(
                "no question has an answer and evidence that the index contains",
                where=questions.name,
                remedy="name KILT's JSONL with provenance, or a BEIR folder with answers, and its index",
            )
    return written


def _well_mapped(sets: KiltEvidence) -> KiltEvidence:
    """Return the evidence sets in which every passage has a BLEU score of at least `LEAST_BLEU`."""
    return tuple(evidence for evidence in sets if all(place.bleu >= LEAST_BLEU for place in evidence))


def _passages(
    chain: ChainSearcher, question: str, sets: EvidenceSets, evidence: set[str], depth: int, *, cut: bool
) -> Iterator[dict[str, Any]]:
    """Yield the passages of a question as JSON objects; nothing if the index has no complete evidence set.

    :param evidence: ids of passages that must not be negatives
    """
    hits: dict[str, Hit] = {}
    for hit in distinct_evidence(chain.find_paths(question, ALL).paths, ALL):
        hits.setdefault(passage_of(hit.passage_id) if cut else hit.passage_id, hit)
    complete_sets = [gold for units in sets if (gold := _gold(chain, units, hits, cut=cut))]
    if not complete_sets:
        return
    gold = max(complete_sets, key=lambda gold_set: (len(gold_set.keys() & hits.keys()), -len(gold_set)))
    others = {i: hit for i, hit in list(hits.items())[:depth] if i not in evidence}
    yielded_texts: set[Text] = set()
    passages = gold | others
    for i, hit in zip(passages, chain.tools.in_context(list(passages.values())), strict=True):
        text = text_of(hit)
        if text not in yielded_texts:
            yielded_texts.add(text)
            yield {"title": text.title, "text": text.text, "gold": i in gold}


def _gold(
    chain: ChainSearcher, units: Collection[Unit], hits: Mapping[str, Hit], *, cut: bool
) -> dict[str, Hit]:
    """Return one passage for each piece of evidence, by id; empty if the index lacks a piece.

    A piece (`Unit`) is a set of alternative passages; the chain's hits are preferred to other passages.
    """
    gold: dict[str, Hit] = {}
    for unit in sorted(units, key=sorted):
        first = next((i for i in hits if i in unit), None)
        if first is not None:
            gold[first] = hits[first]
            continue
        for passage_id in sorted(unit):
            if stored := chain.tools.passages([passage_id, *([f"{passage_id}#0"] if cut else [])]):
                gold[passage_id] = stored[0]
                break
        else:
            return {}
    return gold
