"""Options that several commands share: index, corpus, model, unit, cluster, BM25."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli._arguments import (
    HIGHEST_COUNT,
    Excludes,
    Finite,
    Needs,
    arguments,
    flag,
    folder_type,
    made,
    one_of,
    option,
    options,
    real,
    typed,
    whole,
)
from sparta.base.errors import InputError
from sparta.data.units import UNITS, chunk_unit

if TYPE_CHECKING:
    from sparta.index.pipeline import IndexOptions
    from sparta.lucene.bridge import Bm25
    from sparta.shards.encode import EncodeOptions
    from sparta.shards.ray_executor import RayCluster

index_option = option(
    "Index folder [default: $SPARTA_INDEX or ./sparta-index].",
    "--index",
    type=folder_type,
    envvar="SPARTA_INDEX",
)
json_option = flag("Print a JSON object.", "--json", "as_json")
depth_option = whole(100, "Hits per query.", "-k", "depth", most=HIGHEST_COUNT)
threads_option = whole(2, "Threads.", "--threads")
form_option = one_of(["text", "markdown", "csv", "json"], "Form of the table.", "--format", "form")
quiet_option = flag("No progress bar.", "--quiet")
language_option = option("Language of the texts, by its code.", "--language", default="en")
device_option = option("Device [default: the best there is].", "--device", metavar="NAME")
dtype_option = one_of(
    ["auto", "fp32", "bf16", "fp16"],
    "Arithmetic of the encoder; auto is bf16 where the machine is fast at it.",
    "--dtype",
)
_devices_option = option(
    "Device, or several: cuda:0,cuda:1 [default: the best there is].", "--device", metavar="NAME"
)
codec_option = option(
    "Postings format: fast is searched fastest, lucene opens in any Pyserini [default: fast].",
    "--codec",
    type=click.Choice(["fast", "lucene", "sparta"]),  # sparta: the former name of fast
    metavar="[fast|lucene]",
)
skip_invalid_option = flag(
    "Skip and count bad records instead of stopping; empty ones always are skipped.", "--skip-invalid"
)
encoder_options = options(device_option, dtype_option, quiet_option)


def corpus_option(*, required: bool) -> Any:
    """Option of a corpus, in any form that is known."""
    return option(
        "JSONL, TSV, a folder of them or of texts, a BEIR folder; compressed or not; - for standard input.",
        "--corpus",
        metavar="PATH",
        required=required,
    )


@arguments
class Bm25Arguments:
    """BM25's parameters."""

    k1: float = real(0.9, "BM25: saturation of counts.")
    b: float = real(0.4, "BM25: share of length.", most=1)

    @property
    def parameters(self) -> Bm25 | None:
        """The parameters; None, the usual ones, if none was typed."""
        from sparta.lucene.bridge import Bm25

        return Bm25(self.k1, self.b) if typed("k1", "b") else None


@arguments
class ModelArguments:
    """The model of impacts, and where it runs."""

    model: str | None = option(
        "Model folder or hub id [default: the model that ships with sparta].", metavar="FOLDER|ID"
    )
    bits: int | None = option(
        "Bits of an impact [default: the model's own, usually 8].", type=click.IntRange(1, 16)
    )
    device: str | None = _devices_option
    dtype: str = dtype_option


@arguments
class IndexModelArguments(ModelArguments):
    """The same where an index may exist: None means the index's own."""

    model: str | None = option(
        "Model folder or hub id [default: the index's, else the one that ships].", metavar="FOLDER|ID"
    )
    bits: int | None = option(
        "Bits of an impact [default: the index's, else the model's own, usually 8].",
        type=click.IntRange(1, 16),
    )


_UNIT = "Unit of retrieval: passages, or sentences, each read in its passage"
unit_option = one_of(UNITS, f"{_UNIT}.", "--unit")


@arguments
class UnitArguments:
    """The unit of retrieval."""

    unit: str | None = unit_option
    chunk: int | None = option(
        "Cut texts into chunks of so many words; a hit is a text, by its best chunk.",
        type=click.IntRange(1),
        metavar="WORDS",
    )
    overlap: int | None = option(
        "Words that chunks share [default: 0].", type=click.IntRange(0), metavar="WORDS"
    )
    RULES = (
        Needs("--chunk", ("overlap",), remedy="--chunk 200 --overlap 50"),
        Excludes(("unit",), ("chunk",)),
    )

    @property
    def name(self) -> str | None:
        """The name of the unit, such as `chunk:200:50`."""
        return self.unit if self.chunk is None else chunk_unit(self.chunk, self.overlap or 0)


@arguments
class TermArguments(UnitArguments):
    """The unit of retrieval, and which of its terms are kept."""

    top_k: int | None = option("Keep only the K strongest terms of each passage.", type=click.IntRange(1))
    min_weight: float | None = option(
        "Drop terms below this weight.", type=Finite(0), default=0.0, show_default=False
    )
    skip_invalid: bool = skip_invalid_option


@arguments
class IndexTermArguments(TermArguments):
    """The same where an index may exist: None means the index's own."""

    unit: str | None = option(f"{_UNIT} [default: passage, or that of the index].", type=click.Choice(UNITS))
    top_k: int | None = option(
        "Keep only the K strongest terms of each passage [default: all, or as in the index].",
        type=click.IntRange(1),
    )
    min_weight: float | None = option(
        "Drop terms below this weight [default: 0, or that of the index].", type=Finite(0)
    )


def encoding_options(
    model: ModelArguments, terms: TermArguments, language: str, **shards: Any
) -> EncodeOptions:
    """Return the encoding options.

    :param shards: part and size of the shards
    """
    from sparta.neural.encoding import parse_devices
    from sparta.shards.encode import EncodeOptions

    devices = parse_devices(model.device)
    return made(
        EncodeOptions,
        model,
        terms,
        unit=terms.name or "passage",
        language=language,
        devices=devices,
        **shards,
    )


@arguments
class WriteArguments:
    """What commands that write an index share."""

    threads: int = whole(2, "Indexing threads.")
    commit_seconds: float = option("", type=click.FloatRange(0), default=30.0, hidden=True)
    quiet: bool = quiet_option


def index_options(*sources: Any, terms: UnitArguments) -> IndexOptions:
    """Return the options of an index; a source has values of the same names."""
    from sparta.index.pipeline import IndexOptions

    return made(IndexOptions, *sources, terms, unit=terms.name)


@arguments
class ClusterArguments:
    """A Ray cluster."""

    ray: str | None = option(
        "Encode on a Ray cluster: auto (this machine's), HOST:PORT, or local (this machine alone).",
        metavar="ADDRESS",
    )
    workers: int | None = option(
        "With --ray: processes that encode [default: as many as there is room for].", type=click.IntRange(1)
    )
    cpus_per_worker: int = whole(1, "With --ray: CPUs and threads of a worker.")
    gpus_per_worker: float = real(0.0, "With --ray: GPUs of a worker; 0.5: two share one.")
    RULES = (
        Needs(
            "--ray", ("workers", "cpus_per_worker", "gpus_per_worker"), remedy="add --ray local or --ray auto"
        ),
        Excludes(("ray",), ("device",), "leave --device out; for GPUs: --gpus-per-worker 1"),
    )

    @property
    def cluster(self) -> RayCluster | None:
        """The cluster; None without --ray."""
        if self.ray is None:
            return None
        from sparta.shards.ray_executor import RayCluster

        return made(RayCluster, self, address=self.ray)


@arguments
class ShardArguments:
    """The share of one machine, and the size of shards."""

    shard: str = option("This machine's share, I from 0.", metavar="I/N", default="0/1")
    shard_size: int = whole(2048, "Passages per shard.")

    @property
    def part(self) -> tuple[int, int]:
        """The two numbers of `I/N`."""
        try:
            i, n = (int(number) for number in self.shard.split("/"))
        except ValueError:
            i, n = 0, 0
        if not 0 <= i < n:
            raise InputError(
                f"expected --shard i/n with 0 ≤ i < n, found {self.shard!r}",
                remedy="for the first of two machines: 0/2",
            )
        return i, n


def refuse_leftover(words: tuple[Path, ...], option: str, remedy: str) -> None:
    """Refuse words without an option, where the option that takes several of them is not typed."""
    if words and not typed(option):
        raise InputError(f"expected options only, found {' '.join(map(str, words))}", remedy=remedy)


def refuse_unused_bm25(channels: str) -> None:
    """Refuse BM25's parameters where none of the channels, which stand with + between them, is BM25."""
    if "bm25" not in channels.split("+") and (unused := typed("k1", "b")):
        raise InputError(
            f"expected {unused[0]} with BM25, found it with the channel {channels}",
            remedy="--channel bm25, or bm25 among several; or leave it out",
        )
