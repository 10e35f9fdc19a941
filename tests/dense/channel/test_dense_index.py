"""The dense channel follows the Lucene index."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dense.channel.builder import ShardSizes
from dense.channel.encode import VectorOptions, encode_vectors
from dense.channel.folder import ChannelFolder
from dense.channel.searcher import DenseSearcher
from dense.channel.sync import build_dense
from dense.channel.table import exists as has_dense
from dense.models.bi_encoder import DenseModel
from dense.search.faiss_index import LARGEST_FLAT, choose_kind, has_faiss
from dense.search.store import VectorFolder, record_hashes
from sparta.api import Index
from sparta.base.errors import InputError
from sparta.data.corpus import open_corpus
from sparta.data.sentences import split_units
from sparta.index.build import delete_passages
from sparta.index.folder import IndexFolder
from sparta.shards.folder import shard_files
from tests.dense.channel.channels import QUESTIONS, SIZE, N, assert_same, done, expected, rankings, rounded
from tests.moments import watched
from tests.programs import dense, sparta

pytestmark = pytest.mark.usefixtures("one_thread")
SIZES = ShardSizes(largest=SIZE)


@pytest.mark.jvm
@pytest.mark.parametrize("kind", ["auto", "flat", "ivf", "hnsw"])
def test_search_finds_what_brute_force_finds(index: Path, model: Path, kind: str) -> None:
    assert not has_dense(index)
    report = build_dense(index, str(model), kind=kind, shard_sizes=SIZES)
    assert has_dense(index)
    assert (report.passages, report.encoded, report.copied_vectors, report.removed_vectors) == (N, N, 0, 0)
    assert report.kind == ("flat" if kind == "auto" else kind)
    found = rankings(index, N)
    if kind != "ivf":
        assert_same(found, expected(index, model, QUESTIONS, N))
    assert build_dense(index, kind=kind).unchanged
    with DenseSearcher(index) as searcher:
        assert searcher.num_docs == N
        hit = searcher.search(QUESTIONS[0], 1)[0]
        assert (hit.passage_id, hit.score) == found[QUESTIONS[0]][0]
        with searcher.reader.snapshot() as snapshot:
            lucene = snapshot.lucene
        record = json.loads(lucene.raws(lucene.docids([hit.passage_id]))[0])
        assert (record["id"], record["contents"]) == (hit.passage_id, hit.text)
        assert searcher.batch_search([], [], 5) == {}


@pytest.mark.jvm
def test_too_few_vectors_for_ivfpq_are_noted_once(
    index: Path, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert build_dense(index, str(model), kind="ivfpq").kind == "flat"
    note = "IVF-PQ needs 624 vectors, found {}: the index is flat"
    assert note.format(N) in caplog.text
    said = done(sparta, "delete", "n3", "--index", index)
    assert f"kept {N - 1}" in said
    assert note.format(N - 1) not in said + caplog.text


@pytest.mark.jvm
def test_an_ivfpq_channel_follows_the_index(
    model: Path, make_records: Any, write_jsonl: Any, tmp_path: Path
) -> None:
    """700 passages: fewer are searched exactly."""
    records, index = make_records(720, seed=2, prefix="n"), tmp_path / "index"
    first = write_jsonl(tmp_path / "first.jsonl", records[:700])
    done(sparta, "index", "--corpus", first, "--channels", "bm25", "--index", index, "--quiet")
    assert build_dense(index, str(model), kind="ivfpq").kind == "ivfpq"
    place = ChannelFolder(next(index.glob("dense-*")))
    built = (place.path / place.read().file_names[1]).stat().st_size
    more = write_jsonl(tmp_path / "more.jsonl", records[700:])
    done(sparta, "index", "--append", "--corpus", more, "--index", index, "--quiet")
    done(sparta, "delete", "n3", "n4", "--index", index)
    channel = place.read()
    assert (channel.search.kind, channel.passages) == ("ivfpq", 718)
    assert (place.path / channel.file_names[1]).stat().st_size > built
    found, exact = rankings(index, 20), expected(index, model, QUESTIONS, 20)
    for question in QUESTIONS:
        scores = {passage_id: round(score, 2) for passage_id, score in found[question]}
        assert len(scores) == 20
        assert not {"n3", "n4"} & set(scores)
        assert sum(scores.get(passage_id) == score for passage_id, score in exact[question]) >= 17


@pytest.mark.jvm
def test_an_ivf_index_that_grows_in_small_steps_is_trained_again(
    index: Path, model: Path, make_records: Any, write_jsonl: Any, tmp_path: Path
) -> None:
    """No step doubles the number of vectors. An index gets another list for each 39 vectors."""
    build_dense(index, str(model), kind="ivf")
    place = ChannelFolder(next(index.glob("dense-*")))
    records, lists = make_records(70, seed=2, prefix="more"), [place.read().search.lists]
    for first in (0, 35):
        path = write_jsonl(tmp_path / f"{first}.jsonl", records[first : first + 35])
        done(sparta, "index", "--append", "--corpus", path, "--index", index, "--quiet")
        lists.append(place.read().search.lists)
    assert (place.read().passages, lists) == (N + 70, [1, 2, 3])


@pytest.mark.jvm
def test_vectors_that_move_to_a_new_store_are_kept(index: Path, model: Path) -> None:
    build_dense(index, str(model), shard_sizes=SIZES)
    gone = N * 2 // 3
    said = done(sparta, "delete", *(f"n{i}" for i in range(gone)), "--index", index)
    assert f"encoded 0, reused 0, kept {N - gone}, removed {gone}" in said
    assert next(index.glob("dense-*/vectors-*")).name == "vectors-000002"


@pytest.mark.slow
@pytest.mark.jvm
@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_the_channel_follows_the_index(
    index: Path, model: Path, tiny_model_folder: Path, write_jsonl: Any, tmp_path: Path, kind: str
) -> None:
    build_dense(index, str(model), kind=kind, shard_sizes=SIZES)
    given = ["--model", tiny_model_folder, "--index", index, "--quiet"]
    said = done(sparta, "delete", "n3", "n4", "--index", index)
    assert f"{N - 2} vectors of model: encoded 0, reused 0, kept {N - 2}, removed 2" in said
    changed = [{"id": "n5", "text": "the new moon of jupiter"}, {"id": "z", "text": "water of the river"}]
    said = done(sparta, "update", "--corpus", write_jsonl(tmp_path / "u.jsonl", changed), *given)
    assert f"encoded 2, reused 0, kept {N - 3}, removed 1" in said
    more = [{"id": "n3", "text": "it is back"}, {"id": "y", "text": "google street"}]
    appended = write_jsonl(tmp_path / "a.jsonl", more)
    said = done(sparta, "index", "--append", "--corpus", appended, *given)
    assert f"encoded 2, reused 0, kept {N - 1}, removed 0" in said
    assert_same(rankings(index, N + 1), expected(index, model, QUESTIONS, N + 1))
    place = ChannelFolder(next(index.glob("dense-*")))
    assert len(place.vectors(place.read())) == N + 4
    said = done(sparta, "index", "--append", "--corpus", appended, *given)
    assert said.count("nothing to do") == 2


@pytest.mark.jvm
def test_most_of_it_gone_is_written_anew(index: Path, model: Path) -> None:
    build_dense(index, str(model), kind="ivf", shard_sizes=SIZES)
    done(sparta, "delete", *[f"n{i}" for i in range(N // 2 + 2)], "--index", index)
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
    build_dense(index, str(model), kind="hnsw", shard_sizes=SIZES)
    before = rankings(index, N)
    dense_name = next(index.glob("dense-*")).name
    (index / dense_name).rename(index.parent / "aside")
    changed = write_jsonl(
        index.parent / "u.jsonl", [{"id": "n5", "text": "the new moon"}, {"id": "z", "text": "water"}]
    )
    done(sparta, "update", "--corpus", changed, "--model", tiny_model_folder, "--index", index)
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
    assert f"2 of {N} passages" in caplog.text
    assert "dense index" in caplog.text
    said = done(dense, "index", "--index", index, "--quiet")
    assert f"encoded 2, reused 0, kept {N - 2}, removed 2" in said
    assert {"z", "n5"} <= {i for i, _ in rankings(index, N)[QUESTIONS[0]]}


@pytest.mark.slow
@pytest.mark.jvm
def test_a_new_generation_keeps_the_vectors_that_still_count(
    index: Path, model: Path, corpus: Path, tiny_model_folder: Path, make_records: Any, write_jsonl: Any
) -> None:
    """Another codec encodes nothing; another corpus only what is new, and what is gone is not found."""
    typed = ["index", "--overwrite", "--model", tiny_model_folder, "--index", index]
    build_dense(index, str(model), shard_sizes=SIZES)
    before = rankings(index)
    said = done(sparta, *typed, "--corpus", corpus, "--codec", "lucene")
    assert f"encoded 0, reused 0, kept {N}, removed 0" in said, "what was kept is said"
    assert [p.name for p in index.glob("dense-*")] == ["dense-000001"]
    assert rankings(index) == before
    records = make_records(5, seed=4)
    said = done(sparta, *typed, "--corpus", write_jsonl(index.parent / "o.jsonl", records))
    assert f"encoded 5, reused 0, kept 0, removed {N}" in said
    assert {docid for hits in rankings(index).values() for docid, _ in hits} == {r["id"] for r in records}


@pytest.mark.jvm
def test_the_channel_can_be_searched_at_every_moment_of_an_overwrite(
    index: Path, model: Path, corpus: Path, tiny_model_folder: Path
) -> None:
    """It is searched before Python changes or removes a file, and after the last one."""
    build_dense(index, str(model), shard_sizes=SIZES)
    before, during, changed = rankings(index), [], set()

    def see(action: str, path: Path) -> None:
        if action != "read":
            changed.add(f"{action} {path.name}")
            during.append(rankings(index))

    typed = ["index", "--overwrite", "--model", tiny_model_folder, "--index", index]
    with watched(see):
        done(sparta, *typed, "--corpus", corpus)
    during.append(rankings(index))
    assert len(during) > 20
    assert {"rename manifest.json", "rename rows-000002.npy", "remove segments_1"} <= changed
    assert all(rounded(found) == rounded(before) for found in during)


@pytest.mark.jvm
def test_vectors_of_two_machines(index: Path, model: Path, corpus: Path, tmp_path: Path) -> None:
    for part in (0, 1):
        said = done(
            dense,
            *("encode", "--corpus", corpus, "--model", model, "--output", tmp_path / f"v{part}"),
            *("--shard", f"{part}/2", "--shard-size", SIZE, "--quiet"),
        )
        own = [32, 18][part]
        assert (
            f"encoded {own} passages, kept 0 from before, left {N - own} to other machines; read {N} records"
            in said
        )
    assert [sorted(shard_files(tmp_path / f"v{part}")) for part in (0, 1)] == [[0, 2], [1, 3]]
    vectors = ["--vectors", tmp_path / "v0", "--vectors", tmp_path / "v1"]
    said = done(dense, "index", "--index", index, *vectors, "--quiet")
    assert f"{N} vectors of model: encoded 0, reused {N}, kept 0, removed 0" in said
    one = rankings(index)
    shutil.rmtree(next(index.glob("dense-*")))
    said = done(dense, "index", "--index", index, "--vectors", tmp_path / "v1", "--quiet")
    assert "encoded 32, reused 18, kept 0, removed 0" in said
    assert_same(rankings(index), one)


@pytest.mark.jvm
def test_sentences_are_read_in_their_passages(
    model: Path, tiny_model_folder: Path, write_jsonl: Any, tmp_path: Path
) -> None:
    """From a corpus and from what the index stores of it: the same vectors."""
    texts = ["The moon is old. The earth is older.  It was here first.", "Larry founded google. He is young."]
    records = [{"id": f"p{i}", "text": text, "title": "King"} for i, text in enumerate(texts)]
    records[1]["context"] = "metadata that does not contain the sentences"
    records.append({"id": "q", "text": "Paris", "context": "In Paris it was war.", "start": 3, "end": 8})
    corpus = write_jsonl(tmp_path / "c.jsonl", records)
    index = tmp_path / "index"
    unit = ["--unit", "sentence"]
    given = ["--model", tiny_model_folder, "--index", index, *unit]
    done(sparta, "index", "--corpus", corpus, *given)
    build_dense(index, str(model), shard_sizes=SIZES)
    place = ChannelFolder(next(index.glob("dense-*")))
    stored = place.vectors(place.read())
    options = VectorOptions(unit="sentence", dtype="auto")
    encode_vectors(corpus, tmp_path / "v", model, options)
    fresh = VectorFolder(tmp_path / "v")
    assert len(fresh) == len(stored) == 6
    np.testing.assert_array_equal(fresh.hashes, stored.hashes)
    np.testing.assert_array_equal(fresh.take(np.arange(6)), stored.take(np.arange(6)))
    alone = DenseModel.load(model).encode_passages(
        [type(p)(p.passage_id, p.text, p.title) for p in split_units(open_corpus(corpus), "sentence")]
    )
    assert np.abs(alone[:, 0] - stored.take(np.arange(6))).max(axis=1).min() > 0.005
    with Index(index) as opened:
        retriever = opened.retriever("dense")
        hits = retriever.in_context(retriever.search("moon", 6))
    of = {hit.passage_id: hit.metadata["context"] for hit in hits}
    assert (of["p0#2"], of["p1#0"]) == (texts[0], texts[1]), "also what was between sentences"
    assert of["q"] == "In Paris it was war.", "its own"


def test_hashes_tell_records_apart() -> None:
    records = ["a", "b", "", "ä" * 100, "a"]
    hashes = record_hashes(records)
    assert hashes.dtype == np.uint64
    assert hashes[0] == hashes[4]
    assert len(set(hashes.tolist())) == 4


@pytest.mark.jvm
@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_without_faiss_numpy_finds_the_same(
    index: Path, model: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_dense(index, str(model), kind=kind, shard_sizes=SIZES)
    found = rankings(index, N)
    monkeypatch.setitem(sys.modules, "faiss", None)
    assert not has_faiss()
    assert rankings(index, N) == found
    with pytest.raises(InputError, match=r"kind ivf(.|\n)*sparta-search\[dense\]"):
        build_dense(index, kind="ivf")
    assert choose_kind("auto", LARGEST_FLAT + 1) == "flat"
