"""A job and a generation are stored as 5bddf66 stored them, so older releases and older indexes go on."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparta.base.errors import IndexStateError
from sparta.index.folder import IndexFolder
from sparta.index.generation import Generation, IndexState, Job
from sparta.index.inputs.sources import corpus_job, vectors_source
from sparta.index.plan import committed

FORMATS = Path(__file__).parents[2] / "formats"
RUN = {"mode": "create", "language": "en", "codec": "fast", "run": "842e8bc731f0e4ff"}
CORPUS = {"from": "corpus", "source": "/data/c.jsonl", "bytes": 201, "sha256": "63dd"}
PLAIN = {"unit": "passage", "top_k": None, "min_weight": 0.0}
JOBS: list[dict[str, Any]] = [
    {**CORPUS, **PLAIN, **RUN},
    {**CORPUS, **PLAIN, "channels": "bm25", **RUN},
    {**CORPUS, "unit": "chunk:12:4", "top_k": 3, "min_weight": 0.1, "mode": "append", "run": "35b4"},
    {"from": "corpus", "source": "-", "bytes": None, "sha256": None, **PLAIN, "mode": "update", "run": "1"},
    {**CORPUS, "from": "shards", "folders": ["/data/a", "/data/b"], **PLAIN, **RUN, "codec": "lucene"},
    {"from": "json", "source": "/data/v.jsonl", "sha256": "725a", **RUN},
    {"from": "json", "source": "/data/pipe", "sha256": None, **RUN},
]


@pytest.mark.parametrize("stored", JOBS)
def test_a_job_is_stored_as_it_was_and_has_the_same_id(stored: dict[str, Any]) -> None:
    job = Job.of(stored)
    again = json.loads(json.dumps(job.as_dict()))
    assert again == stored
    assert job.id == hashlib.sha256(json.dumps(stored, sort_keys=True).encode()).hexdigest()[:16]


def test_every_kind_of_input_gives_the_job_of_5bddf66(tmp_path: Path) -> None:
    corpus, vectors = tmp_path / "c.jsonl", tmp_path / "v.jsonl"
    corpus.write_text('{"id": "a", "text": "The moon."}\n')
    vectors.write_text('{"id": "a", "contents": "x", "vector": {"moon": 2}}\n')
    identity = {"source": str(corpus), "bytes": corpus.stat().st_size}
    sha256 = hashlib.sha256(corpus.read_bytes()).hexdigest()
    stored = {
        "from": "corpus",
        **identity,
        "sha256": sha256,
        "unit": "sentence",
        "top_k": 5,
        "min_weight": 0.5,
    }
    assert corpus_job(corpus, "sentence", 5, 0.5).as_dict() == stored
    assert corpus_job(corpus, "sentence", 5, 0.5, "bm25").as_dict() == {**stored, "channels": "bm25"}
    of_records = {"from": "corpus", "source": "records", "bytes": None, "sha256": None, **PLAIN}
    assert corpus_job([{"id": "a", "text": "x"}], "passage", None, 0.0).as_dict() == of_records
    file_hash = hashlib.sha256(vectors.read_bytes()).hexdigest().encode()
    of_vectors = {"from": "json", "source": str(vectors), "sha256": hashlib.sha256(file_hash).hexdigest()}
    assert vectors_source([vectors]).job.as_dict() == of_vectors


@pytest.mark.jvm
@pytest.mark.parametrize("name", ["whole-2-lucene", "whole-2-sparta"])
def test_the_last_commit_of_an_older_index_names_its_job(name: str) -> None:
    folder = IndexFolder(FORMATS / name)
    live = folder.require_live()
    assert committed(folder, live).job == live.job.id


@pytest.mark.parametrize("name", ["index-2-lucene", "index-2-sparta", "whole-2-lucene", "interrupted-2"])
def test_a_manifest_that_is_written_again_stays_the_same(name: str) -> None:
    manifest = json.loads((FORMATS / name / "manifest.json").read_text())
    state = IndexFolder(FORMATS / name).state()
    stored = {part: manifest[part] for part in ("live", "building")}
    assert json.loads(json.dumps(state.as_dict())) == stored


def test_arithmetic_stands_beside_the_generation(tmp_path: Path) -> None:
    """5bddf66 refuses a generation with a field that it does not know."""
    generation = replace(IndexFolder(FORMATS / "interrupted-2").state().building, arithmetic="openvino int8")
    stored = IndexState(building=generation).as_dict()
    assert stored["arithmetic"] == {"building": "openvino int8"}
    assert "arithmetic" not in stored["building"]
    assert IndexState.of(stored, tmp_path / "manifest.json").building == generation


def test_generations_are_ordered_by_number_beyond_six_digits(tmp_path: Path) -> None:
    live = replace(IndexFolder(FORMATS / "whole-2-sparta").require_live(), number=1_000_000)
    folder = IndexFolder(tmp_path)
    folder.write_state(IndexState(live))
    assert folder.require_live() == live
    for number in (999_998, 999_999, 1_000_001):
        (tmp_path / f"dense-{number:06d}").mkdir()
    (tmp_path / "dense-notes").mkdir()
    assert folder.dense_path(live).name == "dense-999999"
    (tmp_path / "dense-1000000").mkdir()
    assert folder.dense_path(live).name == "dense-1000000"
    folder.sweep()
    assert sorted(path.name for path in tmp_path.glob("dense-*")) == ["dense-1000000", "dense-notes"]


@pytest.mark.parametrize("field", ["job.shape", "shape", "model.shape"])
def test_an_unknown_field_is_refused_by_name(field: str, tmp_path: Path) -> None:
    stored = json.loads((FORMATS / "index-2-sparta" / "manifest.json").read_text())["live"]
    section, _, name = field.rpartition(".")
    (stored[section] if section else stored)[name] = 1
    with pytest.raises(IndexStateError, match=rf"live\.{field}"):
        Generation.of(stored, tmp_path / "manifest.json", "live", "")
