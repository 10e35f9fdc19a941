"""An index that is opened anew while it is searched: hits and their records are of one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from sparta.lucene.bridge import ImpactSearcher
from sparta.search.searcher import Searcher

pytestmark = pytest.mark.jvm
OLD = [{"id": name, "text": f"moon {name}"} for name in ("a", "b", "c")]
NEW = [{"id": name, "text": f"moon {name}"} for name in ("x", "a")]


def write(path: Path, records: list[dict[str, str]]) -> None:
    build_index(path, records, "overwrite", IndexOptions(channels="bm25"))


@pytest.fixture
def changing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Searcher]:
    """A searcher of an index that another thread replaces, and opens anew, before any records are read."""
    write(tmp_path / "ix", OLD)
    with Searcher(tmp_path / "ix", channel="bm25") as searcher:
        read = ImpactSearcher.ids

        def change() -> None:
            write(tmp_path / "ix", NEW)
            assert searcher.refresh()

        others = iter([Thread(target=change)])

        def ids(self: ImpactSearcher, docids: Any) -> list[str]:
            found = read(self, docids)
            for other in others:  # only at the first call
                other.start()
                other.join()
            return found

        monkeypatch.setattr(ImpactSearcher, "ids", ids)
        yield searcher


@pytest.mark.slow
@pytest.mark.parametrize(
    "search",
    [
        lambda own: own.search("moon"),
        lambda own: own.batch_search(["moon"], ["q"])["q"],
        lambda own: own.hits_of([0, 1, 2]),
    ],
    ids=["search", "batch_search", "hits_of"],
)
def test_records_are_of_the_commit_that_was_ranked(
    changing: Searcher, search: Callable[[Searcher], list[Any]]
) -> None:
    assert {hit.passage_id: hit.text for hit in search(changing)} == {r["id"]: r["text"] for r in OLD}
    assert {hit.passage_id for hit in changing.search("moon")} == {"x", "a"}, "later searches see the new one"
