"""A dense channel that cannot follow: the write counts, and the channel is told of beside it."""

from __future__ import annotations

import json
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from dense.channel.searcher import DenseSearcher
from dense.channel.sync import build_dense
from sparta.api import Index
from sparta.index.folder import IndexFolder
from sparta.index.inputs.options import IndexOptions
from tests.dense.channel.channels import N, done
from tests.moments import at
from tests.programs import dense, sparta

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("one_thread")]
NEW = {"id": "new", "text": "a city of the moon"}


@pytest.fixture
def moved(index: Path, model: Path, tmp_path: Path) -> Path:
    """An index whose dense model lies no more where it lay."""
    own = Path(shutil.copytree(model, tmp_path / "own"))
    build_dense(index, str(own))
    own.rename(tmp_path / "elsewhere")
    return index


@pytest.fixture
def options(tiny_model_folder: Path) -> IndexOptions:
    return IndexOptions(model=str(tiny_model_folder))


@pytest.mark.slow
def test_commands_write_warn_and_fail(moved: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "new.jsonl").write_text(json.dumps(NEW) + "\n")
    update = ["update", "--corpus", tmp_path / "new.jsonl", "--model", tiny_model_folder]
    for command, said in ((update, f"{N + 1} passages"), (["delete", "n1"], "deleted 1 of 1")):
        result = sparta(*command, "--index", moved)
        assert result.exit_code == 1, result.output
        assert said in result.stdout
        warning = " ".join(result.stderr.split())
        assert f"{moved}: the Lucene index is committed, but the dense channel failed to update" in warning
        assert f"dense index --model FOLDER --index {moved}" in warning
    done(dense, "index", "--model", tmp_path / "elsewhere", "--index", moved)
    with Index(moved) as index:
        assert len(index.search("moon", N + 1, channel="dense")) == N


@pytest.mark.slow
def test_an_open_index_searches_what_it_wrote(moved: Path, options: IndexOptions) -> None:
    with Index(moved) as index:
        assert index.append([NEW], options=options).behind == ("dense",)
        assert "new" in [hit.passage_id for hit in index.search("city moon", N)]
        assert index.delete(["new"]) == 1
        assert len(index) == N


def test_a_lock_that_another_writer_took_meanwhile(
    made: Path, options: IndexOptions, caplog: pytest.LogCaptureFixture
) -> None:
    """The write of Lucene's index takes the lock first, the channel second."""
    with Index(made) as index, ExitStack() as other:
        other.enter_context(at("write", "lock", lambda: other.enter_context(IndexFolder(made).lock()), nth=2))
        report = index.update([NEW], options=options)
    assert (report.documents, report.channels, report.behind) == (N + 1, (), ("dense",))
    (told,) = [r.getMessage() for r in caplog.records if r.name == "sparta.index.channels"]
    assert "another process is writing to this index" in told
    assert told.endswith(f"; then run: dense index --index {made}")


def test_what_is_no_error_of_the_channel_is_raised(made: Path, options: IndexOptions) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    moment = at("rename", "shard-*.safetensors", broken)
    with Index(made) as index, moment, pytest.raises(ZeroDivisionError):
        index.update([NEW], options=options)


def test_a_moved_model_is_found_in_the_working_folder(
    moved: Path, options: IndexOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its hash, in a folder of the same name; searching finds it too."""
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "elsewhere").rename(work / "own")
    monkeypatch.chdir(work)
    with Index(moved) as index:
        assert index.append([NEW], options=options).behind == ()
    with DenseSearcher(moved) as searcher:
        assert searcher.num_docs == N + 1
        assert searcher.search("a city of the moon")
