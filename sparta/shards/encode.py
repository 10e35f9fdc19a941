"""A corpus becomes numbered shards of sparse vectors; what is done stays done."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from sparta.base.files import STANDARD_INPUT
from sparta.base.manifest import write_manifest
from sparta.base.records import Advance, Passage
from sparta.data.corpus import CorpusReader
from sparta.data.sentences import split_units
from sparta.models.document_encoder import DEFAULT_TOKEN_BUDGET, DocumentEncoder
from sparta.models.load import open_encoder
from sparta.models.prune import prune
from sparta.models.sparse import SparseEncoder
from sparta.neural.encoding import pick_dtype
from sparta.shards.folder import (
    Block,
    ShardOptions,
    ShardReport,
    corpus_changed,
    kept_on_interrupt,
    missing_blocks,
    open_output,
    shard_facts,
)
from sparta.shards.store import (
    FORMAT_VERSION,
    KIND,
    EncodedShard,
    passages_hash,
    stored_record,
    write_shard,
)

_SHORT = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeOptions(ShardOptions):
    """How a corpus is encoded. Two encodings with the same options, model and corpus give the same shards."""

    top_k: int | None = None
    min_weight: float = 0.0
    token_budget: int = DEFAULT_TOKEN_BUDGET
    devices: tuple[str, ...] = ()

    def identity(self) -> dict[str, Any]:
        """What must be the same for work to be continued: all but the devices."""
        return {k: v for k, v in ShardOptions.identity(self).items() if k != "devices"}


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


class ShardEncoder:
    """Encodes blocks of passages, each block on one device, and gives the shards back in order.

    When the caller stops early (Ctrl-C, a bad record), what is being encoded is given up at the next batch.
    """

    def __init__(self, model: SparseEncoder, options: EncodeOptions) -> None:
        self.options = options
        devices = options.devices or (str(model.device),)
        models = [model] + [deepcopy(model) for _ in devices[1:]]
        self._encoders = [
            DocumentEncoder(
                m.to(torch.device(d)),
                dtype=options.dtype,
                token_budget=options.token_budget,
                top_k=options.top_k,
            )
            for m, d in zip(models, devices, strict=True)
        ]

    def encode(self, blocks: Iterable[Block], advance: Advance | None = None) -> Iterator[EncodedShard]:
        """`(number, first position, passages)` to shards. Work runs one block ahead on every device."""
        pools = [ThreadPoolExecutor(1) for _ in self._encoders]
        waiting: deque[Future[EncodedShard]] = deque()
        stop = threading.Event()

        def beat(n: int) -> None:
            if stop.is_set():
                raise InterruptedError
            if advance:
                advance(n)

        try:
            for turn, block in enumerate(blocks):
                device = turn % len(pools)
                waiting.append(pools[device].submit(self._one, self._encoders[device], block, beat))
                if len(waiting) > len(pools):
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            stop.set()
            for pool in pools:
                pool.shutdown(wait=True, cancel_futures=True)

    def _one(self, encoder: DocumentEncoder, block: Block, advance: Advance) -> EncodedShard:
        number, first, passages = block
        rows, windowed = encoder.encode(passages, advance)
        rows = prune(rows, min_weight=self.options.min_weight)
        return EncodedShard(
            number,
            first,
            tuple(p.passage_id for p in passages),
            tuple(stored_record(p) for p in passages),
            rows,
            windowed,
        )


def encode_corpus(
    source: str | Path,
    output: Path,
    model: SparseEncoder | str | None,
    options: EncodeOptions,
    *,
    bits: int | None = None,
    resume: bool = False,
    skip_invalid: bool = False,
    advance: Advance | None = None,
) -> EncodeReport:
    """Encode a corpus into a folder of shards. With `resume`, only the shards that are missing.

    :param model: a model, or its folder or hub id; None is the one that ships with sparta
    :param bits: of an impact, where the model is named; None is the model's own
    :raises Interrupted: Ctrl-C; says how many passages are in the folder.
    """
    if not isinstance(model, SparseEncoder):
        with kept_on_interrupt(output):
            model = open_encoder(model, bits, options.devices)
    reader = CorpusReader(source, skip_invalid=skip_invalid)
    passages = split_units(reader, options.unit, options.language)
    side = model.query_side()
    resolved = str(pick_dtype(options.dtype, model.device)).removeprefix("torch.")
    options = replace(options, dtype=_SHORT[resolved])  # machines that share a corpus must agree on it
    manifest = {
        "kind": KIND,
        "format_version": FORMAT_VERSION,
        "source": str(source),
        "options": options.identity(),
        "model": side.identity(),
        "complete": False,
    }
    done = open_output(output, manifest, resume=resume, prepare=lambda: side.save(output / "tokenizer"))
    report = EncodeReport()

    def keep(path: Path, block: Sequence[Passage]) -> None:
        facts = shard_facts(path)
        if facts["passages"] != passages_hash([stored_record(p) for p in block]):
            raise corpus_changed(path)
        report.count(facts)

    with kept_on_interrupt(output):
        missing = missing_blocks(passages, options, done, report, keep, advance)
        for shard in ShardEncoder(model, options).encode(missing, advance):
            write_shard(output, shard)
            report.encoded += len(shard)
            report.count(shard.facts())
    fingerprint = reader.fingerprint()
    if fingerprint["source"] != STANDARD_INPUT:  # shards are read elsewhere than where they are made
        fingerprint["source"] = str(Path(source).absolute())
    report.corpus = {"counts": reader.counts.as_dict(), "fingerprint": fingerprint}
    write_manifest(output, {**manifest, "complete": True, "counts": report.as_dict()})
    return report
