"""The page's first questions come from beside the index, never from where a manifest says."""

import json
from pathlib import Path

from hybrid.service.live.page import example_questions


def test_the_source_of_an_index_is_not_opened(tmp_path: Path) -> None:
    private, index = tmp_path / "private", tmp_path / "public" / "index"
    private.mkdir()
    index.mkdir(parents=True)
    (private / "questions.jsonl").write_text('{"_id": "1", "text": "a secret"}\n')
    quantizer = {"bits": 8, "max_weight": 1.0}
    model = {"name": "m", "sha256": "", "weighted_queries": False, "quantizer": quantizer}
    job = {"mode": "create", "source": str(private / "corpus.jsonl")}
    live = {"number": 1, "model": model, "codec": "fast", "complete": True, "job": job}
    manifest = {"kind": "sparta-index", "format_version": 2, "live": live, "building": None}
    (index / "manifest.json").write_text(json.dumps(manifest))
    assert example_questions(index) == []
    (index.parent / "questions.jsonl").write_text('{"_id": "1", "text": "who"}\n')
    assert example_questions(index) == ["who"]
