"""Indexes of commit 5bddf66 with all parts (`tests/make_formats.py`): later versions read and change them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dense import build_dense
from dense.channel.folder import ChannelFolder
from dense.search.store import VectorFolder
from hybrid import Fusion, HybridSearcher
from sparta import Index, IndexOptions
from sparta.base.errors import IndexStateError
from sparta.base.files import sha256_file
from sparta.index.folder import IndexFolder
from sparta.index.pipeline import build_index
from sparta.index.plan import committed
from sparta.index.verify import verify_index
from tests.make_formats import APPENDED, CHANNELS, DELETED, QUERIES, corpus

pytestmark = pytest.mark.jvm

FORMATS = Path(__file__).parents[2] / "formats"
RANKINGS = [json.loads(line) for line in (FORMATS / "whole-2.jsonl").read_text().splitlines()]
NEW = {"id": "stars", "title": "stars", "text": "Stars of the sky are far suns.", "kind": "sky", "year": 5}
CHANGED = {
    "id": "mill",
    "title": "mill",
    "text": "The mill burned. No wind turns it.",
    "kind": "ash",
}


@pytest.fixture(params=["sparta", "lucene"])
def index(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the index, with its models in the working folder."""
    monkeypatch.chdir(FORMATS / "models")
    return Path(shutil.copytree(FORMATS / f"whole-2-{request.param}", tmp_path / "index"))


def rank(path: Path, channels: list[str], query: str, condition: dict[str, Any] | None) -> dict[str, float]:
    """The passages of a ranking in its order, with their scores."""
    with HybridSearcher(path, Fusion(dict.fromkeys(channels, 1.0))) as fused, Index(path) as plain:
        retriever: Any = fused if len(channels) > 1 else plain.retriever(channels[0])
        return {hit.passage_id: hit.score for hit in retriever.search(query, 10, filter=condition)}


def hashes(path: Path) -> dict[str, str]:
    return {str(file.relative_to(path)): sha256_file(file) for file in path.rglob("*") if file.is_file()}


def undamaged(path: Path) -> bool:
    parts = verify_index(path)
    return len(parts) == 4 and not any(part.problem or part.remedy for part in parts)


def assert_like_new(path: Path, records: list[dict[str, Any]]) -> None:
    """All channels rank as those of an index that is built now from the records."""
    new = path.parent / "new"
    if not new.exists():
        Index.create(new, records, options=IndexOptions(model="tiny-sparta", unit="chunk:12:4")).close()
        build_dense(new, "tiny-dense")
    for channels in CHANNELS:
        for query in ("the mill turns", "stars are far", "children by the river"):
            # torch encoded the old passages, OpenVINO encodes now: an impact may round to the next step
            step = 1.0 if "impact" in channels else 5e-3
            assert rank(path, channels, query, None) == pytest.approx(
                rank(new, channels, query, None), abs=step + 5e-3
            )


@pytest.fixture
def records() -> list[dict[str, Any]]:
    """The records that the index holds."""
    return [record for record in [*corpus(), *APPENDED] if record["id"] not in DELETED]


@pytest.mark.slow
def test_every_channel_ranks_as_it_did(index: Path) -> None:
    for case in RANKINGS:
        ranking = rank(index, case["channels"], case["query"], case["filter"])
        assert list(ranking) == [passage_id for passage_id, _ in case["ranking"]], case
        if "bm25" not in case["channels"]:  # which counted deleted passages then (decision 0029)
            assert ranking == pytest.approx(dict(case["ranking"]), abs=2e-3)


def test_reading_changes_no_file(index: Path) -> None:
    before = hashes(index)
    assert undamaged(index)
    with Index(index) as opened:
        assert opened.channels == ["impact", "bm25", "dense"]
        assert opened.fields == ["document_id", "end", "kind", "open", "start", "tags", "title", "year"]
        assert corpus()[2]["text"] in opened.passage("river").values()
        assert len(opened.search("the mill", 3, collapse="kind")) == 3
    assert hashes(index) == before


@pytest.mark.slow
def test_append_delete_and_update(index: Path, records: list[dict[str, Any]]) -> None:
    before = hashes(index)
    with Index(index) as opened:
        opened.append([NEW])
        assert opened.delete(["sun"]) == 1
        opened.update([CHANGED])
        assert [hit.passage_id for hit in opened.search("mill", filter={"kind": "ash"})] == ["mill"]
    records = [record for record in records if record["id"] not in ("sun", "mill")]
    assert undamaged(index)
    assert_like_new(index, [*records, NEW, CHANGED])
    after = hashes(index)
    rewritten = {name for name in before if after.get(name, before[name]) != before[name]}
    assert {Path(name).name for name in rewritten} == {"manifest.json"}


@pytest.mark.slow
def test_the_dense_channel_is_made_again(index: Path, records: list[dict[str, Any]]) -> None:
    assert build_dense(index).encoded == 0
    assert_like_new(index, records)
    build_dense(index, "tiny-dense", overwrite=True, kind="hnsw")
    assert undamaged(index)
    assert_like_new(index, records)


def test_an_interrupted_index_resumes_after_its_last_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release that began the index gave its job the same id."""
    monkeypatch.chdir(FORMATS / "models")
    path = Path(shutil.copytree(FORMATS / "interrupted-2", tmp_path / "index"))
    building = IndexFolder(path).state().building
    assert building is not None
    progress = committed(IndexFolder(path), building)
    assert (progress.job, progress.consumed, progress.last_id) == (building.job.id, 4, "town")
    options = IndexOptions(model="tiny-sparta", resume=True)
    report = build_index(path, corpus(), options=options)
    assert (report.written["passages"], report.documents) == (8, 8)
    with Index(path) as resumed, Index.create(tmp_path / "new", corpus(), options=options) as new:
        for query in QUERIES:
            assert [hit.passage_id for hit in resumed.search(query, 10, channel="bm25")] == [
                hit.passage_id for hit in new.search(query, 10, channel="bm25")
            ]
            expected = {hit.passage_id: hit.score for hit in new.search(query, 10)}
            found = {hit.passage_id: hit.score for hit in resumed.search(query, 10)}
            assert found == pytest.approx(expected, abs=3.0)  # torch encoded the first half


@pytest.mark.parametrize(
    ("manifest", "read"),
    [
        ("manifest.json", lambda path: IndexFolder(path).state()),
        ("dense-000001/manifest.json", lambda path: ChannelFolder(path / "dense-000001").read()),
        (
            "dense-000001/vectors-000001/manifest.json",
            lambda path: VectorFolder(path / "dense-000001" / "vectors-000001"),
        ),
    ],
)
def test_a_damaged_name_of_a_checksum_is_told(
    manifest: str, read: Callable[[Path], object], tmp_path: Path
) -> None:
    path = Path(shutil.copytree(FORMATS / "whole-2-lucene", tmp_path / "index"))
    file = path / manifest
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('"checksum"', '"checksun"'), encoding="utf-8")
    with pytest.raises(IndexStateError, match="unknown field: checksun"):
        read(path)
    stored = json.loads(text)
    del stored["checksum"]  # as releases before checksums wrote it
    file.write_text(json.dumps(stored), encoding="utf-8")
    assert read(path)
