"""One run of a table's experiment: its data, its cut, and the rows that it has measured and stored."""

from __future__ import annotations

import json
import logging
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from hybrid.evaluation.testsets import QuestionSet, open_test_set
from hybrid.replications.tables.parts import Parts
from hybrid.replications.tables.sources import SOURCES, Located, locate, required
from hybrid.replications.tables.table import Cut, Figures, PaperTable, Row
from sparta.base.errors import InputError
from sparta.base.files import atomic_write, make_folder
from sparta.base.remedies import Option, remedy
from sparta.data.corpus import open_corpus
from sparta.index.info import folder_size
from sparta.models.resolve import encoder_identity
from sparta.training.options import check_same

logger = logging.getLogger("sparta.hybrid")
ROWS = "rows.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """The experiment of a table. `row` measures a row once; a repeated experiment measures the missing rows.

    :param data: the folder of the papers' data
    :param folder: the folder of this table: measured rows, indexes, models
    :param encoder: the pretrained encoder of trainings
    :param parts: builds indexes, trains and measures
    """

    table: PaperTable
    data: Path
    folder: Path
    cut: Cut = field(default_factory=Cut)
    seed: int = 13
    encoder: str | None = None
    device: str | None = None
    parts: Parts = field(default_factory=Parts)

    def run(self) -> list[Row]:
        """Measure all rows that are not stored yet; return all rows.

        :raises InputError: data are missing, or the folder holds rows of other settings
        """
        if self.table.trains and not self.encoder:
            raise InputError(
                f"the table {self.table.name} trains models, but no encoder is named",
                remedy=remedy("name a pretrained encoder: {}", Option("encoder", "FOLDER")),
            )
        for name in self.table.sources:
            required(self.data, name)
        if self.table.any_of and not any(locate(self.data, name) for name in self.table.any_of):
            required(self.data, self.table.any_of[0])
        make_folder(self.folder)
        path = self.folder / ROWS
        if not path.exists():
            self._store([])
        check_same(json.loads(path.read_text(encoding="utf-8"))["facts"], self.facts(), path)
        self.table.measure(self)
        self._store(self.rows(), finished=True)
        return self.rows()

    def facts(self) -> dict[str, object]:
        """Return the settings that all rows share, with the encoder's hash and the sizes of the data."""
        names = (*self.table.sources, *self.table.any_of)
        data = {name: located for name in names if (located := locate(self.data, name))}
        return {
            "cut": asdict(self.cut),
            "seed": self.seed,
            "encoder": encoder_identity(self.encoder) if self.encoder else None,
            "data": {name: [located.label, size_of(located.path)] for name, located in data.items()},
        }

    def rows(self) -> list[Row]:
        """Return the stored rows."""
        return stored_rows(self.folder)

    def row(self, name: str, data: str, measure: Callable[[], Figures]) -> None:
        """Measure a row and store it, unless a row with this name and these data is stored."""
        self.measure([name], data, lambda: {name: measure()})

    def measure(self, names: Sequence[str], data: str, measure: Callable[[], Mapping[str, Figures]]) -> None:
        """Measure rows that one search or training measures together, and store them, unless they are stored.

        :param data: what the rows are measured on; rows of other data get the same names
        :param measure: returns the figures of each row
        """
        rows = self.rows()
        if {(name, data) for name in names} <= {(row.name, row.data) for row in rows}:
            return
        logger.info("%s: %s (%s)", self.table.name, ", ".join(names), data)
        start = time.monotonic()
        figures = measure()
        seconds = round((time.monotonic() - start) / len(figures), 1)
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        new = [Row(name, dict(f), data, str(self.cut), seconds, megabytes) for name, f in figures.items()]
        self._store([*rows, *new])

    def _store(self, rows: Sequence[Row], *, finished: bool = False) -> None:
        """Write all rows; `finished` says that no row is missing."""
        stored = {"facts": self.facts(), "finished": finished, "rows": [row._asdict() for row in rows]}
        atomic_write(self.folder / ROWS, json.dumps(stored, ensure_ascii=False, indent=1).encode())

    def located(self, name: str) -> Located | None:
        """Return where data lie, None if the folder lacks them."""
        return locate(self.data, name)

    def path(self, name: str) -> Path:
        """Return the path of data.

        :raises InputError: the folder lacks the data
        """
        return required(self.data, name).path

    def period(self, usual: int) -> int:
        """Return the period of layers with experts, at most the layers of the encoder."""
        from sparta.neural.backbones import encoder_config, load_encoder

        layers = int(encoder_config(load_encoder(str(self.encoder)))["num_hidden_layers"])
        return min(usual, layers)

    def test_set(self, name: str) -> tuple[QuestionSet, Path, str] | None:
        """Return a test set within the cut, the BEIR folder that holds it, and its label.

        The cut keeps a fixed sample of the questions. Of the passages, it keeps those judged for the
        questions, then the first others.
        """
        located = self.located(name)
        if located is None:
            return None
        folder = self.folder / "sets" / name
        work = self.folder / "sets"
        make_folder(work)
        test_set = open_test_set(located.path, work)
        if self.cut.questions is None and self.cut.passages is None:
            return test_set, located.path, located.label
        if not (folder / "qrels" / "test.tsv").exists():
            _write_cut(test_set.sample(self.cut.questions or len(test_set.queries)), folder, self.cut)
        return replace(open_test_set(folder, work), name=test_set.name), folder, located.label


def stored_rows(folder: Path) -> list[Row]:
    """Return the rows that a table's folder stores; none without a file."""
    return [Row(**row) for row in _stored(folder)["rows"]]


def state_of(table: PaperTable, data: Path | None, folder: Path) -> str:
    """Return the state of a table in words: measured, interrupted, ready, or the data that it lacks."""
    stored = _stored(folder)
    if stored["finished"]:
        return "measured"
    if stored["rows"]:
        return f"interrupted after {len(stored['rows'])} rows"
    missing = [SOURCES[name].title for name in table.sources if not locate(data, name)]
    if table.any_of and not any(locate(data, name) for name in table.any_of):
        missing.append(" or ".join(SOURCES[name].title for name in table.any_of))
    return f"needs {'; '.join(missing)}" if missing else "ready"


def _stored(folder: Path) -> dict[str, Any]:
    path = folder / ROWS
    stored: dict[str, Any] = {"finished": False, "rows": []}
    return {**stored, **json.loads(path.read_text(encoding="utf-8"))} if path.exists() else stored


def _write_cut(test_set: QuestionSet, folder: Path, cut: Cut) -> None:
    """Write a test set as a BEIR folder, with judged passages first; qrels come last."""
    assert test_set.corpus is not None
    judged = {passage for relevance in test_set.qrels.values() for passage in relevance}
    passages = list(open_corpus(test_set.corpus))
    others = [p.passage_id for p in passages if p.passage_id not in judged]
    kept = judged | set(others if cut.passages is None else others[: max(0, cut.passages - len(judged))])
    make_folder(folder / "qrels")
    records = (
        {"_id": p.passage_id, "title": p.title, "text": p.text}
        | ({"context": p.context, "start": p.start, "end": p.end} if p.context else {})
        for p in passages
        if p.passage_id in kept
    )
    queries = ({"_id": q.query_id, "text": q.text, "answers": list(q.answers)} for q in test_set.queries)
    _write_lines(folder / "corpus.jsonl", [json.dumps(r, ensure_ascii=False) for r in records])
    _write_lines(folder / "queries.jsonl", [json.dumps(q, ensure_ascii=False) for q in queries])
    judgments = [
        f"{query}\t{passage}\t{relevance}"
        for query, relevances in test_set.qrels.items()
        for passage, relevance in relevances.items()
    ]
    _write_lines(folder / "qrels" / "test.tsv", ["query-id\tcorpus-id\tscore", *judgments])


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    atomic_write(path, "".join(f"{line}\n" for line in lines).encode())


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    return folder_size(path) if path.is_dir() else path.stat().st_size
