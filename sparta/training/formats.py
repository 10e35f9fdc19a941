"""Recognize the format of a training file, and read its records (question, positive, negatives)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from itertools import islice
from pathlib import Path
from typing import Any

from sparta.base.disk.streams import numbered_lines
from sparta.base.errors import InputError
from sparta.base.files import plain_name
from sparta.base.records import Passage
from sparta.data.corpus import open_corpus
from sparta.data.jsonlist import begins_list, json_list
from sparta.data.parsing import decoded, parse_object, placed, string_field
from sparta.data.qa_formats import stored_form
from sparta.data.queries import read_queries
from sparta.data.trec import read_qrels
from sparta.training.known import Key, keys_of

logger = logging.getLogger(__name__)

DPR_FORM = "DPR JSON, a list of objects with question, positive_ctxs, hard_negative_ctxs (title, text)"
HARD_NEGATIVES = 100
"""The largest number of hard negatives per question, as in TASER (§3.3)."""
LEAST_NEGATIVES = 2
_DPR_FIELDS = ("positive_ctxs", "negative_ctxs", "evidence")


def form_of(path: Path) -> str:
    """Return a file's format, by its name and its first character or record; a folder is in BEIR's format."""
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


def read_records(path: Path, form: str) -> Iterator[dict[str, Any]]:
    """Yield the records of a file: question, positive, and optional fields. No text is truncated.

    The optional fields are title, context, start, answers, match, negative, passage_id (of the positive) and
    negative_ctxs. DPR's format also has all positive_ctxs, the first of which is `positive`, and the evidence
    from which an expanded query continues.

    :param form: `pairs`, `triples`, `dpr` or `beir`, from `form_of`.
    """
    readers: dict[str, Callable[[Path], Iterator[dict[str, Any]]]] = {
        "pairs": _read_jsonl,
        "triples": _read_triples,
        "dpr": _read_dpr,
        "beir": _read_beir,
    }
    return readers[form](path)


def _read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    for number, line in numbered_lines(path):
        with placed(f"{path}:{number}"):
            record = parse_object(decoded(line))
            for name in ("question", "positive"):
                if not string_field(record, name, of=name).strip():
                    raise InputError(
                        f"the field {name} is empty", remedy="fill the field, or remove the pair"
                    )
            _check_negatives(record.get("negative"))
        fields = {name: value for name, value in record.items() if name not in _DPR_FIELDS}
        yield {**fields, "answers": _answers(record), "match": _match(record)}


def _answers(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a record's answers that are strings or numbers; other types are ignored."""
    stored = record.get("answers")
    listed = [stored] if isinstance(stored, str) else stored if isinstance(stored, list) else []
    return tuple(str(answer) for answer in listed if isinstance(answer, str | int | float))


def _match(record: Mapping[str, Any]) -> str:
    """Return how a record's answers match texts, `string` or `regex`, as `has_answer` takes it."""
    return "regex" if record.get("match") == "regex" else "string"


def _check_negatives(negatives: Any) -> None:
    texts = negatives if isinstance(negatives, list) else [negatives or ""]
    wrong = next((text for text in texts if not isinstance(text, str)), None)
    if wrong is not None:
        raise InputError(
            f"the field negative must be a string or a list of strings, found {type(wrong).__name__}",
            remedy='write "negative": ["a text", "another text"], or omit the field',
        )


def _read_triples(path: Path) -> Iterator[dict[str, Any]]:
    for i, (number, line) in enumerate(numbered_lines(path)):
        with placed(f"{path}:{number}"):
            columns = decoded(line).split("\t")
            if len(columns) != 3 or not all(column.strip() for column in columns):
                raise InputError(
                    f"expected 3 columns (question, positive, negative), found {len(columns)}",
                    remedy="separate the columns by tabs, and fill every column",
                )
            if i == 0 and all(column.strip().isdecimal() for column in columns):
                raise InputError(
                    "the columns hold ids, but training needs texts",
                    remedy="replace the ids by the texts of the queries and passages; for MS MARCO, name"
                    " triples.train.small.tsv",
                )
        yield dict(zip(("question", "positive", "negative"), columns, strict=True))


def _read_dpr(path: Path) -> Iterator[dict[str, Any]]:
    """Yield DPR's training questions with their positives and negatives.

    The negatives are the hard negatives that are not positives, plus other negatives if there are few hard
    ones. Passages without text are left out.
    """
    blank = 0
    for number, record in enumerate(json_list(path, DPR_FORM)):
        with stored_form(f"{path}: question {number + 1}", DPR_FORM):
            passages, hard = (
                [*map(passage_in_file, stored)]
                for stored in (record["positive_ctxs"], record.get("hard_negative_ctxs") or ())
            )
            blank += sum(not passage.text.strip() for passage in [*passages, *hard])
            positives = [passage for passage in passages if passage.text.strip()]
            if not positives:
                continue
            right_keys = {key for passage in positives for key in keys_of(passage)}
            hard_negatives = list(_negatives_in(hard, right_keys, HARD_NEGATIVES))
            missing_negatives = max(0, LEAST_NEGATIVES - len(hard_negatives))
            yield {
                "question": str(record["question"]),
                "answers": _answers(record),
                "match": _match(record),
                "title": positives[0].title,
                "positive": positives[0].text,
                "passage_id": positives[0].passage_id,
                "positive_ctxs": positives,
                "negative_ctxs": [
                    *hard_negatives,
                    *_negatives_in(
                        map(passage_in_file, record.get("negative_ctxs", ())), right_keys, missing_negatives
                    ),
                ],
                "evidence": passage_in_file(record["evidence"]) if record.get("evidence") else None,
            }
    if blank:
        logger.warning("%s: left out %d passages without text", path.name, blank)


def passage_in_file(stored: Mapping[str, Any]) -> Passage:
    """Return a passage of DPR's JSON, whose id is `passage_id` or `psg_id`; the id may be empty."""
    passage_id = stored.get("passage_id") or stored.get("psg_id") or ""
    return Passage(str(passage_id), str(stored["text"]), str(stored.get("title") or ""))


def dpr_object(passage: Passage) -> dict[str, Any]:
    """Return a passage as DPR's JSON has it: title, text, passage_id, and the score in its record, if any."""
    fields = {"title": passage.title, "text": passage.text, "passage_id": passage.passage_id}
    return fields if "score" not in passage.record else {**fields, "score": passage.record["score"]}


def _negatives_in(passages: Iterable[Passage], right_keys: Set[Key], limit: int) -> Iterator[Passage]:
    """Yield the first `limit` passages with text that share no key with the right passages."""
    return islice((p for p in passages if p.text.strip() and right_keys.isdisjoint(keys_of(p))), limit)


def _read_beir(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield each judged question of a BEIR folder with each relevant passage; judgment 0 marks negatives."""
    missing = [n for n in ("corpus.jsonl", "queries.jsonl", "qrels/train.tsv") if not (folder / n).is_file()]
    if missing:
        raise InputError(
            f"the BEIR folder lacks {missing[0]} (corpus.jsonl, queries.jsonl, qrels/train.tsv are needed)",
            where=str(folder),
            remedy="complete the folder, or name a file of pairs",
        )
    qrels = read_qrels(folder / "qrels" / "train.tsv")
    judged_ids = {passage_id for judged in qrels.values() for passage_id in judged}
    passages = {p.passage_id: p for p in open_corpus(folder / "corpus.jsonl") if p.passage_id in judged_ids}
    for query in read_queries(folder / "queries.jsonl"):
        judged = {i: relevance for i, relevance in qrels.get(query.query_id, {}).items() if i in passages}
        negatives = [passages[i] for i, relevance in judged.items() if relevance < 1]
        for passage in (passages[i] for i, relevance in judged.items() if relevance > 0):
            yield {
                "question": query.text,
                "title": passage.title,
                "positive": passage.text,
                "passage_id": passage.passage_id,
                "negative_ctxs": [Passage(n.passage_id, n.text, n.title) for n in negatives],
            }
