"""An index is made, and grows by appending."""

from __future__ import annotations

import json
import resource
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tqdm import tqdm

from sparta.base.errors import IndexStateError, InputError, StorageError
from sparta.data.corpus import open_corpus
from sparta.index.build import delete_passages, optimize_index
from sparta.index.inputs.options import IndexOptions
from sparta.index.jobs import Source
from sparta.index.pipeline import build_index
from sparta.lucene.bridge import ImpactWriter
from tests.sparta.index.building import Doc, Stop, snapshot


def without_hash(source: Source) -> Source:
    """The same source, of an input that cannot be compared."""
    return replace(source, job=replace(source.job, sha256=None))


pytestmark = pytest.mark.jvm


def test_create(builder, docs):
    made = docs("a", 10)
    report = builder.write(builder.source(made), threads=3, commit_seconds=0)
    assert builder.contents() == made
    postings = sum(len(d.vector) for d in made)
    assert (report.documents, report.written["passages"], report.written["postings"]) == (10, 10, postings)
    assert report.source == {"read": 10, "used": 10}
    assert not report.unchanged
    live = builder.folder.state().live
    assert live.complete
    assert live.counts == {**report.written, "read": 10, "used": 10}
    assert builder.folder.state().building is None
    assert builder.generations() == ["sparta-000001", "tokenizer-000001"]


def test_unchanged_input_is_left_alone(builder, docs):
    builder.write(builder.source(docs("a", 10)))
    before = snapshot(builder.folder.path)
    for options in ({}, {"resume": True}):
        report = builder.write(builder.source(docs("a", 10)), **options)
        assert report.unchanged
        assert report.documents == 10
    moved = replace(builder.side, model="the same model, in another folder")
    assert builder.write(builder.source(docs("a", 10), side=moved)).unchanged
    assert snapshot(builder.folder.path) == before


def test_input_that_cannot_be_compared_is_never_the_same(builder, docs):
    source = without_hash(builder.source(docs("a", 5)))
    builder.write(source)
    with pytest.raises(IndexStateError):
        builder.write(source)


def test_an_index_is_not_changed_without_being_told(builder, docs):
    made = docs("a", 10)
    builder.write(builder.source(made))
    before = snapshot(builder.folder.path)
    other = replace(builder.side, model_hash="another")
    for source, options in (
        (builder.source(docs("b", 3)), {}),
        (builder.source(made, name="elsewhere.jsonl"), {}),
        (builder.source(made, side=other), {}),
        (builder.source(made), {"language": "de"}),
        (builder.source(docs("b", 3)), {"resume": True}),
    ):
        with pytest.raises(IndexStateError, match="an index of another input, or with other") as caught:
            builder.write(source, **options)
        assert "--append" in caught.value.remedy.for_command_line()
        assert "--overwrite" in caught.value.remedy.for_command_line()
    assert snapshot(builder.folder.path) == before


def test_optimize_merges_into_one_segment(builder, docs):
    made = docs("a", 20)
    builder.write(builder.source(made), commit_seconds=0, optimize=True)
    assert builder.contents() == made
    lucene = builder.folder.lucene_path(builder.folder.state().live)
    assert len(list(lucene.glob("_*.si"))) == 1


def test_ctrl_c_in_a_merge_waits_for_its_commit(builder, docs, monkeypatch):
    """A repeated command does not merge again."""
    merges, merge = [], ImpactWriter.force_merge

    def interrupted(writer, segments):
        merge(writer, segments)
        merges.append(segments)
        signal.raise_signal(signal.SIGINT)

    def segments():
        return len(list(builder.folder.lucene_path(builder.folder.state().searchable).glob("_*.si")))

    monkeypatch.setattr(ImpactWriter, "force_merge", interrupted)
    source = builder.source(docs("a", 20))
    with pytest.raises(KeyboardInterrupt):
        builder.write(source, commit_seconds=0, optimize=True)
    assert (segments(), builder.progress().done, builder.folder.state().live) == (1, True, None)
    assert builder.write(source, resume=True, optimize=True).documents == 20
    assert builder.folder.state().live.complete
    builder.write(builder.source(docs("b", 3), name="b"), "append")
    with pytest.raises(KeyboardInterrupt):
        optimize_index(builder.folder)
    assert (segments(), len(merges)) == (1, 2)


@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of files")
def test_a_merge_on_a_full_disk_leaves_no_files(builder, docs):
    for number in range(3):
        mode = "append" if number else "create"
        builder.write(builder.source(docs(f"{number}x", 200), name=str(number)), mode)
    lucene = builder.folder.lucene_path(builder.folder.require_live())
    sizes = {path.name: path.stat().st_size for path in lucene.iterdir()}
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (max(sizes.values()) // 2, usual[1]))
    try:
        with pytest.raises(StorageError):
            optimize_index(builder.folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert {path.name: path.stat().st_size for path in lucene.iterdir()} == sizes


def test_unknown_mode(builder, docs):
    with pytest.raises(
        InputError, match="expected the index mode create, overwrite, append, update, found 'x'"
    ):
        builder.write(builder.source(docs("a", 3)), "x")


def test_append(builder, docs):
    a, b, c = docs("a", 10), docs("b", 7), docs("c", 1)
    builder.write(builder.source(a))
    report = builder.write(builder.source(b, name="b"), "append", commit_seconds=0)
    assert (report.documents, report.written["passages"]) == (17, 7)
    assert builder.contents() == a + b
    assert builder.write(builder.source(b, name="b"), "append").unchanged
    builder.write(builder.source(c, name="c"), "append")
    assert builder.contents() == a + b + c
    assert builder.folder.state().live.complete
    assert builder.generations() == ["sparta-000001", "tokenizer-000001"]


def test_what_grew_is_not_what_was_appended(builder, docs):
    """After A and B neither A nor B alone is `up to date`."""
    a, b = docs("a", 5), docs("b", 5)
    builder.write(builder.source(a, name="a"))
    builder.write(builder.source(b, name="b"), "append")
    for same, name, found in ((a, "a", "changed afterwards by the append of b"), (b, "b", "another input")):
        with pytest.raises(IndexStateError, match=found):
            builder.write(builder.source(same, name=name))
    assert builder.contents() == a + b


@pytest.mark.parametrize("mode", ["append", "update"])
def test_growing_needs_an_index(builder, docs, mode):
    with pytest.raises(IndexStateError, match="there is no index here"):
        builder.write(builder.source(docs("a", 3)), mode)
    assert not builder.folder.path.exists()
    with pytest.raises(KeyboardInterrupt):
        builder.write(builder.source(docs("a", 9), before=Stop(2, KeyboardInterrupt())))
    with pytest.raises(IndexStateError, match="is unfinished"):
        builder.write(builder.source(docs("b", 3)), mode)


def test_an_index_knows_what_it_was_made_from(builder, docs):
    """After every job, of whatever mode; an overwrite makes it from something else."""
    a, b = docs("a", 3), docs("b", 3)

    def corpus() -> Path | None:
        return builder.folder.state().live.corpus

    builder.write(builder.source(a, name="/data/a"))
    assert corpus() == Path("/data/a")
    assert "origin" not in json.loads((builder.folder.path / "manifest.json").read_text())["live"]
    builder.write(builder.source(b, name="/data/b"), "append")
    assert corpus() == Path("/data/a")
    with pytest.raises(InputError):
        builder.write(builder.source(b, name="/data/c"), "append")
    builder.write(builder.source(b[:1], name="/data/d"), "update")
    delete_passages(builder.folder, ["a1"])
    assert corpus() == Path("/data/a")
    assert builder.folder.state().live.job.source == "/data/d"
    builder.write(builder.source(a, name="-"), "overwrite")
    assert corpus() is None
    builder.write(builder.source(b, name="/data/b"), "append")
    assert corpus() is None


def test_an_id_twice_stops_an_append(builder, docs, caplog):
    """Nothing of it stays, and the index is as good as before."""
    a, b = docs("a", 10), docs("b", 7)
    builder.write(builder.source(a))
    before = builder.folder.state()
    with pytest.raises(InputError, match="the index already holds a passage with the id 'a3'") as caught:
        builder.write(builder.source([*b, a[3]], name="b"), "append")
    assert "sparta update" in caught.value.remedy.for_command_line()
    assert builder.folder.state() == before
    assert builder.contents() == a
    assert builder.ranking("moon") is not None
    assert not caplog.records
    builder.write(builder.source(b, name="b"), "append")
    assert builder.contents() == a + b


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["passage", "sentence"])
def test_a_stored_id_stops_an_append_before_anything_is_read_into_batches(tmp_path, calls, unit):
    from sparta.index.inputs.sources import corpus_source, text_source

    opened = calls(corpus_source, text_source)
    index = tmp_path / "ix"
    records = [{"id": f"p{number}", "text": "The moon is old. The sun is new."} for number in range(5)]
    build_index(index, records, "create", IndexOptions(channels="bm25", unit=unit))
    assert len(opened) == 1
    new = [{"id": f"q{number}", "text": "A town."} for number in range(1200)]
    with pytest.raises(InputError, match="already holds a passage with the id 'p3'"):
        build_index(index, [*new, records[3]], "append", IndexOptions())
    assert len(opened) == 1


@pytest.mark.parametrize("total", [2, None])
def test_a_progress_bar_around_a_generator_is_read_once(tmp_path, total):
    index = tmp_path / "ix"
    build_index(index, [{"id": "a", "text": "the moon"}], options=IndexOptions(channels="bm25"))
    new = ({"id": f"b{number}", "text": "the sun"} for number in range(2))
    bar = tqdm(new, total=total, disable=True)
    assert open_corpus(bar).size == (total, False)
    assert build_index(index, bar, "append").written["passages"] == 2


def test_an_append_that_failed_late_is_mended_by_an_update(builder, docs, caplog):
    a, b = docs("a", 10), docs("b", 8)
    changed = Doc("a3", {"moon": 3})
    builder.write(builder.source(a))
    with pytest.raises(InputError, match="'a3'"):
        builder.write(builder.source([*b, changed], name="b"), "append", commit_seconds=0)
    assert builder.contents() == a + b
    with pytest.raises(IndexStateError, match="the append of b was interrupted"):
        builder.write(builder.source(docs("c", 1), name="c"), "append")
    builder.ranking("moon")
    assert "incomplete" in caplog.text
    builder.write(builder.source([*b, changed], name="b"), "update")
    assert builder.contents() == [*a[:3], changed, *a[4:], *b]
    assert builder.folder.state().live.complete


def test_an_append_killed_before_it_wrote_hinders_nothing(builder, docs):
    a, b = docs("a", 10), docs("b", 8)
    builder.write(builder.source(a))
    state = builder.folder.state()
    begun = replace(builder.source(b, name="b").job, mode="append")
    builder.folder.write_state(replace(state, live=replace(state.live, job=begun, complete=False)))
    builder.write(builder.source(docs("c", 2), name="c"), "append")
    assert builder.contents() == a + docs("c", 2)
    assert builder.folder.state().live.complete


@pytest.mark.parametrize("source", ["-", "records"])
def test_an_update_after_an_interrupted_job_that_nothing_can_be_compared_with(builder, docs, caplog, source):
    """Whether it holds the rest of that job, only the user knows, who is told."""
    a, b, c = docs("a", 10), docs("b", 8), docs("c", 2)
    builder.write(builder.source(a))

    def stream(*args: Any, **options: Any) -> Source:
        return without_hash(builder.source(*args, name=source, **options))

    with pytest.raises(KeyboardInterrupt):
        builder.write(stream(b, before=Stop(1, KeyboardInterrupt())), "append")
    builder.write(stream(c), "update")
    name = {"-": "standard input"}.get(source, source)
    told = f"the append of {name} was interrupted after 4 passages"
    assert caplog.text.count(told) == 1
    assert builder.contents() == [*a, *b[:4], *c]
    caplog.clear()
    builder.write(stream(c), "update")
    assert not caplog.records
