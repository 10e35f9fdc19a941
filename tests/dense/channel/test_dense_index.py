"""The dense channel of an index: what it finds, and how it follows the Lucene index."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import cli._dense
import cli._sparta
import dense.channel.builder
import dense.channel.searcher
import dense.channel.sync
import dense.search.exact
import dense.search.faiss_index
from dense.channel.encode import VectorOptions, encode_vectors
from dense.channel.folder import ChannelFolder
from dense.channel.passages import LivePassages
from dense.channel.searcher import DenseSearcher
from dense.channel.sync import build_dense, has_dense
from dense.models.bi_encoder import DenseConfig, DenseModel
from dense.search.store import (
    VectorFolder,
    VectorWriter,
    open_shard,
    record_hashes,
    shard_files,
)
from sparta.base.errors import IndexStateError, InputError
from sparta.data.corpus import CorpusReader
from sparta.data.sentences import split_units
from sparta.index.build import delete_passages
from sparta.index.folder import IndexFolder
from sparta.neural.inputs import InputLayout

pytestmark = pytest.mark.usefixtures("one_thread")

LAYOUT = InputLayout(
    use_title=True, use_context=True, answer_segment=0, share_context=True, max_length=64, overlap=8
)
SIZE = 16
N = 50
QUESTIONS = ["the moon of the earth", "old city", "who founded google", "water river road"]


# ---------------------------------------------------------------- models and indexes


@pytest.fixture(scope="module")
def make_dense(make_tiny_model: Callable[..., Any], tmp_path_factory: Any) -> Callable[..., Path]:
    def make(seed: int = 0, **config: Any) -> Path:
        import torch

        tiny = make_tiny_model(seed=seed)
        torch.manual_seed(seed)
        folder = tmp_path_factory.mktemp("dense") / "model"
        DenseModel(tiny.encoder, tiny.tokenizer, DenseConfig(LAYOUT, **config)).save_pretrained(folder)
        return folder

    return make


@pytest.fixture(scope="module")
def model(make_dense: Callable[..., Path]) -> Path:
    return make_dense()


@pytest.fixture(scope="module")
def corpus(make_records: Any, write_jsonl: Any, tmp_path_factory: Any) -> Path:
    return write_jsonl(
        tmp_path_factory.mktemp("corpus") / "corpus.jsonl", make_records(N, seed=1, prefix="n")
    )


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense.channel.builder, "SHARD_SIZE", SIZE)


def ran(group: Any, *command: object) -> Result:
    return CliRunner().invoke(group, [str(part) for part in command])


def done(group: Any, *command: object) -> str:
    result = ran(group, *command)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def plain_index(corpus: Path, tiny_model_folder: Path, tmp_path_factory: Any) -> Path:
    """An index without a dense channel. Do not write into it."""
    index = tmp_path_factory.mktemp("plain") / "index"
    done(cli._sparta.main, "index", "--corpus", corpus, "--model", tiny_model_folder, "--index", index)
    return index


@pytest.fixture
def index(plain_index: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(plain_index, tmp_path / "index"))


def expected(index: Path, model: Path, questions: list[str], k: int) -> dict[str, list[str]]:
    """Brute force: all live passages encoded anew, by plain means."""
    loaded = DenseModel.load(model)
    folder = IndexFolder(index)
    live = folder.state().live
    with LivePassages(folder.lucene_path(live), live.language) as there:
        passages = there.passages(there.docids, context=True)
        positions = there.positions
    vectors = loaded.encode_passages(passages)[:, 0].astype(np.float16).astype(np.float64)
    found = {}
    for question, vector in zip(questions, loaded.encode_questions(questions), strict=True):
        scores = (vectors @ vector.astype(np.float64)).astype(np.float32)
        order = np.lexsort((positions, -scores.round(3)))[:k]
        found[question] = [(passages[i].passage_id, round(float(scores[i]), 2)) for i in order]
    return found


def rankings(index: Path, k: int = 20) -> dict[str, list[Any]]:
    with DenseSearcher(index) as searcher:
        hits = searcher.batch_search(QUESTIONS, QUESTIONS, k)
    return {q: [(hit.passage_id, hit.score) for hit in found] for q, found in hits.items()}


def assert_same(found: dict[str, list[Any]], wanted: dict[str, list[Any]]) -> None:
    """The same scores, and the same passages but for what batches round differently."""
    for question, hits in wanted.items():
        assert len(hits) == len(found[question])
        np.testing.assert_allclose([s for _, s in found[question]], [s for _, s in hits], atol=0.03)
        scores = dict(found[question])
        worst = min(scores.values())
        for docid, score in hits:
            assert docid in scores or score < worst + 0.03


@pytest.mark.jvm
@pytest.mark.parametrize("kind", ["auto", "flat", "ivf", "hnsw"])
def test_search_finds_what_brute_force_finds(index: Path, model: Path, kind: str) -> None:
    assert not has_dense(index)
    report = build_dense(index, str(model), kind=kind)
    assert has_dense(index)
    assert (report.passages, report.encoded, report.taken, report.forgotten) == (N, N, 0, 0)
    assert report.kind == ("flat" if kind == "auto" else kind)
    found = rankings(index, N)
    if kind != "ivf":
        assert_same(found, expected(index, model, QUESTIONS, N))
    assert build_dense(index, kind=kind).unchanged
    with DenseSearcher(index) as searcher:
        assert searcher.num_docs == N
        hit = searcher.search(QUESTIONS[0], 1)[0]
        assert (hit.passage_id, hit.score) == found[QUESTIONS[0]][0]
        record = json.loads(searcher.lucene.raws(searcher.lucene.docids([hit.passage_id]))[0])
        assert (record["id"], record["contents"]) == (hit.passage_id, hit.text)
        assert searcher.batch_search([], [], 5) == {}


@pytest.mark.jvm
@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_the_channel_follows_the_index(
    index: Path, model: Path, tiny_model_folder: Path, write_jsonl: Any, tmp_path: Path, kind: str
) -> None:
    build_dense(index, str(model), kind=kind)
    sparta = ["--model", tiny_model_folder, "--index", index, "--quiet"]
    said = done(cli._sparta.main, "delete", "n3", "n4", "--index", index)
    assert f"{N - 2} vectors of model: encoded 0, reused 0, removed 2" in said
    changed = [{"id": "n5", "text": "the new moon of jupiter"}, {"id": "z", "text": "water of the river"}]
    said = done(cli._sparta.main, "update", "--corpus", write_jsonl(tmp_path / "u.jsonl", changed), *sparta)
    assert "encoded 2, reused 0, removed 1" in said
    more = [{"id": "n3", "text": "it is back"}, {"id": "y", "text": "google street"}]
    appended = write_jsonl(tmp_path / "a.jsonl", more)
    said = done(cli._sparta.main, "index", "--append", "--corpus", appended, *sparta)
    assert "encoded 2, reused 0, removed 0" in said
    assert_same(rankings(index, N + 1), expected(index, model, QUESTIONS, N + 1))
    place = ChannelFolder(next(index.glob("dense-*")))
    assert len(place.vectors(place.read())) == N + 4
    said = done(cli._sparta.main, "index", "--append", "--corpus", appended, *sparta)
    assert said.count("nothing to do") == 2


@pytest.mark.jvm
def test_most_of_it_gone_is_written_anew(index: Path, model: Path) -> None:
    build_dense(index, str(model), kind="ivf")
    done(cli._sparta.main, "delete", *[f"n{i}" for i in range(N // 2 + 2)], "--index", index)
    place = ChannelFolder(next(index.glob("dense-*")))
    assert len(place.vectors(place.read())) == place.read().passages == N // 2 - 2
    assert {p.name for p in place.path.iterdir()} == {
        "manifest.json",
        "vectors-000002",
        "rows-000002.npy",
        "search-000002.faiss",
    }
    assert {i for hits in rankings(index, N).values() for i, _ in hits} <= {f"n{i}" for i in range(N // 2, N)}


@pytest.mark.jvm
def test_a_search_while_the_channel_is_behind(
    index: Path, model: Path, caplog: pytest.LogCaptureFixture, tiny_model_folder: Path, write_jsonl: Any
) -> None:
    """What is gone is not found, what is new is told of: by its number, and with the command that helps."""
    build_dense(index, str(model), kind="hnsw")
    before = rankings(index, N)
    dense_name = next(index.glob("dense-*")).name
    (index / dense_name).rename(index.parent / "aside")
    changed = write_jsonl(
        index.parent / "u.jsonl", [{"id": "n5", "text": "the new moon"}, {"id": "z", "text": "water"}]
    )
    done(cli._sparta.main, "update", "--corpus", changed, "--model", tiny_model_folder, "--index", index)
    delete_passages(IndexFolder(index), ["n3"])
    (index.parent / "aside").rename(index / dense_name)
    logger = logging.getLogger("sparta.dense")
    logger.addHandler(caplog.handler)
    try:
        found = rankings(index, N)
    finally:
        logger.removeHandler(caplog.handler)
    gone = {"n3", "n5"}
    assert found == {q: [hit for hit in hits if hit[0] not in gone] for q, hits in before.items()}
    assert f"2 of {N} passages have no vector yet, and are not found: run dense index" in caplog.text
    said = done(cli._dense.main, "index", "--index", index, "--quiet")
    assert "encoded 2, reused 0, removed 2" in said
    assert {"z", "n5"} <= {i for i, _ in rankings(index, N)[QUESTIONS[0]]}


@pytest.mark.jvm
def test_a_new_generation_keeps_the_vectors_that_still_count(
    index: Path, model: Path, corpus: Path, tiny_model_folder: Path, make_records: Any, write_jsonl: Any
) -> None:
    """Another codec encodes nothing; another corpus only what is new, and what is gone is not found."""
    typed = ["index", "--overwrite", "--model", tiny_model_folder, "--index", index]
    build_dense(index, str(model))
    before = rankings(index)
    said = done(cli._sparta.main, *typed, "--corpus", corpus, "--codec", "lucene")
    assert "encoded 0," in said
    assert [p.name for p in index.glob("dense-*")] == ["dense-000002"]
    assert rankings(index) == before
    records = make_records(5, seed=4)
    said = done(cli._sparta.main, *typed, "--corpus", write_jsonl(index.parent / "o.jsonl", records))
    assert "encoded 5," in said
    assert {docid for hits in rankings(index).values() for docid, _ in hits} == {r["id"] for r in records}


# ---------------------------------------------------------------- vectors from elsewhere


@pytest.mark.jvm
def test_vectors_of_two_machines(index: Path, model: Path, corpus: Path, tmp_path: Path) -> None:
    for part in (0, 1):
        said = done(
            cli._dense.main,
            *("encode", "--corpus", corpus, "--model", model, "--output", tmp_path / f"v{part}"),
            *("--shard", f"{part}/2", "--shard-size", SIZE, "--quiet"),
        )
        own = [32, 18][part]
        assert f"encoded {own} passages, kept 0, left to other machines {N - own}; read {N} records" in said
    assert [sorted(shard_files(tmp_path / f"v{part}")) for part in (0, 1)] == [[0, 2], [1, 3]]
    vectors = ["--vectors", tmp_path / "v0", "--vectors", tmp_path / "v1"]
    said = done(cli._dense.main, "index", "--index", index, *vectors, "--quiet")
    assert f"{N} vectors of model: encoded 0, reused {N}, removed 0" in said
    one = rankings(index)
    shutil.rmtree(next(index.glob("dense-*")))
    said = done(cli._dense.main, "index", "--index", index, "--vectors", tmp_path / "v1", "--quiet")
    assert "encoded 32, reused 18, removed 0" in said
    assert_same(rankings(index), one)


@pytest.mark.jvm
def test_sentences_are_read_in_their_passages(
    model: Path, tiny_model_folder: Path, write_jsonl: Any, tmp_path: Path
) -> None:
    """From a corpus and from what the index stores of it: the same vectors."""
    texts = ["The moon is old. The earth is older.  It was here first.", "Larry founded google. He is young."]
    records = [{"id": f"p{i}", "text": text, "title": "King"} for i, text in enumerate(texts)]
    records.append({"id": "q", "text": "Paris", "context": "In Paris it was war.", "start": 3, "end": 8})
    corpus = write_jsonl(tmp_path / "c.jsonl", records)
    index = tmp_path / "index"
    unit = ["--unit", "sentence"]
    sparta = ["--model", tiny_model_folder, "--index", index, *unit]
    done(cli._sparta.main, "index", "--corpus", corpus, *sparta)
    build_dense(index, str(model))
    place = ChannelFolder(next(index.glob("dense-*")))
    stored = place.vectors(place.read())
    options = VectorOptions(unit="sentence", dtype="auto")
    encode_vectors(corpus, tmp_path / "v", model, options)
    fresh = VectorFolder(tmp_path / "v")
    assert len(fresh) == len(stored) == 6
    np.testing.assert_array_equal(fresh.hashes, stored.hashes)
    np.testing.assert_array_equal(fresh.take(np.arange(6)), stored.take(np.arange(6)))
    alone = DenseModel.load(model).encode_passages(
        [type(p)(p.passage_id, p.text, p.title) for p in split_units(CorpusReader(corpus), "sentence")]
    )
    assert np.abs(alone[:, 0] - stored.take(np.arange(6))).max(axis=1).min() > 0.005


def test_hashes_tell_records_apart() -> None:
    records = ["a", "b", "", "ä" * 100, "a"]
    hashes = record_hashes(records)
    assert hashes.dtype == np.uint64
    assert hashes[0] == hashes[4]
    assert len(set(hashes.tolist())) == 4


# ---------------------------------------------------------------- without FAISS


@pytest.mark.jvm
@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_without_faiss_numpy_finds_the_same(
    index: Path, model: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_dense(index, str(model), kind=kind)
    found = rankings(index, N)
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setattr(dense.search.faiss_index, "has_faiss", lambda: False)
    monkeypatch.setattr(dense.channel.searcher, "has_faiss", lambda: False)
    assert rankings(index, N) == found
    with pytest.raises(InputError, match="expected FAISS for an index of kind ivf"):
        build_dense(index, kind="ivf")


# ---------------------------------------------------------------- what is refused


@pytest.fixture
def made(index: Path, model: Path) -> Path:
    build_dense(index, str(model))
    return index


def refused(match: str, *command: object, code: int = 2) -> None:
    result = ran(cli._dense.main, *command)
    assert result.exit_code == code, result.output
    assert match in result.output
    assert "Traceback" not in result.output


@pytest.mark.jvm
def test_another_model_is_refused(made: Path, make_dense: Any, corpus: Path, tmp_path: Path) -> None:
    other = make_dense(seed=1)
    index = ["index", "--index", made, "--quiet"]
    refused("dense index --overwrite", *index, "--model", other)
    encode_vectors(corpus, tmp_path / "v", other, VectorOptions())
    refused("expected vectors of the model", *index, "--vectors", tmp_path / "v", "--kind", "ivf")
    before = rankings(made)
    said = done(cli._dense.main, *index, "--overwrite", "--vectors", tmp_path / "v")
    assert f"encoded 0, reused {N}" in said
    assert rankings(made) != before
    assert_same(rankings(made), expected(made, other, QUESTIONS, 20))


@pytest.mark.jvm
def test_vectors_of_other_passages_or_units_are_refused(
    index: Path, model: Path, corpus: Path, make_records: Any, write_jsonl: Any, tmp_path: Path
) -> None:
    other = write_jsonl(tmp_path / "o.jsonl", make_records(4, seed=9))
    encode_vectors(other, tmp_path / "v", model, VectorOptions())
    refused("found none of them", "index", "--index", index, "--vectors", tmp_path / "v")
    encode_vectors(corpus, tmp_path / "s", model, VectorOptions(unit="sentence"))
    refused(
        "expected vectors of the index's own unit 'passage'",
        "index",
        "--index",
        index,
        "--vectors",
        tmp_path / "s",
    )
    refused(
        "expected the manifest of a folder of kind 'dense-vectors'",
        "index",
        "--index",
        index,
        "--vectors",
        tmp_path,
    )
    assert not has_dense(index)


@pytest.mark.jvm
def test_a_damaged_channel_is_refused(made: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = ChannelFolder(next(made.glob("dense-*")))
    shard = min(shard_files(place.path / "vectors-000001").values())
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-9])
    refused("expected a shard of vectors, could not read it", "search", "the moon", "--index", made)
    shard.unlink()
    refused("1 of 4 shards are missing", "search", "the moon", "--index", made)
    shard.write_bytes(whole)
    rows = place.path / "rows-000001.npy"
    data = rows.read_bytes()
    rows.write_bytes(data[:-8])
    refused("a file of the dense channel cannot be read", "search", "the moon", "--index", made)
    rows.write_bytes(data)
    build_dense(made, kind="hnsw")
    (place.path / "search-000002.faiss").write_bytes(b"nothing")
    refused("expected an index of FAISS, could not read it", "search", "the moon", "--index", made)
    manifest = json.loads((place.path / "manifest.json").read_text())
    (place.path / "manifest.json").write_text(json.dumps({**manifest, "search": {"kind": 1, "extra": 2}}))
    refused("the manifest is not as expected", "search", "the moon", "--index", made)
    (place.path / "manifest.json").write_text(json.dumps({**manifest, "format_version": 99}))
    refused("upgrade sparta", "search", "the moon", "--index", made)


@pytest.mark.jvm
def test_questions_of_another_width_or_not_finite_are_refused(made: Path) -> None:
    with DenseSearcher(made) as searcher:
        with pytest.raises(InputError, match=r"expected vectors of 32 numbers, found an array \(1, 31\)"):
            list(searcher.search_vectors(np.ones((1, 31), np.float32)))
        with pytest.raises(InputError, match="NaN or infinity in vector 1"):
            list(searcher.search_vectors(np.array([np.ones(32), np.full(32, np.nan)], np.float32)))
        with pytest.raises(InputError, match="k must be at least 1"):
            searcher.search("the moon", 0)
        with pytest.raises(InputError, match="as many query ids as queries"):
            searcher.batch_search(["a"], [])
    with pytest.raises(InputError, match="expected the channel dense, found 'sparta'"):
        DenseSearcher(made, channel="sparta")


@pytest.mark.jvm
def test_a_model_that_moved_or_changed(made: Path, model: Path, make_dense: Any, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(model, tmp_path / "moved"))
    again = Path(shutil.copytree(made, tmp_path / "again"))
    assert build_dense(again, str(moved)).unchanged
    assert ChannelFolder(next(again.glob("dense-*"))).read().model.name == str(moved)
    assert rankings(again) == rankings(made)
    (moved / "model.safetensors").write_bytes((make_dense(seed=2) / "model.safetensors").read_bytes())
    with DenseSearcher(again) as searcher, pytest.raises(IndexStateError, match="found another in its place"):
        searcher.search("the moon")
    shutil.rmtree(moved)
    delete_passages(IndexFolder(again), ["n1"])
    refused("dense index --model FOLDER", "index", "--index", again)
    refused("expected a model folder, found none", "search", "the moon", "--index", again)


def test_models_that_no_index_holds(
    make_dense: Any, tiny_model_folder: Path, corpus: Path, tmp_path: Path
) -> None:
    given = ["encode", "--corpus", corpus, "--output", tmp_path / "v", "--model"]
    refused("found a Poly-Encoder with 3", *given, make_dense(codes=3))
    refused("expected a dense model (config.json with a dense object)", *given, tiny_model_folder)
    refused("expected a model folder, found none", *given, tmp_path / "nothing")
    assert not (tmp_path / "v").exists()


def test_a_model_that_gives_no_numbers(make_dense: Any, corpus: Path, tmp_path: Path) -> None:
    import torch

    folder = make_dense()
    model = DenseModel.load(folder)
    with torch.no_grad():
        model.passage_encoder.get_input_embeddings().weight.fill_(torch.nan)
    model.save_pretrained(folder)
    refused(
        "passage 'n0': expected finite numbers",
        "encode",
        "--corpus",
        corpus,
        "--output",
        tmp_path / "v",
        "--model",
        folder,
    )


@pytest.mark.jvm
def test_no_index_and_one_that_is_being_written(index: Path, model: Path, tmp_path: Path) -> None:
    refused("there is no index here", "index", "--index", tmp_path / "none", "--model", model)
    refused("there is no index here", "search", "the moon", "--index", tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with IndexFolder(index).lock():
        refused("another process is writing to this index", "index", "--index", index, "--model", model)
    refused("Invalid value for '--kind'", "index", "--index", index, "--kind", "tree")
    with pytest.raises(InputError, match="found 'tree'"):
        build_dense(index, str(model), kind="tree")


def test_encode_into_a_folder_of_other_work(
    model: Path, make_dense: Any, corpus: Path, tmp_path: Path
) -> None:
    given = ["encode", "--corpus", corpus, "--output", tmp_path / "v", "--quiet"]
    done(cli._dense.main, *given, "--model", model)
    refused("continue with --resume", *given, "--model", model)
    refused("found another unit", *given, "--model", model, "--resume", "--unit", "sentence")
    refused("found another model", *given, "--model", make_dense(seed=1), "--resume")
    refused("expected --shard i/n with 0 ≤ i < n, found '2/2'", *given, "--shard", "2/2")
    assert f"encoded 0 passages, kept {N}" in done(cli._dense.main, *given, "--model", model, "--resume")
    other = tmp_path / "c.jsonl"
    other.write_text(corpus.read_text().replace("the", "a"))
    changed = ["encode", "--corpus", other, "--output", tmp_path / "v", "--model", model, "--resume"]
    refused("the corpus no longer has the passages", *changed)
    manifest = tmp_path / "v" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"complete": true', '"complete": false'))
    with pytest.raises(InputError, match="expected a finished encoding"):
        dense.channel.sync.open_finished(tmp_path / "v")


# ---------------------------------------------------------------- how it looks


@pytest.mark.jvm
def test_the_command_search(made: Path, tmp_path: Path) -> None:
    found = rankings(made, 3)[QUESTIONS[0]]
    said = done(cli._dense.main, "search", QUESTIONS[0], "--index", made, "-k", 3)
    lines = said.splitlines()
    assert len(lines) == 6
    for rank_, (line, (docid, score)) in enumerate(zip(lines[::2], found, strict=True), 1):
        assert line.split()[0] == str(rank_)
        assert line.endswith(f"[{docid}]  {score:.4g}")
    shown = [
        json.loads(line)
        for line in done(
            cli._dense.main, "search", QUESTIONS[0], "--index", made, "-k", 3, "--json"
        ).splitlines()
    ]
    assert [(row["id"], row["score"]) for row in shown] == found
    assert [row["rank"] for row in shown] == [1, 2, 3]
    assert list(shown[0]) == ["rank", "id", "score", "title", "text", "metadata", "snippet"]
    queries = tmp_path / "q.tsv"
    queries.write_text("".join(f"q{i}\t{text}\n" for i, text in enumerate(QUESTIONS)))
    run = tmp_path / "run.trec"
    given = ["search", "--queries", queries, "--index", made, "-k", 20]
    assert "80 lines for 4 queries" in done(cli._dense.main, *given, "--output", run)
    ranked = rankings(made, 20)
    wanted = [(f"q{i}", docid) for i, text in enumerate(QUESTIONS) for docid, _ in ranked[text]]
    assert [(line.split()[0], line.split()[2]) for line in run.read_text().splitlines()] == wanted
    assert run.read_text().splitlines()[0].split()[-1] == "sparta-dense"
    refused("expected --queries and --output together", *given)
    refused("expected a query or --queries FILE, found neither", "search", "--index", made)


@pytest.mark.jvm
def test_twice_is_once(index: Path, model: Path) -> None:
    said = done(cli._dense.main, "index", "--index", index, "--model", model, "--quiet")
    assert f"dense-000001: flat, {N} vectors of model: encoded {N}, reused 0, removed 0 in" in said
    files = {p: p.stat().st_mtime_ns for p in index.rglob("*") if p.is_file() and p.name != "lock"}
    said = done(cli._dense.main, "index", "--index", index, "--quiet")
    assert said == f"{index}/dense-000001: flat, {N} vectors of model: up to date; nothing to do\n"
    assert {p: p.stat().st_mtime_ns for p in index.rglob("*") if p.is_file() and p.name != "lock"} == files
    said = done(cli._dense.main, "index", "--index", index, "--kind", "ivf", "--quiet")
    assert f"ivf, {N} vectors of model: encoded 0, reused 0, removed 0" in said
    assert "ivf" in done(cli._dense.main, "index", "--index", index, "--quiet")


@pytest.mark.jvm
def test_ctrl_c_keeps_what_was_encoded(index: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add = VectorWriter.add

    def interrupted(self: VectorWriter, positions: Any, hashes: Any, vectors: Any) -> VectorWriter:
        if self.next_number == 2:
            raise KeyboardInterrupt
        return add(self, positions, hashes, vectors)

    with monkeypatch.context() as patched:
        patched.setattr(VectorWriter, "add", interrupted)
        result = ran(cli._dense.main, "index", "--index", index, "--model", model, "--quiet")
    assert result.exit_code == 130
    assert result.output == f"interrupted: {2 * SIZE} vectors kept; the same command continues\n"
    assert build_dense(index, str(model)).encoded == N - 2 * SIZE


# ---------------------------------------------------------------- kills

KILLER = """
import json, os, shutil, signal, sys
from pathlib import Path

import torch
torch.set_num_threads(1)
import cli._dense, dense.channel.builder, dense.channel.encode
from sparta.base import files

model, dense.channel.builder.SHARD_SIZE = sys.argv[1], int(sys.argv[2])
dense.channel.encode.DenseModel.load(Path(model))  # what is imported now is not imported by every child
synced = files._sync

def run(command, moment):
    seen = 0
    def kill(path):
        nonlocal seen
        synced(path)  # the temporary file is there, and not yet in its place
        if seen == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        seen += 1
    files._sync = kill
    log = os.open(os.devnull, os.O_WRONLY)
    os.dup2(log, 1)
    try:
        cli._dense.main(command)
    except SystemExit as end:
        os._exit(end.code or 0)
    os._exit(99)

for line in sys.stdin:
    moments, copies, command = json.loads(line)
    codes = []
    for moment in range(moments):
        place = f"{copies}-{moment}"
        if os.path.isdir(copies):
            shutil.copytree(copies, place)
        child = os.fork()
        if child == 0:
            run([part.replace("PLACE", place) for part in command], moment)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print(json.dumps(codes), flush=True)
"""


@pytest.fixture(scope="module")
def killed(model: Path) -> Iterator[Callable[[int, Path, list[object]], list[int]]]:
    """Run a command once for each moment, and kill -9 it when it has written so many files."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    process = subprocess.Popen(
        [sys.executable, "-c", KILLER, str(model), str(SIZE)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[3]),
            "TOKENIZERS_PARALLELISM": "false",
        },
    )

    def kill(moments: int, copies: Path, command: list[object]) -> list[int]:
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps([moments, str(copies), [str(part) for part in command]]) + "\n")
        process.stdin.flush()
        codes: list[int] = json.loads(process.stdout.readline())
        return codes

    yield kill
    assert process.stdin
    process.stdin.close()
    process.wait(60)


def shards(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.glob("shard-*")}


def test_encode_killed_at_every_file(killed: Any, model: Path, corpus: Path, tmp_path: Path) -> None:
    def command(output: object) -> list[object]:
        given = ["--corpus", corpus, "--model", model, "--shard-size", SIZE, "--quiet", "--resume"]
        return ["encode", *given, "--output", output]

    done(cli._dense.main, *command(tmp_path / "whole"))
    whole = shards(tmp_path / "whole")
    assert len(whole) == 4
    assert killed(7, tmp_path / "v", command("PLACE")) == [-signal.SIGKILL] * 6 + [0]
    for moment in range(6):
        output = tmp_path / f"v-{moment}"
        kept = shards(output)
        assert kept.items() <= whole.items()
        assert len(kept) == max(0, moment - 1)
        left = sum(len(open_shard(path)) for path in shard_files(output).values())
        assert f"encoded {N - left} passages, kept {left}" in done(cli._dense.main, *command(output))
        assert shards(output) == whole
        assert not list(output.glob(".sparta-*"))
    assert json.loads((output / "manifest.json").read_text())["complete"]


@pytest.mark.jvm
@pytest.mark.slow
def test_index_killed_at_every_file(killed: Any, index: Path, model: Path, tmp_path: Path) -> None:
    """Two ways: the first channel, and one that is brought up to date, which search sees meanwhile."""
    whole = Path(shutil.copytree(index, tmp_path / "whole"))
    build_dense(whole, str(model), kind="hnsw")
    wanted = rankings(whole)
    command = ["index", "--index", "PLACE", "--model", model, "--kind", "hnsw", "--quiet"]
    # files: the manifest of the vectors, four shards, FAISS, its nodes, rows, the channel's manifest
    assert killed(10, index, command) == [-signal.SIGKILL] * 9 + [0]
    for moment in range(9):
        place = Path(f"{index}-{moment}")
        assert not has_dense(place)
        kept = SIZE * max(0, min(moment - 1, 3)) + (N % SIZE if moment > 4 else 0)
        report = build_dense(place, str(model), kind="hnsw")
        assert (report.encoded, report.passages) == (N - kept, N)
        assert rankings(place) == wanted
        assert shards(place / "dense-000001/vectors-000001") == shards(whole / "dense-000001/vectors-000001")
        assert len(list((place / "dense-000001").iterdir())) == 5
    delete_passages(IndexFolder(whole), ["n1", "n7", "n9"])
    before = rankings(whole)
    command = ["index", "--index", "PLACE", "--quiet"]
    assert killed(5, whole, command) == [-signal.SIGKILL] * 4 + [0]
    for moment in range(4):
        assert rankings(Path(f"{whole}-{moment}")) == before
        assert build_dense(Path(f"{whole}-{moment}")).forgotten == 3
        assert rankings(Path(f"{whole}-{moment}")) == before
