"""Index a test set, search it in every channel, and measure; or measure runs that are there."""

from __future__ import annotations

import itertools
import logging
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hybrid.evaluation.answering import Answering
from hybrid.evaluation.compare import compare
from hybrid.evaluation.measures import DEFAULT_MEASURES, evaluate, parse_measures, without_own_passages
from hybrid.evaluation.results import SetResults, save_run
from hybrid.evaluation.testsets import QuestionSet, open_test_set, own_is_no_hit
from hybrid.retrieval.channels import Channels
from sparta.base.checks import path_of, paths_of
from sparta.base.errors import InputError
from sparta.base.files import make_folder
from sparta.base.progress import ReadingProgress
from sparta.base.records import Passage, Query, Run, ScoredPassage
from sparta.base.remedies import Command, Option, remedy
from sparta.data.corpus import CorpusReader
from sparta.data.languages import folded, language_of
from sparta.data.qa_formats import misplacement
from sparta.data.trec import read_qrels, read_run
from sparta.data.units import is_chunk
from sparta.search.searcher import BM25, CHANNELS

if TYPE_CHECKING:
    import torch

    from dense.models.bi_encoder import DenseModel
    from hybrid.retrieval.fusion import Fusion
    from sparta.models.sparse import SparseEncoder
    from sparta.shards.encode import EncodeOptions

logger = logging.getLogger("sparta.hybrid")
_AT_ONCE = 64
"""Queries whose scores for all passages are in memory."""


def evaluate_runs(
    paths: Sequence[str | Path],
    qrels: str | Path,
    measures: Sequence[str] = DEFAULT_MEASURES,
    *,
    fusion: Fusion | None = None,
    output_runs: str | Path | None = None,
) -> SetResults:
    """Measure TREC runs against judgments in TREC's or BEIR's form.

    :param fusion: of runs by the names of `named_runs`, which is measured beside them
    :param output_runs: a folder in which to leave the fused run
    :raises InputError: a run comes twice, or shares no query with the judgments
    """
    qrels, measures = path_of(qrels, "judgments"), parse_measures(measures)
    judged = read_qrels(qrels)
    without_own = own_is_no_hit(qrels, judged)
    runs: dict[str, Run] = {}
    if not paths:
        raise InputError("expected runs to measure, found none")
    for name, path in named_runs(paths_of(paths, "runs")).items():
        runs[name] = without_own_passages(read_run(path), None) if without_own else read_run(path)
        if not runs[name].keys() & judged.keys():
            raise InputError(
                "expected a run for the judged queries, found none of their ids in it",
                where=str(path),
                remedy=f"check that it belongs to {qrels}",
            )
    results = [evaluate(name, run, judged, measures) for name, run in runs.items()]
    if fusion is None:
        return SetResults(qrels.stem, results)
    run = fusion.fuse_runs(runs, max(len(hits) for run in runs.values() for hits in run.values()))
    if output_runs:
        save_run(output_runs, qrels.stem, fusion.label, run)
    results.append(evaluate(fusion.label, run, judged, measures))
    return SetResults(qrels.stem, results, fused=[fusion.label])


def named_runs(paths: Sequence[Path]) -> Mapping[str, Path]:
    """Return runs by name: that of the file, or the whole path where these are not different."""
    stems = [path.stem for path in paths]
    names = stems if len(set(stems)) == len(stems) else [str(path) for path in paths]
    if len(set(names)) < len(names):
        raise InputError(
            f"expected different runs, found {', '.join(map(str, paths))}", remedy="name each run once"
        )
    return dict(zip(names, paths, strict=True))


def evaluate_set(
    path: str | Path,
    model: SparseEncoder | None,
    options: EncodeOptions,
    *,
    channels: Sequence[str] = CHANNELS,
    dense: Sequence[str | Path] = (),
    measures: Sequence[str] = DEFAULT_MEASURES,
    depth: int = 100,
    threads: int = 2,
    output_runs: str | Path | None = None,
    skip_invalid: bool = False,
    advance: Callable[[int], object] | None = None,
    progress: bool | None = False,
    name: str = "",
    domain: str = "",
    answering: Answering | None = None,
) -> SetResults:
    """Encode and index a test set in a temporary folder, search it, measure.

    The latency is the time of all queries together, searched by `threads`, divided by their number.

    :param model: needed but for BM25 alone
    :param dense: bi-encoders and Poly-Encoders that search the same candidates exactly, named as given here
    :param depth: hits per query
    :param output_runs: a folder in which to leave the TREC runs
    :param progress: show a bar of the bytes of the corpus that are indexed; None does on a terminal
    :param name: what the set is called, if not by its file or folder (`names_of`)
    :param answering: also read the best passages of each ranking, and the judged ones; measure the answers
    """
    from sparta.index.build import write_index
    from sparta.index.folder import IndexFolder
    from sparta.index.jobs import WriteOptions
    from sparta.index.pipeline import IndexOptions, build_index
    from sparta.index.sources import corpus_source

    path, measures = path_of(path, "a test set"), parse_measures(measures)
    output_runs = output_runs and path_of(output_runs, "a folder")
    if answering and is_chunk(options.unit):
        raise InputError(
            "expected answers without chunks, found both: runs name documents, not the chunks to be read",
            remedy=remedy(
                "leave {} out, or index the corpus and measure with: {}",
                Option("chunk"),
                Command.of("hybrid eval", answers=True),
            ),
        )
    if dense and is_chunk(options.unit):
        raise InputError(
            "expected bi-encoders without chunks, found both: they read each text whole",
            remedy=remedy(
                "leave {} out, or index the corpus and measure with: {}",
                Option("chunk"),
                Command.of("hybrid eval", build_dense=True),
            ),
        )
    if output_runs:
        make_folder(output_runs)
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        tested = open_test_set(path, work, options.language)
        tested, corpus = replace(tested, name=name or tested.name), corpus_of(tested)
        check_unit(tested, options.unit)
        if answering and not tested.answers:
            raise InputError(
                "expected questions with answers, found none",
                where=str(corpus),
                remedy=remedy("leave {} out, or give the queries `answers`", Option("answers")),
            )
        index = IndexFolder(work / "index")
        if tuple(channels) == (BM25,):
            own = IndexOptions(
                channels=BM25, unit=options.unit, language=options.language, skip_invalid=skip_invalid
            )
            build_index(index.path, corpus, options=own, advance=advance, progress=progress)
        elif model is None:
            raise InputError("expected a model for impacts, found none", remedy="open one, or rank by bm25")
        else:
            with ReadingProgress(shown=progress, advance=advance) as shown:
                source = corpus_source(corpus, model, options, skip_invalid=skip_invalid, progress=shown)
                write_index(index, source, WriteOptions(language=options.language))
        exact = {
            str(model_name): partial(
                search_exactly,
                model_name,
                CorpusReader(corpus, skip_invalid=skip_invalid),
                tested,
                language=options.language,
                dtype=options.dtype,
                device=next(iter(options.devices), None),
            )
            for model_name in dense
        }
        if tested.misplaced:
            logger.warning("%s: %s", tested.name, misplacement(tested.misplaced))
        with Channels(index.path, channels) as opened:
            results = compare(
                opened,
                tested,
                (),
                threads=threads,
                output_runs=output_runs,
                answering=answering,
                measures=measures,
                depth=depth,
                others=exact,
                one_by_one=True,
                judged=answering is not None,
            )
        return replace(results, domain=domain)


def corpus_of(tested: QuestionSet) -> Path:
    """Return the corpus of a test set; a set of questions alone has none."""
    if tested.corpus is None:
        raise InputError("expected a test set with its corpus, found questions alone", where=tested.name)
    return tested.corpus


def check_unit(tested: QuestionSet, unit: str) -> None:
    """Refuse sentences of a BEIR folder, whose judgments are of its passages."""
    if tested.judged and unit == "sentence":
        raise InputError(
            "expected the unit passage for a BEIR folder, whose judgments are of passages, found sentence",
            where=str(tested.corpus),
            remedy=remedy("leave {} out", Option("unit")),
        )


def search_index(
    index: Path, channel: str, tested: QuestionSet, depth: int, threads: int
) -> tuple[Run, float]:
    """Search one channel of an index; the run, and the seconds it took, warm."""
    from sparta.search.searcher import Searcher

    with Searcher(index, channel=channel) as searcher:
        texts = [query.text for query in tested.queries]
        ids = [query.query_id for query in tested.queries]
        searcher.run(texts[:10], ids[:10], depth, threads)
        started = time.monotonic()
        run = searcher.run(texts, ids, depth + tested.without_own, threads)
        seconds = time.monotonic() - started
        return without_own_passages(run, depth) if tested.without_own else run, seconds


def search_exactly(
    model: str | Path,
    passages: Iterable[Passage],
    tested: QuestionSet,
    depth: int,
    *,
    language: str = "en",
    dtype: str = "auto",
    device: str | None = None,
) -> tuple[dict[str, list[ScoredPassage]], float]:
    """Score every passage with a bi-encoder or a Poly-Encoder; the run, and the seconds the queries took.

    Ties are in the order of the corpus.
    """
    import torch

    from dense.models.bi_encoder import DenseModel
    from dense.models.resolve import bi_encoder_folder, dense_model_folder
    from sparta.neural.encoding import pick_device

    loaded = DenseModel.load(bi_encoder_folder(model) or dense_model_folder(model))
    loaded.to(pick_device(device))
    own = language_of(language)
    candidates = [folded(passage, own) for passage in passages]
    vectors = torch.from_numpy(loaded.encode_passages(candidates, dtype))
    ids = [one.passage_id for one in candidates]
    started = time.monotonic()
    queries = [replace(query, text=own.fold(query.text)) for query in tested.queries]
    run = rank_exactly(loaded, vectors, ids, queries, depth + tested.without_own)
    seconds = time.monotonic() - started
    return without_own_passages(run, depth) if tested.without_own else run, seconds


def rank_exactly(
    model: DenseModel,
    vectors: torch.Tensor,
    ids: Sequence[str],
    queries: Sequence[Query],
    depth: int,
    task: str = "",
) -> dict[str, list[ScoredPassage]]:
    """Rank passages of these vectors `(n, vectors, width)` and ids for each query; ties in their order.

    :param task: of the questions, as the model may read them
    """
    import numpy as np
    import torch

    run: dict[str, list[ScoredPassage]] = {}
    for some in itertools.batched(queries, _AT_ONCE):
        questions = torch.from_numpy(model.encode_questions([query.text for query in some], task))
        for query, scores in zip(some, model.score(questions, vectors).detach().numpy(), strict=True):
            last = np.partition(scores, -depth)[-depth] if depth < len(scores) else -np.inf
            among = np.flatnonzero(scores >= last)
            best = among[np.argsort(-scores[among], kind="stable")][:depth]
            run[query.query_id] = [ScoredPassage(ids[i], float(scores[i])) for i in best]
    return run
