"""A corpus becomes numbered shards of vectors; what is done stays done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from dense.models.bi_encoder import DenseModel
from dense.models.resolve import dense_model_folder, identify, vector_width
from dense.search.store import (
    Floats,
    Hashes,
    VectorShard,
    check_finite,
    describe_vectors,
    open_shard,
    record_hashes,
    sentence_hashes,
    write_shard,
)
from sparta.base.checks import path_of
from sparta.base.manifest import write_manifest
from sparta.base.progress import ReadingProgress
from sparta.base.records import Advance, Passage
from sparta.base.remedies import Option, remedy
from sparta.data.corpus import CorpusReader
from sparta.data.languages import folded, language_of
from sparta.data.sentences import sentence_splitter, split_units
from sparta.neural.encoding import dtype_name, pick_device, pick_dtype
from sparta.search.contexts import is_sentence
from sparta.shards.executors import Facts, LocalExecutor, Work
from sparta.shards.folder import (
    Block,
    ShardOptions,
    ShardReport,
    corpus_changed,
    kept_on_interrupt,
    missing_blocks,
    open_output,
    writing,
)
from sparta.shards.ray_executor import RayCluster
from sparta.shards.store import stored_record


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorOptions(ShardOptions):
    """How a corpus becomes vectors. The same options, model and corpus give the same shards.

    `precision` is the arithmetic of the vectors on disk.
    """

    precision: str = "float16"


@dataclass
class VectorReport(ShardReport):
    """Counts of one encoding; of `cut` of the encoded units only the first window was read, which left
    `share_read` of all their wordpieces.
    """

    cut: int = 0
    share_read: float = 1.0


class PassageEncoder:
    """A model, loaded when the first passage comes."""

    def __init__(self, name: str | Path | None, device: str | None = None, dtype: str = "auto") -> None:
        self.width = vector_width(name)
        self.name, self.dtype = name, dtype
        self.device = pick_device(device)
        self.cut = 0  # passages of which only the first window was read
        self._read = self._of = 0  # wordpieces
        self._model: DenseModel | None = None

    @property
    def model(self) -> DenseModel:
        """The model, on its device."""
        if self._model is None:
            self._model = DenseModel.load(dense_model_folder(self.name)).to(self.device)
        return self._model

    def to(self, device: str) -> PassageEncoder:
        """Encode on this device from now on."""
        self.device = pick_device(device)
        if self._model is not None:
            self._model.to(self.device)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """With the model: another machine may not have its folder."""
        return {**vars(self), "_model": self.model}

    @property
    def wants_context(self) -> bool:
        """Whether a sentence is read in its passage."""
        return self.model.config.layout.use_context

    def __call__(self, passages: Sequence[Passage], advance: Advance | None = None) -> Floats:
        """`(n, width) float32`; a vector that is not finite is an InputError that names its passage."""
        vectors = self.model.encode_passages(passages, self.dtype, advance=advance, on_read=self._count)[:, 0]
        finite = np.isfinite(vectors).all(axis=1)
        bad = "" if finite.all() else passages[int(np.argmin(finite))].passage_id
        advice = remedy("try {}; if that does not help, train again", Option("dtype", "fp32"))
        check_finite(vectors, f"passage {bad!r}", advice)
        return vectors

    def _count(self, cut: int, read: int, of: int) -> None:
        self.cut, self._read, self._of = self.cut + cut, self._read + read, self._of + of

    @property
    def counts(self) -> Counter[str]:
        """Passages `cut`, and of how many wordpieces (`of`) how many were `read`, so far."""
        return Counter(cut=self.cut, read=self._read, of=self._of)

    @property
    def share_read(self) -> float:
        """What share of the wordpieces of all passages was read."""
        return _share_read(self.counts)


def _share_read(counts: Counter[str]) -> float:
    return counts["read"] / max(1, counts["of"]) if counts["cut"] else 1.0


@dataclass(frozen=True, slots=True)
class VectorJob:
    """The shards of vectors of one corpus."""

    encoder: PassageEncoder
    options: VectorOptions
    folder: Path

    def open(self, device: str) -> Work[Facts]:
        """Return what encodes a block on a device and writes its shard."""
        encoder, options = self.encoder.to(device), self.options
        language = language_of(options.language)

        def work(block: Block, advance: Advance | None) -> Facts:
            number, first, passages = block
            before = encoder.counts
            with np.errstate(over="ignore"):  # an overflow becomes an infinity, which is refused
                read = [folded(p, language) for p in passages]
                stored = encoder(read, advance).astype(options.precision)
            positions = np.arange(first, first + len(passages), dtype=np.int64)
            write_shard(self.folder, VectorShard(number, positions, _hashes(passages, options), stored))
            return {"count": len(passages), **(encoder.counts - before)}

        return work


def encode_vectors(
    source: str | Path,
    output: str | Path,
    model: str | Path | None,
    options: VectorOptions,
    *,
    resume: bool = False,
    skip_invalid: bool = False,
    device: str | None = None,
    advance: Advance | None = None,
    progress: bool | None = False,
    cluster: RayCluster | None = None,
) -> tuple[VectorReport, dict[str, Any]]:
    """Encode a corpus into a folder of shards. With `resume`, only the shards that are missing.

    Returns the report, and the counts of what was read.

    :param progress: show a bar of the bytes of the corpus that are done; None does on a terminal
    :param cluster: encode there instead of in this process; its devices count, not `device`
    """
    output = path_of(output, "a folder")
    reader = CorpusReader(source, skip_invalid=skip_invalid)
    chosen = cluster.dtype(options.dtype) if cluster else options.dtype
    encoder = PassageEncoder(model, "cpu" if cluster else device, chosen)
    encoder.dtype = dtype_name(chosen, encoder.device)  # the same on all machines
    manifest = _manifest(encoder, options, str(source))
    report, counted = VectorReport(), Counter[str]()

    def keep(path: Path, block: Sequence[Passage]) -> None:
        if not np.array_equal(open_shard(path).hashes, _hashes(block, options)):
            raise corpus_changed(path)

    shown = ReadingProgress(shown=progress, advance=advance)
    with shown, writing(output), kept_on_interrupt(output):
        done = open_output(output, manifest, resume=resume)
        units = shown.follow(reader, split_units(reader, options.unit, options.language))
        missing = missing_blocks(units, options, done, report, keep, shown.advance)
        executor = cluster or LocalExecutor((str(encoder.device),))
        job = VectorJob(encoder, options, output.absolute())
        with closing(executor.run(job, missing, shown.advance)) as shards:
            for facts in shards:
                counted.update(facts)
        report.encoded, report.cut, report.share_read = counted["count"], counted["cut"], _share_read(counted)
        counts = reader.counts.as_dict()
        write_manifest(output, {**manifest, "complete": True, "counts": asdict(report), "corpus": counts})
    return report, counts


def _hashes(block: Sequence[Passage], options: VectorOptions) -> Hashes:
    """As `LivePassages.hashes` has them, of what an index of this corpus will store."""
    around = np.zeros(len(block), np.uint64)
    if options.unit == "sentence":
        for row, passage in enumerate(block):
            if is_sentence(passage.record):
                around[row] = _sum_of_sentences(passage.context, options.language)
    return record_hashes([stored_record(p) for p in block]) + around


@lru_cache(maxsize=4)
def _sum_of_sentences(text: str, language: str) -> np.uint64:
    spans = sentence_splitter(language)(text)
    return np.add.reduce(sentence_hashes((start, text[start:end]) for start, end in spans))


def _manifest(encoder: PassageEncoder, options: VectorOptions, source: str) -> dict[str, Any]:
    """What must be the same for work to be continued; machines that share a corpus must agree on `dtype`."""
    chosen = options.identity()
    chosen["dtype"] = str(pick_dtype(encoder.dtype, encoder.device)).removeprefix("torch.")
    identity = identify(encoder.name)
    facts = {"source": source, "options": chosen, "complete": False}
    return describe_vectors(identity, encoder.width, options.precision, options.unit, **facts)
