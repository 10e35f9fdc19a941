"""Training files: which form one has, and its records (question, positive, negatives)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from sparta.base.errors import InputError
from sparta.base.files import numbered_lines, plain_name
from sparta.data.corpus import CorpusReader
from sparta.data.jsonlist import begins_list, json_list
from sparta.data.parsing import decoded, parse_object, placed, string_field
from sparta.data.qa_formats import stored_form
from sparta.data.queries import read_queries
from sparta.data.trec import read_qrels

LONGEST_CHARACTERS = 1200
DPR_FORM = "DPR JSON, a list of objects with question, positive_ctxs, hard_negative_ctxs (title, text)"
HARD_NEGATIVES = 100
"""How many of a question's hard negatives are kept: as many as TASER mines (§3.3)."""
LEAST_NEGATIVES = 2


def form_of(path: Path) -> str:
    """Tell a file's form from its name and its first character or record; a folder is BEIR's."""
    if path.is_dir():
        return "beir"
    name = plain_name(path.name)
    if name.endswith(".tsv"):
        return "triples"
    if name.endswith(".json"):
        return "dpr" if begins_list(path) else "squad"
    for number, line in numbered_lines(path):
        with placed(f"{path}:{number}"):
            record = parse_object(decoded(line))
        return "mrqa" if "header" in record or "qas" in record else "pairs"
    return "pairs"


def read_records(path: Path, form: str, most: int = LONGEST_CHARACTERS) -> Iterator[dict[str, Any]]:
    """Yield the records of a file: question, positive; maybe title, context, start, negative, negative_ctxs,
    and of DPR's form all positive_ctxs, of which `positive` is the first.

    :param form: `pairs`, `triples`, `dpr` or `beir`, as `form_of` says.
    :param most: characters of a negative text that are kept
    """
    readers: dict[str, Callable[[Path], Iterator[dict[str, Any]]]] = {
        "pairs": _read_jsonl,
        "triples": _read_triples,
        "dpr": partial(_read_dpr, most=most),
        "beir": partial(_read_beir, most=most),
    }
    return readers[form](path)


def _read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    for number, line in numbered_lines(path):
        with placed(f"{path}:{number}"):
            record = parse_object(decoded(line))
            for name in ("question", "positive"):
                if not string_field(record, name, of=name).strip():
                    raise InputError(f"expected a {name}, found an empty one", remedy="leave such pairs out")
            _check_negatives(record.get("negative"))
        yield record


def _check_negatives(given: Any) -> None:
    texts = given if isinstance(given, list) else [given or ""]
    wrong = next((one for one in texts if not isinstance(one, str)), None)
    if wrong is not None:
        raise InputError(
            f"expected negative to be a text or a list of texts, found {type(wrong).__name__}",
            remedy='write "negative": ["a text", "another"], or leave it out',
        )


def _read_triples(path: Path) -> Iterator[dict[str, Any]]:
    for number, line in numbered_lines(path):
        with placed(f"{path}:{number}"):
            columns = decoded(line).split("\t")
            if len(columns) != 3 or not all(column.strip() for column in columns):
                raise InputError(
                    f"expected 3 columns (question, positive, negative), found {len(columns)}",
                    remedy="separate them by tabs, and leave none empty",
                )
        yield dict(zip(("question", "positive", "negative"), columns, strict=True))


def _read_dpr(path: Path, most: int) -> Iterator[dict[str, Any]]:
    """Yield DPR's training questions: positives, the hard negatives, and others where these lack."""
    for number, record in enumerate(json_list(path, DPR_FORM)):
        with stored_form(f"{path}: question {number + 1}", DPR_FORM):
            positives = record["positive_ctxs"]
            if not positives:
                continue
            hard = list(record.get("hard_negative_ctxs", ()))[:HARD_NEGATIVES]
            others = list(record.get("negative_ctxs", ()))[: max(0, LEAST_NEGATIVES - len(hard))]
            yield {
                "question": str(record["question"]),
                "title": str(positives[0].get("title") or ""),
                "positive": str(positives[0]["text"]),
                "positive_ctxs": [_titled(c) for c in positives],
                "negative_ctxs": [(title, text[:most]) for title, text in map(_titled, [*hard, *others])],
            }


def _titled(context: Mapping[str, Any]) -> tuple[str, str]:
    return str(context.get("title") or ""), str(context["text"])


def _read_beir(folder: Path, most: int) -> Iterator[dict[str, Any]]:
    """Yield each judged question of a BEIR folder with each of its passages; those judged 0 are negatives."""
    missing = [n for n in ("corpus.jsonl", "queries.jsonl", "qrels/train.tsv") if not (folder / n).is_file()]
    if missing:
        raise InputError(
            f"expected a BEIR folder (corpus.jsonl, queries.jsonl, qrels/train.tsv), found no {missing[0]}",
            where=str(folder),
            remedy="complete the folder, or name a file of pairs",
        )
    qrels = read_qrels(folder / "qrels" / "train.tsv")
    wanted = {passage_id for judged in qrels.values() for passage_id in judged}
    passages = {p.passage_id: p for p in CorpusReader(folder / "corpus.jsonl") if p.passage_id in wanted}
    for query in read_queries(folder / "queries.jsonl"):
        judged = {i: relevance for i, relevance in qrels.get(query.query_id, {}).items() if i in passages}
        negatives = [passages[i] for i, relevance in judged.items() if relevance < 1]
        for passage in (passages[i] for i, relevance in judged.items() if relevance > 0):
            yield {
                "question": query.text,
                "title": passage.title,
                "positive": passage.text,
                "negative_ctxs": [(n.title, n.text[:most]) for n in negatives],
            }
