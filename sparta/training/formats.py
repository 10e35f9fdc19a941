"""Training files: which form one has, and its records (question, positive, negatives)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from itertools import islice
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
from sparta.training.known import Context, Key, keys_of

DPR_FORM = "DPR JSON, a list of objects with question, positive_ctxs, hard_negative_ctxs (title, text)"
HARD_NEGATIVES = 100
"""How many of a question's hard negatives are kept: as many as TASER mines (§3.3)."""
LEAST_NEGATIVES = 2
_DPR_FIELDS = ("positive_ctxs", "negative_ctxs", "evidence")


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


def read_records(path: Path, form: str) -> Iterator[dict[str, Any]]:
    """Yield the records of a file: question, positive; maybe title, context, start, answers, negative,
    passage_id (of the positive), negative_ctxs, and of DPR's form all positive_ctxs, of which `positive` is
    the first, and the evidence that an expanded query goes on from. No text is cut.

    :param form: `pairs`, `triples`, `dpr` or `beir`, as `form_of` says.
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
                    raise InputError(f"expected a {name}, found an empty one", remedy="leave such pairs out")
            _check_negatives(record.get("negative"))
        kept = {name: value for name, value in record.items() if name not in _DPR_FIELDS}
        yield {**kept, "answers": _answers(record)}


def _answers(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the answers of a record that are texts or numbers; other forms are no answers."""
    given = record.get("answers")
    listed = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    return tuple(str(one) for one in listed if isinstance(one, str | int | float))


def _check_negatives(negatives: Any) -> None:
    texts = negatives if isinstance(negatives, list) else [negatives or ""]
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


def _read_dpr(path: Path) -> Iterator[dict[str, Any]]:
    """Yield DPR's training questions: positives, the hard negatives that are none of these, and other
    negatives where the hard ones are few.
    """
    for number, record in enumerate(json_list(path, DPR_FORM)):
        with stored_form(f"{path}: question {number + 1}", DPR_FORM):
            positives = [*map(context_in_file, record["positive_ctxs"])]
            if not positives:
                continue
            right = {key for p in positives for key in keys_of(p.text, p.passage_id)}
            hard = list(_others(record.get("hard_negative_ctxs", ()), right, HARD_NEGATIVES))
            fewer = max(0, LEAST_NEGATIVES - len(hard))
            yield {
                "question": str(record["question"]),
                "answers": _answers(record),
                "title": positives[0].title,
                "positive": positives[0].text,
                "passage_id": positives[0].passage_id,
                "positive_ctxs": positives,
                "negative_ctxs": [*hard, *_others(record.get("negative_ctxs", ()), right, fewer)],
                "evidence": context_in_file(record["evidence"]) if record.get("evidence") else None,
            }


def context_in_file(context: Mapping[str, Any]) -> Context:
    """Return a passage of DPR's JSON, whose id is `passage_id` or `psg_id`."""
    passage_id = context.get("passage_id") or context.get("psg_id") or ""
    return Context(str(context.get("title") or ""), str(context["text"]), str(passage_id))


def _others(contexts: Iterable[Mapping[str, Any]], right: Set[Key], most: int) -> Iterator[Context]:
    """Yield the first `most` passages whose keys are not among those of the right ones."""
    others = (c for c in map(context_in_file, contexts) if right.isdisjoint(keys_of(c.text, c.passage_id)))
    return islice(others, most)


def _read_beir(folder: Path) -> Iterator[dict[str, Any]]:
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
                "passage_id": passage.passage_id,
                "negative_ctxs": [Context(n.title, n.text, n.passage_id) for n in negatives],
            }
