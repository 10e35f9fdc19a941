"""Files of every form as examples of the skills: worked by hand, and what is refused."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dense.encoding.skills import Skills
from dense.training.skill_data import SkillFile, read_skill_sets
from dense.training.skill_examples import SkillExample
from dense.training.skill_forms import row_text
from sparta.base.errors import InputError
from tests.programs import dense

PASSAGES = [
    {"_id": "k1", "title": "Jupiter", "text": "Jupiter is a planet."},
    {"_id": "k2", "title": "Jupiter", "text": "It has many moons."},
    {"_id": "k3", "title": "Einstein", "text": "Einstein wrote on relativity."},
    {"_id": "k4", "title": "Paris", "text": "Paris is a city."},
]
PARAGRAPH = {
    "title": "Paris",
    "text": "In Paris, Einstein saw Jupiter.",
    "links": [
        {"start": 10, "end": 18, "anchor": "Einstein", "target_title": "Einstein"},
        {"start": 23, "end": 30, "anchor": "Jupiter", "target_title": "Jupiter"},
        {"start": 3, "end": 8, "anchor": "Paris", "target_title": "Elsewhere"},
    ],
}
ROW = {
    "page_title": "Planets",
    "section_title": "Moons",
    "header": ["Name", "", "Found by"],
    "cells": ["Jupiter", "1610", "one Einstein"],
    "links": [{"anchor": "Einstein", "column": 2, "target_title": "Einstein"}],
}
MULTIHOP = {
    "id": "q1",
    "input": "who saw the planet",
    "output": [{"answer": "x", "provenance": [{"passage_ids": ["k1"]}, {"passage_ids": ["k3"]}]}],
    "meta": {"negatives": [["k4"], ["k9"]]},
}
LINKING = {
    "id": "l1",
    "input": "Then [START_ENT] Einstein [END_ENT] left Paris .",
    "output": [{"answer": "Einstein", "provenance": [{"passage_ids": ["k3"]}]}],
}


@pytest.fixture
def read(write_jsonl: Callable[..., Path], tmp_path: Path) -> Callable[..., tuple[SkillExample, ...]]:
    texts = write_jsonl(tmp_path / "texts.jsonl", PASSAGES)

    def examples(skill: str, *records: Any, name: str = "data.jsonl") -> tuple[SkillExample, ...]:
        path = write_jsonl(tmp_path / name, list(records))
        [one] = read_skill_sets([SkillFile(skill, path)], [texts])
        return one.examples

    return examples


def ids(example: SkillExample) -> tuple[list[str], list[str], str]:
    evidence = example.evidence.passage_id if example.evidence else ""
    return [p.passage_id for p in example.positives], [p.passage_id for p in example.negatives], evidence


def test_paragraphs_with_links(read: Any, caplog: Any) -> None:
    """A link leads to the first passage of its title; one to a page that is not there is left out."""
    with caplog.at_level(logging.WARNING, "sparta"):
        found = read("link", PARAGRAPH)
    assert "1 of 3 examples" in caplog.text
    assert [(e.query[slice(*e.spans[0])], ids(e)[0]) for e in found] == [
        ("Einstein", ["k3"]),
        ("Jupiter", ["k1"]),
    ]
    [one] = read("span", PARAGRAPH)
    assert [one.query[a:b] for a, b in one.spans] == ["Einstein", "Jupiter", "Paris"]
    [one] = read("expanded", PARAGRAPH)
    assert (one.query, ids(one)) == (PARAGRAPH["text"], (["k3", "k1"], [], "k4"))


def test_table_rows(read: Any) -> None:
    text, [span] = row_text(ROW)
    assert text == "Planets, Moons. Name is Jupiter. 1610. Found by is one Einstein."
    assert text[slice(*span)] == "Einstein"
    [one] = read("link", ROW)
    assert (one.query, one.spans, ids(one)[0]) == (text, (span,), ["k3"])


def test_kilt_rows(read: Any) -> None:
    [single] = read("single", MULTIHOP)
    assert (single.query, ids(single)) == ("who saw the planet", (["k1", "k3"], ["k4"], ""))
    assert [ids(e) for e in read("expanded", MULTIHOP)] == [
        (["k3"], ["k4"], "k1"),
        (["k1"], ["k4"], "k3"),
    ]
    titled = [{"wikipedia_title": t, "passage_ids": own} for t, own in (("J", ["k1", "k2"]), ("E", ["k3"]))]
    same_page = {**MULTIHOP, "output": [{"provenance": titled}]}
    assert [ids(e)[::2] for e in read("expanded", same_page)] == [
        (["k3"], "k1"),
        (["k3"], "k2"),
        (["k1", "k2"], "k3"),
    ]
    assert read("rerank", MULTIHOP) == (single,)


def test_outputs_are_alternatives_and_no_hops(read: Any) -> None:
    """Pages of one output need each other; of two outputs, either will do. A page goes by its id first."""
    one, two, three = ({"wikipedia_id": n, "passage_ids": [f"k{n}"]} for n in (1, 2, 3))
    single = [{"provenance": [one]}, {"provenance": [three]}]
    with pytest.raises(InputError, match="no examples of the skill expanded"):
        read("expanded", {**MULTIHOP, "output": single})
    pairs = [{"provenance": [one, two]}, {"provenance": [three]}, {"provenance": [two, one]}]
    assert [ids(e)[::2] for e in read("expanded", {**MULTIHOP, "output": pairs})] == [
        (["k2"], "k1"),
        (["k1"], "k2"),
    ]
    same = [{"provenance": [{**one, "wikipedia_id": "9"}, {**two, "wikipedia_id": "9"}, three]}]
    assert [ids(e)[::2] for e in read("expanded", {**MULTIHOP, "output": same})] == [
        (["k3"], "k1"),
        (["k3"], "k2"),
        (["k1", "k2"], "k3"),
    ]


def test_paragraphs_without_links_take_no_place(read: Any) -> None:
    """30 paragraphs with links are drawn of a page (Appendix B.1), however many have none."""
    linked = [{**PARAGRAPH, "text": f"{PARAGRAPH['text']} {n}"} for n in range(9)]
    bare = [{"title": "Paris", "text": f"no link {n}", "links": []} for n in range(300)]
    assert len(read("expanded", *linked, *bare)) == 9


def test_linking_rows(read: Any) -> None:
    """Marks are taken out (§3.1); mentions of the same text are the entities of one."""
    [link] = read("link", {**LINKING, "meta": {"negatives": ["k4"]}})
    assert (link.query, ids(link)[:2]) == ("Then Einstein left Paris .", (["k3"], ["k4"]))
    assert link.query[slice(*link.spans[0])] == "Einstein"
    other = {**LINKING, "input": "Then Einstein left [START_ENT] Paris [END_ENT] ."}
    [span] = read("span", LINKING, other)
    assert [span.query[a:b] for a, b in span.spans] == ["Einstein", "Paris"]


def test_pairs_and_dprs_json(read: Any, tmp_path: Path) -> None:
    [pair] = read("single", {"question": "which", "positive": "a text", "title": "T", "negative": ["no"]})
    assert [(p.title, p.text) for p in (*pair.positives, *pair.negatives)] == [("T", "a text"), ("", "no")]
    given = {
        "question": "which",
        "positive_ctxs": [{"title": "T", "text": "a text"}],
        "hard_negative_ctxs": [{"title": "N", "text": "no"}],
    }
    path = tmp_path / "dpr.json"
    path.write_text(json.dumps([given]))
    [one] = read_skill_sets([SkillFile("rerank", path)], [])
    assert [(p.title, p.text) for p in (*one.examples[0].positives, *one.examples[0].negatives)] == [
        ("T", "a text"),
        ("N", "no"),
    ]


def test_all_positives_of_dprs_json(tmp_path: Path) -> None:
    """All passages of a question are right for it; a mention is what the marks of entity linking enclose."""
    given = {
        "question": "[START_ENT] Mercury [END_ENT] is hot",
        "positive_ctxs": [{"title": "T", "text": "one"}, {"title": "U", "text": "two"}],
        "negative_ctxs": [{"title": "N", "text": "no"}],
    }
    path = tmp_path / "dpr.json"
    path.write_text(json.dumps([given]))
    for skill, query in (("single", given["question"]), ("link", "Mercury is hot")):
        [one] = read_skill_sets([SkillFile(skill, path)], [])
        [example] = one.examples
        assert (example.query, [p.text for p in example.positives]) == (query, ["one", "two"])
        assert [p.text for p in example.negatives] == ["no"]
    assert example.query[slice(*example.spans[0])] == "Mercury"


def test_records_of_the_same_query_are_one_example(read: Any) -> None:
    """What one record calls right is a negative in none, whether both stand in a batch or not."""
    pairs = [
        {"question": "which", "positive": "one", "negative": ["two", "no"]},
        {"question": "other", "positive": "three"},
        {"question": "which", "positive": "two", "negative": ["no", "nor"]},
    ]
    which, other = read("single", *pairs)
    assert [p.text for p in which.positives] == ["one", "two"]
    assert [p.text for p in which.negatives] == ["no", "nor"]
    assert (other.query, len(other.positives)) == ("other", 1)


@pytest.mark.parametrize(
    ("skill", "record", "said"),
    [
        ("expanded", ROW, "table rows with links have no examples of the skill expanded, only of link, span"),
        ("link", MULTIHOP, "START_ENT"),
        (
            "link",
            {**PARAGRAPH, "links": [{"start": 20, "end": 99, "target_title": "Paris"}]},
            "inside a text",
        ),
        ("link", {**PARAGRAPH, "links": [{"start": 3}]}, "KeyError"),
        ("span", {**ROW, "cells": ["too few"]}, "ValueError"),
        ("single", {"input": "x", "output": [{"provenance": [{"passage_ids": ["nowhere"]}]}]}, "with texts"),
        ("rerank", {"question": "x"}, "positive"),
    ],
)
def test_refusals(skill: str, record: dict[str, Any], said: str, read: Any) -> None:
    with pytest.raises(InputError) as raised:
        read(skill, record)
    assert said in str(raised.value)
    assert "data.jsonl" in str(raised.value)


def linked(**changes: Any) -> dict[str, Any]:
    return {**PARAGRAPH, "links": [{**PARAGRAPH["links"][0], **changes}]}


def row(column: Any) -> dict[str, Any]:
    return {**ROW, "links": [{"anchor": "Einstein", "column": column, "target_title": "Einstein"}]}


@pytest.mark.parametrize(
    ("skill", "record", "said"),
    [
        ("link", linked(start="10"), "found ('10', 18)"),
        ("span", linked(end=18.0), "found (10, 18.0)"),
        ("link", linked(start=True), "found (True, 18)"),
        ("expanded", linked(end=180), "found 10 to 180"),
        ("expanded", {"title": "x", "text": "y"}, "KeyError"),
        ("link", row(-1), "column of a link must be 0 to 2, found -1"),
        ("link", row(3), "column of a link must be 0 to 2, found 3"),
        ("single", {**MULTIHOP, "meta": {"negatives": "k4"}}, "a list of passage ids, found 'k4'"),
        ("expanded", {**MULTIHOP, "meta": [1]}, "AttributeError"),
    ],
)
def test_refusals_name_the_line(skill: str, record: dict[str, Any], said: str, read: Any) -> None:
    good = ROW if "cells" in record else MULTIHOP if "input" in record else PARAGRAPH
    with pytest.raises(InputError) as raised:
        read(skill, good, record, good)
    assert said in str(raised.value)
    assert "data.jsonl:2: " in str(raised.value)


def test_by_size(write_jsonl: Callable[..., Path], tmp_path: Path) -> None:
    pairs = [{"question": f"q{i}", "positive": f"p{i}"} for i in range(6)]
    files = [
        SkillFile("single", write_jsonl(tmp_path / "a.jsonl", pairs), 2.0),
        SkillFile("rerank", write_jsonl(tmp_path / "b.jsonl", pairs[:3])),
    ]
    assert [s.weight for s in read_skill_sets(files, [])] == [2, 1]
    assert [s.weight for s in read_skill_sets(files, [], by_size=True)] == [12, 3]


@pytest.mark.slow
def test_the_command(encoder: str, write_jsonl: Callable[..., Path], tmp_path: Path, own_logger: Any) -> None:
    texts = write_jsonl(tmp_path / "texts.jsonl", PASSAGES)
    links = write_jsonl(
        tmp_path / "links.jsonl", [{**PARAGRAPH, "text": f"{PARAGRAPH['text']} {i}"} for i in range(6)]
    )
    hops = write_jsonl(tmp_path / "hops.jsonl", [{**MULTIHOP, "input": f"who {i}"} for i in range(6)])
    common = ["--encoder", encoder, "--texts", texts, "--batch-size", 2, "--max-length", 32, "--held-out", 2]
    common += ["--steps", 4, "--validate-every", 2, "--device", "cpu"]
    given = ["--single", hops, "--expanded", f"{hops}=2", "--rerank", hops, "--span", links, "--link", links]
    done = dense("train-skills", *common, *given, "--output", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "validation" in done.output
    assert Skills.open(tmp_path / "out").config.skills == ("single", "expanded", "span", "link", "rerank")
    assert "train-skills --encoder" in (tmp_path / "out" / "best" / "README.md").read_text()
    done = dense("train-skills", *common, *given, "--output", tmp_path / "out")
    assert done.exit_code == 2
    assert "--resume" in done.output
    done = dense("train-skills", *common, *given, "--output", tmp_path / "out", "--resume")
    assert done.exit_code == 0, done.output
    done = dense("train-skills", *common, "--output", tmp_path / "none")
    assert done.exit_code == 2
    assert "one of --single" in done.output


def test_forms_of_other_trainings_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    path.write_text('{"data": []}')
    with pytest.raises(InputError, match="triples or a BEIR folder, not squad"):
        read_skill_sets([SkillFile("single", path)], [])


def test_crops_of_a_language_without_spaces(read: Any) -> None:
    """Characters that are words by themselves are counted as words."""
    text = "".join(chr(0x4E00 + i) for i in range(40))
    [crop] = read("single", {"id": "a", "title": "", "text": text})
    assert crop.query in text
    assert 4 <= len(crop.query) <= 20


def test_a_long_positive_is_not_its_own_negative(tmp_path: Path) -> None:
    """Both are whole; passages of one id are the same, however their texts differ."""
    long = {"title": "T", "text": "word " * 400 + "end"}
    other = {"title": "T", "text": "word " * 400 + "another end"}
    named = {"title": "T", "text": "a text", "passage_id": "k1"}
    again = {"title": "", "text": "a text, otherwise", "psg_id": "k1"}
    given = {
        "question": "which",
        "positive_ctxs": [long, named],
        "hard_negative_ctxs": [long, again, other],
    }
    path = tmp_path / "dpr.json"
    path.write_text(json.dumps([given]))
    [one] = read_skill_sets([SkillFile("single", path)], [])
    [example] = one.examples
    assert [p.text for p in example.positives] == [long["text"], "a text"]
    assert [p.text for p in example.negatives] == [other["text"]]


def test_all_evidence_of_a_question_is_right_for_it(read: Any) -> None:
    """After one page the others are to be found; no gold passage of the question is a negative."""
    record = {**MULTIHOP, "meta": {"negatives": ["k1", "k3", "k4"]}}
    assert [ids(e) for e in read("expanded", record)] == [(["k3"], ["k4"], "k1"), (["k1"], ["k4"], "k3")]
    badly = [{"passage_ids": ["k1"]}, {"passage_ids": ["k2"], "bleu_score": 0.1}]
    mapped = {**MULTIHOP, "output": [{"provenance": badly[:1]}, {"provenance": badly[1:]}]}
    [single] = read("single", {**mapped, "meta": {"negatives": ["k2", "k4"]}})
    assert ids(single)[:2] == (["k1"], ["k4"]), "what was mapped badly is neither"
