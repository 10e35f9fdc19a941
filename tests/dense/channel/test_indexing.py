"""`sparta index` with the dense channel: one pass over the corpus, and the same vectors as two."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dense.channel import encode
from dense.channel.builder import ShardSizes
from dense.channel.folder import ChannelFolder
from dense.channel.sync import build_dense
from dense.channel.table import exists, is_begun
from dense.search.store import Floats, VectorFolder, write_shard
from sparta.base.errors import IndexStateError, InputError, Interrupted
from sparta.base.manifest import write_manifest
from sparta.index.folder import IndexFolder
from sparta.index.generation import Generation
from sparta.index.info import describe_index
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index, delete_from_index
from sparta.index.sync import sync_index
from sparta.runtime.processor import capabilities
from tests.dense.channel.channels import N, done, rankings
from tests.moments import at, ctrl_c
from tests.programs import sparta

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("one_thread")]
CHANNELS = "impact,bm25,dense"
Calls = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def shipped(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny model in place of the dense model that ships with sparta."""
    monkeypatch.setattr("dense.channel.sync.model_for", lambda *_: str(model))


@pytest.fixture
def blocks(shipped: None, calls: Callable[..., Calls]) -> Calls:
    """Every run of the dense encoder; the first has 32 passages."""
    return calls(encode.PassageEncoder.__call__)


def flat(blocks: Calls) -> list[str]:
    """The ids of the passages of these runs."""
    return [passage.passage_id for _, given in blocks for passage in given["passages"]]


def vectors(index: Path) -> Floats:
    """The vectors of the channel, in the order of the corpus."""
    folder = IndexFolder(index)
    channel_folder = ChannelFolder(folder.dense_path(folder.require_live()))
    channel = channel_folder.read()
    return channel_folder.vectors(channel).take(channel_folder.read_rows(channel))


def begun_generation(index: Path) -> Generation:
    """The generation of an unfinished build."""
    generation = IndexFolder(index).state().building
    assert generation
    return generation


def options(tiny_model_folder: Path, **more: Any) -> IndexOptions:
    return IndexOptions(**{"channels": CHANNELS, "model": str(tiny_model_folder), "device": "cpu", **more})


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["passage", "sentence", "chunk:5:2"])
def test_one_pass_gives_the_vectors_of_two(
    corpus: Path, tiny_model_folder: Path, blocks: Calls, tmp_path: Path, unit: str
) -> None:
    chosen = options(tiny_model_folder, unit=unit)
    report = build_index(tmp_path / "one", corpus, options=chosen)
    n = report.documents
    assert len(blocks) > 1
    assert len(flat(blocks)) == len(set(flat(blocks)))
    assert [(r.encoded, r.passages, r.kept) for r in report.channels] == [(n, n, 0)]
    build_index(
        tmp_path / "two", corpus, options=options(tiny_model_folder, unit=unit, channels="impact,bm25")
    )
    assert not exists(tmp_path / "two")
    assert build_dense(tmp_path / "two").encoded == n
    assert np.array_equal(vectors(tmp_path / "one"), vectors(tmp_path / "two"))
    assert rankings(tmp_path / "one") == rankings(tmp_path / "two")
    again = build_index(tmp_path / "one", corpus, options=chosen)
    assert again.unchanged
    assert [channel.unchanged for channel in again.channels] == [True]


@pytest.mark.slow
def test_overwrite_encodes_only_what_is_new(
    corpus: Path, tiny_model_folder: Path, blocks: Calls, write_jsonl: Any, tmp_path: Path
) -> None:
    chosen = options(tiny_model_folder)
    build_index(tmp_path / "ix", corpus, options=chosen)
    records = [json.loads(line) for line in corpus.read_text().splitlines()]
    records[3]["text"] += " changed"
    changed = write_jsonl(tmp_path / "changed.jsonl", [*records[1:], {"id": "new", "text": "the moon"}])
    blocks.clear()
    report = build_index(tmp_path / "ix", changed, "overwrite", chosen)
    assert flat(blocks) == ["n3", "new"]
    assert report.channels[0].encoded == 2
    build_index(tmp_path / "anew", changed, options=chosen)
    assert np.array_equal(vectors(tmp_path / "ix"), vectors(tmp_path / "anew"))
    more = write_jsonl(tmp_path / "more.jsonl", [{"id": "appended", "text": "an old city"}])
    assert build_index(tmp_path / "ix", more, "append", chosen).channels[0].encoded == 1


@pytest.mark.slow
def test_sync_adds_the_dense_channel_to_an_index(
    corpus: Path, tiny_model_folder: Path, blocks: Calls, tmp_path: Path
) -> None:
    index = tmp_path / "ix"
    sync_index(index, corpus, options(tiny_model_folder, channels="impact,bm25"))
    assert not exists(index)
    report = sync_index(index, corpus, options(tiny_model_folder))
    assert (report.unchanged, report.behind) == (N, ())
    assert len(flat(blocks)) == N
    build_index(tmp_path / "new", corpus, options=options(tiny_model_folder))
    assert np.array_equal(vectors(index), vectors(tmp_path / "new"))
    blocks.clear()
    sync_index(index, corpus, options(tiny_model_folder))
    assert not blocks
    with pytest.raises(InputError, match="the index has the channels 'impact,bm25', not 'bm25'"):
        sync_index(index, corpus, options(tiny_model_folder, channels="bm25"))


@pytest.mark.usefixtures("shipped")
def test_sync_adds_vectors_after_a_failure_and_after_ctrl_c(
    corpus: Path, tiny_model_folder: Path, write_jsonl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, chosen = tmp_path / "ix", options(tiny_model_folder)

    def fail(*_: object, **__: object) -> None:
        raise IndexStateError("no vectors")

    with monkeypatch.context() as patched:
        patched.setattr("dense.channel.indexing.build_dense", fail)
        assert sync_index(index, corpus, chosen).behind == ("dense",)
    assert sync_index(index, corpus, chosen).behind == ()
    assert len(vectors(index)) == N
    records = [json.loads(line) for line in corpus.read_text().splitlines()]
    longer = write_jsonl(tmp_path / "longer.jsonl", [*records, {"id": "new", "text": "the moon"}])
    with pytest.raises(KeyboardInterrupt), at("rename", "shard-*.safetensors", ctrl_c):
        sync_index(index, longer)
    report = sync_index(index, longer)
    assert (report.unchanged, report.behind) == (N + 1, ())
    assert len(vectors(index)) == N + 1


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs `build_index` with Ctrl-C after the last passage and vector, before the last commit."""

    def run(*arguments: Any) -> None:
        with monkeypatch.context() as patched:
            patched.setattr("sparta.index.writer._complete", lambda *_: ctrl_c())
            with pytest.raises(Interrupted):
                build_index(*arguments)

    return run


@pytest.fixture
def small(write_jsonl: Any, tmp_path: Path) -> Path:
    records = [{"id": "a", "text": "the moon"}, {"id": "b", "text": "an old city"}]
    return Path(write_jsonl(tmp_path / "small.jsonl", records))


@pytest.mark.usefixtures("shipped")
def test_a_changed_live_index_keeps_the_vectors_of_an_interrupted_overwrite(
    corpus: Path, small: Path, tiny_model_folder: Path, interrupted: Any, tmp_path: Path
) -> None:
    index, chosen = tmp_path / "ix", options(tiny_model_folder)
    build_index(index, small, options=chosen)
    interrupted(index, corpus, "overwrite", chosen)
    assert delete_from_index(index, ["a"]).channels[0].passages == 1
    assert build_dense(index).unchanged
    [report] = build_index(index, corpus, "overwrite", replace(chosen, resume=True)).channels
    assert (report.encoded, report.copied_vectors, report.kept) == (0, 0, N)
    assert [path.name for path in index.glob("dense-*/vectors-*")] == ["vectors-000002"]


@pytest.mark.usefixtures("shipped")
def test_begun_vectors_belong_to_their_overwrite(
    corpus: Path, small: Path, tiny_model_folder: Path, interrupted: Any, write_jsonl: Any, tmp_path: Path
) -> None:
    index, chosen = tmp_path / "ix", options(tiny_model_folder)
    without = replace(chosen, channels="impact,bm25")
    build_index(index, small, options=without)
    interrupted(index, corpus, "overwrite", chosen)
    assert is_begun(index, begun_generation(index))
    more = write_jsonl(tmp_path / "more.jsonl", [{"id": "c", "text": "the water"}])
    interrupted(index, more, "update", without)
    assert not build_index(index, more, "update", replace(without, resume=True)).channels
    restarted = Path(shutil.copytree(index, tmp_path / "restarted"))
    assert not build_index(restarted, corpus, "overwrite", without).channels
    assert build_index(restarted, small, "overwrite", chosen).channels[0].passages == 2
    assert [path.name for path in restarted.glob("dense-*")] == ["dense-000004"]
    assert build_dense(index).encoded == 3
    anew = Path(shutil.copytree(index, tmp_path / "anew"))
    [report] = build_index(anew, small, "overwrite", without).channels
    assert (report.encoded, report.kept, exists(anew)) == (0, 2, True)
    [report] = build_index(index, corpus, "overwrite", replace(without, resume=True, channels=None)).channels
    assert (report.encoded, report.kept) == (0, N)
    for folder in (anew, index):
        assert [path.name for path in folder.glob("dense-*")] == ["dense-000001"]


@pytest.mark.usefixtures("shipped")
@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_a_sync_finishes_the_vectors_of_an_interrupted_first_build(
    corpus: Path, tiny_model_folder: Path, interrupted: Any, tmp_path: Path, seconds: float
) -> None:
    chosen = options(tiny_model_folder, commit_seconds=seconds)
    interrupted(tmp_path / "ix", corpus, "create", chosen)
    assert sync_index(tmp_path / "ix", corpus, replace(chosen, channels=None)).behind == ()
    assert len(vectors(tmp_path / "ix")) == N


@pytest.mark.usefixtures("shipped")
@pytest.mark.parametrize("step", ["sparta.index.writer._complete", "dense.channel.indexing.build_dense"])
def test_a_sync_that_is_interrupted_again_finishes_the_vectors(
    corpus: Path,
    tiny_model_folder: Path,
    interrupted: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    index, chosen = tmp_path / "ix", options(tiny_model_folder, commit_seconds=0.0)
    without, grown = replace(chosen, channels=None), Path(shutil.copy(corpus, tmp_path / "grown.jsonl"))
    interrupted(index, grown, "create", chosen)
    with grown.open("a") as stream:
        stream.write(json.dumps({"id": "new", "text": "the moon"}) + "\n")
    with monkeypatch.context() as patched:
        patched.setattr(step, lambda *_, **__: ctrl_c())
        with pytest.raises(KeyboardInterrupt):
            sync_index(index, grown, without)
    assert sync_index(index, grown, without).behind == ()
    assert len(vectors(index)) == N + 1
    assert not list(index.glob("dense-*/begun"))


@pytest.mark.usefixtures("shipped")
def test_vectors_of_a_whole_index_are_finished_unless_named_channels_leave_them_out(
    small: Path, tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, chosen = tmp_path / "ix", options(tiny_model_folder)
    with monkeypatch.context() as patched:
        patched.setattr("dense.channel.indexing.build_dense", lambda *_, **__: ctrl_c())
        with pytest.raises(KeyboardInterrupt):
            build_index(index, small, options=chosen)
    sync_index(index, small, replace(chosen, channels="impact,bm25"))
    assert list(index.glob("dense-*/begun"))
    resumed = replace(chosen, channels=None, resume=True)
    assert build_index(index, small, options=resumed).channels[0].passages == 2


@pytest.mark.usefixtures("shipped")
def test_a_sync_leaves_the_vectors_of_an_interrupted_dense_index_alone(
    small: Path, tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user may have stopped it because it took too long."""
    index, without = tmp_path / "ix", options(tiny_model_folder, channels=None)
    sync_index(index, small, without)
    with monkeypatch.context() as patched:
        patched.setattr("dense.channel.builder.ChannelBuilder.finish", lambda *_: ctrl_c())
        with pytest.raises(KeyboardInterrupt):
            build_dense(index)
    assert list(index.glob("dense-*/vectors-*"))
    sync_index(index, small, without)
    assert not exists(index)


@pytest.mark.usefixtures("shipped")
def test_an_overwrite_replaces_damaged_manifests(
    small: Path, tiny_model_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    index, chosen = tmp_path / "ix", options(tiny_model_folder, channels="bm25,dense")
    build_index(index, small, options=chosen)
    for pattern in ("manifest.json", "dense-*/manifest.json"):
        [manifest] = index.glob(pattern)
        manifest.write_text("{broken")
        report = build_index(index, small, "overwrite", chosen)
        assert (report.behind, len(vectors(index))) == ((), 2)
    assert "the manifest of the dense channel is damaged; the new vectors are of the model" in caplog.text


def test_an_overwrite_without_a_manifest_keeps_the_model_of_the_channel(
    small: Path, tiny_model_folder: Path, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, chosen = tmp_path / "ix", options(tiny_model_folder, channels="bm25,dense")
    build_index(index, small, options=replace(chosen, channels="bm25"))
    build_dense(index, str(model))
    (index / "manifest.json").write_text("{broken")
    monkeypatch.setattr("dense.channel.sync.model_for", lambda *_: pytest.fail("the channel has a model"))
    [report] = build_index(index, small, "overwrite", chosen).channels
    assert (report.model, report.encoded) == (str(model), 0)


@pytest.mark.slow
def test_ctrl_c_and_resume(corpus: Path, tiny_model_folder: Path, blocks: Calls, tmp_path: Path) -> None:
    chosen = options(tiny_model_folder)
    with pytest.raises(Interrupted):
        build_index(tmp_path / "ix", corpus, options=chosen, advance=lambda _: ctrl_c())
    assert is_begun(tmp_path / "ix", begun_generation(tmp_path / "ix"))
    first = set(flat(blocks))
    assert 0 < len(first) < N
    blocks.clear()
    # The printed remedy repeats the command without the channels; the vectors go on all the same.
    resumed = options(tiny_model_folder, resume=True, channels=None)
    [report] = build_index(tmp_path / "ix", corpus, options=resumed).channels
    assert report.passages == N
    assert not first & set(flat(blocks))
    build_index(tmp_path / "whole", corpus, options=chosen)
    assert np.array_equal(vectors(tmp_path / "ix"), vectors(tmp_path / "whole"))


@pytest.mark.slow
@pytest.mark.skipif("int8" not in capabilities(), reason="this processor has no int8")
def test_an_overwrite_in_another_arithmetic_encodes_all_vectors_again(
    corpus: Path, tiny_model_folder: Path, blocks: Calls, write_jsonl: Any, tmp_path: Path
) -> None:
    build_index(tmp_path / "ix", corpus, options=options(tiny_model_folder))
    blocks.clear()
    in_8_bits = options(tiny_model_folder, dtype="int8", channels=None)
    more = write_jsonl(tmp_path / "more.jsonl", [{"id": "more", "text": "an old city"}])
    build_index(tmp_path / "ix", more, "append", in_8_bits)
    assert flat(blocks) == ["more"], "an append encodes what is new"
    blocks.clear()
    [report] = build_index(tmp_path / "ix", corpus, "overwrite", in_8_bits).channels
    assert (report.encoded, len(flat(blocks))) == (N, N)
    build_index(tmp_path / "new", corpus, options=replace(in_8_bits, channels=CHANNELS))
    blocks.clear()
    build_index(tmp_path / "ix", corpus, "overwrite", replace(in_8_bits, channels=CHANNELS))
    assert not blocks, "vectors of the named arithmetic stay"
    assert np.array_equal(vectors(tmp_path / "ix"), vectors(tmp_path / "new"))
    described = describe_index(tmp_path / "ix")
    assert all(size > 0 for size in described["bytes"].values()), (
        "a new generation keeps the channel's folder"
    )


@pytest.mark.slow
def test_another_language_does_not_keep_the_dense_model_of_the_first(
    corpus: Path,
    tiny_model_folder: Path,
    blocks: Calls,
    model: Path,
    write_jsonl: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    build_index(tmp_path / "ix", corpus, options=options(tiny_model_folder))
    monkeypatch.undo()  # from here on with the models that ship; the channel's model is one for English
    monkeypatch.setattr("dense.channel.sync.languages_of_dense_model", lambda *_: ["en"])
    other = options(tiny_model_folder, channels="impact,bm25", language="de")
    report = build_index(tmp_path / "ix", corpus, "overwrite", other)
    assert report.behind == ("dense",)
    assert "sparta ships no dense model for the language 'de'" in caplog.text
    assert f"dense index --overwrite --model FOLDER --index {tmp_path / 'ix'}" in caplog.text
    assert caplog.text.count("--model") == 1
    caplog.clear()
    build_dense(tmp_path / "ix", str(model), overwrite=True)  # as a user who names the model
    more = write_jsonl(tmp_path / "more.jsonl", [{"id": "more", "text": "an old city"}])
    assert build_index(tmp_path / "ix", more, "append", other).behind == ()


@pytest.mark.usefixtures("shipped")
def test_vectors_of_an_earlier_release(
    corpus: Path, tiny_model_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Their folder names no language, their shards name no arithmetic."""
    build_index(tmp_path / "ix", corpus, options=options(tiny_model_folder))
    [path] = (tmp_path / "ix").glob("dense-*/vectors-*")
    store = VectorFolder(path)
    manifest = {k: v for k, v in store.manifest.items() if k not in ("language", "checksum")}
    write_manifest(path, manifest)
    for shard in store.shards:
        write_shard(path, replace(shard, arithmetic=""))
    for change, n_encoded, n_warnings in (
        ({"language": "de"}, 0, 0),
        ({"dtype": "fp32"}, N, 1),
        ({"language": "zh"}, N, 0),
    ):
        copy = Path(shutil.copytree(tmp_path / "ix", tmp_path / next(iter(change))))
        caplog.clear()
        [report] = build_index(copy, corpus, "overwrite", options(tiny_model_folder, **change)).channels
        warning = f"{N} vectors do not name their arithmetic and are encoded again"
        assert (report.encoded, caplog.text.count(warning)) == (n_encoded, n_warnings)
        shutil.rmtree(copy)


def test_no_vectors_go_into_an_index_that_takes_the_folder(index: Path, model: Path, tmp_path: Path) -> None:
    new = Path(shutil.copytree(index, tmp_path / "new"))

    def move(_: int) -> None:
        if new.exists():
            index.rename(tmp_path / "old")
            new.rename(index)

    with pytest.raises(IndexStateError, match="was replaced while it was written"):
        build_dense(index, str(model), device="cpu", advance=move, shard_sizes=ShardSizes(first=16))
    assert not list(index.glob("dense-*"))


def test_a_language_without_dense_model_fails_first(
    corpus: Path, tiny_model_folder: Path, tmp_path: Path
) -> None:
    command = ("index", "--corpus", corpus, "--model", tiny_model_folder, "--language", "de")
    result = sparta(*command, "--channels", CHANNELS, "--index", tmp_path / "ix")
    assert result.exit_code
    command = f"dense index --model FOLDER --index {tmp_path / 'ix'}"
    assert f"leave dense out of --channels, then run: {command}" in result.output
    assert not (tmp_path / "ix").exists()


def test_unknown_channels_are_refused(corpus: Path, tmp_path: Path) -> None:
    for channels in ("dense", "impact,dense", "bm25,sparse,dense"):
        with pytest.raises(InputError, match="an index has the channels"):
            build_index(tmp_path / "ix", corpus, options=IndexOptions(channels=channels))


@pytest.mark.usefixtures("shipped")
def test_bm25_and_dense(corpus: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    command = ("index", "--corpus", corpus, "--model", tiny_model_folder, "--channels", "bm25,dense")
    assert f"{N} vectors" in done(sparta, *command, "--index", tmp_path / "ix")
    assert exists(tmp_path / "ix")


STOPPER = """
import sys
from pathlib import Path

import dense.channel.indexing, dense.channel.sync, sparta.index.inputs.options
from dense.channel.builder import ShardSizes
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from sparta.lucene.bridge import ImpactWriter
from tests.stops import copies_at_stops, stop, stop_after_writes

place, corpus, sparse, dense_model = sys.argv[1:]
dense.channel.sync.model_for = lambda *_: dense_model
sparta.index.inputs.options._PASSAGES_PER_BATCH = 16
dense.channel.indexing.SHARD_SIZES = ShardSizes(seconds=0)
commit = ImpactWriter.commit
stop_after_writes()

def committing(self, *arguments):
    commit(self, *arguments)
    stop()

ImpactWriter.commit = committing
options = IndexOptions(channels="impact,bm25,dense", model=sparse, device="cpu", commit_seconds=0)
print(copies_at_stops(lambda: build_index(place, corpus, options=options), Path(place)))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("shipped")
def test_killed_at_every_write(corpus: Path, tiny_model_folder: Path, model: Path, tmp_path: Path) -> None:
    """A process stops at each write; what it has written is resumed."""
    index = tmp_path / "ix"
    command = [sys.executable, "-c", STOPPER, index, corpus, tiny_model_folder, model]
    variables = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "TOKENIZERS_PARALLELISM": "false",
    }
    ended = subprocess.run(
        list(map(str, command)), env=variables, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    expected, ranked = vectors(index), rankings(index)
    moments = int(ended.stdout)
    assert moments > 12  # manifests, four commits, four shards, the rows, the channel's manifest
    for moment in range(moments):
        place = tmp_path / f"ix-{moment}"
        build_index(place, corpus, options=options(tiny_model_folder, resume=True))
        assert np.array_equal(vectors(place), expected)
        assert rankings(place) == ranked
        shutil.rmtree(place)
