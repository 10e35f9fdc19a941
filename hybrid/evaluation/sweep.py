"""Measures quality, index size and latency against K, the terms kept per passage (SPARTA, Table 7)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hybrid.evaluation.evaluate import corpus_of, refuse_sentences
from hybrid.evaluation.measures import Evaluation, cutoff_of, evaluate
from hybrid.evaluation.plots import add_legend, figure
from hybrid.evaluation.rankings import search_all
from hybrid.evaluation.tables import Cell, Table
from hybrid.evaluation.testsets import QuestionSet, open_test_set
from hybrid.retrieval.channels import Channels
from sparta.data.languages import DEFAULT_LANGUAGE, language_of
from sparta.index.build import write_index
from sparta.index.folder import IndexFolder
from sparta.index.info import folder_size
from sparta.index.inputs.impact_batches import ImpactBatch, quantized_batch
from sparta.index.inputs.sources import vectors_source
from sparta.index.jobs import Source, WriteOptions, skip_passages
from sparta.models.prune import prune
from sparta.search.searcher import IMPACT
from sparta.shards.store import read_shards

if TYPE_CHECKING:
    from sparta.models.model import SparseModel
    from sparta.shards.encode import EncodeOptions


class PrunedResult(NamedTuple):
    """The results with each passage's `top_k` strongest terms; None keeps all terms."""

    name: str
    top_k: int | None
    evaluation: Evaluation
    mean_terms: float
    index_mb: float
    ms: float


def sweep(
    source: Path | QuestionSet,
    model: SparseModel,
    options: EncodeOptions,
    ks: Sequence[int],
    *,
    measures: Sequence[str],
    depth: int = 100,
    threads: int = 2,
    skip_invalid: bool = False,
    progress: bool | None = False,
    name: str = "",
    lexical_terms: bool = True,
) -> list[PrunedResult]:
    """Encode a test set once; index and search it with K terms per passage for each K, and with all terms.

    The latency is the time of all questions together, with `threads` threads, divided by their number.

    :param source: a path for `open_test_set`, or an open test set
    :param depth: number of passages per ranking; a measure that needs more gets more
    :param progress: show a progress bar of the encoded bytes of the corpus; None shows the bar only on a
        terminal
    :param name: the set's name; by default the name of its file or folder (`names_of`)
    :param lexical_terms: keep the model's lexical terms, which do not count toward K
    """
    from sparta.shards.encode import encode_corpus

    results, depth = [], max(depth, *map(cutoff_of, measures))
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        test_set = open_test_set(source, work, options.language) if isinstance(source, Path) else source
        refuse_sentences(test_set, options.unit)
        options = replace(options, top_k=None, min_weight=0.0)  # the sweep prunes, so the encoder must not
        shards = work / "shards"
        encode_corpus(
            corpus_of(test_set), shards, model, options, skip_invalid=skip_invalid, progress=progress
        )
        for top_k in (*sorted(set(ks)), None):
            index = IndexFolder(work / f"index-{top_k}")
            written = write_index(
                index,
                pruned_source(shards, top_k, lexical_terms=lexical_terms),
                WriteOptions(language=options.language),
            ).written
            with Channels(index.path, [IMPACT]) as channels:
                retrieved = search_all(channels, test_set, depth, threads, one_by_one=True)
            results.append(
                PrunedResult(
                    name or test_set.name,
                    top_k,
                    evaluate(name_of(top_k), retrieved.runs[IMPACT], test_set.qrels, measures),
                    written["postings"] / max(1, written["passages"]),
                    folder_size(index.path) / 1e6,
                    retrieved.ms[IMPACT],
                )
            )
    return results


def pruned_source(shards: Path, top_k: int | None, *, lexical_terms: bool = True) -> Source:
    """Return shards as a source of impacts that keeps each passage's `top_k` strongest wordpieces.

    :param lexical_terms: keep the lexical terms, too
    """
    source = vectors_source([shards])
    if not lexical_terms:
        source = replace(source, side=replace(source.side, lexical=None))
    language = language_of(source.language or DEFAULT_LANGUAGE)

    def batches(done: int, last_id: str = "") -> Iterator[ImpactBatch]:
        pruned = (replace(shard, rows=prune(shard.rows, top_k=top_k)) for shard in read_shards([shards]))
        return skip_passages((quantized_batch(shard, source.side, language) for shard in pruned), done)

    return replace(source, job=replace(source.job, top_k=top_k), batches=batches)


def name_of(top_k: int | None) -> str:
    """Return the name of a setting: the number of terms, or `all`."""
    return "all" if top_k is None else str(top_k)


def sweep_table(results: Sequence[PrunedResult], measures: Sequence[str]) -> Table:
    """Return a table with one row for each set and K; measures are in percent."""
    rows: list[list[Cell]] = []
    for result in results:
        means = [100 * result.evaluation.mean(measure) for measure in measures]
        rows.append(
            [result.name, name_of(result.top_k), *means, result.mean_terms, result.index_mb, result.ms]
        )
    return Table(["set", "K", *measures, "terms/passage", "index MB", "ms/query"], rows, digits=2, n_names=2)


def draw(results: Sequence[PrunedResult], measure: str, path: Path) -> None:
    """Draw the measure and the index size against K.

    The suffix of the file name decides the format (PNG, SVG, PDF).
    """
    labels = [name_of(result.top_k) for result in results if result.name == results[0].name]
    with figure(path, 2, figsize=(9, 3.6)) as (measure_axis, size_axis):
        for name in dict.fromkeys(result.name for result in results):
            set_results = [result for result in results if result.name == name]
            positions = range(len(set_results))
            measure_axis.plot(
                positions,
                [100 * result.evaluation.mean(measure) for result in set_results],
                marker="o",
                label=name,
            )
            size_axis.plot(positions, [result.index_mb for result in set_results], marker="o", label=name)
        for axis, title in ((measure_axis, f"{measure}, %"), (size_axis, "index, MB")):
            axis.set_xticks(range(len(labels)), labels)
            axis.set(title=title, xlabel="terms kept of each passage")
            axis.grid(alpha=0.3)
        size_axis.set_ylim(bottom=0)
        add_legend(measure_axis)
