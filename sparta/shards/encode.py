"""A corpus becomes numbered shards of sparse vectors; what is done stays done."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from sparta.base.checks import path_of
from sparta.base.errors import InputError
from sparta.base.files import STANDARD_INPUT
from sparta.base.manifest import write_manifest
from sparta.base.progress import ReadingProgress
from sparta.base.records import Advance, Passage
from sparta.data.corpus import CorpusReader
from sparta.data.languages import folded, language_of
from sparta.data.sentences import split_units
from sparta.models.document_encoder import DocumentEncoder
from sparta.models.load import open_encoder
from sparta.models.prune import check_top_k, prune
from sparta.models.sparse import SparseEncoder
from sparta.neural.encoding import GPU_TOKENS, dtype_name
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
    EncodedShard,
    passages_hash,
    stored_object,
    stored_record,
    write_shard,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeOptions(ShardOptions):
    """How a corpus is encoded. Two encodings with the same options, model and corpus give the same shards."""

    top_k: int | None = None
    min_weight: float = 0.0
    token_budget: int = GPU_TOKENS
    devices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        ShardOptions.__post_init__(self)
        check_top_k(self.top_k)
        if not 0 <= self.min_weight < math.inf:
            raise InputError(
                f"expected min_weight of at least 0, found {self.min_weight}",
                remedy="leave it out to keep every term",
            )

    def identity(self) -> dict[str, Any]:
        """What must be the same for work to be continued: all but where and how many at once."""
        without = "devices", "token_budget"
        return {k: v for k, v in ShardOptions.identity(self).items() if k not in without}


@dataclass
class EncodeReport(ShardReport):
    """Counts of one encoding; `windowed`, `without_terms` and `terms` are of the units encoded and kept."""

    windowed: int = 0
    without_terms: int = 0
    terms: int = 0
    corpus: dict[str, Any] = field(default_factory=dict)

    def count(self, facts: dict[str, Any]) -> None:
        """Count what a shard says of its vectors."""
        self.windowed += facts["windowed"]
        self.without_terms += facts["without_terms"]
        self.terms += facts["terms"]

    @property
    def mean_terms(self) -> float:
        """Mean number of terms of a passage that is in these shards."""
        return self.terms / max(1, self.encoded + self.kept)

    def as_dict(self) -> dict[str, Any]:
        """For a manifest."""
        return {**asdict(self), "mean_terms": round(self.mean_terms, 1)}


def _block_encoder(model: SparseEncoder, options: EncodeOptions) -> Work[EncodedShard]:
    """Return what makes a shard of a block, on the model's device."""
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
        return EncodedShard(number, first, ids, records, rows, windowed, objects)

    return encode


class ShardEncoder:
    """Encodes blocks of passages, each block on one device, and gives the shards back in order."""

    def __init__(self, model: SparseEncoder, options: EncodeOptions) -> None:
        devices = options.devices or (str(model.device),)
        models = [model] + [deepcopy(model) for _ in devices[1:]]
        self._works = [
            _block_encoder(m.to(torch.device(d)), options) for m, d in zip(models, devices, strict=True)
        ]

    def encode(self, blocks: Iterable[Block], advance: Advance | None = None) -> Iterator[EncodedShard]:
        """`(number, first position, passages)` to shards. Work runs one block ahead on every device."""
        return work_ahead(self._works, blocks, advance)


@dataclass(frozen=True, slots=True)
class SparseJob:
    """The shards of sparse vectors of one corpus."""

    model: SparseEncoder
    options: EncodeOptions
    folder: Path

    def open(self, device: str) -> Work[Facts]:
        """Return what encodes a block on a device and writes its shard."""
        encode = _block_encoder(self.model.to(torch.device(device)), self.options)

        def work(block: Block, advance: Advance | None) -> Facts:
            shard = encode(block, advance)
            write_shard(self.folder, shard)
            return shard.facts()

        return work


def encode_corpus(
    source: str | Path,
    output: str | Path,
    model: SparseEncoder | str | None,
    options: EncodeOptions,
    *,
    bits: int | None = None,
    resume: bool = False,
    skip_invalid: bool = False,
    advance: Advance | None = None,
    progress: bool | None = False,
    cluster: RayCluster | None = None,
) -> EncodeReport:
    """Encode a corpus into a folder of shards. With `resume`, only the shards that are missing.

    :param model: a model, or its folder or hub id; None is the one that ships with sparta
    :param bits: of an impact, where the model is named; None is the model's own
    :param progress: show a bar of the bytes of the corpus that are done; None does on a terminal
    :param cluster: encode there instead of in this process; its devices count, not those of the options
    :raises Interrupted: Ctrl-C; says how many passages are in the folder.
    """
    output = path_of(output, "a folder")
    if not isinstance(model, SparseEncoder):
        with kept_on_interrupt(output):
            model = open_encoder(model, bits, ("cpu",) if cluster else options.devices)
    reader = CorpusReader(source, skip_invalid=skip_invalid)
    shown = ReadingProgress(shown=progress, advance=advance)
    passages = shown.follow(reader, split_units(reader, options.unit, options.language))
    side = model.query_side()
    chosen = cluster.dtype(options.dtype) if cluster else options.dtype
    options = replace(options, dtype=dtype_name(chosen, model.device))  # the same on all machines
    manifest = {
        "kind": KIND,
        "format_version": FORMAT_VERSION,
        "source": str(source),
        "options": options.identity(),
        "model": side.identity(),
        "complete": False,
    }
    report = EncodeReport()

    def keep(path: Path, block: Sequence[Passage]) -> None:
        facts = shard_facts(path)
        if facts["passages"] != passages_hash([stored_record(p) for p in block]):
            raise corpus_changed(path)
        report.count(facts)

    with shown, writing(output), kept_on_interrupt(output):
        done = open_output(output, manifest, resume=resume, prepare=lambda: side.save(output / "tokenizer"))
        missing = missing_blocks(passages, options, done, report, keep, shown.advance)
        executor = cluster or LocalExecutor(options.devices or (str(model.device),))
        job = SparseJob(model, options, output.absolute())
        with closing(executor.run(job, missing, shown.advance)) as shards:
            for facts in shards:
                report.encoded += facts["count"]
                report.count(facts)
        fingerprint = reader.fingerprint()
        if fingerprint["source"] != STANDARD_INPUT:  # shards are read elsewhere than where they are made
            fingerprint["source"] = str(Path(source).absolute())
        report.corpus = {"counts": reader.counts.as_dict(), "fingerprint": fingerprint}
        write_manifest(output, {**manifest, "complete": True, "counts": report.as_dict()})
    return report
