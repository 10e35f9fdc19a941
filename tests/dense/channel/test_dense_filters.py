"""Filters, collapsing and pages of the dense channel and of fused rankings beside brute force."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dense.channel.searcher import DenseSearcher
from dense.channel.sync import build_dense
from hybrid.retrieval.fusion import Fusion
from hybrid.retrieval.searcher import HybridSearcher
from sparta import Index, IndexOptions
from sparta.base.errors import InputError
from tests.dense.channel.channels import QUESTIONS
from tests.sparta.search.filtering import group_of, keeps, random_filter, random_record, record_of

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("one_thread")]

N = 160
KINDS = ("flat", "ivf", "hnsw")
"""NumPy searches the flat kind: the vectors are few."""


@pytest.fixture(scope="module", params=["lucene", "fast"])
def filled(request: Any, tiny_model_folder: Path, model: Path, tmp_path_factory: Any) -> Path:
    """Passages with metadata; some were appended, updated and deleted after the vectors were made."""
    rng = random.Random(1)

    def records(ids: Any) -> list[dict[str, Any]]:
        return [{k: v for k, v in random_record(rng, f"p{i}").items() if k != "vector"} for i in ids]

    path = tmp_path_factory.mktemp(request.param) / "index"
    options = IndexOptions(model=str(tiny_model_folder), codec=request.param)
    with Index.create(path, records(range(N - 30)), options=options) as index:
        build_dense(path, str(model))
        index.append(records(range(N - 30, N)), options=options)
        index.update(records(range(0, N, 9)), options=options)
        index.delete([f"p{i}" for i in range(0, N, 7)])
    return path


def encode_by_openvino(searcher: DenseSearcher) -> None:
    """Equal scores in every bit: NumPy, which encodes the first questions, rounds sums in another order."""
    searcher.model.encode_questions(["the moon"] * 100)


def firsts(hits: list[Any], field: str) -> list[Any]:
    seen: set[Any] = set()
    return [h for h in hits if not (group_of(h, field) in seen or seen.add(group_of(h, field)))]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_filters_and_collapsing_equal_brute_force(filled: Path, kind: str) -> None:
    build_dense(filled, kind=kind)
    rng = random.Random(2)
    with DenseSearcher(filled) as searcher:
        encode_by_openvino(searcher)
        whole = {q: searcher.search(q, N) for q in QUESTIONS}
        for _ in range(30):
            conditions, query = random_filter(rng), rng.choice(QUESTIONS)
            expected = [hit for hit in whole[query] if keeps(record_of(hit), conditions)]
            k, offset = rng.choice([1, 5, 1000]), rng.choice([0, 3])
            page = slice(offset, offset + k)
            assert searcher.search(query, k, offset=offset, filter=conditions) == expected[page]
            found = searcher.search(query, k, offset=offset, filter=conditions, collapse="title")
            assert found == firsts(expected, "title")[page]
        hits = searcher.batch_search(QUESTIONS, QUESTIONS, 4, collapse="lang")
        for q in QUESTIONS:  # questions that are read together may round otherwise, as the processor has it
            alone = firsts(whole[q], "lang")[:4]
            assert [hit.passage_id for hit in hits[q]] == [hit.passage_id for hit in alone]
            assert [hit.score for hit in hits[q]] == pytest.approx([hit.score for hit in alone], rel=1e-5)
        with pytest.raises(InputError, match="found yaer"):
            searcher.search("moon", filter={"yaer": 3})


@pytest.mark.slow
@pytest.mark.parametrize("method", ["linear", "rrf"])
def test_fused_rankings(filled: Path, method: str) -> None:
    """A filter passes to all channels; groups, pages and contributions are those of the fused ranking."""
    fusion = Fusion({"dense": 1.0, "impact": 0.5, "bm25": 1.2}, method, candidates=40)
    rng = random.Random(3)
    with HybridSearcher(filled, fusion) as searcher:
        channels = searcher.channels.searchers
        encode_by_openvino(channels["dense"])
        for _ in range(20):
            conditions, query = random_filter(rng), rng.choice(QUESTIONS)
            ranked = {
                name: [h for h in own.search(query, N) if keeps(record_of(h), conditions)][:40]
                for name, own in channels.items()
            }
            records = {h.passage_id: h for hits in ranked.values() for h in hits}
            runs = {name: [(h.passage_id, h.score) for h in hits] for name, hits in ranked.items()}
            expected = fusion.fuse({n: _scored(run) for n, run in runs.items()})
            found = searcher.search(query, 40, filter=conditions)
            assert [(h.passage_id, h.score) for h in found] == expected[:40]
            for hit in found:
                parts = [place.contribution for place in hit.channels.values()]
                assert math.fsum(parts) == pytest.approx(hit.score, rel=1e-12, abs=1e-12)
                for name, place in hit.channels.items():
                    assert (hit.passage_id, place.score) in runs[name] or place.rank is place.score is None
            assert searcher.search(query, 4, offset=7, filter=conditions) == found[7:11]
            groups = firsts([records[p.passage_id] for p in expected], "title")
            pages = [
                searcher.search(query, 3, offset=o, filter=conditions, collapse="title") for o in (0, 3, 6)
            ]
            assert [h.passage_id for h in itertools.chain(*pages)] == [h.passage_id for h in groups[:9]]
            own = searcher.run([query], ["q"], 5, offset=2, filter=conditions, collapse="title")["q"]
            assert [p.passage_id for p in own] == [h.passage_id for h in groups[2:7]]
        with pytest.raises(
            InputError, match=r"ranks 36 to 45 need more than the 40 candidates .*\n.*candidates=45"
        ):
            searcher.search("moon", 10, offset=35)
    with HybridSearcher(filled, Fusion(fusion.weights, candidates=45)) as remedied:
        assert len(remedied.search("moon sun earth", 10, offset=35)) == 10


def _scored(run: list[tuple[str, float]]) -> Any:
    from sparta.base.records import ScoredPassage

    return [ScoredPassage(*one) for one in run]


def test_filters_are_remembered_and_forgotten(filled: Path) -> None:
    with DenseSearcher(filled) as searcher:
        for year in (*range(1990, 1996), 1990):
            for hit in searcher.search("moon", N, filter={"year": year}):
                assert str(hit.metadata["year"]) == str(year)
        with searcher.opened() as channel:
            assert len(channel.selections) == 4


def test_vectors_as_questions(filled: Path) -> None:
    with DenseSearcher(filled) as searcher:
        encode_by_openvino(searcher)
        vectors = np.concatenate([searcher.model.encode_questions([query]) for query in QUESTIONS[:2]])
        for query, hits in zip(
            QUESTIONS, searcher.search_vectors(vectors, 3, offset=2, filter={"flag": True}), strict=False
        ):
            assert hits == searcher.search(query, 3, offset=2, filter={"flag": True})
        assert np.asarray(vectors).ndim == 2
