"""A dense channel, and what brute force finds in its vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from dense.channel.folder import ChannelFolder
from dense.channel.passages import LivePassages
from dense.channel.searcher import DenseSearcher
from dense.models.bi_encoder import DenseModel
from dense.search.store import VectorFolder, VectorWriter
from sparta.base.manifest import write_manifest
from sparta.index.folder import IndexFolder
from sparta.neural.inputs import InputLayout
from tests.programs import Program, dense

LAYOUT = InputLayout(
    use_title=True, use_context=True, answer_segment=0, share_context=True, max_length=64, overlap=8
)

SIZE = 16

N = 50

QUESTIONS = ["the moon of the earth", "old city", "who founded google", "water river road"]


def done(program: Program, *arguments: object) -> str:
    """What a command printed that ended well."""
    result = program(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def expected(index: Path, model: Path, questions: list[str], k: int) -> dict[str, list[str]]:
    """Brute force: all live passages encoded anew, by plain means."""
    loaded = DenseModel.load(model)
    folder = IndexFolder(index)
    live = folder.state().live
    with LivePassages.open(folder.lucene_path(live), live.language) as there:
        [passages] = there.blocks(there.docids, context=True)
        positions = there.positions
    vectors = loaded.encode_passages(passages)[:, 0].astype(np.float16).astype(np.float64)
    found = {}
    for question, vector in zip(questions, loaded.encode_questions(questions), strict=True):
        scores = (vectors @ vector.astype(np.float64)).astype(np.float32)
        order = np.lexsort((positions, -scores.round(3)))[:k]
        found[question] = [(passages[i].passage_id, round(float(scores[i]), 2)) for i in order]
    return found


def rankings(index: Path, k: int = 20) -> dict[str, list[Any]]:
    with DenseSearcher(index) as searcher:
        hits = searcher.batch_search(QUESTIONS, QUESTIONS, k)
    return {q: [(hit.passage_id, hit.score) for hit in found] for q, found in hits.items()}


def rounded(ranked: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The rankings, apart from rounding: NumPy encodes a process's first questions, OpenVINO the others."""
    return {q: [(passage_id, round(score, 3)) for passage_id, score in hits] for q, hits in ranked.items()}


def assert_same(found: dict[str, list[Any]], wanted: dict[str, list[Any]]) -> None:
    """The same scores, and the same passages but for what batches round differently."""
    for question, hits in wanted.items():
        assert len(hits) == len(found[question])
        np.testing.assert_allclose([s for _, s in found[question]], [s for _, s in hits], atol=0.03)
        scores = dict(found[question])
        worst = min(scores.values())
        for docid, score in hits:
            assert docid in scores or score < worst + 0.03


def refused(match: str, *command: object, code: int = 2) -> str:
    result = dense(*command)
    assert result.exit_code == code, result.output
    assert match in result.output, result.output
    assert "Traceback" not in result.output
    return result.output


def split_into_rows(index: Path) -> Path:
    """Store every vector in a shard of its own, under a manifest of format 1; returns the vectors' folder."""
    [place] = index.glob("dense-*")
    channel = ChannelFolder(place).read()
    store = VectorFolder(place / channel.store, shards=channel.shards)
    rows = range(len(store))
    parts = [(store.positions[[n]], store.hashes[[n]], store.take(np.array([n]))) for n in rows]
    for path in store.paths:
        path.unlink()
    writer = VectorWriter(store.folder, store.manifest)
    for part in parts:
        writer.add(*part)
    manifest = json.loads((place / "manifest.json").read_text())
    del manifest["checksum"]
    write_manifest(place, {**manifest, "shards": len(rows), "format_version": 1})
    return store.folder
