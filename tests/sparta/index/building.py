"""An index that is written from made vectors, and what it should rank."""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import batched
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sparta.index.build import IndexReport, write_index
from sparta.index.folder import IndexFolder
from sparta.index.generation import Job, Progress
from sparta.index.inputs.impact_batches import ImpactBatch
from sparta.index.jobs import Source, WriteOptions
from sparta.lucene.bridge import ImpactSearcher
from sparta.models.query_encoder import QuerySide
from sparta.search.searcher import Searcher


class Doc(NamedTuple):
    """A passage and its impacts, by wordpiece."""

    passage_id: str
    vector: dict[str, int]

    @property
    def record(self) -> dict[str, Any]:
        return {"id": self.passage_id, "contents": f"text of {self.passage_id}"}


def random_docs(terms: Sequence[str], prefix: str, n: int, seed: int = 0) -> list[Doc]:
    """Random impacts on few terms, so that there are many ties."""
    rng = random.Random(f"{prefix}{seed}")
    return [
        Doc(f"{prefix}{i}", {t: rng.randint(1, 3) for t in rng.sample(terms, rng.randint(0, 5))})
        for i in range(n)
    ]


@dataclass
class Builder:
    """Writes documents into one index; a batch is `size` of them."""

    folder: IndexFolder
    side: QuerySide

    def source(
        self,
        docs: Sequence[Doc],
        *,
        name: str = "a.jsonl",
        size: int = 4,
        side: QuerySide | None = None,
        before: Callable[[int], object] = lambda number: None,
        unit: str = "passage",
    ) -> Source:
        side = side or self.side
        ids = side.tokenizer.get_vocab()

        def batches(done: int, last: str = "") -> Iterator[ImpactBatch]:
            number = done // size
            for number, rows in enumerate(batched(docs[done:], size), done // size):
                before(number)
                yield ImpactBatch(
                    [d.passage_id for d in rows],
                    [json.dumps(d.record) for d in rows],
                    [d.record["contents"] for d in rows],
                    np.cumsum([0, *(len(d.vector) for d in rows)]).astype(np.int32),
                    np.array([ids[t] for d in rows for t in d.vector], dtype=np.int32),
                    np.array([i for d in rows for i in d.vector.values()], dtype=np.int32),
                )
            before(math.ceil(len(docs) / size))

        fingerprint = hashlib.sha256(repr(docs).encode()).hexdigest()
        job = Job(source=name, sha256=fingerprint, unit=unit)
        return Source(job, side, batches, lambda: {"read": len(docs), "used": len(docs)})

    def write(
        self, source: Source, mode: str = "create", *, commit_seconds: float = 1e9, **options: Any
    ) -> IndexReport:
        chosen = WriteOptions(mode=mode, commit_seconds=commit_seconds, ram_buffer_mb=16, **options)
        return write_index(self.folder, source, chosen)

    def contents(self) -> list[Doc]:
        """What the index holds, in the order of corpus positions, which differ from each other."""
        with self.reader() as reader:
            docids = reader.live()
            positions = reader.positions(docids)
            order = np.argsort(positions)
            assert len(set(positions.tolist())) == len(positions)
            found = [Doc(i, reader.vector(d)) for i, d in zip(reader.ids(docids), docids, strict=True)]
            assert [json.loads(raw) for raw in reader.raws(docids)] == [doc.record for doc in found]
            return [found[i] for i in order]

    def reader(self) -> ImpactSearcher:
        return self.folder.searcher(self.folder.state().searchable)

    def progress(self) -> Progress:
        with self.reader() as reader:
            return Progress.loads(reader.user_data)

    def ranking(self, query: str = "", k: int = 1000, **options: Any) -> list[tuple[str, float]]:
        with Searcher(self.folder.path, **options) as searcher:
            return [(hit.passage_id, hit.score) for hit in searcher.search(query, k)]

    def generations(self) -> list[str]:
        return sorted(p.name for p in self.folder.path.iterdir() if p.is_dir())


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = (p for p in folder.rglob("*") if p.is_file() and p.name not in {"lock", "write.lock"})
    return {str(p.relative_to(folder)): (p.stat().st_mtime_ns, p.read_bytes()) for p in files}


class Stop:
    """Raises once, before batch `at`."""

    def __init__(self, at: int, error: BaseException) -> None:
        self.at, self.error = at, error

    def __call__(self, number: int) -> None:
        if number == self.at:
            self.at = -1
            raise self.error
