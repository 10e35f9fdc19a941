"""Runs and relevance judgments, in the formats of TREC and BEIR."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from sparta.base.errors import InputError
from sparta.base.files import atomic_path, numbered_lines, shown_name
from sparta.base.records import ScoredPassage
from sparta.data.files import no_records
from sparta.data.parsing import BadRecordError, decoded, placed

_LONGEST_INTEGER = 18  # digits
_LARGEST_SCORE = 1e38  # what single precision holds


def write_run(
    path: str | Path, runs: Iterable[tuple[str, Sequence[ScoredPassage]]], tag: str = "sparta"
) -> None:
    """Write a TREC run, atomically: `qid Q0 docid rank score tag`, ranks from 1; `runs` are (qid, passages).

    The passages must come by descending score (ValueError otherwise). Tools that sort a run by score break
    ties by docid, and trec_eval compares in single precision. So that all of them keep the order given here,
    a score that is not lower, in single precision, than the one printed before it is lowered to the next
    single below that one (Anserini lowers tied scores too). All others are printed with full precision.

    A qid, docid or tag with white space, which a TREC run cannot hold, a repeated qid, and a docid repeated
    within a query are InputErrors; the file is then left as it was.
    """
    _check_word("tag", tag, set())
    seen: set[str] = set()
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as stream:
        for query_id, passages in runs:
            _check_word("query id", query_id, seen)
            with placed(f"query {query_id}"):
                stream.writelines(_run_lines(query_id, passages, tag))


def _run_lines(query_id: str, passages: Sequence[ScoredPassage], tag: str) -> Iterator[str]:
    scores = _strictly_descending(passage.score for passage in passages)
    seen: set[str] = set()
    for rank, (passage, score) in enumerate(zip(passages, scores, strict=True), 1):
        _check_word("passage id", passage.passage_id, seen)
        yield f"{query_id} Q0 {passage.passage_id} {rank} {score!r} {tag}\n"


def _check_word(name: str, word: str, seen: set[str]) -> None:
    if word.split() != [word]:
        raise InputError(
            f"a TREC run cannot hold the {name} {word!r}: expected one word, found white space or nothing",
            remedy=f"use a {name} without white space",
        )
    if word in seen:
        raise InputError(f"{name} {word!r} comes twice", remedy=f"write every {name} once")
    seen.add(word)


def _strictly_descending(scores: Iterable[float]) -> Iterator[float]:
    last, printed = math.inf, np.float32(np.inf)
    for score in scores:
        if not (abs(score) <= _LARGEST_SCORE and score <= last):
            raise ValueError(f"expected finite scores in descending order, found {score} after {last}")
        last = score
        single = np.float32(score)
        if single < printed:
            printed = single
            yield score if isinstance(score, int) else float(score)
        else:
            printed = np.nextafter(printed, np.float32(-np.inf))
            yield float(printed)


def read_run(path: str | Path) -> dict[str, list[ScoredPassage]]:
    """Return the passages of every query of a TREC run, by descending score; ties stay in the file's order.

    The queries come in the file's order. The ranks are not used: evaluation tools do not use them either.
    """
    runs: dict[str, dict[str, float]] = {}
    for where, line in _lines(path):
        with placed(where):
            columns = _columns(line.split(), "qid Q0 docid rank score tag")
            _put(runs.setdefault(columns[0], {}), columns[0], columns[2], _score(columns[4]))
    return {
        query_id: sorted(itertools.starmap(ScoredPassage, scores.items()), key=lambda hit: -hit.score)
        for query_id, scores in runs.items()
    }


def read_qrels(path: str | Path) -> dict[str, dict[str, int]]:
    """Return {qid: {docid: relevance}}, from BEIR's TSV with its header, or from the four columns of TREC."""
    qrels: dict[str, dict[str, int]] = {}
    beir: bool | None = None
    for where, line in _lines(path):
        with placed(where):
            if beir is None:
                beir = _is_beir_header(line)
                if beir:
                    continue
            query_id, passage_id, relevance = _judgment(line, beir)
            _put(qrels.setdefault(query_id, {}), query_id, passage_id, relevance)
    if not qrels:
        raise no_records(path)
    return qrels


def is_beir(path: str | Path) -> bool:
    """Whether judgments are in BEIR's form."""
    _, line = next(_lines(path))
    return _is_beir_header(line)


def _is_beir_header(line: str) -> bool:
    columns = line.split("\t")
    if len(columns) != 3:
        return False
    if _is_integer(columns[2]):
        remedy = "begin a BEIR file with the line query-id<TAB>corpus-id<TAB>score"
        raise BadRecordError("no header", "expected the names of three columns, found values", remedy=remedy)
    return True


def _judgment(line: str, beir: bool) -> tuple[str, str, int]:
    if beir:
        query_id, passage_id, relevance = _columns(line.split("\t"), "query-id corpus-id score")
    else:
        query_id, _, passage_id, relevance = _columns(line.split(), "qid 0 docid relevance")
    if not _is_integer(relevance) or len(relevance) > _LONGEST_INTEGER:
        raise BadRecordError("wrong type", f"expected an integer as relevance, found {relevance[:40]!r}")
    return query_id, passage_id, int(relevance)


def _lines(path: str | Path) -> Iterator[tuple[str, str]]:
    number = 0
    for number, line in numbered_lines(path):
        where = f"{shown_name(path)}:{number}"
        with placed(where):
            text = decoded(line)
        yield where, text
    if not number:
        raise no_records(path)


def _columns(columns: list[str], names: str) -> list[str]:
    expected = names.split()
    if len(columns) != len(expected) or not all(columns):
        detail = f"expected {len(expected)} ({', '.join(expected)}), found {len(list(filter(None, columns)))}"
        raise BadRecordError("wrong number of columns", detail)
    return columns


def _put[T](values: dict[str, T], query_id: str, passage_id: str, value: T) -> None:
    if passage_id in values:
        raise BadRecordError("duplicate", f"passage {passage_id!r} comes twice for query {query_id!r}")
    values[passage_id] = value


def _is_integer(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def _score(text: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise BadRecordError("wrong type", f"expected a finite number as score, found {text!r}")
    return score
