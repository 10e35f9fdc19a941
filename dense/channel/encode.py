"""Encodes a corpus into numbered shards of vectors. An interrupted encoding can be resumed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dense.encoding.load import load_dense, load_module, moved
from dense.encoding.stored_model import StoredDenseModel
from dense.models.resolve import ModelIdentity, dense_model_folder, identify, vector_width
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
from sparta.base.renames import renamed_fields
from sparta.data.corpus import open_corpus
from sparta.data.languages import folded, language_of
from sparta.data.readers.corpus_reader import CorpusReader
from sparta.data.sentences import sentence_splitter, split_units
from sparta.data.units import is_sentence_of_passage
from sparta.models.resolve import check_unchanged
from sparta.neural.devices import best_device
from sparta.runtime.processor import mixed_with
from sparta.shards.executors import Facts, LocalExecutor, Work
from sparta.shards.folder import (
    STORED_DTYPES,
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

if TYPE_CHECKING:
    from dense.models.bi_encoder import DenseModel


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorOptions(ShardOptions):
    """The encoding options. The same options, model and corpus give the same shards.

    `precision` is the number format of the vectors on disk, float16 or float32.
    """

    precision: str = "float16"


@renamed_fields(cut="truncated_passages")
@dataclass
class VectorReport(ShardReport):
    """Counts of one encoding.

    `truncated_passages` were longer than one window, so the encoder read only their first window.
    `share_read` is the share of all wordpieces that was read. Both count over the encoded and the kept
    passages.
    """

    truncated_passages: int = 0
    share_read: float = 1.0

    def stored(self) -> dict[str, Any]:
        """Return the counts as the manifest stores them."""
        counts = asdict(self)
        return {**counts, "cut": counts.pop("truncated_passages")}


class PassageEncoder:
    """Encodes passages into vectors. The model is loaded at the first use.

    `width` is the length of a vector.

    :param identity: the name and the hash of the model
    :param dtype: the arithmetic of the encoder, as `pick_dtype` takes it
    """

    def __init__(self, identity: ModelIdentity, device: str | None = None, dtype: str = "auto") -> None:
        self.width = vector_width(identity.name)
        self.identity, self.dtype = identity, dtype
        self.device = device or best_device()
        self.truncated = 0
        """Number of passages that were longer than one window; the encoder read only the first window."""
        self._wordpieces_read = self._wordpieces = 0
        self._model: DenseModel | StoredDenseModel | None = None

    @property
    def model(self) -> DenseModel | StoredDenseModel:
        """The model on the encoder's device, loaded at the first use.

        :raises ReplacedError: the files have another hash than the model's identity.
        """
        if self._model is None:
            self._model = self._loaded(load_dense)
        return self._model

    def _loaded[M](self, load: Callable[[Path, str], M]) -> M:
        """Load the model, and check afterwards that its files are those of its identity."""
        folder = dense_model_folder(self.identity.name)
        model = load(folder, self.device)
        check_unchanged(folder, self.identity.sha256)
        return model

    def to(self, device: str) -> PassageEncoder:
        """Move the encoder to a device, and return it."""
        if device != self.device:
            self.device = device
            if isinstance(self._model, StoredDenseModel):
                self._model = None
            elif self._model is not None:
                self._model = moved(self._model, device)
        return self

    def arithmetic(self) -> str:
        """Return the arithmetic on the encoder's device: int8, bf16, fp16 or fp32."""
        if isinstance(self.model, StoredDenseModel):
            return self.model.arithmetic(self.dtype)
        from sparta.neural.encoding import dtype_name

        return dtype_name(self.dtype, self.model.device)

    def runtime_name(self) -> str:
        """Return the runtime and the arithmetic, such as `openvino int8+bf16`, for manifests."""
        runtime = "openvino" if isinstance(self.model, StoredDenseModel) else "torch"
        return f"{runtime} {self.arithmetic()}{mixed_with(self.arithmetic())}"

    def use_torch(self) -> None:
        """Load the model in torch: workers with GPUs get it pickled, and may lack the model's folder."""
        self._model = self._loaded(load_module)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle, including the model: another machine may not have the model folder."""
        return {**vars(self), "_model": self.model}

    @property
    def wants_context(self) -> bool:
        """Whether the model reads a sentence together with its passage."""
        return self.model.config.layout.use_context

    def __call__(self, passages: Sequence[Passage], advance: Advance | None = None) -> Floats:
        """Return the vectors of passages, `(n, width) float32`.

        :raises InputError: a vector has NaN or infinity; the error names its passage.
        """
        vectors = self.model.encode_passages(passages, self.dtype, advance=advance, on_read=self._count)[:, 0]
        finite = np.isfinite(vectors).all(axis=1)
        bad_id = "" if finite.all() else passages[int(np.argmin(finite))].passage_id
        advice = remedy("try {}; if that does not help, train again", Option("dtype", "fp32"))
        check_finite(vectors, f"passage {bad_id!r}", advice)
        return vectors

    def _count(self, truncated: int, n_read: int, n_wordpieces: int) -> None:
        self.truncated += truncated
        self._wordpieces_read += n_read
        self._wordpieces += n_wordpieces

    @property
    def counts(self) -> Counter[str]:
        """The counts so far: passages `cut` to one window, wordpieces `read`, and all wordpieces (`of`)."""
        return Counter(cut=self.truncated, read=self._wordpieces_read, of=self._wordpieces)

    @property
    def share_read(self) -> float:
        """The share of all passages' wordpieces that the encoder read."""
        return _share_read(self.counts)


def _share_read(counts: Counter[str]) -> float:
    return counts["read"] / max(1, counts["of"]) if counts["cut"] else 1.0


@dataclass(frozen=True, slots=True)
class VectorJob:
    """Encodes blocks of one corpus and writes each block as a shard of `folder`."""

    encoder: PassageEncoder
    options: VectorOptions
    folder: Path

    def open(self, device: str) -> Work[Facts]:
        """Return a function that encodes a block on a device, writes its shard and returns its counts."""
        encoder, options = self.encoder.to(device), self.options
        language = language_of(options.language)

        def work(block: Block, advance: Advance | None) -> Facts:
            number, first, passages = block
            before = encoder.counts
            with np.errstate(over="ignore"):  # `write_shard` refuses infinity, so overflow needs no warning
                folded_passages = [folded(passage, language) for passage in passages]
                stored = encoder(folded_passages, advance).astype(options.precision)
            positions = np.arange(first, first + len(passages), dtype=np.int64)
            counts = encoder.counts - before
            shard = VectorShard(
                number,
                positions,
                hashes_of(passages, options),
                stored,
                arithmetic=encoder.runtime_name(),
                counts=counts,
            )
            write_shard(self.folder, shard)
            return {"count": len(passages), **counts}

        return work


def encode_vectors(
    source: str | Path | CorpusReader,
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
    """Encode a corpus into a folder of shards, and return the report and the counts of the read corpus.

    :param source: corpus file or folder, or an open reader, which knows how to read the records
    :param resume: encode only the missing shards of an interrupted encoding
    :param progress: show a progress bar over the bytes of the corpus; None shows the bar on a terminal
    :param advance: called with the number of passages that were encoded since the last call
    :param cluster: encode on these machines instead of this process; the cluster's devices replace `device`
    """
    output = path_of(output, "a folder")
    reader = open_corpus(source, skip_invalid=skip_invalid)
    dtype = cluster.dtype(options.dtype) if cluster else options.dtype
    encoder = PassageEncoder(identify(model), "cpu" if cluster else device, dtype)
    if cluster and cluster.gpus_per_worker:
        encoder.use_torch()
    encoder.dtype = encoder.arithmetic()  # resolved here, so that all machines use the same
    manifest = _manifest(encoder, options, reader.source)
    if reader.reading:
        manifest["reading"] = reader.reading
    report, totals = VectorReport(), Counter[str]()

    def check_finished_shard(path: Path, block: Sequence[Passage]) -> None:
        shard = open_shard(path)
        if not np.array_equal(shard.hashes, hashes_of(block, options)):
            raise corpus_changed(path)
        totals.update(shard.counts)

    shown = ReadingProgress(shown=progress, advance=advance)
    with shown, writing(output, cluster.joined if cluster else None), kept_on_interrupt(output):
        done = open_output(output, manifest, resume=resume)
        units = shown.follow(reader, split_units(reader, options.unit, options.language))
        missing = missing_blocks(units, options, done, report, check_finished_shard, shown.advance)
        executor = cluster or LocalExecutor((encoder.device,))
        job = VectorJob(encoder, options, output.absolute())
        with closing(executor.run(job, missing, shown.advance)) as shards:
            for facts in shards:
                totals.update(facts)
        report.encoded, report.truncated_passages = totals["count"], totals["cut"]
        report.share_read = _share_read(totals)
        counts = reader.counts.as_dict()
        write_manifest(output, {**manifest, "complete": True, "counts": report.stored(), "corpus": counts})
    return report, counts


def hashes_of(block: Sequence[Passage], options: VectorOptions) -> Hashes:
    """Return the hashes `(n,) uint64` that `LivePassages.hashes` returns for an index of these passages."""
    context_hashes = np.zeros(len(block), np.uint64)
    if options.unit == "sentence":
        for row, passage in enumerate(block):
            if is_sentence_of_passage({**passage.record, "id": passage.passage_id}):
                context_hashes[row] = _sum_of_sentence_hashes(passage.context, options.language)
    return record_hashes([stored_record(passage) for passage in block]) + context_hashes


@lru_cache(maxsize=4)
def _sum_of_sentence_hashes(text: str, language: str) -> np.uint64:
    spans = sentence_splitter(language)(text)
    return np.add.reduce(sentence_hashes((start, text[start:end]) for start, end in spans))


def _manifest(encoder: PassageEncoder, options: VectorOptions, source: str) -> dict[str, Any]:
    """Return the manifest. A resumed encoding must have the same options and model.

    The options include the resolved dtype, so all machines that share a corpus must use the same dtype.
    """
    identity_options = options.identity()
    identity_options["dtype"] = STORED_DTYPES.get(encoder.dtype, encoder.dtype)
    facts = {"source": source, "options": identity_options, "complete": False}
    facts["arithmetic"] = encoder.runtime_name()
    return describe_vectors(encoder.identity, encoder.width, options.precision, options.unit, **facts)
