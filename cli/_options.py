"""Options shared by several commands: index, corpus, model, unit, cluster, BM25."""

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
from sparta.base.checks import MOST_THREADS
from sparta.base.errors import InputError
from sparta.data.units import UNITS, chunk_unit

if TYPE_CHECKING:
    from sparta.data.readers.corpus_reader import CorpusReader
    from sparta.index.inputs.options import IndexOptions
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
depth_option = whole(100, "Number of hits per query.", "-k", "depth", most=HIGHEST_COUNT)
threads_option = whole(2, "Number of threads.", "--threads")
form_option = one_of(["text", "markdown", "csv", "json"], "Format of the table.", "--format", "form")
quiet_option = flag("Do not show a progress bar.", "--quiet")
language_option = option("Language code of the texts, such as en or de.", "--language", default="en")
device_option = option(
    "Device, such as cpu or cuda:0 [default: a GPU if there is one].", "--device", metavar="NAME"
)
dtype_option = one_of(
    ["auto", "int8", "fp32", "bf16", "fp16"],
    "Arithmetic of the encoder; auto means int8 on processors that support it, bf16 on GPUs, else fp32.",
    "--dtype",
)
_devices_option = option(
    "Device, or several: cuda:0,cuda:1 [default: a GPU if there is one].", "--device", metavar="NAME"
)
codec_option = option(
    "Postings format: fast is the fastest to search, lucene opens in an unmodified Pyserini"
    " [default: as in the extended index, else fast].",
    "--codec",
    type=click.Choice(["fast", "lucene", "sparta"]),  # sparta: the former name of fast
    metavar="[fast|lucene]",
)
skip_invalid_option = flag(
    "Skip and count invalid records instead of stopping. Empty records are always skipped.",
    "--skip-invalid",
)


@arguments
class FieldArguments:
    """How the records of a corpus are read."""

    SECTION = "Records"
    id_field: str | None = option(
        "Field with the passage's id [default: id or _id; without one, a hash of the content].",
        metavar="NAME",
    )
    text_field: tuple[str, ...] = option(
        "Field with the text; repeat the option to join several fields [default: text or contents].",
        multiple=True,
        metavar="NAME",
    )
    title_field: str | None = option("Field with the title [default: title].", metavar="NAME")
    query: str | None = option(
        "Rows of an SQLite database, such as 'select id, body from pages'.", metavar="SQL"
    )

    def open(self, corpus: str, *, skip_invalid: bool) -> CorpusReader:
        """Open a corpus with these options for reading."""
        from sparta.index.inputs.options import IndexOptions

        return made(IndexOptions, self, skip_invalid=skip_invalid).reader(corpus)


encoder_options = options(device_option, dtype_option, quiet_option)


def corpus_option(*, required: bool) -> Any:
    """Declare the option of a corpus, in any supported format."""
    return option(
        "Passages: a JSONL, JSON, TSV, CSV, Parquet, Arrow, text, Markdown, HTML or PDF file, an SQLite"
        " database, a BEIR folder, a folder of such files, or irds:NAME for a dataset of ir_datasets; text"
        " formats may be compressed; - reads standard input.",
        "--corpus",
        metavar="PATH",
        required=required,
    )


@arguments
class Bm25Arguments:
    """BM25's parameters."""

    SECTION = "BM25"
    k1: float = real(0.9, "Saturation of term counts (k1).")
    b: float = real(0.4, "Strength of length normalization (b).", most=1)

    @property
    def parameters(self) -> Bm25 | None:
        """Return the parameters; None means the defaults, because neither option was typed."""
        from sparta.lucene.bridge import Bm25

        return Bm25(self.k1, self.b) if typed("k1", "b") else None


@arguments
class ModelArguments:
    """The model that encodes passages into impacts, and its device."""

    SECTION = "Encoder"
    model: str | None = option(
        "SPARTA model: a folder, or an id of the Hugging Face hub [default: the model shipped for the"
        " language].",
        metavar="FOLDER|ID",
    )
    bits: int | None = option(
        "Bits per impact [default: as the model says, usually 8].", type=click.IntRange(1, 16)
    )
    query_encoder: str | None = option(
        "How queries become terms, for models whose network also encodes queries (SPLADE): network, or none,"
        " which only tokenizes and counts each term once [default: as the model says].",
        type=click.Choice(["network", "none"]),
    )
    device: str | None = _devices_option
    dtype: str = dtype_option


@arguments
class IndexModelArguments(ModelArguments):
    """The encoder of a command that may extend an index; None means the setting of that index."""

    model: str | None = option(
        "SPARTA model: a folder, or an id of the Hugging Face hub [default: the model of the extended"
        " index, else the model shipped for the language].",
        metavar="FOLDER|ID",
    )
    bits: int | None = option(
        "Bits per impact [default: as in the extended index, else as the model says, usually 8].",
        type=click.IntRange(1, 16),
    )
    query_encoder: str | None = option(
        "How queries become terms, for models whose network also encodes queries (SPLADE): network, or none,"
        " which only tokenizes and counts each term once [default: as in the extended index, else as the"
        " model says].",
        type=click.Choice(["network", "none"]),
    )


channel_lists = click.Choice(["impact,bm25", "impact,bm25,dense", "bm25", "bm25,dense"])

_UNIT = "What a hit is: a passage, or a sentence, which is encoded within its passage"
unit_option = one_of(UNITS, f"{_UNIT}.", "--unit")


@arguments
class UnitArguments:
    """The unit of retrieval."""

    SECTION = "Units and terms"
    unit: str | None = unit_option
    chunk: int | None = option(
        "Split long texts into chunks of this many words. A hit is a whole text, with the score of its best"
        " chunk.",
        type=click.IntRange(1),
        metavar="WORDS",
    )
    overlap: int | None = option(
        "Words shared by neighboring chunks [default: 0].", type=click.IntRange(0), metavar="WORDS"
    )
    RULES = (
        Needs("--chunk", ("overlap",), remedy="write, for example, --chunk 200 --overlap 50"),
        Excludes(("unit",), ("chunk",)),
    )

    @property
    def name(self) -> str | None:
        """Return the name of the unit, such as `chunk:200:50`; None if no option was typed."""
        return self.unit if self.chunk is None else chunk_unit(self.chunk, self.overlap or 0)


@arguments
class TermArguments(UnitArguments):
    """The unit of retrieval, and the pruning of its terms."""

    top_k: int | None = option(
        "Keep only the K terms with the highest weights of each passage.", type=click.IntRange(1)
    )
    min_weight: float | None = option(
        "Drop terms with a weight below this.", type=Finite(0), default=0.0, show_default=False
    )
    skip_invalid: bool = skip_invalid_option


@arguments
class IndexTermArguments(TermArguments):
    """Unit and pruning of a command that may extend an index; None means the setting of that index."""

    unit: str | None = option(
        f"{_UNIT} [default: as in the extended index, else passage].", type=click.Choice(UNITS)
    )
    top_k: int | None = option(
        "Keep only the K terms with the highest weights of each passage [default: as in the extended index,"
        " else all].",
        type=click.IntRange(1),
    )
    min_weight: float | None = option(
        "Drop terms with a weight below this [default: as in the extended index, else 0].", type=Finite(0)
    )
    lexical_terms: bool | None = option(
        "Also index the model's lexical terms: rare words and pairs of words. --top-k and --min-weight do not"
        " count them [default: as in the extended index, else as the model; JSON vectors have none].",
        "--lexical-terms/--no-lexical-terms",
        default=None,
    )


def encoding_options(
    model: ModelArguments, terms: TermArguments, language: str, **shards: Any
) -> EncodeOptions:
    """Return the options of an encoding.

    :param shards: `part` and `shard_size` of `EncodeOptions`
    """
    from sparta.neural.devices import parse_devices
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
    """Options of all commands that write an index."""

    SECTION = "Writing"
    threads: int = whole(2, "Number of indexing threads.", most=MOST_THREADS)
    commit_seconds: float = option("", type=click.FloatRange(0), default=30.0, hidden=True)
    quiet: bool = quiet_option


def index_options(*sources: Any, terms: UnitArguments) -> IndexOptions:
    """Return the options of an index build.

    :param sources: argument groups whose values have the names of `IndexOptions`' fields
    """
    from sparta.index.inputs.options import IndexOptions

    return made(IndexOptions, *sources, terms, unit=terms.name)


@arguments
class ClusterArguments:
    """A Ray cluster that encodes."""

    SECTION = "Ray cluster"
    ray: str | None = option(
        "Encode on a Ray cluster: auto (the cluster this machine belongs to), HOST:PORT, or local (only this"
        " machine).",
        metavar="ADDRESS",
    )
    workers: int | None = option(
        "Number of encoding processes [default: as many as the cluster has room for].", type=click.IntRange(1)
    )
    cpus_per_worker: int = whole(1, "CPUs and threads per worker.")
    gpus_per_worker: float = real(0.0, "GPUs per worker; with 0.5, two workers share a GPU.")
    RULES = (
        Needs(
            "--ray", ("workers", "cpus_per_worker", "gpus_per_worker"), remedy="add --ray local or --ray auto"
        ),
        Excludes(("ray",), ("device",), "omit --device; to use GPUs, add --gpus-per-worker 1"),
    )

    @property
    def cluster(self) -> RayCluster | None:
        """Return the cluster; None without --ray."""
        if self.ray is None:
            return None
        from sparta.shards.ray_executor import RayCluster

        return made(RayCluster, self, address=self.ray)


@arguments
class ShardArguments:
    """The part of the corpus that this machine encodes, and the size of the shards."""

    SECTION = "Shards"
    shard: str = option("Encode part I of N of the corpus; I counts from 0.", metavar="I/N", default="0/1")
    shard_size: int = whole(2048, "Passages per shard.")

    @property
    def part(self) -> tuple[int, int]:
        """Return I and N of `I/N`."""
        try:
            i, n = (int(number) for number in self.shard.split("/"))
        except ValueError:
            i, n = 0, 0
        if not 0 <= i < n:
            raise InputError(
                f"--shard must be i/n with 0 ≤ i < n, found {self.shard!r}",
                remedy="write --shard 0/2 for the first of two machines",
            )
        return i, n


def refuse_leftover(words: tuple[Path, ...], remedy: str) -> None:
    """Raise InputError if words stand without --vectors, the option that takes several values."""
    if words and not typed("vectors"):
        raise InputError(
            f"these words belong to no option: {' '.join(map(str, words))}", remedy=f"run: {remedy}"
        )


def refuse_unused_bm25(channels: str) -> None:
    """Raise InputError if BM25's parameters are typed and no searched channel is BM25.

    :param channels: names of the searched channels, joined by +
    """
    if "bm25" not in channels.split("+") and (unused := typed("k1", "b")):
        raise InputError(
            f"{unused[0]} has no effect without BM25, found the channel {channels}",
            remedy=f"omit {unused[0]}, or search by bm25 too",
        )
