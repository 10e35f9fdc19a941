"""Hard negatives of expanded queries and hyperlinks: which are mined, and that a training reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dense.training.skill_data import SkillFile, read_skill_sets
from dense.training.skill_examples import SkillExample
from sparta.search.searcher import Searcher
from tests.dense.training.skill_sets import recipe
from tests.programs import dense, sparta

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("one_thread", "own_logger")]

PASSAGES = {
    "j1": ("Jupiter", "jupiter is a planet of the sun"),
    "j2": ("Jupiter", "jupiter has a moon and the moon is small"),
    "g1": ("Moon", "the moon of the earth was seen from the street"),
    "k1": ("King", "the king saw jupiter and the moon"),
    "p1": ("Paris", "paris is the city where the king saw a planet"),
    "p2": ("Paris", "in paris the king saw jupiter"),
    "x1": ("Other", "jupiter jupiter is a name of a street"),
}
PARAGRAPH = {
    "title": "Paris",
    "text": "in paris the king saw jupiter",
    "links": [
        {"start": 22, "end": 29, "anchor": "jupiter", "target_title": "Jupiter"},
        {"start": 13, "end": 17, "anchor": "king", "target_title": "King"},
    ],
}
HOPS = {
    "id": "q1",
    "input": "what planet by name did the king see, jupiter",
    "output": [{"answer": "street", "provenance": [{"passage_ids": ["p1"]}, {"passage_ids": ["j1"]}]}],
    "meta": {"negatives": ["j2"]},
}


@pytest.fixture(scope="module")
def index(tiny_model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mined-skills")
    lines = [{"id": i, "title": title, "text": text} for i, (title, text) in PASSAGES.items()]
    (folder / "wiki.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    arguments = ["index", "--corpus", folder / "wiki.jsonl", "--index", folder / "index", "--quiet"]
    result = sparta(*arguments, "--model", tiny_model_folder)
    assert result.exit_code == 0, result.output
    return folder / "index"


@pytest.fixture
def mined(
    index: Path, write_jsonl: Callable[..., Path], tmp_path: Path
) -> Callable[..., list[dict[str, Any]]]:
    def records(skill: str, record: Any, *options: object) -> list[dict[str, Any]]:
        path, output = write_jsonl(tmp_path / "data.jsonl", [record]), tmp_path / "mined.json"
        common = ["--index", index, "--dataset", path, "--output", output, "--quiet"]
        result = dense("mine", "--skill", skill, *common, *options)
        assert result.exit_code == 0, result.output
        found: list[dict[str, Any]] = json.loads(output.read_text())
        return found

    return records


def ids(passages: list[dict[str, Any]]) -> list[str]:
    return [p["passage_id"] for p in passages]


def ranking(index: Path, query: str) -> list[str]:
    with Searcher(index, channel="bm25") as searcher:
        return [hit.passage_id for hit in searcher.search(query, 100)]


def trained_on(path: Path, skill: str) -> tuple[SkillExample, ...]:
    [one] = read_skill_sets([SkillFile(skill, path)], [])
    return one.examples


def test_hyperlinks(index: Path, mined: Any, tmp_path: Path) -> None:
    """A mention is searched; no passage with the title of the linked page is a negative."""
    jupiter, king = mined("link", PARAGRAPH)
    assert jupiter["question"] == "in paris the king saw [START_ENT] jupiter [END_ENT]"
    assert ids(jupiter["positive_ctxs"]) == ["j1"]
    order = ranking(index, "jupiter")
    assert {"j1", "j2"} < set(order)
    assert ids(jupiter["hard_negative_ctxs"]) == [i for i in order if i not in ("j1", "j2")]
    assert ids(king["hard_negative_ctxs"]) == [i for i in ranking(index, "king") if i != "k1"]
    first, second = trained_on(tmp_path / "mined.json", "link")
    assert [e.query[slice(*e.spans[0])] for e in (first, second)] == ["jupiter", "king"]
    assert first.query == PARAGRAPH["text"]
    assert [n.passage_id for n in first.negatives] == ids(jupiter["hard_negative_ctxs"])


def test_expanded_queries(index: Path, mined: Any, tmp_path: Path) -> None:
    """The question is searched with its evidence; gold passages and those with the answer are left out."""
    first, second = mined("expanded", HOPS)
    assert (first["evidence"]["passage_id"], ids(first["positive_ctxs"])) == ("p1", ["j1"])
    assert (second["evidence"]["passage_id"], ids(second["positive_ctxs"])) == ("j1", ["p1"])
    title, text = PASSAGES["p1"]
    order = ranking(index, f"{HOPS['input']} {title} {text}")
    assert "x1" in order
    assert ids(first["hard_negative_ctxs"]) == [i for i in order if i not in ("p1", "j1", "g1", "x1")]
    [more, _] = mined("expanded", HOPS, "--with-answers", "--negatives", 3)
    assert ids(more["hard_negative_ctxs"]) == [i for i in order if i not in ("p1", "j1")][:3]
    [kept, _] = mined("expanded", HOPS, "--keep")
    assert ids(kept["hard_negative_ctxs"])[0] == "j2"
    one, two = trained_on(tmp_path / "mined.json", "expanded")
    assert [one.evidence and one.evidence.passage_id, two.evidence and two.evidence.passage_id] == [
        "p1",
        "j1",
    ]
    assert ([p.passage_id for p in one.positives], one.answers) == (["j1"], ("street",))
    assert [n.passage_id for n in one.negatives] == ids(kept["hard_negative_ctxs"])


def test_passages_of_other_files(mined: Any, write_jsonl: Callable[..., Path], tmp_path: Path) -> None:
    lines = [{"id": "k", "title": "King", "text": "a king, elsewhere"}]
    texts = write_jsonl(tmp_path / "texts.jsonl", lines)
    [king] = mined("link", PARAGRAPH, "--texts", texts)
    assert ids(king["positive_ctxs"]) == ["k"]


def test_the_model_mines(index: Path, mined: Any, encoder_folder: Path, tmp_path: Path) -> None:
    """Harder negatives: what the skill itself ranks high."""
    model = recipe(str(encoder_folder), placement="none").model(["single", "expanded", "link"])
    model.save_pretrained(tmp_path / "skills")
    done = dense("index", "--index", index, "--model", tmp_path / "skills", "--overwrite")
    assert done.exit_code == 0, done.output
    for skill, record, right in (("expanded", HOPS, {"p1", "j1"}), ("link", PARAGRAPH, {"j1", "j2"})):
        options = ("--channel", "dense", "--model", tmp_path / "skills", "--with-answers")
        first, _ = mined(skill, record, *options)
        assert set(ids(first["hard_negative_ctxs"])) == PASSAGES.keys() - right, "all passages have vectors"
    other = recipe(str(encoder_folder), seed=5).model(["expanded", "link"])
    with torch.no_grad():
        for weights in other.parameters():
            weights.normal_(std=0.1)
    other.save_pretrained(tmp_path / "other")
    data = tmp_path / "data.jsonl"
    data.write_text(json.dumps(HOPS))
    common = (
        "mine",
        "--index",
        index,
        "--dataset",
        data,
        "--output",
        tmp_path / "o.json",
        "--channel",
        "dense",
    )
    for wrong in ((), ("--model", tmp_path / "other")):
        refused = dense(*common, "--skill", "expanded", *wrong)
        assert (refused.exit_code != 0, "model" in refused.output) == (True, True)
    data.write_text(json.dumps(PARAGRAPH))
    foreign = dense(*common, "--skill", "link", "--model", tmp_path / "other")
    assert (foreign.exit_code != 0, "encoded by another model" in foreign.output) == (True, True)
    assert f"dense convert --from {tmp_path / 'other'} --reader entity --output" in foreign.output


@pytest.mark.parametrize(
    ("options", "option"),
    [
        (["--texts", "t"], "--texts"),
        (["--model", "m", "--channel", "dense"], "--model"),
        (["--skill", "link", "--model", "m"], "--model"),
    ],
)
def test_options_without_effect(options: list[str], option: str, tmp_path: Path) -> None:
    done = dense("mine", "--dataset", tmp_path / "d", "--output", tmp_path / "o.json", *options)
    assert (done.exit_code, f"omit {option}" in done.output) == (2, True)
