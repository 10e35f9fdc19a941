"""An interrupted first build, and a sync that accepted it but added nothing: the remedies complete it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparta import Index
from sparta.base.batches import bounded_batches
from sparta.base.errors import IndexStateError, Interrupted
from sparta.base.records import Passage
from sparta.index import sync
from sparta.index.folder import IndexFolder
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from sparta.index.verify import verify_index
from tests.moments import ctrl_c

pytestmark = pytest.mark.jvm
BM25 = IndexOptions(channels="bm25", commit_seconds=0.0)
RESUMED = IndexOptions(channels="bm25", commit_seconds=0.0, resume=True)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    lines = (json.dumps({"id": f"p{number}", "text": f"moon {number}"}) for number in range(2500))
    (tmp_path / "c.jsonl").write_text("\n".join(lines))
    return tmp_path / "c.jsonl"


@pytest.fixture
def accepted(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index of 1,000 of 2,500 passages: a build and then a sync were interrupted."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        build_index(tmp_path / "ix", corpus, options=BM25, advance=interrupt)
    with monkeypatch.context() as patched:
        patched.setattr(sync, "build_index", interrupt)
        with pytest.raises(KeyboardInterrupt):
            sync.sync_index(tmp_path / "ix", corpus, BM25)
    assert verify_index(tmp_path / "ix")[0].remedy
    return tmp_path / "ix"


@pytest.mark.parametrize("mode", ["create", "overwrite"])
def test_the_build_continues(accepted: Path, corpus: Path, mode: str) -> None:
    report = build_index(accepted, corpus, mode, RESUMED)
    assert (report.unchanged, report.documents) == (False, 2500)
    with Index(accepted) as index:
        assert len(index) == 2500
    assert not verify_index(accepted)[0].remedy
    assert IndexFolder(accepted).require_live().complete


def test_a_second_build_is_refused(accepted: Path, corpus: Path) -> None:
    with pytest.raises(IndexStateError) as refused:
        build_index(accepted, corpus, options=BM25)
    assert "--resume" in refused.value.remedy.for_command_line()
    with Index(accepted) as index:
        assert len(index) == 1000


def test_a_second_build_beside_an_overwrite_is_refused(accepted: Path, corpus: Path, tmp_path: Path) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    (tmp_path / "other.jsonl").write_text(corpus.read_text())
    with pytest.raises(Interrupted):
        build_index(accepted, tmp_path / "other.jsonl", "overwrite", BM25, advance=interrupt)
    with pytest.raises(IndexStateError, match="an unfinished index of"):
        build_index(accepted, corpus, options=BM25)


def test_a_sync_completes_it(accepted: Path, corpus: Path) -> None:
    assert len(sync.sync_index(accepted, corpus, BM25).added) == 1500
    with Index(accepted) as index:
        assert len(index) == 2500
    assert not verify_index(accepted)[0].remedy


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_sync_of_a_moved_corpus_completes_it(
    accepted: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    moved = corpus.rename(corpus.with_name("moved.jsonl"))
    if is_killed:
        with monkeypatch.context() as patched:
            patched.setattr("sparta.index.writer._complete", lambda *_: ctrl_c())
            with pytest.raises(KeyboardInterrupt):
                sync.sync_index(accepted, moved, BM25)
    sync.sync_index(accepted, moved, BM25)
    with Index(accepted) as index:
        assert len(index) == 2500
    assert not verify_index(accepted)[0].remedy


def test_a_resumed_build_of_a_moved_corpus_names_the_sync(accepted: Path, corpus: Path) -> None:
    moved = corpus.rename(corpus.with_name("moved.jsonl"))
    with pytest.raises(IndexStateError, match="differ from those that started this index: source") as refused:
        build_index(accepted, moved, options=RESUMED)
    assert refused.value.remedy.for_command_line().startswith(
        f"keep the committed passages with: sparta sync {moved} --index {accepted}"
    )


def test_an_update_of_another_file_is_still_refused(accepted: Path, tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text('{"id": "new", "text": "sun"}')
    with pytest.raises(IndexStateError, match="must be finished first"):
        build_index(accepted, tmp_path / "other.jsonl", "update", BM25)


def test_batches_of_long_texts_are_short() -> None:
    units = [Passage(str(number), "x" * size) for number, size in enumerate([9, 9, 30, 1, 1, 1])]
    batches = [
        [unit.passage_id for unit in batch]
        for batch in bounded_batches(units, lambda unit: len(unit.text), 20, 2)
    ]
    assert batches == [["0", "1"], ["2"], ["3", "4"], ["5"]]
