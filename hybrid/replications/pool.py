"""Holds all passages of an index in memory, and measures how well models retrieve the evidence of tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from dense.models.resolve import dense_model_folder
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
from sparta.data.languages import folded
from sparta.data.units import check_whole
from sparta.index.folder import IndexFolder, no_passages
from sparta.search.searcher import LUCENE_CHANNELS, Searcher

if TYPE_CHECKING:
    from dense.models.bi_encoder import DenseModel

DEPTH = 100


class TaskPool:
    """The passages of an index, and tasks whose evidence is in this index.

    :param tasks: files in KILT's format
    :param sample: maximum number of questions per task; None means all
    :raises InputError: a file has no provenance, two files have the same name, or the index has sentences
    """

    def __init__(self, index: Path, tasks: Sequence[Path], sample: int | None = None) -> None:
        self.index = index
        self.sets = [self._task(path, sample) for path in tasks]
        names = [questions.name for questions in self.sets]
        if len(set(names)) < len(names):
            raise InputError(
                f"two tasks have the same name: {', '.join(names)}",
                where=", ".join(map(str, tasks)),
                remedy="name each task once, or rename a file",
            )
        self.passages: list[Passage] = []
        self.pages: dict[str, str] = {}
        self._read()

    def _task(self, path: Path, sample: int | None) -> QuestionSet:
        """Return the questions of a task's file, with their evidence in the index."""
        questions = judged(questions_of(path).sample(sample), self.index)
        if questions.gold is None or not questions.gold.pages:
            raise InputError(
                "the file of the task has no provenance",
                where=str(path),
                remedy='write KILT\'s format: "output": [{"provenance": [{"wikipedia_title": "…", …}]}]',
            )
        return questions

    def _read(self) -> None:
        """Read all live passages and the page of each."""
        from dense.channel.passages import LivePassages

        folder = IndexFolder(self.index)
        generation = folder.state().searchable
        if generation is None:
            raise no_passages(self.index)
        check_whole(generation.unit, self.index)
        self._analysis = generation.analysis
        with LivePassages.open(folder.lucene_path(generation), generation.language) as live:
            for record in map(json.loads, live.lucene.records(live.docids.tolist())):
                passage = Passage(str(record["id"]), str(record["contents"]), str(record.get("title") or ""))
                self.passages.append(folded(passage, self._analysis))
                self.pages[passage.passage_id] = page_of(passage.passage_id, record)
        self._made = generation.model, generation.form, generation.analyzer

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Return the settings that two measurements must share to be comparable."""
        texts = ((item.passage_id, item.title, item.text) for item in self.passages)
        tasks = [[item.name, len(item.queries), short_hash(_asked(item))] for item in self.sets]
        return {"passages": len(self.passages), "index": short_hash((*self._made, *texts)), "tasks": tasks}

    def runs(self, model: DenseModel, only: str = "") -> dict[str, Run]:
        """Rank all passages for the questions of each task, or of the task `only`, by exact search.

        :return: `{task: run}`
        """
        vectors = model.encode_passages(self.passages)
        ids = [questions.passage_id for questions in self.passages]
        knows_tasks = bool(model.config.skills and model.config.skills.knows_tasks)
        runs: dict[str, Run] = {}
        for questions in self.sets:
            if only in ("", questions.name):
                task = class_of(questions.name) if knows_tasks else ""
                queries = [
                    replace(query, text=self._analysis.fold(query.text)) for query in questions.queries
                ]
                runs[questions.name] = rank_exactly(model, vectors, ids, queries, DEPTH, task)
        return runs

    def channels(self) -> list[str]:
        """Return the names of the index's sparse channels: bm25, impact."""
        from hybrid.retrieval.channels import channels_of

        return [name for name in channels_of(self.index) if name in LUCENE_CHANNELS]

    def measured_as(self, name: str, device: str | None = None, only: str = "") -> dict[str, Evaluation]:
        """Measure a channel of the index, or a bi-encoder by its folder or name, on all tasks or on one."""
        if name in LUCENE_CHANNELS:
            return self.measured(name, self._searched(name, only))
        from dense.models.bi_encoder import DenseModel
        from sparta.neural.processes import training_device

        model = DenseModel.load(dense_model_folder(name)).to(training_device(device))
        return self.measured(name, self.runs(model, only))

    def _searched(self, channel: str, only: str) -> dict[str, Run]:
        """Search a channel of the index with the questions of each task, or of the task `only`."""
        runs: dict[str, Run] = {}
        with Searcher(self.index, channel=channel) as searcher:
            for questions in self.sets:
                if only in ("", questions.name):
                    texts, ids = [q.text for q in questions.queries], [q.query_id for q in questions.queries]
                    runs[questions.name] = searcher.run(texts, ids, DEPTH)
        return runs

    def measured(self, name: str, runs: Mapping[str, Run]) -> dict[str, Evaluation]:
        """Measure the rankings of each task: R-precision and Recall@20 of pages and of passages."""
        return {
            questions.name: self._measured(name, questions, runs[questions.name])
            for questions in self.sets
            if questions.name in runs
        }

    def _measured(self, name: str, questions: QuestionSet, run: Run) -> Evaluation:
        assert questions.gold is not None
        names = [measure for measure in questions.gold.measures() if "success" not in measure]
        return Evaluation(name, measured(run, questions.gold, names, self.pages.__getitem__))


def measure_all(pool: TaskPool, models: Sequence[str], device: str | None = None) -> list[SetResults]:
    """Measure the index's channels and the models; return one result per task."""
    for name in models:
        dense_model_folder(name)  # raises for a missing model before the first model encodes
    evaluations = [pool.measured_as(name, device) for name in (*pool.channels(), *models)]
    return [
        SetResults(questions.name, [measured[questions.name] for measured in evaluations])
        for questions in pool.sets
    ]


def _asked(questions: QuestionSet) -> Iterator[object]:
    """Yield id, text and evidence of each question, for a fingerprint."""
    return ((q.query_id, q.text, questions.evidence.get(q.query_id)) for q in questions.queries)


class IndexValidation:
    """Validates a model in training: page R-precision over all passages, averaged over tasks.

    Source: Maillard et al., §4.1.
    """

    def __init__(self, pool: TaskPool) -> None:
        self.pool = pool
        self.facts: Mapping[str, Any] = {
            "measure": f"mean {PAGE_PRECISION} of {len(pool.sets)} tasks, {len(pool.passages):,} passages",
            **pool.facts,
        }

    def __call__(self, model: DenseModel) -> float:
        """Return the mean page R-precision of the model over all tasks."""
        evaluations = self.pool.measured("model", self.pool.runs(model))
        return fmean(evaluation.mean(PAGE_PRECISION) for evaluation in evaluations.values())
