"""An index follows a folder: only changed passages are encoded, and missing passages are deleted."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sparta import Index, IndexOptions
from sparta.base.errors import IndexStateError, InputError, MostOfIndexError, SpartaError
from sparta.data.files import files_of
from sparta.data.units import chunk_unit
from sparta.index import writer
from sparta.index.folder import IndexFolder
from sparta.index.inputs import sources
from sparta.index.pipeline import build_index
from sparta.index.sync import sync_index
from sparta.lucene.bridge import ImpactSearcher

pytestmark = pytest.mark.jvm

BM25 = IndexOptions(channels="bm25")
WORDS = ["moon", "river", "town", "mill", "wind", "wheel", "stone", "bread", "water", "light"]


def folder_of(path: Path, n: int = 8) -> Path:
    path.mkdir()
    for number in range(n):
        text = f"The {WORDS[number % 10]} is old. The {WORDS[number * 3 % 10]} is new. Both are far away."
        (path / f"{number}.md").write_text(f"# {WORDS[number % 10]}\n\n{text}\n")
    return path


def assert_like_new(index: Path, corpus: Path, options: IndexOptions) -> None:
    """The index ranks like one that is built now."""
    new = index.with_name(f"{index.name}-new")
    shutil.rmtree(new, ignore_errors=True)
    with Index.create(new, corpus, options=options) as expected, Index(index) as followed:
        assert len(followed) == len(expected)
        for word in WORDS:
            hits = {hit.passage_id: hit.score for hit in expected.search(word, 50)}
            assert {hit.passage_id: hit.score for hit in followed.search(word, 50)} == pytest.approx(hits)


@pytest.mark.slow
@pytest.mark.parametrize("unit", [None, "sentence", "chunk:6:2"])
def test_an_index_follows_its_folder(tmp_path, unit):
    options = IndexOptions(channels="bm25", unit=unit)
    corpus, index = folder_of(tmp_path / "texts"), tmp_path / "ix"
    first = sync_index(index, corpus, options)
    assert (len(first.added), first.updated, first.deleted, first.unchanged) == (8, (), (), 0)
    assert_like_new(index, corpus, options)
    (corpus / "1.md").write_text("# wheel\n\nA short text.\n")
    (corpus / "2.md").unlink()
    (corpus / "new.md").write_text("# new\n\nThe stone is light. Water and bread. A third sentence.\n")
    (corpus / "3.md").rename(corpus / "renamed.md")
    dry = sync_index(index, corpus, options, dry_run=True)
    second = sync_index(index, corpus, IndexOptions())
    assert (dry.added, dry.updated, dry.deleted, dry.unchanged) == (
        second.added,
        second.updated,
        second.deleted,
        second.unchanged,
    )
    assert (second.added, second.updated) == (("new.md", "renamed.md"), ("1.md",))
    assert (sorted(second.deleted), second.unchanged) == (["2.md", "3.md"], 5)
    assert_like_new(index, corpus, options)
    third = sync_index(index, corpus)
    assert (third.added, third.updated, third.deleted, third.unchanged) == ((), (), (), 8)


def test_a_file_that_is_removed_during_a_sync_is_deleted(tmp_path, monkeypatch):
    corpus, index = folder_of(tmp_path / "texts"), tmp_path / "ix"

    def removing(name):
        def listing(source):
            files = files_of(source)
            (corpus / name).unlink(missing_ok=True)
            return files

        monkeypatch.setattr("sparta.data.readers.file_reader.files_of", listing)

    removing("1.md")
    assert len(sync_index(index, corpus, BM25).added) == 7
    removing("2.md")
    report = sync_index(index, corpus)
    assert (report.added, report.updated, report.deleted, report.unchanged) == ((), (), ("2.md",), 6)
    assert "2.md" in report.skipped
    assert sync_index(index, corpus).unchanged == 6


@pytest.mark.parametrize("others", [0, 1])
def test_a_file_that_is_removed_before_it_is_encoded_is_named(tmp_path, monkeypatch, others):
    corpus, index = folder_of(tmp_path / "texts", 3), tmp_path / "ix"

    removed = {"2.md"}

    def building(*arguments, **settings):
        for name in removed:
            (corpus / name).unlink(missing_ok=True)
        return build_index(*arguments, **settings)

    monkeypatch.setattr("sparta.index.sync.build_index", building)
    first = sync_index(index, corpus, BM25)
    assert first.added == ("0.md", "1.md")
    assert "2.md" in first.skipped
    removed.add("1.md")
    for name in removed:
        (corpus / name).write_text("The river is new.")
    new = tuple(f"new-{number}.md" for number in range(others))
    for name in new:
        (corpus / name).write_text("The town is old.")
    second = sync_index(index, corpus)
    assert (second.added, second.updated, second.deleted, second.unchanged) == (new, (), ("1.md",), 1)
    assert "1.md" in second.skipped
    assert len(Index(index)) == 1 + others
    assert sync_index(index, corpus).unchanged == 1 + others


def test_files_that_vanish_before_they_are_encoded_do_not_empty_an_index(tmp_path, monkeypatch):
    corpus, index = folder_of(tmp_path / "texts", 3), tmp_path / "ix"
    sync_index(index, corpus, BM25)
    for name in ("0.md", "1.md"):
        (corpus / name).write_text("The river is new.")

    def building(*arguments, **settings):
        for name in ("0.md", "1.md"):
            (corpus / name).unlink()
        return build_index(*arguments, **settings)

    monkeypatch.setattr("sparta.index.sync.build_index", building)
    with pytest.raises(MostOfIndexError, match="2 of the 3 passages"):
        sync_index(index, corpus)
    assert len(Index(index)) == 3


def test_only_changed_passages_are_encoded(tmp_path, tiny_model_folder):
    options = IndexOptions(model=str(tiny_model_folder), dtype="fp32")
    corpus, index = folder_of(tmp_path / "texts"), tmp_path / "ix"
    sync_index(index, corpus, options)
    (corpus / "1.md").write_text("# wheel\n\nA short text.\n")
    (corpus / "new.md").write_text("# new\n\nThe stone is light.\n")
    sync_index(index, corpus, options)
    counts = json.loads((index / "manifest.json").read_text())["live"]["counts"]
    assert counts["passages"] == 2
    assert_like_new(index, corpus, options)


@pytest.mark.slow
@pytest.mark.parametrize("left", [0, 3])
def test_most_of_an_index_is_deleted_only_with_yes(tmp_path, left):
    corpus, index = folder_of(tmp_path / "texts"), tmp_path / "ix"
    sync_index(index, corpus, BM25)
    for path in sorted(corpus.iterdir())[left:]:
        path.unlink()
    with pytest.raises(InputError):
        sync_index(index, corpus)
    assert len(Index(index)) == 8
    if left:
        report = sync_index(index, corpus, yes=True)
        assert (len(report.deleted), report.unchanged) == (5, 3)
        assert_like_new(index, corpus, BM25)


def test_what_cannot_be_read_twice_is_refused(tmp_path):
    with pytest.raises(InputError, match="read twice"):
        sync_index(tmp_path / "ix", "-")
    with pytest.raises(InputError, match="no such file"):
        sync_index(tmp_path / "ix", tmp_path / "nowhere")
    assert not (tmp_path / "ix").exists()


def test_a_dry_run_without_an_index_makes_none(tmp_path):
    report = sync_index(tmp_path / "ix", folder_of(tmp_path / "texts"), BM25, dry_run=True)
    assert len(report.added) == 8
    with pytest.raises(IndexStateError):
        Index(tmp_path / "ix")


@pytest.fixture
def stop_first_build(monkeypatch):
    """A function that builds an index, stopped after a number of batches of two passages."""

    def stop(index: Path, corpus: Path, batches: int) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(sources, "_PASSAGES_PER_BATCH", 2)
            positions, calls = writer._positions, iter(range(100))  # noqa: SLF001 (stops between batches)

            def stop_or_go_on(*arguments):
                if next(calls) == batches:
                    raise KeyboardInterrupt
                return positions(*arguments)

            patch.setattr(writer, "_positions", stop_or_go_on)
            with pytest.raises(KeyboardInterrupt):
                sync_index(index, corpus, BM25)

    return stop


@pytest.mark.slow
@pytest.mark.parametrize("changes", [False, True])
def test_an_interrupted_first_build_is_continued_by_the_same_call(
    tmp_path, stop_first_build, caplog, changes
):
    corpus, index = folder_of(tmp_path / "texts"), tmp_path / "ix"
    stop_first_build(index, corpus, 2)
    if changes:
        (corpus / "1.md").write_text("# wheel\n\nA short text.\n")
        (corpus / "2.md").unlink()
    caplog.clear()
    dry = sync_index(index, corpus, BM25, dry_run=True)
    report = sync_index(index, corpus, BM25)
    assert (dry.added, dry.updated, dry.deleted) == (report.added, report.updated, report.deleted)
    assert len(report.added) == 4
    assert (report.updated, report.deleted) == ((("1.md",), ("2.md",)) if changes else ((), ()))
    assert_like_new(index, corpus, BM25)
    assert not caplog.records
    state = IndexFolder(index).state()
    assert state.live.complete
    assert (state.live.corpus, state.building) == (corpus, None)


@pytest.mark.slow
def test_a_first_build_without_a_commit_starts_again(tmp_path, stop_first_build):
    corpus, index = folder_of(tmp_path / "texts"), tmp_path / "ix"
    stop_first_build(index, corpus, 0)
    report = sync_index(index, corpus, BM25)
    assert (len(report.added), report.unchanged) == (8, 0)
    assert_like_new(index, corpus, BM25)


@pytest.mark.slow
def test_a_build_stopped_after_its_last_commit_is_finished(tmp_path, monkeypatch):
    corpus, index = folder_of(tmp_path / "texts"), tmp_path / "ix"

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(IndexFolder, "finish", killed)
        with pytest.raises(KeyboardInterrupt):
            sync_index(index, corpus, BM25)
    assert not IndexFolder(index).state().live
    report = sync_index(index, corpus, BM25)
    assert (report.added, report.unchanged) == ((), 8)
    assert IndexFolder(index).state().live.complete


@pytest.mark.slow
def test_a_killed_sync_is_finished_by_the_next(tmp_path):
    corpus, index = folder_of(tmp_path / "texts", 60), tmp_path / "ix"
    sync_index(index, corpus, BM25)
    rng = random.Random(1)
    command = [sys.executable, "-c", "from cli._sparta import main; main()", "sync", str(corpus), "--quiet"]
    command += ["--index", str(index)]
    started = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    seconds = time.monotonic() - started
    for turn in range(4):
        for number in rng.sample(range(60), 20):
            (corpus / f"{number}.md").write_text(
                f"# turn {turn}\n\nThe {rng.choice(WORDS)} of turn {turn}.\n"
            )
        for number in rng.sample(range(60), 6):
            (corpus / f"{number}.md").unlink(missing_ok=True)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(seconds * rng.uniform(0.4, 1.1))
        process.send_signal(signal.SIGKILL)
        process.wait()
        sync_index(index, corpus)
        assert_like_new(index, corpus, BM25)


def test_long_documents_are_compared_in_small_batches(tmp_path, monkeypatch):
    corpus = tmp_path / "c.jsonl"
    records = [{"id": f"d{number}", "text": "moon " * 400} for number in range(3)]
    corpus.write_text("".join(json.dumps(record) + "\n" for record in records))
    options = IndexOptions(channels="bm25", unit="chunk:1:0")
    sync_index(tmp_path / "ix", corpus, options)
    sizes = []
    docids = ImpactSearcher.docids
    monkeypatch.setattr(
        ImpactSearcher, "docids", lambda self, ids: sizes.append(len(ids)) or docids(self, ids)
    )
    assert sync_index(tmp_path / "ix", corpus, dry_run=True).unchanged == 3
    assert sizes == [400, 400, 400]


def test_ids_that_end_like_numbers_of_units_are_whole_ids(tmp_path):
    corpus = tmp_path / "c.jsonl"
    records = [{"id": f"doc#{number}", "text": f"The {word}."} for number, word in enumerate(WORDS)]
    corpus.write_text("".join(json.dumps(record) + "\n" for record in records))
    sync_index(tmp_path / "ix", corpus, BM25)
    again = sync_index(tmp_path / "ix", corpus)
    assert (again.added, again.updated, again.deleted, again.unchanged) == ((), (), (), len(WORDS))


@pytest.mark.parametrize("dry_run", [False, True])
def test_other_settings_are_refused_even_if_nothing_has_changed(tmp_path, tiny_model_folder, dry_run):
    corpus, index = folder_of(tmp_path / "texts", 2), tmp_path / "ix"
    options = IndexOptions(model=str(tiny_model_folder), dtype="fp32")
    sync_index(index, corpus, options)
    assert sync_index(index, corpus, options, dry_run=dry_run).unchanged == 2
    for changed, message in (
        ({"unit": "chunk:5:0"}, "the index has the unit 'passage', but the input has 'chunk:5:0'"),
        ({"top_k": 5}, "the index has the top-k none, but the input has 5"),
        ({"bits": 4}, "with 8 bits, but the options name the bits 4"),
        ({"model": "sparta-small-en"}, "but the options name the model 'sparta-small-en'"),
        ({"model": str(tmp_path / "none")}, "no such model folder"),
    ):
        with pytest.raises(SpartaError, match=message):
            sync_index(index, corpus, IndexOptions(**changed), dry_run=dry_run)
    assert sync_index(index, corpus).unchanged == 2


@pytest.mark.parametrize("unit", ["sentences", "chunk:9999999999:0:sentence", "chunk:5", 3])
def test_an_unknown_unit_leaves_the_index_as_it_is(tmp_path, unit):
    with Index.create(tmp_path / "ix", [{"id": "1", "text": "the moon"}], options=BM25) as index:
        options = IndexOptions(channels="bm25", unit=unit)
        for mode in ({"overwrite": True}, {}):
            with pytest.raises(InputError, match="unknown unit of retrieval"):
                Index.create(
                    tmp_path / ("ix" if mode else "new"), [{"id": "1", "text": "x"}], options=options, **mode
                )
        assert len(index) == 1
    with Index(tmp_path / "ix") as index:
        assert [hit.passage_id for hit in index.search("moon")] == ["1"]
    with pytest.raises(InputError, match="a chunk needs 1 to 999,999,999 words"):
        chunk_unit(10**9)
