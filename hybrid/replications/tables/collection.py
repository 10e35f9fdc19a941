"""Indexes of a table's passages: the whole collection, or a part that its questions need."""

from __future__ import annotations

import gzip
import itertools
import json
import logging
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from hybrid.evaluation.questions import judged
from hybrid.evaluation.testsets import QuestionSet
from hybrid.replications.tables.experiment import Experiment, size_of
from sparta.base.disk.streams import open_decompressed
from sparta.base.files import atomic_path, atomic_write, make_folder
from sparta.data.corpus import open_corpus
from sparta.index.inputs.options import IndexOptions
from sparta.search.searcher import Searcher
from sparta.training.options import check_same

logger = logging.getLogger("sparta.hybrid")
SHARED = "shared"
POOL_DEPTH = 100
ALL_SETS = "open"
"""The name of the collection of all sets of open questions."""
ALL_CHANNELS = "impact,bm25,dense"


def index_of(
    experiment: Experiment,
    name: str,
    corpora: Sequence[Path],
    sets: Sequence[QuestionSet],
    channels: str = ALL_CHANNELS,
    language: str = "en",
    part: str = "",
) -> Path:
    """Build an index of the passages of some files, once.

    A cut on the passages keeps the passages that KILT's provenance or the qrels name, then the passages that
    BM25 ranks best in the whole collection: the first of every question, the second of every question, and
    so on. So the part is easier than the whole collection.

    :param name: the name of the collection; the indexes of all tables share the whole collection
    :param part: the name of the part that a cut keeps; the default is the collection's name
    """
    shared = experiment.folder.parent / SHARED
    make_folder(shared)
    _check_corpora(shared / f"{name}.json", corpora)
    corpus = corpora[0] if len(corpora) == 1 else _joined(corpora, shared / f"{name}.jsonl.gz")
    if experiment.cut.passages is None:
        return _built(experiment, shared / f"{name}-{channels.replace(',', '-')}", corpus, channels, language)
    whole = _built(experiment, shared / f"{name}-bm25", corpus, "bm25", language)
    records = experiment.folder / f"{part or name}.jsonl"
    if not records.exists():
        kept = set(itertools.islice(_pool(whole, sets), experiment.cut.passages))
        with atomic_path(records) as temporary, temporary.open("w", encoding="utf-8") as out:
            for passage in open_corpus(corpus):
                if passage.passage_id in kept:
                    names = {"id": passage.passage_id, "title": passage.title, "text": passage.text}
                    record = {key: passage.record[key] for key in passage.record if key != "_id"} | names
                    out.write(json.dumps(record, ensure_ascii=False) + "\n")
    return _built(experiment, experiment.folder / f"{part or name}-index", records, channels, language)


def _check_corpora(path: Path, corpora: Sequence[Path]) -> None:
    """Write the names and sizes of a collection's files; raise if other tables took it from other files."""
    files = {corpus.name: size_of(corpus) for corpus in corpora}
    if not path.exists():
        atomic_write(path, json.dumps(files).encode())
    check_same(json.loads(path.read_text(encoding="utf-8")), files, path)


def _built(experiment: Experiment, path: Path, corpus: Path, channels: str, language: str) -> Path:
    """Return an index of a corpus, built once; an interrupted build continues."""
    done = path.parent / f"{path.name}.done"
    if not done.exists():
        options = IndexOptions(channels=channels, language=language, resume=path.exists())
        experiment.parts.build(path, corpus, options)
        atomic_write(done, b"")
    return path


def _joined(corpora: Sequence[Path], path: Path) -> Path:
    """Return one gzipped file with the lines of several JSONL files, plain or compressed."""
    if not path.exists():
        with atomic_path(path) as temporary, gzip.open(temporary, "wb", compresslevel=1) as out:
            for corpus in corpora:
                with open_decompressed(corpus) as stream:
                    shutil.copyfileobj(stream, out)
    return path


def _pool(index: Path, sets: Sequence[QuestionSet]) -> Iterator[str]:
    """Yield ids of passages: judged passages, then by rank in BM25's rankings; no id twice."""
    seen: dict[str, None] = {}
    judged_sets = [judged(questions, index) for questions in sets]
    for questions in judged_sets:
        for relevance in questions.qrels.values():
            seen.update(dict.fromkeys(relevance))
    yield from list(seen)
    with Searcher(index, channel="bm25") as searcher:
        runs = [
            searcher.run([q.text for q in s.queries], [q.query_id for q in s.queries], POOL_DEPTH)
            for s in sets
        ]
    for rank in range(POOL_DEPTH):
        for run in runs:
            for hits in run.values():
                if rank < len(hits) and hits[rank].passage_id not in seen:
                    seen[hits[rank].passage_id] = None
                    yield hits[rank].passage_id


def wikipedia_texts(experiment: Experiment) -> list[Path]:
    """Return the passages of the sets of open questions: Wikipedia's, and SQuAD's paragraphs."""
    return [experiment.path(name) for name in ("wikipedia", "squad-texts") if experiment.located(name)]


def kilt_texts(experiment: Experiment) -> list[Path]:
    """Return the passages of KILT's tasks."""
    return [experiment.path(name) for name in ("kilt-passages", "kilt-more") if experiment.located(name)]


def sampled(questions: QuestionSet, experiment: Experiment, *, skip: int = 0) -> QuestionSet:
    """Return the questions within the cut, without the first `skip` questions of the file."""
    rest = replace(questions, queries=questions.queries[skip:])
    return rest.sample(experiment.cut.questions)
