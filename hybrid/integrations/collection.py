"""Corpora of evaluation tools, indexed in a temporary folder and searched."""

from __future__ import annotations

import hashlib
import secrets
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dense.models.resolve import identify
from hybrid.integrations.source import Source, open_source
from sparta.base.errors import InputError
from sparta.base.manifest import MANIFEST_NAME
from sparta.index.channels import DENSE
from sparta.index.folder import IndexFolder
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from sparta.index.snapshot import newest_commit
from sparta.models.resolve import hash_folder, model_folder


class Collection:
    """The passages of a test set, in an existing index or in a temporary one.

    :param index: an index folder or an open retriever; None means `hold` indexes the passages it gets
    :param channels: as in `open_retriever`
    :param options: options of the temporary index; passages without text are left out, with a warning
    """

    def __init__(
        self,
        index: Source = None,
        channels: str | None = None,
        options: IndexOptions | None = None,
        threads: int = 2,
    ) -> None:
        self.index, self.channels, self.threads = index, channels, threads
        self.options = options or IndexOptions()
        self._names: list[str] | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    def hold(self, passages: Iterable[Mapping[str, Any]]) -> None:
        """Index passages (`id`, `title`, `text`) in place of earlier ones; do nothing if an index was passed.

        Evaluation tools allow ids that an index refuses: very long ids, and ids with white space. The
        index holds numbers instead.

        :raises InputError: two passages have the same id
        """
        if self.index is not None:
            return
        self._temporary = tempfile.TemporaryDirectory()
        channels = "bm25" if self.channels == "bm25" else self.options.channels
        records = [dict(passage) for passage in passages]
        self._names = [str(record["id"]) for record in records]
        if len(set(self._names)) < len(records):
            [(name, count)] = Counter(self._names).most_common(1)
            raise InputError(f"the passage id {name!r} appears {count} times")
        numbered = [{**record, "id": str(number)} for number, record in enumerate(records)]
        report = build_index(self._folder, numbered, options=replace(self.options, channels=channels))
        if report.skipped:
            warnings.warn(report.skipped, stacklevel=3)
        if self.channels and DENSE in self.channels:
            from dense.channel.sync import build_dense

            build_dense(self._folder)

    @property
    def revision(self) -> str:
        """Return 12 hexadecimal digits that identify the index and its settings, for caches of results.

        With an open retriever, each call returns other digits.
        """
        dense = DENSE in (self.channels or "")
        if self.index is None:
            content = f"{self.options} {hash_folder(model_folder(self.options.model))}"
            content += identify(None).sha256 if dense else ""
        elif isinstance(self.index, str | Path):
            folder = IndexFolder(self.index)
            generation = folder.state().searchable
            folders = [folder.path, *([folder.dense_path(generation)] if dense and generation else [])]
            manifests = [folder_path / MANIFEST_NAME for folder_path in folders]
            texts = [path.read_text(encoding="utf-8") for path in manifests if path.exists()]
            content = f"{newest_commit(folder.path).version} {texts}"
        else:
            content = secrets.token_hex()
        return hashlib.sha256(f"{self.channels} {content}".encode()).hexdigest()[:12]

    @property
    def _folder(self) -> Path:
        if self._temporary is None:
            raise InputError(
                "the collection has no passages to search yet", remedy="pass the corpus before the queries"
            )
        return Path(self._temporary.name) / "index"

    def scores(self, queries: Mapping[str, str], k: int) -> dict[str, dict[str, float]]:
        """Return the `k` best passages for each query, `{query id: {passage id: score}}`, best first."""
        retriever = open_source(self._folder if self.index is None else self.index, self.channels, k)
        try:
            run = retriever.run(list(queries.values()), list(queries), k, self.threads)
        finally:
            if retriever is not self.index:
                retriever.close()
        return {
            query_id: dict(
                zip(
                    [self._name(hit.passage_id) for hit in ranking],
                    falling([hit.score for hit in ranking]),
                    strict=True,
                )
            )
            for query_id, ranking in run.items()
        }

    def _name(self, passage_id: str) -> str:
        """Return the evaluation tool's id of a passage or of a sentence (`id#number`)."""
        if self._names is None:
            return passage_id
        number, mark, sentence_number = passage_id.partition("#")
        return f"{self._names[int(number)]}{mark}{sentence_number}"


def falling(scores: Sequence[float]) -> list[float]:
    """Return scores as strictly decreasing float32; equal scores are separated by the smallest float32 step.

    trec_eval, which measures rankings for these tools, reads float32 and orders equal scores by id.
    """
    previous, decreasing = np.float32(np.inf), []
    for score in scores:
        previous = min(np.float32(score), np.nextafter(previous, np.float32(-np.inf)))
        decreasing.append(float(previous))
    return decreasing
