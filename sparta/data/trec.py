"""Reading and writing runs and qrels, in the formats of TREC and BEIR."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from sparta.base.disk.streams import numbered_lines
from sparta.base.errors import InputError
from sparta.base.files import atomic_path, shown_name
from sparta.base.records import Run, ScoredPassage
from sparta.data.files import no_records
from sparta.data.parsing import BadRecordError, decoded, placed

_LONGEST_INTEGER = 18  # digits
_LARGEST_SCORE = 1e38  # within single precision
_QRELS = (
    "write each line as QID 0 DOCID RELEVANCE, or begin a file of three columns with the line"
    " query-id<TAB>corpus-id<TAB>score and separate its columns by tabs; a relevance is a whole number"
)


def write_run(
    path: str | Path, runs: Iterable[tuple[str, Sequence[ScoredPassage]]], tag: str = "sparta"
) -> None:
    """Write a TREC run atomically: lines of `qid Q0 docid rank score tag`, with ranks from 1.

    The passages must come by descending score. Tools that sort a run by score break ties by docid, and
    trec_eval compares in single precision. To keep the order in all tools, a score that does not decrease
    in single precision is lowered to the next smaller single-precision number. (Anserini lowers tied scores
    too.) All other scores keep full precision.

    :param runs: pairs of query id and passages
    :raises ValueError: the scores of a query are not finite or not descending.
    :raises InputError: a query id, passage id or tag contains white space, a query id is repeated, or a
        passage id is repeated within a query; the file is then unchanged.
    """
    _check_word("tag", tag, set())
    seen: set[str] = set()
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as stream:
        for query_id, passages in runs:
            _check_word("query id", query_id, seen)
            with placed(f"query {query_id}"):
                stream.writelines(_run_lines(query_id, passages, tag))


def check_query_ids(query_ids: Iterable[str]) -> None:
    """Check that `write_run` accepts these query ids.

    :raises InputError: a query id contains white space, or is repeated.
    """
    seen: set[str] = set()
    for query_id in query_ids:
        _check_word("query id", query_id, seen)


def _run_lines(query_id: str, passages: Sequence[ScoredPassage], tag: str) -> Iterator[str]:
    scores = _strictly_descending(passage.score for passage in passages)
    seen: set[str] = set()
    for rank, (passage, score) in enumerate(zip(passages, scores, strict=True), 1):
        _check_word("passage id", passage.passage_id, seen)
        yield f"{query_id} Q0 {passage.passage_id} {rank} {score!r} {tag}\n"


def _check_word(name: str, word: str, seen: set[str]) -> None:
    if word.split() != [word]:
        raise InputError(
            f"a TREC run cannot hold the {name} {word!r}: it is empty or contains white space",
            remedy=f"use a {name} without white space",
        )
    if word in seen:
        raise InputError(f"the {name} {word!r} appears twice in the run", remedy=f"write every {name} once")
    seen.add(word)


def _strictly_descending(scores: Iterable[float]) -> Iterator[float]:
    previous, printed = math.inf, np.float32(np.inf)
    for score in scores:
        if not (abs(score) <= _LARGEST_SCORE and score <= previous):
            raise ValueError(
                f"the scores of a run must be finite and descending, found {score} after {previous}"
            )
        previous = score
        single_precision = np.float32(score)
        if single_precision < printed:
            printed = single_precision
            yield score if isinstance(score, int) else float(score)
        else:
            printed = np.nextafter(printed, np.float32(-np.inf))
            yield float(printed)


def read_run(path: str | Path) -> dict[str, list[ScoredPassage]]:
    """Return the passages of each query of a TREC run, by descending score; ties stay in the file's order.

    The queries keep the file's order. The rank column is ignored, as in evaluation tools.
    """
    runs: dict[str, dict[str, float]] = {}
    for where, line in _lines(path):
        with placed(where):
            columns = _columns(line.split(), "qid Q0 docid rank score tag")
            _add_once(runs.setdefault(columns[0], {}), columns[0], columns[2], _score(columns[4]))
    return {
        query_id: sorted(itertools.starmap(ScoredPassage, scores.items()), key=lambda hit: -hit.score)
        for query_id, scores in runs.items()
    }


def with_ties(rankings: Run) -> dict[str, Sequence[ScoredPassage]]:
    """Return rankings with the ties that `write_run` separated, because fusions stretch small differences.

    A score exactly one single-precision step below the previous score becomes the score of the passage above.
    """
    return {query_id: _with_ties(ranking) for query_id, ranking in rankings.items()}


def _with_ties(ranking: Sequence[ScoredPassage]) -> Sequence[ScoredPassage]:
    scores = np.array([hit.score for hit in ranking])
    with np.errstate(over="ignore"):
        next_smaller = np.nextafter(scores.astype(np.float32), np.float32(-np.inf))
    is_tied = scores[1:] == next_smaller[:-1]
    if not is_tied.any():
        return ranking
    first_rows = np.maximum.accumulate(np.append(0, np.where(is_tied, 0, np.arange(1, len(scores)))))
    return [
        ScoredPassage(hit.passage_id, ranking[row].score)
        for hit, row in zip(ranking, first_rows.tolist(), strict=True)
    ]


def read_qrels(path: str | Path) -> dict[str, dict[str, int]]:
    """Return {qid: {docid: relevance}}, from BEIR's TSV with a header, or from TREC's four columns."""
    qrels: dict[str, dict[str, int]] = {}
    in_beir_format: bool | None = None
    for where, line in _lines(path):
        with placed(where):
            if in_beir_format is None:
                in_beir_format = _is_beir_header(line)
                if in_beir_format:
                    continue
            query_id, passage_id, relevance = _judgment(line, in_beir_format)
            _add_once(qrels.setdefault(query_id, {}), query_id, passage_id, relevance)
    if not qrels:
        raise no_records(path)
    return qrels


def is_beir(path: str | Path) -> bool:
    """Return whether a file of qrels has BEIR's format."""
    _, line = next(_lines(path))
    return _is_beir_header(line)


def _is_beir_header(line: str) -> bool:
    columns = line.split("\t")
    if len(columns) != 3:
        return False
    if _is_integer(columns[2]):
        raise BadRecordError(
            "missing header", "the first line must name three columns, but contains values", remedy=_QRELS
        )
    return True


def _judgment(line: str, in_beir_format: bool) -> tuple[str, str, int]:
    if in_beir_format:
        query_id, passage_id, relevance = _columns(line.split("\t"), "query-id corpus-id score", _QRELS)
    else:
        query_id, _, passage_id, relevance = _columns(line.split(), "qid 0 docid relevance", _QRELS)
    if not _is_integer(relevance) or len(relevance) > _LONGEST_INTEGER:
        detail = f"expected an integer, found {relevance[:40]!r}"
        raise BadRecordError("invalid relevance", detail, remedy=_QRELS)
    return query_id, passage_id, int(relevance)


def _lines(path: str | Path) -> Iterator[tuple[str, str]]:
    line_number = 0
    for line_number, line in numbered_lines(path):
        where = f"{shown_name(path)}:{line_number}"
        with placed(where):
            text = decoded(line)
        yield where, text
    if not line_number:
        raise no_records(path)


def _columns(columns: list[str], names: str, remedy: str = "correct the record") -> list[str]:
    expected = names.split()
    if len(columns) != len(expected) or not all(columns):
        n_filled = len(list(filter(None, columns)))
        detail = f"expected {len(expected)} columns ({', '.join(expected)}), found {n_filled}"
        raise BadRecordError("wrong number of columns", detail, remedy=remedy)
    return columns


def _add_once[T](values: dict[str, T], query_id: str, passage_id: str, value: T) -> None:
    if passage_id in values:
        raise BadRecordError(
            "duplicate passage", f"the passage {passage_id!r} appears twice for the query {query_id!r}"
        )
    values[passage_id] = value


def _is_integer(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def _score(text: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise BadRecordError("invalid score", f"expected a finite number, found {text!r}")
    return score
