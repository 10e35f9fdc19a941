"""The inputs of an index: a corpus to encode, shards of `sparta encode`, or Pyserini's JSON vectors."""

from __future__ import annotations

import bisect
import itertools
import json
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sparta.base.batches import bounded_batches
from sparta.base.disk.streams import Tally
from sparta.base.errors import InputError, ModelError
from sparta.base.files import sha256_file
from sparta.base.progress import ReadingProgress
from sparta.base.records import Passage
from sparta.base.remedies import Option, remedy
from sparta.data.corpus import Corpus, open_corpus
from sparta.data.files import warn_of_ignored
from sparta.data.languages import DEFAULT_LANGUAGE, language_of
from sparta.data.parsing import identifier, placed
from sparta.data.readers.corpus_reader import CorpusReader
from sparta.data.seen_ids import SeenIds
from sparta.data.units import SENTENCE, passage_of
from sparta.index.generation import BOTH_CHANNELS, CORPUS, JSON, SHARDS, Job
from sparta.index.inputs.impact_batches import (
    LARGEST_IMPACT,
    ImpactBatch,
    JsonVectors,
    quantized_batch,
    refuse_repeated,
    searched_text,
)
from sparta.index.inputs.lexical_postings import in_context
from sparta.index.jobs import JSON_VECTORS, InputChangedError, Source, batch_bounds_changed, skip_passages
from sparta.models.folders.tokenizer import load_tokenizer
from sparta.models.lexical_terms import LexicalTerms
from sparta.models.quantize import Quantizer
from sparta.models.query_encoder import QuerySide
from sparta.models.resolve import (
    DEFAULT_MODEL,
    default_model_folder,
    find_model,
    known_query_side,
    sparta_folder,
)
from sparta.shards.folder import Block
from sparta.shards.store import (
    EncodedShard,
    ShardFolder,
    last_passage_id,
    read_shard,
    shard_series,
    stored_object,
)

if TYPE_CHECKING:
    from sparta.index.channels import ChannelPass
    from sparta.models.model import SparseModel
    from sparta.shards.encode import EncodeOptions

_PASSAGES_PER_BATCH = 1000
_CHARACTERS_PER_BATCH = 2**24
logger = logging.getLogger(__name__)


def corpus_job(
    corpus: Corpus, unit: str, top_k: int | None, min_weight: float, channels: str = BOTH_CHANNELS
) -> Job:
    """Return the job that indexes a corpus."""
    reader = open_corpus(corpus)
    identity = reader.identity()
    return Job(
        kind=CORPUS,
        source=identity["source"],
        size=identity["bytes"],
        sha256=identity["sha256"],
        unit=unit,
        top_k=top_k,
        min_weight=min_weight,
        channels=channels,
        reading=reader.reading,
    )


def corpus_source(
    corpus: Corpus,
    model: SparseModel,
    options: EncodeOptions,
    *,
    progress: ReadingProgress | None = None,
    job: Job | None = None,
    side: QuerySide | None = None,
    passes: Collection[ChannelPass] = (),
) -> Source:
    """Return a source that encodes a corpus block by block.

    :param job: the corpus's `corpus_job`, if the caller has already computed it
    :param side: the query side of the index, if its lexical terms differ from the model's
    :param passes: other channels that encode each block after its impacts
    """
    from sparta.shards.encode import ShardEncoder, arithmetic_on
    from sparta.shards.pacing import PacedBlocks

    reader = open_corpus(corpus)
    progress = progress or ReadingProgress()
    side = side or model.query_side()
    language = language_of(options.language)

    def batches(passages: Iterator[Passage], done: int) -> Iterator[ImpactBatch]:
        paced, unfinished = PacedBlocks(options.shard_size), deque[Block]()

        def blocks() -> Iterator[Block]:
            for block in paced.split(passages):
                if passes:
                    unfinished.append(block)
                yield block

        advance = None if passes else progress.advance
        for shard in ShardEncoder(model, options).encode(blocks(), advance):
            if passes:
                _, first, block = unfinished.popleft()
                for channel_pass in passes:
                    channel_pass.encode(done + first, block)
                progress.advance(len(block))
            paced.finish()
            yield quantized_batch(shard, side, language)

    job = job or corpus_job(reader, options.unit, options.top_k, options.min_weight)
    source = _units_source(reader, job, side, batches, options.language, progress)
    devices = options.devices or (model.device_name,)
    return replace(source, arithmetic=arithmetic_on(model, devices, options.dtype)[1])


def text_source(
    reader: CorpusReader, job: Job, side: QuerySide, language: str, progress: ReadingProgress
) -> Source:
    """Return a source of passages without impacts, for an index with BM25 only."""

    def batches(units: Iterator[Passage], _done: int) -> Iterator[ImpactBatch]:
        no_impacts = np.zeros(0, np.int32)
        for passages in bounded_batches(
            units, lambda unit: len(unit.text), _CHARACTERS_PER_BATCH, _PASSAGES_PER_BATCH
        ):
            objects = [stored_object(unit) for unit in passages]
            records = [json.dumps(stored, ensure_ascii=False) for stored in objects]
            passage_ids, texts = [unit.passage_id for unit in passages], list(map(searched_text, objects))
            indptr = np.zeros(len(passages) + 1, np.int32)
            yield ImpactBatch(passage_ids, records, texts, indptr, no_impacts, no_impacts, objects=objects)
            progress.advance(len(passages))

    return _units_source(reader, job, side, batches, language, progress)


def _units_source(
    reader: CorpusReader,
    job: Job,
    side: QuerySide,
    to_batches: Callable[[Iterator[Passage], int], Iterator[ImpactBatch]],
    language: str,
    progress: ReadingProgress,
) -> Source:
    """Return a source of the corpus's units, except those that the index already holds."""
    from sparta.data.sentences import split_units

    def batches(done: int, last_id: str = "") -> Iterator[ImpactBatch]:
        units = split_units(reader, job.unit, language)
        skipped, skipped_id = 0, "the end"
        for unit in itertools.islice(units, done):
            skipped, skipped_id = skipped + 1, unit.passage_id
        _check_last(reader.source, done, last_id, skipped, skipped_id)
        yield from to_batches(progress.follow(reader, units), done)

    def describe() -> dict[str, Any]:
        return reader.counts.for_report()

    return Source(job, side, batches, describe, language=language)


def _check_last(source: str, done: int, last_id: str, skipped: int, skipped_id: str) -> None:
    """Raise if the input's passages up to the last commit differ from those in the index.

    :param source: the input's name, for the message
    :param done: how many passages the index already holds
    :param last_id: the id of the last passage written to the index; empty if unknown
    :param skipped: how many passages of the input were skipped
    :param skipped_id: the id of the last skipped passage
    """
    if done and last_id and (skipped < done or skipped_id != last_id):
        raise InputChangedError(
            f"the input has changed: passage {done:,} was {last_id!r},"
            f" but passage {skipped:,} is now {skipped_id!r}",
            where=source,
            remedy=remedy(
                "resume with the same input as before, or start again with {}",
                Option("overwrite", True),
            ),
        )


class Choice(Protocol):
    """Chooses the lexical terms of an index for a query side; `offered` returns terms that `side` lacks."""

    def __call__(self, side: QuerySide, *, offered: Callable[[], LexicalTerms | None]) -> QuerySide:
        """Return the query side of the index."""


def _unchanged(side: QuerySide, *, offered: Callable[[], LexicalTerms | None]) -> QuerySide:
    return side


def vectors_source(
    paths: Sequence[Path],
    tokenizer: str | Path | None = None,
    choose: Choice = _unchanged,
    index_side: QuerySide | None = None,
) -> Source:
    """Return a source of ready vectors: folders of shards, or one file or folder of Pyserini's JSON vectors.

    :param tokenizer: for JSON vectors, the folder or hub id of the model that made them; None means the model
        that ships with sparta. JSON vectors do not name their tokenizer
    :param index_side: the query side of the JSON vectors that the index already has; JSON vectors without a
        named tokenizer get it
    :param choose: chooses the index's lexical terms; without it, shards have those of their model, and JSON
        vectors have none
    """
    if all((path / "manifest.json").is_file() for path in paths):
        if tokenizer is not None:
            raise InputError(
                f"a tokenizer is named for the shards in {paths[0]}, which contain their own",
                remedy="omit the tokenizer: shards contain their model's tokenizer",
            )
        return _shards_source(paths, choose)
    if len(paths) != 1:
        raise InputError(
            "vectors must be folders of sparta encode, or a single file or folder of JSON vectors",
            where=", ".join(map(str, paths)),
            remedy="put all JSON vectors into one folder, or name only folders of sparta encode",
        )
    return _json_source(paths[0], tokenizer, choose, index_side)


def _shards_source(paths: Sequence[Path], choose: Choice) -> Source:
    folders = [ShardFolder(path) for path in paths]
    first = folders[0]
    for folder in folders[1:]:
        _check_same_encoding(first, folder)
        _check_same_arithmetic(first, folder)
    side = QuerySide.load(first.folder / "tokenizer", first.manifest["model"])
    side = replace(side, lexical=LexicalTerms.load(first.folder / "tokenizer", side.tokenizer))
    side = choose(side, offered=lambda: _lexical_terms_of(side))
    language = language_of(first.manifest["options"].get("language", DEFAULT_LANGUAGE))

    series, options = shard_series(paths), first.manifest["options"]

    def batches(done: int, last_id: str = "") -> Iterator[ImpactBatch]:
        shard_ends = list(itertools.accumulate(corpus_counts["count"] for _, corpus_counts in series))
        skipped_shards = bisect.bisect_right(shard_ends, done)
        if done:
            if done not in shard_ends:
                raise batch_bounds_changed()
            skipped_id = last_passage_id(series[skipped_shards - 1][0])
            _check_last(", ".join(map(str, paths)), done, last_id, done, skipped_id)
        with SeenIds() as seen_ids:
            files = [path for path, _ in series]
            shards: Iterable[EncodedShard] = map(read_shard, files[skipped_shards:])
            if side.lexical and options["unit"] == SENTENCE:
                first_read = _first_with_passage(files, skipped_shards)
                contextual = in_context(map(read_shard, files[first_read:]))
                shards = itertools.islice(contextual, skipped_shards - first_read, None)
            for path, shard in zip(files[skipped_shards:], shards, strict=True):
                _check_ids(path, shard.passage_ids, seen_ids)
                yield quantized_batch(shard, side, language)

    corpus_counts = first.manifest["counts"]["corpus"]
    fingerprint = corpus_counts["fingerprint"]
    job = Job(
        kind=SHARDS,
        source=fingerprint["source"],
        size=fingerprint["bytes"],
        sha256=_shards_hash(first, series),
        folders=tuple(str(path.resolve()) for path in paths),
        unit=options["unit"],
        top_k=options["top_k"],
        min_weight=options["min_weight"],
        reading=first.manifest.get("reading", {}),
    )
    return Source(
        job,
        side,
        batches,
        lambda: dict(corpus_counts["counts"]),
        language=first.manifest["options"].get("language"),
        arithmetic=first.manifest.get("arithmetic", ""),
    )


def _first_with_passage(files: Sequence[Path], shard: int) -> int:
    """Return the number of the shard in which the first passage of a shard begins."""
    while 0 < shard < len(files) and passage_of(read_shard(files[shard]).passage_ids[0]) == passage_of(
        last_passage_id(files[shard - 1])
    ):
        shard -= 1
    return shard


def _lexical_terms_of(side: QuerySide) -> LexicalTerms | None:
    """Return the lexical terms of the model of shards that were encoded before the model had such terms."""
    known_side = known_query_side(find_model(side.model, side.model_hash), side.quantizer.bits)
    return known_side.lexical if known_side else None


def _check_ids(path: Path, passage_ids: Sequence[str], seen_ids: SeenIds) -> None:
    """Raise if a shard holds an invalid or repeated passage id. Errors number the shard's records from 1."""
    placed_ids = [(passage_id, f"{path}:{n}") for n, passage_id in enumerate(passage_ids, 1)]
    for passage_id, where in placed_ids:
        with placed(where):
            identifier({"id": passage_of(passage_id)})
    refuse_repeated(placed_ids, seen_ids)


def _shards_hash(folder: ShardFolder, series: Sequence[tuple[Path, dict[str, Any]]]) -> str:
    """Return a hash of the encoded passages and the encoding options, without reading the vectors."""
    tally = Tally()
    options = {**folder.manifest["options"], "part": None}
    for facts in (options, *(facts for _, facts in series)):
        tally.add(json.dumps(facts, sort_keys=True).encode())
    return tally.sha256()


def _check_same_encoding(first: ShardFolder, second: ShardFolder) -> None:
    """Raise if two folders hold shards of different corpora, models or encoding options."""

    def facts(folder: ShardFolder) -> dict[str, Any]:
        options = {**folder.manifest["options"], "part": None}
        corpus = folder.manifest["counts"]["corpus"]["fingerprint"]
        identity = {"model": folder.manifest["model"], "corpus": corpus["sha256"], "language": "en"}
        return {**identity, "reading": folder.manifest.get("reading", {}), **options}

    first_facts, second_facts = facts(first), facts(second)
    differing = [name for name in first_facts if first_facts[name] != second_facts.get(name)]
    if differing:
        raise InputError(
            f"the shards differ from the shards in {first.folder} in: {', '.join(differing)}",
            where=str(second.folder),
            remedy=remedy(
                "encode all parts of the corpus with the same {}, {} and other options",
                Option("model"),
                Option("bits"),
            ),
        )


def _check_same_arithmetic(first: ShardFolder, second: ShardFolder) -> None:
    """Warn if the impacts of two folders come from different runtimes or arithmetics."""
    arithmetics = [folder.manifest.get("arithmetic") for folder in (first, second)]
    if all(arithmetics) and arithmetics[0] != arithmetics[1]:
        logger.warning(
            "%s was encoded with %s, %s with %s. Impacts of equal passages may differ slightly",
            first.folder,
            arithmetics[0],
            second.folder,
            arithmetics[1],
        )


def _json_source(
    path: Path, tokenizer: str | Path | None, choose: Choice, index_side: QuerySide | None
) -> Source:
    if not path.exists():
        raise InputError(
            "no such file or folder of vectors",
            where=str(path),
            remedy=remedy("check the path of {}", Option("vectors")),
        )
    known_side = known_query_side(tokenizer, None) if tokenizer else index_side
    if tokenizer and not known_side and (folder := sparta_folder(tokenizer)):
        _check_counts(folder)
    if tokenizer and not known_side:
        _warn_if_weighs_queries(Path(tokenizer))
    weights = known_side.weights if known_side else None
    side = QuerySide(
        known_side.tokenizer if known_side else load_tokenizer(tokenizer or default_model_folder()),
        weights,
        f"{JSON_VECTORS}{path.name}",
        known_side.model_hash if known_side and weights is not None else "",
        Quantizer(float(LARGEST_IMPACT), 16),
        known_side.query_quantizer if known_side else None,
    )

    def offered() -> LexicalTerms | None:
        return LexicalTerms.load(sparta_folder(tokenizer or DEFAULT_MODEL) or path, side.tokenizer)

    side = choose(side, offered=offered)
    advised = (lambda: None) if side.lexical else offered

    def batches(done: int, last_id: str = "") -> Iterator[ImpactBatch]:
        check_last = partial(_check_last, str(path), done, last_id)
        return skip_passages(JsonVectors(path, side, advised), done, check_last)

    return Source(_json_job(path), side, batches, fixed_vocabulary=False)


def _warn_if_weighs_queries(folder: Path) -> None:
    """Warn if the model of a folder weighs query terms: JSON vectors are searched with counts of terms."""
    from sparta.models.folders.sparse_folder import read_sparse_folder

    try:
        model = read_sparse_folder(folder)
    except ModelError:  # a folder with a tokenizer only, a plain encoder, or a model of the hub
        return
    if model.query_network or model.query_weights is not None:
        logger.warning(
            "%s weighs the terms of queries, but with JSON vectors each term of a query counts once",
            folder,
        )


def _check_counts(folder: Path) -> None:
    """Raise if a SPARTA model with query weights is incomplete: its query weights would be lost."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if isinstance(config["sparta"], dict) and config["sparta"].get("weighted_queries"):
        raise ModelError(
            "the model has query weights, but its weights file or quantizer is missing",
            where=str(folder),
            remedy=remedy("copy the model folder again, or name another {}", Option("tokenizer")),
        )


def _json_job(path: Path) -> Job:
    """Return the job that indexes JSON vectors. The hash is None for a pipe, which can be read only once."""
    vectors = JsonVectors(path)
    files = vectors.files()
    if ignored := vectors.ignored():
        warn_of_ignored(path, files, ignored)
    if not all(file.is_file() for file in files):
        return Job(kind=JSON, source=str(path))
    tally = Tally()
    for file in files:
        tally.add(sha256_file(file).encode())
    return Job(kind=JSON, source=str(path.resolve()), sha256=tally.sha256())
