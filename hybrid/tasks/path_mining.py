"""Examples for a reader of paths: what a chain finds for questions whose evidence is known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hybrid.evaluation.questions import QuestionSet, judged
from hybrid.evidence.measures import EvidenceSets, evidence_by_passage
from hybrid.multihop.paths import passages_of
from hybrid.multihop.searcher import ALL, ChainSearcher
from sparta.base.errors import InputError
from sparta.base.files import atomic_path
from sparta.base.records import Advance
from sparta.data.kilt import LEAST_BLEU
from sparta.data.units import passage_of
from sparta.index.folder import default_index
from sparta.reader.records import text_of

DEPTH = 20


def mine_paths(
    questions: QuestionSet,
    chain: ChainSearcher,
    output: Path,
    *,
    depth: int = DEPTH,
    advance: Advance | None = None,
) -> int:
    """Write `{"question", "answers", "passages": [{"title", "text", "gold"}]}` for each question.

    The passages are the first `depth` of the chain's paths, and the evidence (`gold`) that is not among them.
    Of several evidence sets the one of which most is found counts; passages of the others are left out, as
    are copies of what is there, and KILT's provenance that was mapped with a low BLEU score. So are questions
    without an answer, or whose evidence is not in the index.

    :return: how many questions were written
    """
    if output.name.endswith(".gz") or not output.name.endswith(".jsonl"):
        raise InputError("expected a name that ends in .jsonl", where=str(output))
    known = judged(questions, Path(chain.tools.index or default_index()), LEAST_BLEU)
    needed = evidence_by_passage(known.gold, known.qrels)
    cut, written = bool(known.gold and known.gold.cut), 0
    with atomic_path(output) as temporary, temporary.open("w", encoding="utf-8") as stream:
        for query in known.queries:
            if query.answers and query.query_id in needed:
                passages = list(_passages(chain, query.text, needed[query.query_id], depth, cut=cut))
                if passages:
                    line = {"question": query.text, "answers": list(query.answers), "passages": passages}
                    stream.write(json.dumps(line, ensure_ascii=False) + "\n")
                    written += 1
            if advance:
                advance(1)
        if not written:
            raise InputError(
                "expected questions with answers whose evidence is in the index, found none",
                where=questions.name,
                remedy="give KILT's JSONL with provenance, or a BEIR folder with answers, and its own index",
            )
    return written


def _passages(
    chain: ChainSearcher, question: str, sets: EvidenceSets, depth: int, *, cut: bool
) -> Iterator[dict[str, Any]]:
    """Yield what one question reads; nothing where a part of its evidence is not in the index."""

    def own(passage_id: str) -> str:
        return passage_of(passage_id) if cut else passage_id

    found = passages_of(chain.search(question, ALL).paths, ALL)
    there: dict[str, Any] = {}
    for hit in found:
        there.setdefault(own(hit.passage_id), hit)
    wanted = max(sets, key=lambda units: (sum(not unit.isdisjoint(there) for unit in units), -len(units)))
    gold: dict[str, Any] = {}
    for unit in sorted(wanted, key=sorted):
        first = next((i for i in there if i in unit), None)
        if first is None:
            ids = [f"{i}#0" if cut else i for i in sorted(unit)]
            stored = chain.tools.passages(ids)
            if not stored:
                return
            gold[own(stored[0].passage_id)] = stored[0]
        else:
            gold[first] = there[first]
    evidence = {i for units in sets for unit in units for i in unit}
    others = {i: hit for i, hit in list(there.items())[:depth] if i not in evidence}
    seen: set[tuple[str, str]] = set()
    for i, hit in {**gold, **others}.items():
        text = text_of(hit)
        if text not in seen:
            seen.add(text)
            yield {"title": text.title, "text": text.text, "gold": i in gold}
