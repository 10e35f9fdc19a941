"""Encoding a corpus into numbered shards of sparse vectors; finished shards survive interruptions."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from sparta.base.checks import is_number, path_of
from sparta.base.errors import InputError
from sparta.base.files import STANDARD_INPUT
from sparta.base.manifest import write_manifest
from sparta.base.progress import ReadingProgress
from sparta.base.records import Advance, Passage
from sparta.data.corpus import open_corpus
from sparta.data.languages import folded, language_of
from sparta.data.readers.corpus_reader import CorpusReader
from sparta.data.sentences import split_units
from sparta.models.document_encoder import DocumentEncoder
from sparta.models.load import open_encoder
from sparta.models.model import SparseModel
from sparta.models.prune import check_top_k, prune
from sparta.neural.batches import GPU_TOKENS
from sparta.shards.executors import Facts, LocalExecutor, Work, work_ahead
from sparta.shards.folder import (
    Block,
    ShardOptions,
    ShardReport,
    corpus_changed,
    kept_on_interrupt,
    missing_blocks,
    open_output,
    shard_facts,
    writing,
)
from sparta.shards.ray_executor import RayCluster
from sparta.shards.store import (
    FORMAT_VERSION,
    KIND,
    WITH_QUERY_NETWORK,
    EncodedShard,
    passages_hash,
    stored_object,
    stored_record,
    write_shard,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeOptions(ShardOptions):
    """The options of an encoding. The same options, model and corpus give the same shards."""

    top_k: int | None = None
    min_weight: float = 0.0
    token_budget: int = GPU_TOKENS
    devices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        ShardOptions.__post_init__(self)
        check_top_k(self.top_k)
        if not is_number(self.min_weight) or not 0 <= self.min_weight < math.inf:
            raise InputError(
                f"expected min_weight of at least 0, found {self.min_weight!r}",
                remedy="omit min_weight to keep every term",
            )

    def identity(self) -> dict[str, Any]:
        """Return the options that must not change when a job resumes: all but devices and token budget."""
        variable_options = "devices", "token_budget"
        return {
            name: value for name, value in ShardOptions.identity(self).items() if name not in variable_options
        }


@dataclass
class EncodeReport(ShardReport):
    """Counts of one encoding.

    `windowed`, `without_terms` and `terms` count over the encoded and the kept units.
    """

    windowed: int = 0
    without_terms: int = 0
    terms: int = 0
    corpus: dict[str, Any] = field(default_factory=dict)

    def count(self, facts: dict[str, Any]) -> None:
        """Add the counts in a shard's facts."""
        self.windowed += facts["windowed"]
        self.without_terms += facts["without_terms"]
        self.terms += facts["terms"]

    @property
    def mean_terms(self) -> float:
        """The mean number of terms of the passages in these shards."""
        return self.terms / max(1, self.encoded + self.kept)

    def as_dict(self) -> dict[str, Any]:
        """Return the counts for a manifest."""
        return {**asdict(self), "mean_terms": round(self.mean_terms, 1)}


def _block_encoder(model: SparseModel, options: EncodeOptions) -> Work[EncodedShard]:
    """Return a function that encodes a block into a shard, on the model's device."""
    encoder = DocumentEncoder(
        model, dtype=options.dtype, token_budget=options.token_budget, top_k=options.top_k
    )
    language = language_of(options.language)

    def encode(block: Block, advance: Advance | None) -> EncodedShard:
        number, first, passages = block
        rows, windowed = encoder.encode([folded(p, language) for p in passages], advance)
        rows = prune(rows, min_weight=options.min_weight)
        ids = tuple(p.passage_id for p in passages)
        objects = tuple(map(stored_object, passages))
        records = tuple(json.dumps(stored, ensure_ascii=False) for stored in objects)
        contexts = tuple(p.context for p in passages)
        return EncodedShard(number, first, ids, records, rows, windowed, objects, contexts)

    return encode


class ShardEncoder:
    """Encodes blocks of passages, each block on one device, and returns the shards in order."""

    def __init__(self, model: SparseModel, options: EncodeOptions) -> None:
        devices = options.devices or (model.device_name,)
        models = [model] + [deepcopy(model) for _ in devices[1:]]
        self._works = [
            _block_encoder(copy.on_device(device), options)
            for copy, device in zip(models, devices, strict=True)
        ]

    def encode(self, blocks: Iterable[Block], advance: Advance | None = None) -> Iterator[EncodedShard]:
        """Yield the shards of blocks `(number, first position, passages)`.

        Each device works one block ahead.
        """
        return work_ahead(self._works, blocks, advance)


def arithmetic_on(model: SparseModel, devices: Sequence[str], dtype: str) -> tuple[str, str]:
    """Return the arithmetic of `dtype` on these devices, and the runtimes with their arithmetics.

    The arithmetic is `auto` if the devices differ, so that each device uses the fastest arithmetic it has.

    :returns: such as `("int8", "openvino int8+bf16")` or `("auto", "openvino int8, torch bf16")`
    """
    kinds = {device.partition(":")[0]: device for device in reversed(devices)}
    if len(kinds) == 1:
        return model.arithmetic(dtype), model.runtime_name(dtype)
    models = [deepcopy(model).on_device(kinds[kind]) for kind in sorted(kinds)]
    arithmetics = {model.arithmetic(dtype) for model in models}
    names = sorted({model.runtime_name(dtype) for model in models})
    return arithmetics.pop() if len(arithmetics) == 1 else "auto", ", ".join(names)


@dataclass(frozen=True, slots=True)
class SparseJob:
    """The job of encoding one corpus into shards of sparse vectors."""

    model: SparseModel
    options: EncodeOptions
    folder: Path

    def open(self, device: str) -> Work[Facts]:
        """Return a function that encodes a block on a device and writes its shard."""
        encode = _block_encoder(self.model.on_device(device), self.options)

        def work(block: Block, advance: Advance | None) -> Facts:
            shard = encode(block, advance)
            write_shard(self.folder, shard)
            return shard.facts()

        return work


def encode_corpus(
    source: str | Path | CorpusReader,
    output: str | Path,
    model: SparseModel | str | None,
    options: EncodeOptions,
    *,
    bits: int | None = None,
    query_encoder: str | None = None,
    resume: bool = False,
    skip_invalid: bool = False,
    advance: Advance | None = None,
    progress: bool | None = False,
    cluster: RayCluster | None = None,
) -> EncodeReport:
    """Encode a corpus into a folder of shards. With `resume`, encode only the missing shards.

    :param model: a model, its folder or hub id; None means the default model, which ships with sparta
    :param bits: the bits per impact, if the model is named; None means the model's setting
    :param query_encoder: `network` or `none`, if the model is named; None means as the model says
    :param source: a file or folder, or an open reader, which knows how to read the records
    :param progress: show a progress bar of the finished bytes of the corpus; None shows it on a terminal
    :param cluster: encode on this cluster instead of this process; then the cluster's devices are used
    :raises Interrupted: Ctrl-C; the error says how many passages are in the folder.
    """
    output = path_of(output, "a folder")
    if not isinstance(model, SparseModel):
        with kept_on_interrupt(output):
            model = open_encoder(model, bits, ("cpu",) if cluster else options.devices, query_encoder)
    if cluster and cluster.gpus_per_worker:
        model = model.as_module()  # workers may lack the model's folder
    reader = open_corpus(source, skip_invalid=skip_invalid)
    progress_bar = ReadingProgress(shown=progress, advance=advance)
    passages = progress_bar.follow(reader, split_units(reader, options.unit, options.language))
    query_side = model.query_side()
    dtype = cluster.dtype(options.dtype) if cluster else options.dtype
    devices = (not cluster and options.devices) or (model.device_name,)
    arithmetic, runtime_name = arithmetic_on(model, devices, dtype)
    options = replace(options, dtype=arithmetic)  # `auto` may differ between machines
    manifest = {
        "kind": KIND,
        "format_version": WITH_QUERY_NETWORK if query_side.has_network else FORMAT_VERSION,
        "source": reader.source,
        "options": options.identity(),
        "model": replace(query_side, lexical=None).identity(),  # shards hold weights of wordpieces only
        "arithmetic": runtime_name,
        "complete": False,
        **({"reading": reader.reading} if reader.reading else {}),
    }
    report = EncodeReport()

    def keep(path: Path, block: Sequence[Passage]) -> None:
        facts = shard_facts(path)
        if facts["passages"] != passages_hash([stored_record(p) for p in block]):
            raise corpus_changed(path)
        report.count(facts)

    with progress_bar, writing(output, cluster.joined if cluster else None), kept_on_interrupt(output):
        existing_shards = open_output(
            output, manifest, resume=resume, prepare=lambda: query_side.save(output / "tokenizer")
        )
        missing = missing_blocks(passages, options, existing_shards, report, keep, progress_bar.advance)
        executor = cluster or LocalExecutor(devices)
        job = SparseJob(model, options, output.absolute())
        with closing(executor.run(job, missing, progress_bar.advance)) as shards:
            for facts in shards:
                report.encoded += facts["count"]
                report.count(facts)
        fingerprint = reader.fingerprint()
        if fingerprint["source"] != STANDARD_INPUT:  # the shards may be read from another working folder
            fingerprint["source"] = str(Path(reader.source).absolute())
        report.corpus = {"counts": reader.counts.as_dict(), "fingerprint": fingerprint}
        write_manifest(output, {**manifest, "complete": True, "counts": report.as_dict()})
    return report
