"""Distant supervision: what a retriever finds for questions with known answers, to train a reader on."""

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
from sparta.data.answers import answer_spans
from sparta.reader.records import no_texts, text_of
from sparta.search.retriever import Retriever

_QUERIES_AT_ONCE = 500


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

    Every mention of an answer in a passage is a span `[start, end]` (characters). A question without any is
    left out. Of a regular expression the answers are what it matches. SPARTA, §4: the reader learns from the
    ranker's own top 10.

    :param match: how answers are looked for, as in `has_answer`
    :param language: that of the texts
    :return: how many questions were written
    """
    output = path_of(output, "a file")
    written, found_any, texts = 0, False, False
    with atomic_path(output) as temporary, temporary.open("w", encoding="utf-8") as stream:
        for start in range(0, len(queries), _QUERIES_AT_ONCE):
            some = queries[start : start + _QUERIES_AT_ONCE]
            found = retriever.batch_search([q.text for q in some], [q.query_id for q in some], depth, threads)
            for query in some:
                passages: list[dict[str, Any]] = [
                    {
                        "title": text.title,
                        "text": text.text,
                        "spans": answer_spans(text.text, query.answers, match=match, language=language),
                    }
                    for text in dict.fromkeys(map(text_of, as_read(retriever, found[query.query_id])))
                ]
                found_any = found_any or bool(passages)
                texts = texts or any(passage["text"] for passage in passages)
                if any(passage["spans"] for passage in passages):
                    mentions = [one["text"][a:b] for one in passages for a, b in one["spans"]]
                    answers = list(dict.fromkeys(mentions)) if match == "regex" else list(query.answers)
                    line = {"question": query.text, "answers": answers, "passages": passages}
                    stream.write(json.dumps(line, ensure_ascii=False) + "\n")
                    written += 1
        if found_any and not (written or texts):
            raise no_texts()
        if not written:
            raise InputError(
                f"expected a passage that holds an answer among the first {depth}, found none",
                remedy=remedy("check that questions and index belong together, or raise {}", Option("depth")),
            )
    return written
