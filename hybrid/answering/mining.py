"""Mines training data for a reader by distant supervision: retrieved passages that contain known answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hybrid.answering.answers import as_read
from sparta.base.checks import path_of
from sparta.base.errors import InputError
from sparta.base.files import atomic_path
from sparta.base.records import Query
from sparta.base.remedies import Option, remedy
from sparta.data.answers import answer_spans, without_labels
from sparta.reader.records import no_texts, text_of
from sparta.search.retriever import Retriever

_QUERY_BLOCK = 500


def mine_answers(
    queries: Sequence[Query],
    retriever: Retriever,
    output: str | Path,
    *,
    depth: int = 10,
    match: str = "string",
    threads: int = 1,
    language: str = "en",
) -> int:
    """Write `{"question", "answers", "passages": [{"title", "text", "spans"}]}` for each question.

    Each mention of an answer in a passage is a span `[start, end]` (characters). Questions without any
    mention are left out, and so are answers such as yes, which texts contain by chance. If answers are
    regular expressions, the written answers are the matched texts.
    SPARTA, §4: the reader is trained on the ranker's top 10.

    :param match: how answers are matched in passages, as in `has_answer`
    :param language: language of the passages
    :return: the number of written questions
    """
    output = path_of(output, "a file")
    written, has_passages, has_texts = 0, False, False
    with atomic_path(output) as temporary, temporary.open("w", encoding="utf-8") as stream:
        for start in range(0, len(queries), _QUERY_BLOCK):
            block = queries[start : start + _QUERY_BLOCK]
            hits = retriever.batch_search(
                [question.text for question in block],
                [question.query_id for question in block],
                depth,
                threads,
            )
            for query in block:
                known_answers = without_labels(query.answers)
                passages: list[dict[str, Any]] = [
                    {
                        "title": text.title,
                        "text": text.text,
                        "spans": answer_spans(text.text, known_answers, match=match, language=language),
                    }
                    for text in dict.fromkeys(map(text_of, as_read(retriever, hits[query.query_id])))
                ]
                has_passages = has_passages or bool(passages)
                has_texts = has_texts or any(passage["text"] for passage in passages)
                if any(passage["spans"] for passage in passages):
                    mentions = [
                        passage["text"][start:end] for passage in passages for start, end in passage["spans"]
                    ]
                    answers = list(dict.fromkeys(mentions)) if match == "regex" else known_answers
                    line = {"question": query.text, "answers": answers, "passages": passages}
                    stream.write(json.dumps(line, ensure_ascii=False) + "\n")
                    written += 1
        if has_passages and not (written or has_texts):
            raise no_texts()
        if not written:
            raise InputError(
                f"no question has an answer in its top {depth} passages",
                remedy=remedy("check that the index fits the questions, or raise {}", Option("depth")),
            )
    return written
