"""A corpus that changes during its first build, or after the build failed: a sync keeps the passages."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from sparta import Index
from sparta.base.errors import IndexStateError, InputError
from sparta.index.inputs.options import IndexOptions

pytestmark = pytest.mark.jvm
BM25 = IndexOptions(channels="bm25", commit_seconds=0.0)
RESUMED = IndexOptions(channels="bm25", commit_seconds=0.0, resume=True)


def lines(first: int, end: int) -> str:
    return "".join(
        json.dumps({"id": f"p{n}", "text": f"moon {n} " + "x" * 1000}) + "\n" for n in range(first, end)
    )


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A corpus whose last line is wrong."""
    path = tmp_path / "c.jsonl"
    path.write_text(lines(0, 2500) + '{"id": "last", "text": "x",}\n')
    return path


@pytest.mark.parametrize(("mode", "options"), [("create", BM25), ("create", RESUMED), ("overwrite", RESUMED)])
def test_the_error_names_the_call_that_keeps_the_passages(
    corpus: Path, tmp_path: Path, mode: str, options: IndexOptions
) -> None:
    path = tmp_path / "ix"
    with pytest.raises(InputError, match="broken JSON"):
        Index.create(path, corpus, overwrite=mode == "overwrite", options=BM25)
    corpus.write_text(lines(0, 2501))
    with pytest.raises(IndexStateError) as caught:
        Index.create(path, corpus, overwrite=mode == "overwrite", options=options)
    (sync,) = caught.value.remedy.commands
    report = eval(sync.for_python(), {"Index": Index, "IndexOptions": IndexOptions})
    assert (report.unchanged, len(report.added)) == (2000, 501)
    assert caught.value.remedy.options[-1].name == "overwrite"


def test_a_failed_overwrite_keeps_its_remedy(corpus: Path, tmp_path: Path) -> None:
    """A sync would change the live index, not the unfinished one."""
    path = tmp_path / "ix"
    Index.create(path, [{"id": "old", "text": "sun"}], options=BM25).close()
    with pytest.raises(InputError, match="broken JSON"):
        Index.create(path, corpus, overwrite=True, options=BM25)
    corpus.write_text(lines(0, 2501))
    with pytest.raises(IndexStateError, match="the input has changed") as caught:
        Index.create(path, corpus, overwrite=True, options=RESUMED)
    assert not caught.value.remedy.commands


def test_a_corpus_that_was_removed_is_not_synced(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="broken JSON"):
        Index.create(tmp_path / "ix", corpus, options=BM25)
    corpus.rename(tmp_path / "d.jsonl")
    with pytest.raises(IndexStateError, match="an unfinished index") as caught:
        Index.create(tmp_path / "ix", tmp_path / "d.jsonl", options=BM25)
    assert not caught.value.remedy.commands


@pytest.mark.parametrize("grows", [False, True])
def test_a_corpus_that_grows_while_it_is_read(
    corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, grows: bool
) -> None:
    corpus.write_text(lines(0, 5000))

    def grow(_: int) -> None:
        if grows:
            corpus.write_text(lines(1, 5001))

    with caplog.at_level(logging.WARNING):
        Index.create(tmp_path / "ix", corpus, options=BM25, advance=grow).close()
    warnings = [record.getMessage() for record in caplog.records if "changed while" in record.getMessage()]
    assert len(warnings) == grows
    if grows:
        assert f".sync('{corpus}')" in warnings[0]
        report = Index(tmp_path / "ix").sync(corpus)
        assert report.added or report.updated, "the build read a mixture of both versions"
        assert Index(tmp_path / "ix").sync(corpus).unchanged == 5000
