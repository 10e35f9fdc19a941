"""All passages of an index in memory, and how well models find the evidence of tasks among them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from dense.models.resolve import bi_encoder_folder, dense_model_folder
from dense.models.tasks import class_of
from hybrid.evaluation.evaluate import rank_exactly
from hybrid.evaluation.measures import Evaluation
from hybrid.evaluation.questions import judged, questions_of
from hybrid.evaluation.results import SetResults
from hybrid.evaluation.testsets import QuestionSet
from hybrid.evidence.gold import page_of
from hybrid.evidence.measures import PAGE_PRECISION, measured
from sparta.base.errors import InputError
from sparta.base.files import short_hash
from sparta.base.records import Passage, Run
from sparta.base.remedies import remedy
from sparta.data.languages import folded
from sparta.data.units import is_cut, options_of_unit, unit_noun
from sparta.index.folder import IndexFolder, no_passages
from sparta.search.searcher import CHANNELS, Searcher

if TYPE_CHECKING:
    from dense.models.bi_encoder import DenseModel

DEPTH = 100
_BLOCK = 4096


class TaskPool:
    """The passages of an index, and tasks whose evidence is among them.

    :param tasks: files of KILT's form
    :param sample: how many questions of each are taken, at most
    :raises InputError: a file without provenance; two of one name; an index of sentences.
    """

    def __init__(self, index: Path, tasks: Sequence[Path], sample: int | None = None) -> None:
        self.index = index
        self.sets = [self._task(path, sample) for path in tasks]
        names = [one.name for one in self.sets]
        if len(set(names)) < len(names):
            raise InputError(
                f"expected tasks of different names, found {', '.join(names)}",
                where=", ".join(map(str, tasks)),
                remedy="name each task once, or rename a file",
            )
        self.passages: list[Passage] = []
        self.pages: dict[str, str] = {}
        self._read()

    def _task(self, path: Path, sample: int | None) -> QuestionSet:
        known = questions_of(path)
        known = judged(known if sample is None else known.sample(sample), self.index)
        if known.gold is None or not known.gold.pages:
            raise InputError(
                "expected a task with provenance, found none in the file",
                where=str(path),
                remedy='give rows of KILT\'s form: "output": [{"provenance": [{"wikipedia_title": "…", …}]}]',
            )
        return known

    def _read(self) -> None:
        from dense.channel.passages import LivePassages

        folder = IndexFolder(self.index)
        generation = folder.state().searchable
        if generation is None:
            raise no_passages(self.index)
        if is_cut(generation.unit):
            raise InputError(
                f"expected an index of passages, found one of {unit_noun(generation.unit)}s",
                where=str(self.index),
                remedy=remedy("make one without {}", options_of_unit(generation.unit)),
            )
        self._analysis = generation.analysis
        with LivePassages.open(folder.lucene_path(generation), generation.language) as live:
            for start in range(0, len(live), _BLOCK):
                for raw in live.lucene.raws(live.docids[start : start + _BLOCK]):
                    record = json.loads(raw)
                    own = Passage(str(record["id"]), str(record["contents"]), str(record.get("title") or ""))
                    self.passages.append(folded(own, self._analysis))
                    self.pages[own.passage_id] = page_of(own.passage_id, record)
        self._made = generation.model, generation.form, generation.analyzer

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What measurements must have in common to be compared."""
        texts = ((one.passage_id, one.title, one.text) for one in self.passages)
        tasks = [[one.name, len(one.queries), short_hash(_asked(one))] for one in self.sets]
        return {"passages": len(self.passages), "index": short_hash((*self._made, *texts)), "tasks": tasks}

    def runs(self, model: DenseModel, only: str = "") -> dict[str, Run]:
        """Rank all passages for the questions of each task, or of one, exactly; `{task: run}`."""
        import torch

        vectors = torch.from_numpy(model.encode_passages(self.passages))
        ids = [one.passage_id for one in self.passages]
        by_task = bool(model.config.skills and model.config.skills.knows_tasks)
        runs: dict[str, Run] = {}
        for one in self.sets:
            if only in ("", one.name):
                task = class_of(one.name) if by_task else ""
                queries = [replace(query, text=self._analysis.fold(query.text)) for query in one.queries]
                runs[one.name] = rank_exactly(model, vectors, ids, queries, DEPTH, task)
        return runs

    def channels(self) -> list[str]:
        """Return the names of the index's own rankings: bm25, impact."""
        from hybrid.retrieval.channels import channels_of

        return [name for name in channels_of(self.index) if name in CHANNELS]

    def measured_as(self, name: str, device: str | None = None, only: str = "") -> dict[str, Evaluation]:
        """Measure a channel of the index, or a bi-encoder by its folder or name, on all tasks or on one."""
        if name in CHANNELS:
            return self.measured(name, self._searched(name, only))
        from dense.models.bi_encoder import DenseModel
        from sparta.neural.processes import training_device

        folder = bi_encoder_folder(name) or dense_model_folder(name)
        model = DenseModel.load(folder).to(training_device(device))
        return self.measured(name, self.runs(model, only))

    def _searched(self, channel: str, only: str) -> dict[str, Run]:
        runs: dict[str, Run] = {}
        with Searcher(self.index, channel=channel) as searcher:
            for one in self.sets:
                if only in ("", one.name):
                    texts, ids = [q.text for q in one.queries], [q.query_id for q in one.queries]
                    runs[one.name] = searcher.run(texts, ids, DEPTH)
        return runs

    def measured(self, name: str, runs: Mapping[str, Run]) -> dict[str, Evaluation]:
        """Measure a ranking of each task: R-precision and Recall@20 of pages and of passages."""
        return {one.name: self._measured(name, one, runs[one.name]) for one in self.sets if one.name in runs}

    def _measured(self, name: str, one: QuestionSet, run: Run) -> Evaluation:
        assert one.gold is not None
        chosen = [m for m in one.gold.measures() if "success" not in m]
        return Evaluation(name, measured(run, one.gold, chosen, self.pages.__getitem__))


def measure_all(pool: TaskPool, models: Sequence[str], device: str | None = None) -> list[SetResults]:
    """Measure the index's own rankings and models; one result for each task."""
    for name in models:
        dense_model_folder(name)  # all are there before the first encodes
    found = [pool.measured_as(name, device) for name in (*pool.channels(), *models)]
    return [SetResults(one.name, [own[one.name] for own in found]) for one in pool.sets]


def _asked(one: QuestionSet) -> Iterator[object]:
    return ((q.query_id, q.text, one.evidence.get(q.query_id)) for q in one.queries)


class IndexValidation:
    """Mean over tasks of page-level R-precision, over all passages of an index (§4.1)."""

    def __init__(self, pool: TaskPool) -> None:
        self.pool = pool
        self.facts: Mapping[str, Any] = {
            "measure": f"mean {PAGE_PRECISION} of {len(pool.sets)} tasks, {len(pool.passages):,} passages",
            **pool.facts,
        }

    def __call__(self, model: DenseModel) -> float:
        """Encode and rank everything."""
        found = self.pool.measured("model", self.pool.runs(model))
        return fmean(one.mean(PAGE_PRECISION) for one in found.values())
