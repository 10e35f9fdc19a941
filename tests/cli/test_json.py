"""What the commands print with --json, against its schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cli._output import JSON_VERSION
from hybrid.multihop.paths import Evidence, EvidencePath, PathAnswer
from sparta.base.records import Hit
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from tests.programs import Program, hybrid, sparta

pytestmark = pytest.mark.jvm
DOCS = Path(__file__).parents[2] / "docs"
SCHEMA = json.loads((DOCS / "output.schema.json").read_text(encoding="utf-8"))
ONE_STEP = """
[[step]]
name = "search"
skill = "retrieve"
depth = 1
[[step]]
name = "best"
skill = "rerank"
after = ["search"]
weight = 0
"""
COMMANDS: list[tuple[Any, str, list[str]]] = [
    (sparta, "hit", ["search", "moon"]),
    (sparta, "hit", ["search", "moon", "--channel", "bm25"]),
    (sparta, "hit", ["search", "moon", "--channel", "bm25,impact"]),
    (sparta, "facets", ["search", "moon", "--facet", "year"]),
    (sparta, "hit", ["search", "--queries", "{queries.tsv}", "--output", "-"]),
    (hybrid, "hit", ["search", "moon", "--alpha", "1"]),
    (sparta, "path", ["search", "moon", "--chain", "hop"]),
    (sparta, "path", ["search", "--queries", "{queries.tsv}", "--output", "-", "--chain", "hop"]),
    (sparta, "path", ["explain", "moon", "b", "--chain", "hop"]),
    (sparta, "path", ["explain", "moon", "a", "--chain", "{alone.toml}"]),
    (sparta, "answer", ["answer", "moon", "-n", "2", "--reader", "{reader}"]),
    (sparta, "abstention", ["answer", "moon", "--threshold", "1", "--reader", "{reader}"]),
    (sparta, "explanation", ["explain", "moon", "a"]),
    (sparta, "bm25-explanation", ["explain", "moon", "a", "--channel", "bm25"]),
    (sparta, "terms", ["terms", "a"]),
    (sparta, "index", ["info"]),
    (sparta, "part", ["verify"]),
    (sparta, "finding", ["doctor", "--quick"]),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_model_folder: Path, encoder_folder: Path) -> Path:
    from sparta.reader.config import ReaderConfig
    from sparta.reader.span_reader import SpanReader

    folder = tmp_path_factory.mktemp("json")
    texts = [
        {"id": "a", "title": "M", "text": "The moon.\x1b[2J", "year": 1969},
        {"id": "b", "text": "moon sun"},
    ]
    build_index(folder / "ix", texts, options=IndexOptions(model=str(tiny_model_folder)))
    SpanReader.from_encoder(encoder_folder, ReaderConfig()).save_pretrained(folder / "reader")
    (folder / "queries.tsv").write_text("q1\tmoon\nq2\tsun\n")
    (folder / "alone.toml").write_text(ONE_STEP)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("program", "kind", "command"), COMMANDS, ids=[" ".join(c) for _, _, c in COMMANDS])
def test_output_is_of_the_schema(folder: Path, program: Program, kind: str, command: list[str]) -> None:
    places = {name: folder / name for name in ("queries.tsv", "reader", "alone.toml")}
    given = [str(places.get(part.strip("{}"), part)) for part in command]
    result = program(*given, "--index", folder / "ix", "--json")
    assert result.exit_code == (3 if kind == "abstention" else 0), result.stderr
    lines = result.stdout.splitlines()
    assert lines
    assert "\x1b" not in result.stdout
    schema = {**SCHEMA, "anyOf": [{"$ref": f"#/$defs/{kind}"}]}
    for line in lines[-1:] if kind == "facets" else lines:
        value = json.loads(line)
        jsonschema.validate(value, schema)
        assert value["version"] == JSON_VERSION
        assert value.keys() <= SCHEMA["$defs"][kind]["properties"].keys(), "a new key belongs into the schema"


def test_the_schema_refuses_what_has_lost_a_key() -> None:
    hit = {"version": 1, "rank": 1, "id": "a", "score": 1, "title": "", "text": "", "metadata": {}}
    only_hits = {**SCHEMA, "anyOf": [{"$ref": "#/$defs/hit"}]}
    jsonschema.validate(hit, only_hits)
    for key in hit:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({k: v for k, v in hit.items() if k != key}, only_hits)


def test_the_schema_names_all_that_a_read_path_prints() -> None:
    hit = Hit("p1", 2.0, "Moon", "The moon.", {"context": "In 1969: The moon."})
    evidence = Evidence(hit, {"search": 2.0}, 2.0, "moon", supporting=((0, 9),))
    path = EvidencePath((evidence,), 2.0, PathAnswer("1969", 0.9, "p1", 3, 7)).as_dict()
    schema = SCHEMA["$defs"]["path"]["properties"]
    assert set(path) <= set(schema)
    assert set(path["answer"]) == set(schema["answer"]["properties"])
    assert set(path["passages"][0]) == set(schema["passages"]["items"]["properties"])


def test_every_kind_is_tested_and_documented() -> None:
    kinds = {one["$ref"].rpartition("/")[2] for one in SCHEMA["anyOf"]}
    assert kinds == {kind for _, kind, _ in COMMANDS}
    documented = (DOCS / "formats.md").read_text(encoding="utf-8")
    for name in SCHEMA["$defs"]["hit"]["properties"]:
        assert f"`{name}`" in documented
