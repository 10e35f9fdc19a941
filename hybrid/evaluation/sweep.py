"""How much of each passage's vector is needed: quality, size and latency against K (SPARTA, Table 7)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hybrid.evaluation.evaluate import check_unit, corpus_of, search_index
from hybrid.evaluation.measures import Evaluation, evaluate
from hybrid.evaluation.plots import figure
from hybrid.evaluation.tables import Cell, Table
from hybrid.evaluation.testsets import QuestionSet, open_test_set
from sparta.index.build import write_index
from sparta.index.folder import IndexFolder
from sparta.index.impact_batches import ImpactBatch, quantized_batch
from sparta.index.info import folder_size
from sparta.index.jobs import Source, WriteOptions, skip_passages
from sparta.index.sources import vectors_source
from sparta.models.prune import prune
from sparta.shards.store import read_shards

if TYPE_CHECKING:
    from sparta.models.sparse import SparseEncoder
    from sparta.shards.encode import EncodeOptions


class Kept(NamedTuple):
    """What was measured with the `top_k` strongest terms of each passage; None is all of them."""

    name: str
    top_k: int | None
    evaluation: Evaluation
    mean_terms: float
    index_mb: float
    ms: float


def sweep(
    source: Path | QuestionSet,
    model: SparseEncoder,
    options: EncodeOptions,
    ks: Sequence[int],
    *,
    measures: Sequence[str],
    depth: int = 100,
    threads: int = 2,
    skip_invalid: bool = False,
    progress: bool | None = False,
    name: str = "",
) -> list[Kept]:
    """Encode a test set once, and index and search it with K terms per passage, for each K and with all.

    The milliseconds are those of all questions together, searched by `threads`, divided by their number.

    :param source: what `hybrid.evaluation.testsets.open_test_set` opens, or a set that is open.
    :param progress: show a bar of the bytes of the corpus that are encoded; None does on a terminal
    :param name: what the set is called, if not by its file or folder (`names_of`)
    """
    from sparta.shards.encode import encode_corpus

    found = []
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        tested = open_test_set(source, work, options.language) if isinstance(source, Path) else source
        check_unit(tested, options.unit)
        options = replace(options, top_k=None, min_weight=0.0)  # pruning is what is measured
        shards = work / "shards"
        encode_corpus(corpus_of(tested), shards, model, options, skip_invalid=skip_invalid, progress=progress)
        for top_k in (*sorted(set(ks)), None):
            index = IndexFolder(work / f"index-{top_k}")
            written = write_index(
                index, kept_source(shards, top_k), WriteOptions(language=options.language)
            ).written
            run, seconds = search_index(index.path, "impact", tested, depth, threads)
            found.append(
                Kept(
                    name or tested.name,
                    top_k,
                    evaluate(name_of(top_k), run, tested.qrels, measures),
                    written["postings"] / max(1, written["passages"]),
                    folder_size(index.path) / 1e6,
                    1000 * seconds / len(tested.queries),
                )
            )
    return found


def kept_source(shards: Path, top_k: int | None) -> Source:
    """Return the shards as a source of impacts, each passage with its strongest terms."""
    source = vectors_source([shards])

    def batches(done: int, last_id: str = "") -> Iterator[ImpactBatch]:
        kept = (replace(one, rows=prune(one.rows, top_k=top_k)) for one in read_shards([shards]))
        return skip_passages((quantized_batch(one, source.side.quantizer) for one in kept), done)

    return replace(source, job={**source.job, "top_k": top_k}, batches=batches)


def name_of(top_k: int | None) -> str:
    """`500`, or `all`."""
    return "all" if top_k is None else str(top_k)


def sweep_table(found: Sequence[Kept], measures: Sequence[str]) -> Table:
    """One row for each set and K; measures in percent."""
    rows: list[list[Cell]] = []
    for one in found:
        means = [100 * one.evaluation.mean(m) for m in measures]
        rows.append([one.name, name_of(one.top_k), *means, one.mean_terms, one.index_mb, one.ms])
    return Table(["set", "K", *measures, "terms/passage", "index MB", "ms/query"], rows, digits=2)


def draw(found: Sequence[Kept], measure: str, path: Path) -> None:
    """Draw the measure and the size against K; the file's name says in which form (PNG, SVG, PDF)."""
    labels = [name_of(one.top_k) for one in found if one.name == found[0].name]
    with figure(path, 2, figsize=(9, 3.6)) as (left, right):
        for name in dict.fromkeys(one.name for one in found):
            own = [one for one in found if one.name == name]
            places = range(len(own))
            left.plot(places, [100 * one.evaluation.mean(measure) for one in own], marker="o", label=name)
            right.plot(places, [one.index_mb for one in own], marker="o", label=name)
        for axis, title in ((left, f"{measure}, %"), (right, "index, MB")):
            axis.set_xticks(range(len(labels)), labels)
            axis.set(title=title, xlabel="terms kept of each passage")
            axis.grid(alpha=0.3)
        right.set_ylim(bottom=0)
        left.legend(fontsize=8)
