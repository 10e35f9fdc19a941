"""A corpus becomes numbered shards of sparse vectors; what is done stays done."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from sparta.base.errors import IndexStateError, InputError, Interrupted, folder_in_use
from sparta.base.files import STANDARD_INPUT
from sparta.base.manifest import read_manifest, write_manifest
from sparta.base.records import Passage
from sparta.data.corpus import CorpusReader
from sparta.data.languages import check_language
from sparta.data.sentences import split_units
from sparta.models.document_encoder import DEFAULT_TOKEN_BUDGET, DocumentEncoder
from sparta.models.load import open_encoder
from sparta.models.prune import prune
from sparta.models.query_encoder import QuerySide
from sparta.models.sparse import SparseEncoder
from sparta.neural.encoding import pick_dtype
from sparta.shards.store import (
    FORMAT_VERSION,
    KIND,
    SHARD_SIZE,
    EncodedShard,
    passages_hash,
    passages_in,
    shard_facts,
    shard_files,
    stored_record,
    write_shard,
)

logger = logging.getLogger(__name__)
_SHORT = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}

Advance = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class EncodeOptions:
    """How a corpus is encoded. Two encodings with the same options, model and corpus give the same shards.

    `language` decides where sentences end. `part` is (i, n): this machine takes the shards with number ≡ i
    modulo n.
    """

    unit: str = "passage"
    language: str = "en"
    top_k: int | None = None
    min_weight: float = 0.0
    dtype: str = "auto"
    shard_size: int = SHARD_SIZE
    token_budget: int = DEFAULT_TOKEN_BUDGET
    part: tuple[int, int] = (0, 1)
    devices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        i, n = self.part
        if not 0 <= i < n:
            raise InputError(
                f"expected --shard i/n with 0 ≤ i < n, found {i}/{n}", remedy="count from 0: 0/2, 1/2"
            )
        if self.shard_size < 1:
            raise InputError(f"a shard holds at least one passage, found {self.shard_size}")
        check_language(self.language)

    def identity(self) -> dict[str, Any]:
        """What must be the same for work to be continued."""
        chosen = asdict(self)
        for speed_only in ("devices",):
            chosen.pop(speed_only)
        return {**chosen, "part": list(self.part)}


@dataclass
class EncodeReport:
    """Counts of one encoding; they add up: `read = used + skipped`, and what was used was cut into
    `encoded + kept + elsewhere` units. `windowed`, `without_terms` and `terms` are of those encoded and kept.
    """

    encoded: int = 0
    kept: int = 0
    elsewhere: int = 0
    windowed: int = 0
    without_terms: int = 0
    terms: int = 0
    corpus: dict[str, Any] = field(default_factory=dict)

    def add(self, shard: EncodedShard) -> None:
        """Count one shard that was encoded now."""
        self.encoded += len(shard)
        self._add_facts(shard.facts())

    def keep(self, facts: dict[str, Any]) -> None:
        """Count one shard that was there."""
        self.kept += facts["count"]
        self._add_facts(facts)

    def _add_facts(self, facts: dict[str, Any]) -> None:
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

    def encode(
        self, blocks: Iterable[tuple[int, int, Sequence[Passage]]], advance: Advance | None = None
    ) -> Iterator[EncodedShard]:
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

    def _one(
        self, encoder: DocumentEncoder, block: tuple[int, int, Sequence[Passage]], advance: Advance
    ) -> EncodedShard:
        number, first, passages = block
        rows, counts = encoder.encode(passages, advance)
        rows = prune(rows, min_weight=self.options.min_weight)
        return EncodedShard(
            number,
            first,
            tuple(p.passage_id for p in passages),
            tuple(stored_record(p) for p in passages),
            rows,
            counts.windowed,
        )


def blocks_of(passages: Iterable[Passage], size: int) -> Iterator[tuple[int, int, tuple[Passage, ...]]]:
    """Cut a stream into numbered blocks: `(number, first position, passages)`."""
    for number, block in enumerate(itertools.batched(passages, size)):
        yield number, number * size, block


@contextmanager
def _kept_on_interrupt(output: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(passages_in(output), "passage") from None


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
        with _kept_on_interrupt(output):
            model = open_encoder(model, bits, options.devices)
    reader = CorpusReader(source, skip_invalid=skip_invalid)
    passages = split_units(reader, options.unit, options.language)
    side = model.query_side()
    resolved = str(pick_dtype(options.dtype, model.device)).removeprefix("torch.")
    options = replace(options, dtype=_SHORT[resolved])  # machines that share a corpus must agree on it
    done = _open_output(output, side, options, str(source), resume=resume)
    report = EncodeReport()

    def missing() -> Iterator[tuple[int, int, Sequence[Passage]]]:
        i, n = options.part
        for number, first, block in blocks_of(passages, options.shard_size):
            if number % n != i:
                report.elsewhere += len(block)
            elif number in done:
                report.keep(_checked_facts(done[number], [stored_record(p) for p in block]))
                if advance:
                    advance(len(block))
            else:
                yield number, first, block

    with _kept_on_interrupt(output):
        for shard in ShardEncoder(model, options).encode(missing(), advance):
            write_shard(output, shard)
            report.add(shard)
    fingerprint = reader.fingerprint()
    if fingerprint["source"] != STANDARD_INPUT:  # shards are read elsewhere than where they are made
        fingerprint["source"] = str(Path(source).absolute())
    report.corpus = {"counts": reader.counts.as_dict(), "fingerprint": fingerprint}
    write_manifest(
        output, {**_manifest(side, options, str(source)), "complete": True, "counts": report.as_dict()}
    )
    return report


def _manifest(side: QuerySide, options: EncodeOptions, source: str) -> dict[str, Any]:
    return {
        "kind": KIND,
        "format_version": FORMAT_VERSION,
        "source": source,
        "options": options.identity(),
        "model": side.identity(),
        "complete": False,
    }


def _open_output(
    output: Path, side: QuerySide, options: EncodeOptions, source: str, *, resume: bool
) -> dict[int, Path]:
    """Make the folder, or check that it holds the beginning of the same work; the shards that are done."""
    fresh = _manifest(side, options, source)
    if not output.exists() or _holds_nothing_yet(output):
        side.save(output / "tokenizer")
        write_manifest(output, fresh)
        return {}
    if not resume:
        raise folder_in_use(output)
    found = read_manifest(output, KIND, FORMAT_VERSION)
    for key in ("model", "options"):
        if found[key] != fresh[key]:
            differing = [k for k in fresh[key] if found[key].get(k) != fresh[key][k]]
            raise IndexStateError(
                f"expected the settings that this encoding was started with, found another {key}:"
                f" {', '.join(differing)}",
                where=str(output),
                remedy="repeat the original command with --resume, or choose another --output",
            )
    for left_over in output.glob(".sparta-*.tmp"):  # of a process that was killed while it wrote
        left_over.unlink()
    return shard_files(output)


def _holds_nothing_yet(output: Path) -> bool:
    """Whether there is nothing, or only what a process leaves that is killed before it has its manifest."""
    return all(p.name == "tokenizer" or p.match(".sparta-*.tmp") for p in output.iterdir())


def _checked_facts(path: Path, records: list[str]) -> dict[str, Any]:
    """Return what a shard says of itself, if it holds these passages."""
    facts = shard_facts(path)
    if facts["passages"] != passages_hash(records):
        raise InputError(
            "the corpus no longer has the passages that this shard holds",
            where=str(path),
            remedy="encode into a new folder: the corpus changed since this one was started",
        )
    return facts
