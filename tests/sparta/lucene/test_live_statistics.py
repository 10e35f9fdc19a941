"""BM25 after changes: the statistics of the live passages, as in an index that never held others."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path

import numpy as np
import pytest

from sparta.index.folder import IndexFolder
from sparta.index.inputs.impact_batches import searched_text
from sparta.lucene.bridge import ImpactSearcher, ImpactWriter

pytestmark = pytest.mark.jvm

FORMATS = Path(__file__).parents[2] / "formats"
CODECS = ("fast", "lucene")
WORDS = [f"w{i}" for i in range(60)]
QUERIES = ["w0", "w1 w7 w7 w30", " ".join(WORDS), "w59 w58 w2", "absent w3"]

type Texts = dict[str, tuple[int, str]]
"""Position and text of each passage, by passage id."""


def random_text(source: random.Random) -> str:
    """Words of uneven frequency. Many texts are longer than 40 words, which Lucene's norms round."""
    return " ".join(
        source.choices(WORDS, [1 / (i + 1) for i in range(60)], k=source.choice([0, 3, 20, 90, 130]))
    )


def write(writer: ImpactWriter, texts: Mapping[str, tuple[int, str]], *, update: bool = False) -> None:
    positions, words = [p for p, _ in texts.values()], [text for _, text in texts.values()]
    n = len(texts)
    writer.add(list(texts), [""] * n, words, positions, [0] * (n + 1), [], [], update=update)


def hits(searcher: ImpactSearcher, query: str) -> tuple[list[str], np.ndarray]:
    found = searcher.search_text([query], 10_000)
    return searcher.ids(found.docids), found.scores


def assert_like_fresh(path: Path, live: Texts, fresh: Path, language: str = "en") -> None:
    """Compare all hits, and the scores of words, with an index built in the order of the positions."""
    with ImpactWriter(fresh, language=language) as writer:
        write(writer, dict(sorted(live.items(), key=lambda item: item[1][0])))
        writer.commit("")
    with (
        ImpactSearcher(path, language=language) as changed,
        ImpactSearcher(fresh, language=language) as new,
    ):
        for query in QUERIES:
            (ids, scores), (expected_ids, expected) = hits(changed, query), hits(new, query)
            assert ids == expected_ids
            np.testing.assert_allclose(scores, expected, rtol=1e-5)
            if not ids:
                continue
            parts = [s.word_scores(query, s.docids(expected_ids)) for s in (changed, new)]
            np.testing.assert_allclose(*parts, rtol=1e-5)
    shutil.rmtree(fresh)


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
def test_statistics_are_those_of_live_passages_after_every_commit(tmp_path, codec):
    source = random.Random(codec)
    live: Texts = {f"p{i}": (i, random_text(source)) for i in range(400)}
    with ImpactWriter(tmp_path / "index", codec=codec) as writer:
        write(writer, live)
        writer.commit("")
        for first in range(1000, 26_000, 1000):
            appended = {
                f"s{first + i}": (first + i, random_text(source)) for i in range(source.randint(0, 9))
            }
            updated = {
                key: (first + 500 + i, random_text(source))
                for i, key in enumerate(source.sample(sorted(live), source.randint(0, 30)))
            }
            if appended:
                write(writer, appended)
            if updated:
                write(writer, updated, update=True)
            live |= appended | updated
            deleted = source.sample(sorted(live), source.randint(0, 15))
            writer.remove(deleted)
            live = {key: live[key] for key in live.keys() - set(deleted)}
            writer.commit("")
            assert_like_fresh(tmp_path / "index", live, tmp_path / "fresh")


def test_overlapping_tokens_of_deleted_passages_are_subtracted(tmp_path):
    """Chinese texts have tokens at the same position, which norms do not count and the mean length does."""
    live: Texts = {f"p{i}": (i, "月亮绕着地球转 w0 w1 " * (1 + i)) for i in range(20)}
    with ImpactWriter(tmp_path / "index", language="zh") as writer:
        write(writer, live)
        writer.commit("")
        writer.remove(["p1", "p19"])
        writer.commit("")
    kept = {key: value for key, value in live.items() if key not in ("p1", "p19")}
    assert_like_fresh(tmp_path / "index", kept, tmp_path / "fresh", "zh")


def test_a_query_of_words_without_live_passages_has_no_hits(tmp_path):
    with ImpactWriter(tmp_path) as writer:
        write(writer, {"a": (0, "w0 w1"), "b": (1, "w2"), "empty": (2, "")})
        writer.commit("")
        writer.remove(["a"])
        writer.commit("")
        with ImpactSearcher(tmp_path) as searcher:
            assert hits(searcher, "w0")[0] == []
            assert hits(searcher, "w0 w2")[0] == ["b"]
        writer.remove(["b"])
        writer.commit("")
    with ImpactSearcher(tmp_path) as searcher:
        assert hits(searcher, "w0 w2")[0] == []


@pytest.mark.parametrize("codec", ["lucene", "sparta"])
@pytest.mark.parametrize("version", [1, 2])
def test_indexes_without_stored_lengths_count_live_passages(tmp_path, codec, version):
    folder = IndexFolder(shutil.copytree(FORMATS / f"index-{version}-{codec}", tmp_path / "index"))
    path = folder.lucene_path(folder.state().searchable)
    with ImpactSearcher(path) as searcher:
        docids = searcher.live()
        records = [json.loads(raw) for raw in searcher.raws(docids)]
        positions = searcher.positions(docids).tolist()
        ids = searcher.ids(docids)
    read = itemgetter("contents") if version == 1 else searched_text  # format 1 did not index titles
    texts = {key: (p, read(record)) for key, p, record in zip(ids, positions, records, strict=True)}
    with ImpactWriter(path, codec="fast" if codec == "sparta" else "lucene") as writer:
        writer.remove(["a"])
        write(writer, {"new": (9, "the moon and the river")})
        writer.commit("")
    live = {key: value for key, value in texts.items() if key != "a"} | {"new": (9, "the moon and the river")}
    with ImpactWriter(tmp_path / "fresh") as writer:
        write(writer, live)
        writer.commit("")
    with ImpactSearcher(path) as changed, ImpactSearcher(tmp_path / "fresh") as fresh:
        for query in ("moon", "river town star sun"):
            assert hits(changed, query)[0] == hits(fresh, query)[0]
            np.testing.assert_allclose(hits(changed, query)[1], hits(fresh, query)[1], rtol=1e-5)


def test_readers_of_the_same_commit_agree_while_deletions_grow(tmp_path):
    """Readers share counts by segment; a reader of an older commit keeps its statistics."""
    live: Texts = {f"p{i}": (i, f"w0 w{i % 7} " * (1 + i % 50)) for i in range(300)}
    with ImpactWriter(tmp_path / "index") as writer:
        write(writer, live)
        writer.commit("")
        with ImpactSearcher(tmp_path / "index") as whole:
            before = hits(whole, "w0 w3")
            for step in range(3):
                deleted = [f"p{i}" for i in range(step, 300, 7)]
                writer.remove(deleted)
                writer.commit("")
                live = {key: live[key] for key in live.keys() - set(deleted)}
                assert_like_fresh(tmp_path / "index", live, tmp_path / "fresh")
            ids, scores = hits(whole, "w0 w3")
            assert (ids, scores.tolist()) == (before[0], before[1].tolist())
