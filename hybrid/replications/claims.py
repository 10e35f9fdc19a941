"""Claims with their retrieved passages, stored in a file."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path

from hybrid.answering.answers import as_read
from hybrid.evaluation.testsets import QuestionSet
from hybrid.replications.files import state_of
from hybrid.replications.labels import Claim, read_texts
from hybrid.retrieval.searcher import open_retriever
from sparta.base.disk.streams import numbered_lines
from sparta.base.errors import InputError
from sparta.base.files import atomic_write, make_folder
from sparta.data.parsing import decoded
from sparta.index.folder import default_index
from sparta.training.options import check_same

FILE = "claims.jsonl"
_AT_ONCE = 500


def claims_of(
    known: QuestionSet, index: Path | None, channel: str | None, depth: int, folder: Path
) -> list[Claim]:
    """Return claims with their `depth` best passages and their labels.

    Reads `folder/claims.jsonl` if the file exists; else retrieves the passages and writes the file.

    :param known: the claims, with their labels as answers
    :param index: index folder; None means the default index
    :raises InputError: the task has no answers, or the file holds claims of other settings
    """
    queries = [query for query in known.queries if query.answers]
    if not queries:
        raise InputError("the file has no claims with labels as answers", where=known.name)
    path = folder / FILE
    settings = {"task": known.name, "claims": len(queries), "channel": channel, "depth": depth}
    fingerprint = hashlib.sha256(repr([(q.text, q.answers[0]) for q in queries]).encode()).hexdigest()[:16]
    folder_of_index = index or default_index()
    settings |= {
        "fingerprint": fingerprint,
        "index": str(folder_of_index.resolve()),
        "state": state_of(folder_of_index),
    }
    if not path.exists():
        make_folder(folder)
        lines = [json.dumps(settings)]
        with open_retriever(index, channel, n_hits=depth) as retriever:
            for block in itertools.batched(queries, _AT_ONCE):
                hits_by_query = retriever.batch_search(
                    [q.text for q in block], [q.query_id for q in block], depth, 2
                )
                for query in block:
                    passages_read = read_texts(as_read(retriever, hits_by_query[query.query_id]))
                    lines.append(
                        json.dumps([query.text, passages_read, query.answers[0]], ensure_ascii=False)
                    )
        atomic_write(path, ("\n".join(lines) + "\n").encode())
    settings_of_file, *rows = [json.loads(decoded(line)) for _, line in numbered_lines(path)]
    check_same(settings_of_file, {name: settings.get(name) for name in settings_of_file}, path)
    return [Claim(text, tuple(passages), label) for text, passages, label in rows]
