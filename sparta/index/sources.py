"""What can be indexed: a corpus, encoded on the way; shards of `sparta encode`; Pyserini's JSON vectors."""

from __future__ import annotations

import bisect
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparta.base.errors import InputError, ModelError
from sparta.base.files import Tally, sha256_file
from sparta.base.progress import ReadingProgress
from sparta.base.records import Advance, Passage
from sparta.base.remedies import Option, remedy
from sparta.data.corpus import Corpus, CorpusReader, open_corpus
from sparta.data.parsing import identifier, placed
from sparta.data.seen_ids import SeenIds
from sparta.data.units import passage_of
from sparta.index.folder import BOTH_CHANNELS
from sparta.index.impact_batches import (
    LARGEST_IMPACT,
    ImpactBatch,
    JsonVectors,
    quantized_batch,
    refuse_repeated,
    searched_text,
)
from sparta.index.jobs import JSON_VECTORS, Source, cut_in_another_way, skip_passages
from sparta.models.quantize import Quantizer
from sparta.models.query_encoder import QuerySide, load_tokenizer
from sparta.models.resolve import default_model_folder, known_query_side, sparta_folder
from sparta.shards.store import (
    ShardFolder,
    last_passage_id,
    read_shard,
    shard_series,
    stored_object,
)

if TYPE_CHECKING:
    from sparta.models.sparse import SparseEncoder
    from sparta.shards.encode import EncodeOptions

_TEXTS_AT_ONCE = 1000


def corpus_job(
    corpus: Corpus, unit: str, top_k: int | None, min_weight: float, channels: str = BOTH_CHANNELS
) -> dict[str, Any]:
    """What identifies the indexing of a corpus: the input, how it is cut, and that it is for BM25 alone."""
    cut: dict[str, Any] = {"unit": unit, "top_k": top_k, "min_weight": min_weight}
    if channels != BOTH_CHANNELS:
        cut["channels"] = channels
    return {"from": "corpus", **open_corpus(corpus).identity(), **cut}


def corpus_source(
    corpus: Corpus,
    model: SparseEncoder,
    options: EncodeOptions,
    *,
    skip_invalid: bool = False,
    advance: Advance | None = None,
    progress: ReadingProgress | None = None,
    job: dict[str, Any] | None = None,
) -> Source:
    """A corpus, encoded and handed over block by block; `job` is its `corpus_job` where that is known."""
    from sparta.shards.encode import ShardEncoder
    from sparta.shards.folder import blocks_of

    reader = open_corpus(corpus, skip_invalid=skip_invalid)
    progress = progress or ReadingProgress(advance=advance)
    side = model.query_side()

    def batches(units: Iterator[Passage]) -> Iterator[ImpactBatch]:
        blocks = blocks_of(units, options.shard_size)
        for shard in ShardEncoder(model, options).encode(blocks, progress.advance):
            yield quantized_batch(shard, side.quantizer)

    job = job or corpus_job(reader, options.unit, options.top_k, options.min_weight)
    return _units_source(reader, job, side, batches, options.language, progress)


def text_source(
    reader: CorpusReader, job: dict[str, Any], side: QuerySide, language: str, progress: ReadingProgress
) -> Source:
    """A corpus without impacts, for BM25 alone."""

    def batches(units: Iterator[Passage]) -> Iterator[ImpactBatch]:
        none = np.zeros(0, np.int32)
        for block in itertools.batched(units, _TEXTS_AT_ONCE):
            objects = [stored_object(unit) for unit in block]
            records = [json.dumps(stored, ensure_ascii=False) for stored in objects]
            ids, texts = [unit.passage_id for unit in block], list(map(searched_text, objects))
            indptr = np.zeros(len(block) + 1, np.int32)
            yield ImpactBatch(ids, records, texts, indptr, none, none, objects=objects)
            progress.advance(len(block))

    return _units_source(reader, job, side, batches, language, progress)


def _units_source(
    reader: CorpusReader,
    job: dict[str, Any],
    side: QuerySide,
    to_batches: Callable[[Iterator[Passage]], Iterator[ImpactBatch]],
    language: str,
    progress: ReadingProgress,
) -> Source:
    """The units of a corpus after those that are written, as batches."""
    from sparta.data.sentences import split_units

    def batches(done: int, last_id: str = "") -> Iterator[ImpactBatch]:
        units = split_units(reader, job["unit"], language)
        skipped, last = 0, "the end"
        for unit in itertools.islice(units, done):
            skipped, last = skipped + 1, unit.passage_id
        _check_last(reader.source, done, last_id, skipped, last)
        yield from to_batches(progress.follow(reader, units))

    def describe() -> dict[str, Any]:
        skips = [skip._asdict() for skip in reader.counts.first_skips]
        return {**reader.counts.as_dict(), "first_skips": skips}

    return Source(job, side, batches, describe, language=language)


def _check_last(where: str, done: int, last_id: str, skipped: int, last: str) -> None:
    """Refuse an input that goes on after another passage than the index has.

    :param last_id: the passage that was written last, as number `done`; empty where that is not known
    :param last: the last that was skipped of the input, as number `skipped`
    """
    if done and last_id and (skipped < done or last != last_id):
        raise InputError(
            f"expected passage {done:,} of the input to be {last_id!r}, which was written last,"
            f" found {last!r} as number {skipped:,}",
            where=where,
            remedy=remedy(
                "resume with the input that was started with, or start again with {}",
                Option("overwrite", True),
            ),
        )


def vectors_source(paths: Sequence[Path], tokenizer: str | Path | None = None) -> Source:
    """Folders of shards, or one file or folder of Pyserini's JSON vectors.

    JSON vectors say nothing of their vocabulary's tokenizer: `tokenizer` names the folder or hub id of the
    model they came from; None is the tokenizer of the model that ships with sparta.
    """
    if all((path / "manifest.json").is_file() for path in paths):
        if tokenizer is not None:
            raise InputError(
                f"expected a tokenizer with JSON vectors, found it with shards: {paths[0]}",
                remedy="leave it out: shards bring the tokenizer of their model",
            )
        return _shards_source(paths)
    if len(paths) != 1:
        raise InputError(
            "expected several folders of sparta encode, or one file or folder of JSON vectors",
            where=", ".join(map(str, paths)),
            remedy="put JSON vectors into one folder",
        )
    return _json_source(paths[0], tokenizer)


def _shards_source(paths: Sequence[Path]) -> Source:
    folders = [ShardFolder(path) for path in paths]
    first = folders[0]
    for other in folders[1:]:
        _check_same_encoding(first, other)
    side = QuerySide.load(first.folder / "tokenizer", first.manifest["model"])

    series = shard_series(paths)

    def batches(done: int, last_id: str = "") -> Iterator[ImpactBatch]:
        ends = list(itertools.accumulate(facts["count"] for _, facts in series))
        skipped = bisect.bisect_right(ends, done)
        if done:
            if done not in ends:
                raise cut_in_another_way()
            last = last_passage_id(series[skipped - 1][0])
            _check_last(", ".join(map(str, paths)), done, last_id, done, last)
        with SeenIds() as seen:
            for path, _ in series[skipped:]:
                shard = read_shard(path)
                _check_ids(path, shard.passage_ids, seen)
                yield quantized_batch(shard, side.quantizer)

    facts = first.manifest["counts"]["corpus"]
    options = {k: first.manifest["options"][k] for k in ("unit", "top_k", "min_weight")}
    job = {
        "from": "shards",
        **facts["fingerprint"],
        "folders": [str(p.resolve()) for p in paths],
        "sha256": _shards_hash(first, series),
        **options,
    }
    return Source(
        job,
        side,
        batches,
        lambda: dict(facts["counts"]),
        language=first.manifest["options"].get("language"),
    )


def _check_ids(path: Path, passage_ids: Sequence[str], seen: SeenIds) -> None:
    """Refuse ids of a shard that a corpus could not have; records are numbered from 1."""
    named = [(passage_id, f"{path}:{n}") for n, passage_id in enumerate(passage_ids, 1)]
    for passage_id, where in named:
        with placed(where):
            identifier({"id": passage_of(passage_id)})
    refuse_repeated(named, seen)


def _shards_hash(folder: ShardFolder, series: Sequence[tuple[Path, dict[str, Any]]]) -> str:
    """A fingerprint of encoded passages and of how they were encoded, without reading their vectors."""
    tally = Tally()
    options = {**folder.manifest["options"], "part": None}
    for facts in (options, *(facts for _, facts in series)):
        tally.add(json.dumps(facts, sort_keys=True).encode())
    return tally.sha256()


def _check_same_encoding(first: ShardFolder, other: ShardFolder) -> None:
    """Refuse folders that are not shares of one corpus, encoded in one way."""

    def facts(folder: ShardFolder) -> dict[str, Any]:
        options = {**folder.manifest["options"], "part": None}
        corpus = folder.manifest["counts"]["corpus"]["fingerprint"]
        return {"model": folder.manifest["model"], "corpus": corpus["sha256"], "language": "en", **options}

    old, new = facts(first), facts(other)
    differing = [name for name in old if old[name] != new.get(name)]
    if differing:
        raise InputError(
            f"expected shards that were made as those in {first.folder} were, found another"
            f" {', '.join(differing)}",
            where=str(other.folder),
            remedy=remedy(
                "encode all shares of the same corpus with the same {}, {} and options",
                Option("model"),
                Option("bits"),
            ),
        )


def _json_source(path: Path, tokenizer: str | Path | None) -> Source:
    if not path.exists():
        raise InputError(
            "expected vectors: a folder that sparta encode wrote, or JSON vectors; found nothing",
            where=str(path),
            remedy=remedy("check the path given to {}", Option("vectors")),
        )
    known = known_query_side(tokenizer, None) if tokenizer else None
    if tokenizer and not known and (folder := sparta_folder(tokenizer)):
        _check_counts(folder)
    weights = known.weights if known else None
    side = QuerySide(
        known.tokenizer if known else load_tokenizer(tokenizer or default_model_folder()),
        weights,
        f"{JSON_VECTORS}{path.name}",
        known.model_hash if known and weights is not None else "",
        Quantizer(float(LARGEST_IMPACT), 16),
        known.query_quantizer if known else None,
    )

    def batches(done: int, last_id: str = "") -> Iterator[ImpactBatch]:
        check = partial(_check_last, str(path), done, last_id)
        return skip_passages(JsonVectors(path, side.tokenizer), done, check)

    job = {"from": "json", **_json_fingerprint(path)}
    return Source(job, side, batches, fixed_vocabulary=False)


def _check_counts(folder: Path) -> None:
    """Refuse a SPARTA model that cannot be read whole, if its questions have weights: they would be lost."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))  # which was read before
    if isinstance(config["sparta"], dict) and config["sparta"].get("weighted_queries"):
        raise ModelError(
            "expected a whole model, for it weighs the terms of questions; weights or quantizer are missing",
            where=str(folder),
            remedy=remedy("copy the model folder again, or name another {}", Option("tokenizer")),
        )


def _json_fingerprint(path: Path) -> dict[str, Any]:
    """What identifies JSON vectors: where they lie and their hash; a pipe, read once only, has none."""
    files = JsonVectors(path).files()
    if not all(file.is_file() for file in files):
        return {"source": str(path), "sha256": None}
    tally = Tally()
    for file in files:
        tally.add(sha256_file(file).encode())
    return {"source": str(path.resolve()), "sha256": tally.sha256()}
