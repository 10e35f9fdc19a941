"""Python callers hear of records that were skipped: a warning, and counts in the report."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from sparta import Index
from sparta.index.inputs.options import IndexOptions

pytestmark = pytest.mark.jvm
OPTIONS = IndexOptions(channels="bm25", skip_invalid=True)


@pytest.mark.slow
def test_skips_are_counted_and_told(tmp_path: Path) -> None:
    records = [{"id": "a", "text": "moon"}, {"id": "a b", "text": "sun"}, {"id": "c", "text": ""}]
    with pytest.warns(UserWarning, match="2 of 3 records were skipped") as caught:
        index = Index.create(tmp_path / "ix", records, options=OPTIONS)
    assert Path(caught[0].filename) == Path(__file__)
    with index:
        assert index.report is not None
        assert {k: index.report.source[k] for k in ("read", "used", "skipped")} == {
            "read": 3,
            "used": 1,
            "skipped": 2,
        }
        with pytest.warns(UserWarning, match="1 of 2 records were skipped") as caught:
            report = index.append(
                [{"id": "x" * 600, "text": "sun"}, {"id": "d", "text": "sun"}], options=OPTIONS
            )
        assert Path(caught[0].filename) == Path(__file__)
        assert report == index.report
        assert sum(report.source["reasons"].values()) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            index.update([{"id": "d", "text": "star"}])
