"""A job that was interrupted goes on from its last commit."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sparta.base.errors import IndexStateError, InputError
from sparta.index.folder import IndexFolder
from sparta.index.generation import Progress
from sparta.index.inputs.impact_batches import ImpactBatch
from sparta.index.jobs import skip_passages
from sparta.models.quantize import Quantizer
from sparta.search.searcher import Searcher
from tests.sparta.index.building import Builder, Doc, Stop

pytestmark = pytest.mark.jvm

ERRORS = {"Ctrl-C": KeyboardInterrupt, "bad input": InputError, "another": OSError}


@pytest.mark.slow
@pytest.mark.parametrize("commit_seconds", [0, 1e9])
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("mode", ["create", "overwrite", "append", "update"])
def test_resume_after_an_exception_at_each_batch(tmp_path, side, docs, mode, error, commit_seconds):
    old, new = docs("a", 6), docs("b", 11)
    if mode == "update":
        new[5] = Doc("a2", {"moon": 1})
    expected = old + new if mode == "append" else new
    if mode == "update":
        expected = [*old[:2], new[5], *old[3:], *new[:5], *new[6:]]
    for at in range(4):
        builder = Builder(IndexFolder(tmp_path / str(at)), side)
        if mode != "create":
            builder.write(builder.source(old))
        stopped = builder.source(new, name="new", before=Stop(at, ERRORS[error]("stopped")))
        with pytest.raises(ERRORS[error]):
            builder.write(stopped, mode, commit_seconds=commit_seconds)
        kept = error == "Ctrl-C" or (error == "bad input" and mode in ("create", "overwrite"))
        consumed = min(11, 4 * at) if kept or not commit_seconds else 0
        check_kept(builder, mode, old, new, consumed)
        read: list[int] = []
        builder.write(builder.source(new, name="new", before=read.append), mode, resume=True)
        assert read == list(range(math.ceil(consumed / 4), 4))
        assert builder.contents() == expected
        assert builder.folder.state().building is None
        assert builder.folder.state().live.complete
        assert builder.progress().consumed == 11
        assert len(builder.generations()) == 2


def check_kept(builder: Builder, mode: str, old: list[Doc], new: list[Doc], consumed: int) -> None:
    """What a stopped job left: every passage it committed, and the index as it was otherwise."""
    state = builder.folder.state()
    if mode == "create":
        if not consumed:
            assert not any(builder.folder.lucene_path(state.building).glob("segments_*"))
            return
        assert builder.contents() == new[:consumed]
    elif mode == "overwrite":
        assert builder.contents() == old
    elif mode == "append":
        assert builder.contents() == old + new[:consumed]
        assert state.live.complete is (consumed == 0)
    else:
        ids = {d.passage_id for d in builder.contents()}
        assert ids == {d.passage_id for d in (*old, *new[:consumed])}


def test_an_unfinished_index_is_neither_forgotten_nor_mixed_up(builder, docs, caplog):
    a = docs("a", 12)
    with pytest.raises(KeyboardInterrupt):
        builder.write(builder.source(a, before=Stop(2, KeyboardInterrupt())))
    assert len(builder.ranking("moon")) == sum("moon" in d.vector for d in a[:8])
    assert "incomplete because the indexing of a.jsonl was interrupted" in caplog.text
    caplog.clear()
    with builder.folder.lock():  # as a writer that is at work holds it
        builder.ranking("moon")
    assert "searches cover the last commit" in caplog.text
    assert "--resume" not in caplog.text
    with pytest.raises(IndexStateError, match=r"an unfinished index of a\.jsonl") as caught:
        builder.write(builder.source(a))
    assert "--resume" in caught.value.remedy.for_command_line()
    other = replace(builder.side, quantizer=Quantizer(9.0))
    for source, options, message in (
        (builder.source(docs("b", 12)), {}, "has changed since"),
        (builder.source(a, name="b.jsonl"), {}, "differ from those that started this index: source"),
        (builder.source(a), {"language": "de"}, "differ from those that started this index: language"),
        (builder.source(a, side=other), {}, r"differing: quantizer"),
    ):
        with pytest.raises(IndexStateError, match=message):
            builder.write(source, resume=True, **options)
    assert builder.contents() == a[:8]
    builder.write(builder.source(a), resume=True)
    assert builder.contents() == a


def test_a_build_without_a_commit_is_simply_begun_again(builder, docs, caplog):
    with pytest.raises(OSError, match="x"):
        builder.write(builder.source(docs("a", 12), before=Stop(2, OSError("x"))))
    with pytest.raises(IndexStateError, match="holds no passages yet"):
        Searcher(builder.folder.path)
    builder.write(builder.source(docs("b", 3)))
    assert builder.contents() == docs("b", 3)
    assert builder.generations() == ["sparta-000002", "tokenizer-000002"]
    assert not caplog.records


@pytest.mark.parametrize("mode", ["create", "append"])
def test_ctrl_c_between_writing_a_batch_and_counting_it(builder, docs, monkeypatch, mode):
    old = docs("o", 3) if mode == "append" else []
    if old:
        builder.write(builder.source(old))
    a = docs("a", 12)
    add = Progress.add

    def interrupted(self: Progress, *batch: Any) -> None:
        if self.consumed == 4:
            raise KeyboardInterrupt
        add(self, *batch)

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            builder.write(builder.source(a, name="new"), mode, commit_seconds=0)
    assert builder.contents() == old + a[:4]
    builder.write(builder.source(a, name="new"), mode, resume=True)
    assert builder.contents() == old + a


def test_a_kill_between_the_last_commit_and_the_manifest(builder, docs, monkeypatch):
    a = docs("a", 12)
    with monkeypatch.context() as patch:
        patch.setattr(IndexFolder, "finish", lambda *_: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            builder.write(builder.source(a))
    read: list[int] = []
    report = builder.write(builder.source(a, before=read.append), resume=True)
    assert read == []
    assert report.written["passages"] == 12
    assert report.source == {"read": 12, "used": 12}
    assert builder.contents() == a
    assert builder.folder.state().live.complete


def test_every_commit_carries_its_progress(builder, docs):
    a, b = docs("a", 10), docs("b", 10)
    builder.write(builder.source(a))
    seen: list[tuple[int, int, int, str, bool]] = []

    def look(number: int) -> None:
        with builder.reader() as reader:
            progress = Progress.loads(reader.user_data)
            state = (progress.consumed, progress.next_position, progress.last_id, progress.done)
            seen.append((reader.num_docs, *state))

    builder.write(builder.source(b, name="b", before=look), "append", commit_seconds=0)
    assert seen[1:] == [(14, 4, 14, "b3", False), (18, 8, 18, "b7", False), (20, 10, 20, "b9", False)]
    assert seen[0] == (10, 10, 10, "a9", True)
    last = builder.progress()
    assert (last.consumed, last.done, last.counts["passages"]) == (10, True, 10)


def test_progress_survives_its_text():
    assert Progress.loads("") == Progress()
    progress = Progress("j", 5, "größe", 9, True, {"clipped": 1, "absolute_error": 0.25}, {"read": 5})
    assert Progress.loads(progress.dumps()) == progress
    of_a_later_release = Progress.loads('{"job": "j", "also": 1}')
    assert of_a_later_release.job == "j"
    assert json.loads(of_a_later_release.dumps())["also"] == 1


def test_the_next_job_keeps_the_fields_of_a_later_release(builder, docs, monkeypatch):
    dumps = Progress.dumps
    with monkeypatch.context() as patch:
        patch.setattr(Progress, "dumps", lambda self: dumps(replace(self, later={"also": 1})))
        builder.write(builder.source(docs("a", 3)))
    builder.write(builder.source(docs("b", 3), name="b"), "append")
    assert builder.progress().later == {"also": 1}


def test_skipping_never_cuts_a_batch():
    def batch(*ids: str) -> ImpactBatch:
        empty = np.zeros(0, np.int32)
        records = [json.dumps({"id": i}) for i in ids]
        return ImpactBatch(ids, records, ids, np.zeros(len(ids) + 1, np.int32), empty, empty, [f"t{ids[0]}"])

    batches = [batch("a", "b"), batch("c"), batch("d", "e"), batch("f")]

    def left(count: int) -> list[tuple[str, list[str]]]:
        return [("".join(b.passage_ids), list(b.new_terms)) for b in skip_passages(batches, count)]

    assert left(0) == [("ab", ["ta"]), ("c", ["tc"]), ("de", ["td"]), ("f", ["tf"])]
    assert left(3) == [("de", ["ta", "tc", "td"]), ("f", ["tf"])]
    assert left(6) == []
    checked: list[tuple[int, str]] = []
    for count in (0, 3, 9):
        list(skip_passages(batches, count, lambda *seen: checked.append(seen)))
    assert checked == [(3, "c"), (6, "f")]
    for count in (1, 4):
        with pytest.raises(IndexStateError, match="batches differ"):
            left(count)
