"""The bar of a corpus: bytes of the files, of passages that are done."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from sparta.api import Index
from sparta.base.progress import ReadingProgress
from sparta.data.corpus import open_corpus
from sparta.index.inputs.options import IndexOptions
from tests.moments import counted
from tests.sparta.base.progress_bars import Bar, bars  # noqa: F401 (a fixture)

LINES = [b'{"id": "%d", "text": "%s"}\n' % (n, b"moon " * (n + 1)) for n in range(50)]


def followed(corpus: Any, count: int, bars: list[Bar]) -> Bar:  # noqa: F811
    """The bar after so many passages are done."""
    reader = open_corpus(corpus)
    with ReadingProgress(shown=True) as progress:
        passages = progress.follow(reader, iter(reader))
        for _ in range(count):
            next(passages)
        list(passages)  # read ahead: what is not done does not count
        progress.advance(count)
    [bar] = bars
    assert bar.closed
    return bar


@pytest.mark.parametrize("count", [0, 1, 7, 50])
def test_the_bytes_of_passages_that_are_done(tmp_path: Path, count: int, bars: list[Bar]) -> None:  # noqa: F811
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b"".join(LINES))
    bar = followed(path, count, bars)
    assert (bar.total, bar.options["unit"]) == (path.stat().st_size, "B")
    assert bar.n == sum(map(len, LINES[:count]))
    assert f"{count:,} passages" in bar.postfix or not count


def test_a_compressed_file_ends_at_its_size(tmp_path: Path, bars: list[Bar]) -> None:  # noqa: F811
    path = tmp_path / "corpus.jsonl.gz"
    path.write_bytes(gzip.compress(b"".join(LINES)))
    bar = followed(path, 50, bars)
    assert bar.n == bar.total == path.stat().st_size


def test_a_folder_counts_all_its_files(tmp_path: Path, bars: list[Bar]) -> None:  # noqa: F811
    for number, lines in enumerate((LINES[:20], LINES[20:])):
        (tmp_path / f"{number}.jsonl").write_bytes(b"".join(lines))
    bar = followed(tmp_path, 50, bars)
    assert bar.n == bar.total == sum(map(len, LINES))


def test_records_in_memory_are_counted(bars: list[Bar]) -> None:  # noqa: F811
    bar = followed(["moon", "sun", "ice"], 2, bars)
    assert (bar.total, bar.n, bar.options["unit"]) == (3, 2, "passage")


def test_a_stream_has_a_rate_alone(bars: list[Bar]) -> None:  # noqa: F811
    bar = followed(iter(["moon", "sun", "ice"]), 2, bars)
    assert (bar.total, bar.n, bar.options["unit"]) == (None, 2, "passage")


def test_a_corpus_is_opened_once(tmp_path: Path) -> None:
    """Its form, its hash and its passages are read through one open file."""
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b"".join(LINES))
    options = IndexOptions(channels="bm25")
    with counted("read", str(path)) as opened:
        with Index.create(tmp_path / "ix", path, options=options) as index:
            assert len(index) == 50
        assert len(opened) == 1
        with Index.create(tmp_path / "ix", path, options=options) as index:  # its hash says: nothing to do
            assert index.report
            assert index.report.unchanged
        assert len(opened) == 2
