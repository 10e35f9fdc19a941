"""Searchers that nobody closes: what they hold in Java goes with them."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

from sparta.lucene.bridge import ImpactSearcher, ImpactWriter

pytestmark = pytest.mark.jvm


def test_a_searcher_that_is_forgotten_is_closed(tmp_path: Path) -> None:
    with ImpactWriter(tmp_path / "ix") as writer:
        writer.commit("{}")
    closed = []
    for _ in range(100):
        searcher = ImpactSearcher(tmp_path / "ix")
        java = searcher._java  # noqa: SLF001 (only Java's object tells that it was closed)
        assert searcher.num_docs == 0
        gone = weakref.ref(searcher)
        del searcher
        gc.collect(0)
        closed.append(gone() is None and _is_closed(java))
    assert all(closed)


def _is_closed(java: Any) -> bool:
    import jnius

    try:
        java.numDocs()
    except jnius.JavaException:
        return True
    return False
