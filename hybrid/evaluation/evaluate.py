"""Evaluates a test set (encode, index, search, measure), or existing TREC runs."""

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
from hybrid.evaluation.measures import DEFAULT_MEASURES, evaluate, parse_measures, without_query_ids
from hybrid.evaluation.rankings import warn_of_few_candidates
from hybrid.evaluation.results import SetResults, check_run_names, check_runs, save_run
from hybrid.evaluation.testsets import QuestionSet, excludes_query_ids, open_test_set
from hybrid.retrieval.channels import Channels
from sparta.base.checks import path_of, paths_of
from sparta.base.errors import InputError
from sparta.base.files import make_folder, plain_name
from sparta.base.progress import ReadingProgress
from sparta.base.records import Passage, Query, Run, ScoredPassage
from sparta.base.remedies import Command, Option, remedy
from sparta.data.corpus import open_corpus
from sparta.data.languages import folded, language_of
from sparta.data.qa_formats import misplacement
from sparta.data.trec import read_qrels, read_run, with_ties
from sparta.data.units import is_chunk
from sparta.search.searcher import BM25, LUCENE_CHANNELS

if TYPE_CHECKING:
    from dense.encoding.stored_model import StoredDenseModel
    from dense.models.batches import Vectors
    from dense.models.bi_encoder import DenseModel
    from hybrid.retrieval.fusion import Fusion
    from sparta.models.model import SparseModel
    from sparta.rerank.reranked import Reranking
    from sparta.shards.encode import EncodeOptions

logger = logging.getLogger("sparta.hybrid")
_QUERY_BLOCK = 64
"""The number of queries that are scored together, with the scores of all passages in memory."""


def evaluate_runs(
    paths: Sequence[str | Path],
    qrels: str | Path,
    measures: Sequence[str] = DEFAULT_MEASURES,
    *,
    fusion: Fusion | None = None,
    output_runs: str | Path | None = None,
) -> SetResults:
    """Measure TREC runs against qrels in TREC's or BEIR's format.

    :param fusion: a fusion of the runs, by the names of `named_runs`; the fused run is measured too
    :param output_runs: a folder for the fused run
    :raises InputError: a run occurs twice, or a run has none of the judged queries
    """
    qrels, measures = path_of(qrels, "judgments"), parse_measures(measures)
    set_name, judged = _stem(qrels), read_qrels(qrels)
    excludes_ids = excludes_query_ids(qrels, judged)
    runs: dict[str, Run] = {}
    if not paths:
        raise InputError("no run is named: at least one run is needed")
    for name, path in named_runs(paths_of(paths, "runs")).items():
        run: Run = with_ties(read_run(path))
        runs[name] = without_query_ids(run, None) if excludes_ids else run
        if not runs[name].keys() & judged.keys():
            raise InputError(
                "the run contains none of the judged queries",
                where=str(path),
                remedy=f"check that the run and {qrels} have the same query ids",
            )
    results = [evaluate(name, run, judged, measures) for name, run in runs.items()]
    if fusion is None:
        return SetResults(set_name, results)
    warn_of_few_candidates([fusion], measures)
    run = fusion.fuse_runs(runs, max(len(hits) for run in runs.values() for hits in run.values()))
    if output_runs:
        save_run(output_runs, set_name, fusion.label, run)
    if len(fusion.weights) == 1 and fusion.label in runs:  # a fusion of one run is this run
        return SetResults(set_name, results)
    results.append(evaluate(fusion.label, run, judged, measures))
    return SetResults(set_name, results, fused=[fusion.label])


def named_runs(paths: Sequence[Path]) -> Mapping[str, Path]:
    """Return runs by name: the file's name without suffixes, or the whole path if two names are equal."""
    stems = [_stem(path) for path in paths]
    names = stems if len(set(stems)) == len(stems) else [str(path) for path in paths]
    if len(set(names)) < len(names):
        raise InputError(f"a run is named twice: {', '.join(map(str, paths))}", remedy="name each run once")
    return dict(zip(names, paths, strict=True))


def _stem(path: Path) -> str:
    """Return a file's name without the suffixes of its compression and its format.

    What begins with a digit is no suffix, but belongs to the name: `bm25-k1-0.9`.
    """
    name = Path(plain_name(path))
    return name.name if name.suffix[1:2].isdigit() else name.stem


def evaluate_set(
    path: str | Path,
    model: SparseModel | None,
    options: EncodeOptions,
    *,
    channels: Sequence[str] = LUCENE_CHANNELS,
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
    reranking: Reranking | None = None,
) -> SetResults:
    """Encode and index a test set in a temporary folder, search all queries, and measure the rankings.

    The latency of a ranking is the time of all queries together, with `threads` threads, divided by their
    number.

    :param model: the sparse encoder; None is allowed if BM25 is the only channel
    :param dense: bi-encoders and Poly-Encoders, which search the same passages exhaustively; each ranking is
        named after its model
    :param depth: measured hits per query
    :param output_runs: a folder for the TREC runs
    :param progress: show a progress bar of the indexed bytes of the corpus; None shows the bar only on a
        terminal
    :param name: the set's name; by default the name of its file or folder (`names_of`)
    :param answering: also read the best passages of each ranking, and the judged passages, and measure the
        answers
    :param reranking: also measure each channel with its first passages ordered anew
    """
    from sparta.index.build import write_index
    from sparta.index.folder import IndexFolder
    from sparta.index.inputs.options import IndexOptions
    from sparta.index.inputs.sources import corpus_source
    from sparta.index.jobs import WriteOptions
    from sparta.index.pipeline import build_index

    path, measures = path_of(path, "a test set"), parse_measures(measures)
    output_runs = output_runs and path_of(output_runs, "a folder")
    if answering and is_chunk(options.unit):
        raise InputError(
            "cannot measure answers with chunks: runs name documents, not the chunks that a reader needs",
            remedy=remedy(
                "omit {}, or index the corpus and measure with: {}",
                Option("chunk"),
                Command.of("hybrid eval", answers=True),
            ),
        )
    if dense and is_chunk(options.unit):
        raise InputError(
            "cannot measure bi-encoders with chunks: a bi-encoder encodes each passage as a whole",
            remedy=remedy(
                "omit {}, or index the corpus and measure with: {}",
                Option("chunk"),
                Command.of("hybrid eval", build_dense=True),
            ),
        )
    if output_runs:
        check_run_names([*channels, *map(str, dense)])
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        test_set = open_test_set(path, work, options.language)
        test_set, corpus = replace(test_set, name=name or test_set.name), corpus_of(test_set)
        refuse_sentences(test_set, options.unit)
        if output_runs:
            check_runs([test_set])
            make_folder(output_runs)
        if answering and not test_set.answers:
            raise InputError(
                "cannot measure answers: no question has known answers",
                where=str(corpus),
                remedy=remedy("omit {}, or add `answers` to the queries", Option("answers")),
            )
        index = IndexFolder(work / "index")
        if tuple(channels) == (BM25,):
            index_options = IndexOptions(
                channels=BM25, unit=options.unit, language=options.language, skip_invalid=skip_invalid
            )
            build_index(index.path, corpus, options=index_options, advance=advance, progress=progress)
        elif model is None:
            raise InputError(
                "the channel impact needs a model, but no model is named",
                remedy="open a model, or use only the channel bm25",
            )
        else:
            with ReadingProgress(shown=progress, advance=advance) as reading_progress:
                reader = open_corpus(corpus, skip_invalid=skip_invalid)
                source = corpus_source(reader, model, options, progress=reading_progress)
                write_index(index, source, WriteOptions(language=options.language))
        exact = {
            str(model_name): partial(
                search_exactly,
                model_name,
                open_corpus(corpus, skip_invalid=skip_invalid),
                test_set,
                language=options.language,
                dtype=options.dtype,
                device=next(iter(options.devices), None),
            )
            for model_name in dense
        }
        if test_set.misplaced:
            logger.warning("%s: %s", test_set.name, misplacement(test_set.misplaced))
        with Channels(index.path, channels) as index_channels:
            results = compare(
                index_channels,
                test_set,
                (),
                threads=threads,
                output_runs=output_runs,
                answering=answering,
                measures=measures,
                depth=depth,
                others=exact,
                one_by_one=True,
                judged=answering is not None,
                reranking=reranking,
            )
        return replace(results, domain=domain)


def corpus_of(test_set: QuestionSet) -> Path:
    """Return the corpus of a test set; raise if the set has only questions."""
    if test_set.corpus is None:
        raise InputError("the test set has questions, but no corpus", where=test_set.name)
    return test_set.corpus


def refuse_sentences(test_set: QuestionSet, unit: str) -> None:
    """Raise if the unit is a sentence and the set is a BEIR folder: BEIR judges whole passages."""
    if test_set.judged and unit == "sentence":
        raise InputError(
            "cannot measure sentences: a BEIR folder judges whole passages",
            where=str(test_set.corpus),
            remedy=remedy("omit {}", Option("unit")),
        )


def search_exactly(
    model: str | Path,
    passages: Iterable[Passage],
    test_set: QuestionSet,
    depth: int,
    *,
    language: str = "en",
    dtype: str = "auto",
    device: str | None = None,
) -> tuple[dict[str, list[ScoredPassage]], float]:
    """Score all passages with a bi-encoder or a Poly-Encoder; return the run and the search time in seconds.

    The search time covers all queries, without encoding the passages. Passages with equal scores keep the
    corpus order.
    """
    from dense.encoding.load import load_dense
    from dense.models.resolve import dense_model_folder
    from sparta.neural.devices import best_device

    encoder = load_dense(dense_model_folder(model), device or best_device())
    language_rules = language_of(language)
    candidates = [folded(passage, language_rules) for passage in passages]
    vectors = encoder.encode_passages(candidates, dtype)
    ids = [candidate.passage_id for candidate in candidates]
    start = time.monotonic()
    queries = [replace(query, text=language_rules.fold(query.text)) for query in test_set.queries]
    run = rank_exactly(encoder, vectors, ids, queries, depth + test_set.excludes_query_id)
    seconds = time.monotonic() - start
    return without_query_ids(run, depth) if test_set.excludes_query_id else run, seconds


def rank_exactly(
    model: DenseModel | StoredDenseModel,
    vectors: Vectors,
    ids: Sequence[str],
    queries: Sequence[Query],
    depth: int,
    task: str = "",
) -> dict[str, list[ScoredPassage]]:
    """Rank passages for each query by their vectors; passages with equal scores keep their order.

    :param vectors: the passages' vectors, `(n, vectors, width)`
    :param ids: the passages' ids, `n` in all
    :param task: the task of the questions, for models that read it
    """
    import numpy as np

    from dense.models.batches import dot_products

    run: dict[str, list[ScoredPassage]] = {}
    for block in itertools.batched(queries, _QUERY_BLOCK):
        question_vectors = model.encode_questions([query.text for query in block], task)
        for query, scores in zip(block, dot_products(question_vectors, vectors), strict=True):
            lowest = np.partition(scores, -depth)[-depth] if depth < len(scores) else -np.inf
            candidate_rows = np.flatnonzero(scores >= lowest)
            best_rows = candidate_rows[np.argsort(-scores[candidate_rows], kind="stable")][:depth]
            run[query.query_id] = [ScoredPassage(ids[row], float(scores[row])) for row in best_rows]
    return run
