"""Shards and corpora become the same index; full disks and codecs."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from sparta.base.errors import IndexStateError, InputError, SpartaError, StorageError
from sparta.base.manifest import write_manifest
from sparta.index.build import delete_passages, write_index
from sparta.index.folder import IndexFolder
from sparta.index.inputs.impact_batches import ImpactBatch
from sparta.index.inputs.options import IndexOptions
from sparta.index.inputs.sources import corpus_source, vectors_source
from sparta.index.jobs import Source, WriteOptions
from sparta.index.pipeline import build_index_from_vectors
from sparta.lucene.bridge import ImpactSearcher
from sparta.search.searcher import Searcher
from tests.sparta.index.building import Builder, Doc

pytestmark = pytest.mark.jvm


@pytest.fixture
def encoded(tmp_path, tiny_model, make_records, write_jsonl, one_thread) -> tuple[Path, list[Path], Any]:
    """A corpus, its shards in two folders, and the options they were made with."""
    from sparta.shards.encode import EncodeOptions, encode_corpus

    corpus = write_jsonl(tmp_path / "corpus.jsonl", make_records(30, seed=4))
    options = EncodeOptions(shard_size=8, dtype="fp32")
    folders = [tmp_path / "part0", tmp_path / "part1"]
    for i, folder in enumerate(folders):
        encode_corpus(corpus, folder, tiny_model, replace(options, part=(i, 2)))
    return corpus, folders, options


def test_shards_and_corpus_give_the_same_index(encoded, tmp_path, tiny_model):
    corpus, folders, options = encoded
    made = {}
    for name, source in {
        "corpus": corpus_source(corpus, tiny_model, options),
        "shards": vectors_source(folders),
    }.items():
        index = IndexFolder(tmp_path / name)
        write_index(index, source, WriteOptions(ram_buffer_mb=16))
        with ImpactSearcher(index.lucene_path(index.state().live)) as reader:
            docids = reader.docids([f"p{i}" for i in range(30)])
            assert reader.positions(docids).tolist() == list(range(30))
            vectors = [reader.vector(d) for d in docids]
            raws = reader.raws(docids)
            made[name] = (reader.num_docs, vectors, raws)
        with Searcher(index.path) as searcher:
            hits = searcher.batch_search(["moon earth", "the city of paris", "who"], list("abc"), 30)
            made[name] += ([[(h.passage_id, h.score) for h in found] for found in hits.values()],)
    assert made["corpus"] == made["shards"]
    weights = tiny_model.encode_document(json.loads(made["corpus"][2][3])["contents"], dtype="fp32")
    step = tiny_model.config.quantizer.max_weight / 255
    for term, impact in made["corpus"][1][3].items():
        weight = weights[0, tiny_model.tokenizer.token_to_id(term)]
        assert abs(weight - impact * step) <= step * 0.5001 or impact in (1, 255)


def test_shards_of_another_standard_input_are_no_resumption(
    builder, tmp_path, tiny_model, make_records, one_thread
):
    """Nothing is known of the corpus but its shards, which lie in the same folder as those of the first."""
    from sparta.shards.encode import EncodeOptions, encode_corpus

    def source(prefix: str, seed: int) -> Source:
        lines = "".join(json.dumps(r) + "\n" for r in make_records(24, seed=seed, prefix=prefix))
        shutil.rmtree(tmp_path / "sh", ignore_errors=True)
        with CliRunner().isolation(input=lines):
            encode_corpus("-", tmp_path / "sh", tiny_model, EncodeOptions(shard_size=8, dtype="fp32"))
        return vectors_source([tmp_path / "sh"])

    def stopping(skip: int, last: str = "") -> Iterator[ImpactBatch]:
        yield next(whole.batches(skip, ""))
        raise KeyboardInterrupt

    whole = source("a", 1)
    with pytest.raises(KeyboardInterrupt):
        builder.write(replace(whole, batches=stopping))
    for prefix, seed in (("b", 1), ("a", 2)):
        with pytest.raises(IndexStateError, match="has changed since"):
            builder.write(source(prefix, seed), resume=True)
    builder.write(source("a", 1), resume=True)
    with builder.reader() as reader:
        assert sorted(reader.ids(reader.live())) == sorted(f"a{i}" for i in range(24))
    assert builder.write(source("a", 1)).unchanged


def test_shards_in_another_arithmetic_are_other_input(builder, tmp_path, encoded, tiny_model):
    """The same corpus and options: what differs is in the weights."""
    from sparta.shards.encode import encode_corpus

    corpus, folders, options = encoded
    builder.write(vectors_source(folders))
    assert builder.write(vectors_source(folders)).unchanged
    for i, folder in enumerate(folders):
        shutil.rmtree(folder)
        encode_corpus(corpus, folder, tiny_model, replace(options, dtype="bf16", part=(i, 2)))
    with pytest.raises(IndexStateError, match="an index of another input"):
        builder.write(vectors_source(folders))


def test_shards_resume_without_reading_what_is_skipped(encoded):
    """Damage to shards that are not needed is not noticed; of the last one before, only an id is read."""
    _, folders, _ = encoded
    source = vectors_source(folders)
    first, second = (folders[n] / f"shard-{n:06d}.safetensors" for n in (0, 1))
    first.write_bytes(first.read_bytes()[:-1] + b"\x7f")
    with pytest.raises(SpartaError, match="the shard cannot be read"):
        list(source.batches(0, ""))
    ids = [i for batch in source.batches(16, "") for i in batch.passage_ids]
    assert ids == [f"p{i}" for i in range(16, 30)]
    whole = second.read_bytes()
    second.write_bytes(whole[:-1] + b"\x7f")
    assert [i for batch in source.batches(24, "") for i in batch.passage_ids] == ids[8:]
    second.write_bytes(whole)
    assert list(source.batches(30, "")) == []
    for done in (5, 31):
        with pytest.raises(IndexStateError, match="batches differ"):
            list(source.batches(done, ""))
    assert len(list(source.batches(16, "p15"))) == 2
    with pytest.raises(InputError, match=r"passage 16 was 'p14', but passage 16 is now 'p15'"):
        list(source.batches(16, "p14"))


def test_appending_shards_to_an_index_made_from_a_corpus(encoded, tmp_path, tiny_model, make_records):
    from sparta.shards.encode import encode_corpus

    corpus, _, options = encoded
    index = IndexFolder(tmp_path / "index")
    write_index(index, corpus_source(corpus, tiny_model, options), WriteOptions(ram_buffer_mb=16))
    more = tmp_path / "more.jsonl"
    more.write_text("".join(json.dumps(r) + "\n" for r in make_records(5, seed=9, prefix="q")))
    encode_corpus(more, tmp_path / "more", tiny_model, options)
    source = vectors_source([tmp_path / "more"])
    assert write_index(index, source, WriteOptions("append", ram_buffer_mb=16)).documents == 35


def test_shards_that_do_not_belong_together(encoded, tmp_path, make_tiny_model, tiny_model, make_records):
    from sparta.shards.encode import encode_corpus

    corpus, folders, options = encoded
    with pytest.raises(InputError, match="a gap"):
        list(vectors_source(folders[1:]).batches(0, ""))
    other = tmp_path / "other.jsonl"
    other.write_text("".join(json.dumps(r) + "\n" for r in make_records(30, seed=5)))
    second = make_tiny_model(tiny_model.config, seed=3)
    for source, model, change, named in (
        (corpus, second, {}, "model"),
        (corpus, tiny_model, {"top_k": 3}, "top_k"),
        (other, tiny_model, {}, "corpus"),
    ):
        folder = tmp_path / f"strange-{named}"
        encode_corpus(source, folder, model, replace(options, part=(1, 2), **change))
        with pytest.raises(InputError, match=f"differ from the shards in .*: {named}") as caught:
            vectors_source([folders[0], folder])
        assert caught.value.where == str(folder)


def test_shards_must_be_folded_as_the_index_is(encoded, builder, docs, tmp_path):
    """Chinese is folded to simplified characters. Shards that state no language fit any index."""
    _, folders, _ = encoded
    source = vectors_source(folders)
    with pytest.raises(InputError, match="for the language 'en', but the index has 'zh'") as caught:
        build_index_from_vectors(tmp_path / "new", folders, options=IndexOptions(language="zh"))
    assert caught.value.where == ", ".join(map(str, folders))
    assert caught.value.remedy.for_command_line() == "encode the texts again with --language zh"
    builder.side = source.side
    builder.write(builder.source(docs("a", 2)), language="zh")
    with pytest.raises(InputError, match="for the language 'en', but the index has 'zh'"):
        builder.write(source, "append")
    assert builder.write(replace(source, language=None), "append").documents == 32


def test_unfinished_shards_are_refused(encoded):
    _, folders, _ = encoded
    manifest = json.loads((folders[0] / "manifest.json").read_text())
    write_manifest(folders[0], {**manifest, "complete": False})
    with pytest.raises(InputError, match="is unfinished"):
        vectors_source(folders)


def test_a_corpus_is_encoded_only_from_where_it_goes_on(
    tmp_path, tiny_model, make_records, write_jsonl, one_thread
):
    from sparta.shards.encode import EncodeOptions

    corpus = write_jsonl(tmp_path / "corpus.jsonl", make_records(30, seed=4))
    source = corpus_source(corpus, tiny_model, EncodeOptions(shard_size=8, dtype="fp32"))
    whole = list(source.batches(0, ""))
    rest = list(source.batches(16, ""))
    assert [len(b) for b in rest] == [8, 6]
    for ours, theirs in zip(rest, whole[2:], strict=True):
        assert ours.passage_ids == theirs.passage_ids
        np.testing.assert_array_equal(ours.impacts, theirs.impacts)
    assert source.describe()["read"] == 30


@pytest.fixture
def mounted(tmp_path) -> Iterator[Callable[..., Path]]:
    """Mount a disk at a folder, where that is allowed."""
    points: list[Path] = []

    def mount(*arguments: str) -> Path:
        point = tmp_path / f"disk{len(points)}"
        point.mkdir()
        if os.geteuid() or subprocess.run(["mount", *arguments, point], capture_output=True).returncode:
            pytest.skip("needs the right to mount a disk")
        points.append(point)
        return point

    yield mount
    for point in points:
        subprocess.run(["umount", point], check=True)


def test_a_full_disk_leaves_the_last_commit(mounted, side, docs, tiny_vocabulary):
    builder = Builder(IndexFolder(mounted("-t", "tmpfs", "-o", "size=2m", "none") / "index"), side)
    a = docs("a", 10)
    builder.write(builder.source(a))
    words = [t for t in tiny_vocabulary if t.isalpha()]
    rng = random.Random(1)
    large = [
        Doc(f"b{i}" + "x" * 400, {w: rng.randint(1, 10**6) for w in rng.sample(words, 150)})
        for i in range(1500)
    ]
    source = builder.source(large, name="b", size=500)
    with pytest.raises(StorageError) as caught:
        builder.write(source, "append")
    advice = str(caught.value.remedy)
    assert "room" in advice or "space" in advice
    assert builder.contents() == a
    assert builder.folder.state().live.complete
    small = docs("c", 3)
    builder.write(builder.source(small, name="c"), "append")
    assert builder.contents() == a + small


def test_a_read_only_folder_can_be_searched_and_not_written(mounted, builder, docs):
    a = docs("a", 10)
    builder.write(builder.source(a))
    expected = builder.ranking("moon")
    point = mounted("--bind", "-o", "ro", str(builder.folder.path))
    subprocess.run(["mount", "-o", "remount,bind,ro", point], check=True)
    frozen = Builder(IndexFolder(point), builder.side)
    assert frozen.contents() == a
    assert frozen.ranking("moon") == expected
    for mode in ("create", "append", "overwrite", "update"):
        with pytest.raises(StorageError):
            frozen.write(frozen.source(docs("b", 2), name="b"), mode)
    with pytest.raises(StorageError):
        delete_passages(frozen.folder, ["a1"])
    fresh = Builder(IndexFolder(point / "inside"), builder.side)
    with pytest.raises(SpartaError):
        fresh.write(fresh.source(a))
    assert builder.contents() == a


@pytest.mark.parametrize("codec", ["lucene", "fast"])
def test_codec_stays_with_the_index(builder, docs, codec):
    a, b = docs("a", 6), docs("b", 4)
    builder.write(builder.source(a), codec=codec)
    before = builder.ranking("moon")
    builder.write(builder.source(b, name="b"), "append")
    delete_passages(builder.folder, ["a1"])
    assert builder.folder.state().live.codec == codec
    assert builder.contents() == [a[0], *a[2:], *b]
    assert [hit for hit in builder.ranking("moon") if hit[0].startswith("a")] == [
        hit for hit in before if hit[0] != "a1"
    ]
    other = {"lucene": "fast", "fast": "lucene"}[codec]
    with pytest.raises(InputError, match="the index has the codec"):
        builder.write(builder.source(docs("c", 2), name="c"), "append", codec=other)


def test_resuming_checks_where_the_input_was_left(tiny_model, tmp_path):
    from sparta.index.inputs.sources import corpus_source
    from sparta.shards.encode import EncodeOptions

    corpus = tmp_path / "c.jsonl"
    corpus.write_text("".join(json.dumps({"id": f"p{i}", "text": "the moon"}) + "\n" for i in range(10)))

    def source():
        return corpus_source(corpus, tiny_model, EncodeOptions(shard_size=4))

    good = source()
    assert [i for batch in good.batches(4, "p3") for i in batch.passage_ids] == [
        f"p{i}" for i in range(4, 10)
    ]
    for done, last in ((4, "other"), (11, "p9")):
        bad = source()
        with pytest.raises(InputError, match=r"passage \d+ is now"):
            list(bad.batches(done, last))
