"""KILT's provenance mapped to the passages of an index, and measured by the commands."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hybrid.evaluation.questions import judged, questions_of
from hybrid.evidence.gold import overlapping, page_of
from hybrid.evidence.measures import Gold
from sparta.base.errors import InputError
from sparta.data.kilt import PagePosition
from tests.programs import dense, hybrid, sparta

MOON = [
    "Moon\n",
    f"The moon goes round the earth. {' '.join(f'm{n}' for n in range(90))}\n",  # words 0 to 95
    "Section::::Water.\n",
    f"No water is there. {' '.join(f'n{n}' for n in range(60))}\n",  # words 96 to 159: 4 in the first passage
]
PAGES = [
    {"wikipedia_id": 7, "wikipedia_title": "Moon", "text": MOON, "anchors": [], "categories": ""},
    {"wikipedia_id": "8", "wikipedia_title": "Paris", "text": ["Paris\n", "Paris is a city.\n"]},
    {"wikipedia_id": "9", "wikipedia_title": "Germany", "text": ["Germany\n", "The capital is Berlin.\n"]},
]


def span(page: str, first: int, start: int, last: int, end: int, **more: Any) -> dict[str, Any]:
    places = {"start_paragraph_id": first, "start_character": start}
    ends = {"end_paragraph_id": last, "end_character": end}
    return {"wikipedia_id": page, "title": "t", **places, **ends, **more}


def question(name: str, text: str, *outputs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": name, "input": text, "output": [{"answer": "", "provenance": own} for own in outputs]}


QUESTIONS = [
    question("straddles", "water on the moon", [span("7", 1, 300, 3, 30)]),
    question("heading", "where is water", [span("7", 2, 0, 2, 5)]),
    question("both", "moon paris", [span("7", 1, 0, 1, 10), span("8", 1, 0, 1, 5)], [span("9", 1, 0, 1, 3)]),
    question("page", "the city of [START_ENT] Paris [END_ENT]", [{"wikipedia_id": "8", "title": "Paris"}]),
    question("absent", "jupiter", [span("55", 1, 0, 1, 3)]),
    question("behind", "moon", [span("7", 44, 0, 44, 3)]),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, write_jsonl: Callable[..., Path]) -> Path:
    """The pages as `kilt_knowledgesource.json`, questions on them, and an index for BM25."""
    folder = tmp_path_factory.mktemp("kilt")
    write_jsonl(folder / "kilt_knowledgesource.json", PAGES)
    write_jsonl(folder / "made-dev-kilt.jsonl", QUESTIONS)
    given = ("--corpus", folder / "kilt_knowledgesource.json", "--index", folder / "ix", "--quiet")
    result = sparta("index", "--channels", "bm25", *given)
    assert result.exit_code == 0, result.output
    return folder


def units(*outputs: list[str]) -> tuple[frozenset[frozenset[str]], ...]:
    """Evidence sets; the ids of a unit stand in one string."""
    return tuple(frozenset(frozenset(unit.split()) for unit in own) for own in outputs)


@pytest.mark.jvm
def test_spans_become_passages_and_pages(
    folder: Path, caplog: pytest.LogCaptureFixture, own_logger: None
) -> None:
    logging.getLogger("sparta").propagate = True
    found = judged(questions_of(folder / "made-dev-kilt.jsonl"), folder / "ix")
    assert found.gold is not None
    passages = dict(found.gold.passages)
    assert passages["straddles"] == units(["7-0 7-1"])
    assert passages["heading"] == units(["7-0"])  # the words behind it begin in the first passage
    assert passages["both"] == units(["7-0", "8-0"], ["9-0"])
    assert "page" not in passages  # nothing but a page is known
    assert found.gold.pages["page"] == units(["8"])
    assert found.gold.pages["straddles"] == units(["7"])
    assert found.gold.pages["both"] == units(["7", "8"], ["9"])
    assert found.qrels["straddles"] == {"7-0": 1, "7-1": 1}
    assert found.qrels["both"] == {"7-0": 1, "8-0": 1, "9-0": 1}
    assert "absent" not in found.qrels
    assert "2 of 5 questions" in caplog.text


@pytest.mark.jvm
def test_the_command_measures_both_levels(folder: Path, tmp_path: Path, own_logger: None) -> None:
    """Worked by hand from BM25's rankings, which are written too."""
    given = ("--index", folder / "ix", "--dataset", folder / "made-dev-kilt.jsonl", "--no-dense")
    lines = tmp_path / "q.jsonl"
    names = "page_Rprec,page_success@2,passage_Rprec,passage_recall@2"
    more = ("--per-query", lines, "--measures", names, "--format", "json", "--output-runs", tmp_path / "runs")
    result = hybrid("eval", *given, *more)
    assert result.exit_code == 0, result.output
    ranked: dict[str, list[str]] = {}
    for line in (tmp_path / "runs" / "made-dev-kilt-bm25.trec").read_text().splitlines():
        ranked.setdefault(line.split()[0], []).append(line.split()[2])
    assert ranked["both"] == ["8-0", "7-0", "7-1"]
    assert ranked["heading"][0] == "7-0"
    values = {own["query_id"]: own for own in map(json.loads, lines.read_text().splitlines())}
    assert values["both"] == {
        "set": "made-dev-kilt",
        "ranking": "bm25",
        "query_id": "both",
        "page_Rprec": 1.0,
        "page_success@2": 1.0,
        "passage_Rprec": 1.0,
        "passage_recall@2": 0.5,
    }
    assert values["heading"]["passage_Rprec"] == 1.0
    assert values["absent"]["page_Rprec"] == values["absent"]["passage_recall@2"] == 0.0
    assert values["page"].keys() == {"set", "ranking", "query_id", "page_Rprec", "page_success@2"}
    (row,) = json.loads(result.stdout)
    assert row["page_Rprec"] == pytest.approx(100 * sum(v["page_Rprec"] for v in values.values()) / 6)
    assert row["passage_Rprec"] == pytest.approx(
        100 * sum(v["passage_Rprec"] for v in values.values() if "passage_Rprec" in v) / 5
    )
    assert row["± page_Rprec"] > 0


@pytest.mark.slow
@pytest.mark.jvm
def test_our_form_on_sentences(folder: Path, tmp_path: Path, write_jsonl: Callable[..., Path]) -> None:
    """Passages by their ids; where sentences are indexed, a sentence counts for its passage."""
    ours = [{"wikipedia_title": "Moon", "passage_ids": ["7-1", "7-0"]}]
    asked = write_jsonl(tmp_path / "asked.jsonl", [question("q", "water", ours)])
    whole = judged(questions_of(asked), folder / "ix")
    assert whole.gold == Gold({"q": units(["7"])}, {"q": units(["7-0 7-1"])})
    given = ("--corpus", folder / "kilt_knowledgesource.json", "--index", tmp_path / "ix", "--quiet")
    result = sparta("index", "--channels", "bm25", "--unit", "sentence", *given)
    assert result.exit_code == 0, result.output
    cut = judged(questions_of(asked), tmp_path / "ix")
    assert cut.gold == Gold({"q": units(["7"])}, {"q": units(["7-0 7-1"])}, cut=True)
    result = hybrid("eval", "--index", tmp_path / "ix", "--dataset", asked, "--no-dense", "--format", "json")
    assert json.loads(result.stdout)[0]["passage_Rprec"] == 100.0, result.output
    chain = tmp_path / "one.toml"
    chain.write_text(
        '[[step]]\nname = "search"\nskill = "retrieve"\nchannel = "bm25"\n\n[[step]]\nname = "first"\n'
        'skill = "rerank"\nby = "terms"\nchannel = "bm25"\nafter = ["search"]\n'
    )
    result = hybrid(
        *("eval", "--index", tmp_path / "ix", "--dataset", asked, "--no-dense", "--format", "json"),
        *("--chain", chain),
    )
    assert json.loads(result.stdout)[1]["passage_EM"] == 100.0, "a sentence counts for its passage"


@pytest.mark.jvm
def test_pages_named_only_by_title_in_an_index_with_ids_cause_a_warning(
    folder: Path,
    tmp_path: Path,
    write_jsonl: Callable[..., Path],
    caplog: pytest.LogCaptureFixture,
    own_logger: None,
) -> None:
    logging.getLogger("sparta").propagate = True
    titled = question("titled", "water on the moon", [{"wikipedia_id": "8"}, {"title": "Moon"}])
    questions = questions_of(write_jsonl(tmp_path / "titled.jsonl", [titled, QUESTIONS[3]]))
    judged(questions, folder / "ix")
    assert "but 1 of 2 questions name pages only by title" in caplog.text
    caplog.clear()
    judged(questions_of(folder / "made-dev-kilt.jsonl"), folder / "ix")
    assert "only by title" not in caplog.text
    plain = write_jsonl(tmp_path / "plain.jsonl", [{"id": "m", "title": "Moon", "text": "water"}])
    built = sparta("index", "--channels", "bm25", "--corpus", plain, "--index", tmp_path / "ix")
    assert built.exit_code == 0, built.output
    caplog.clear()
    judged(questions, tmp_path / "ix")  # its pages have titles, and no ids
    assert "only by title" not in caplog.text


def test_provenance_is_not_measured_on_a_server(folder: Path, tmp_path: Path) -> None:
    """Also where the working folder has no index."""
    result = hybrid(
        *("eval", "--opensearch", "http://127.0.0.1:9", "--index", tmp_path / "none"),
        *("--dataset", folder / "made-dev-kilt.jsonl"),
    )
    assert result.exit_code == 2
    assert "KILT's provenance is measured on the folder of an index, not on a server" in result.stderr
    assert "--index FOLDER in place of --opensearch" in result.stderr


@pytest.mark.jvm
def test_sets_that_belong_to_another_index(
    folder: Path, tmp_path: Path, write_jsonl: Callable[..., Path], own_logger: None
) -> None:
    """Passages that are not there are an error; of spans that are not, one is told, and pages go by title."""
    ours = [{"wikipedia_title": "Moon", "passage_ids": ["k1"]}]
    asked = write_jsonl(tmp_path / "asked.jsonl", [question("q", "water", ours)])
    with pytest.raises(InputError) as error:
        judged(questions_of(asked), folder / "ix")
    assert str(folder / "ix") in error.value.where
    assert [option.name for option in error.value.remedy.options] == ["index"]
    result = hybrid("eval", "--index", folder / "ix", "--dataset", asked)
    assert result.exit_code == 2
    assert "--index FOLDER" in result.stderr

    plain = write_jsonl(tmp_path / "plain.jsonl", [{"id": "7-0", "title": "Moon", "text": "water, m1"}])
    built = sparta("index", "--channels", "bm25", "--corpus", plain, "--index", tmp_path / "ix")
    assert built.exit_code == 0, built.output
    published = [span("7", 1, 0, 1, 9, title="Moon")]
    write_jsonl(asked, [question("q", "water", published)])
    result = hybrid("eval", "--index", tmp_path / "ix", "--dataset", asked, "--no-dense", "--format", "json")
    assert "kilt_knowledgesource.json" in result.stderr
    (row,) = json.loads(result.stdout)
    assert row["page_Rprec"] == 100.0
    assert "passage_Rprec" not in row
    result = hybrid("eval", "--index", tmp_path / "ix", "--dataset", asked, "--measures", "passage_Rprec")
    assert result.exit_code == 2
    assert "passage_Rprec" in result.stderr


@pytest.mark.slow
@pytest.mark.jvm
def test_pages_by_their_ids_in_passages_of_another_making(
    tmp_path: Path, write_jsonl: Callable[..., Path], own_logger: None
) -> None:
    """Passages are not those of the knowledge source, their Wikipedia ids are: pages are told by these."""
    own = [
        {"id": f"chunk{n}", "title": t, "text": t, "wikipedia_id": n} for n, t in ((7, "Moon"), (8, "Sun"))
    ]
    corpus = write_jsonl(tmp_path / "own.jsonl", own)
    built = sparta("index", "--channels", "bm25", "--corpus", corpus, "--index", tmp_path / "ix")
    assert built.exit_code == 0, built.output
    asked = write_jsonl(
        tmp_path / "asked.jsonl", [question("q", "moon", [span("7", 1, 0, 1, 9, title="Moon")])]
    )
    given = ("--index", tmp_path / "ix", "--dataset", asked, "--no-dense", "--format", "json")
    (row,) = json.loads(hybrid("eval", *given).stdout)
    assert row["page_Rprec"] == 100.0
    write_jsonl(corpus, [{**one, "id": f"{one['wikipedia_id']}-0"} for one in own])
    again = ("--corpus", corpus, "--index", tmp_path / "ix", "--overwrite")
    built = sparta("index", "--channels", "bm25", *again)
    assert built.exit_code == 0, built.output
    result = hybrid("eval", *given)
    (row,) = json.loads(result.stdout)
    assert row["page_Rprec"] == 100.0, "ids as a knowledge source has them, without places"
    assert "so only pages are measured" in result.stderr


@pytest.mark.jvm
def test_training_data_of_a_task(
    folder: Path, tmp_path: Path, write_jsonl: Callable[..., Path], own_logger: None
) -> None:
    """Positives are the passages of provenance with a BLEU score of 0.5; they are no negatives."""
    asked = [
        question("good", "moon paris capital", [span("8", 1, 0, 1, 5, bleu_score=0.5)]),
        question("bad", "moon", [span("7", 1, 0, 1, 5, bleu_score=0.49)]),
        question("answered", "moon", [span("7", 1, 0, 1, 5, bleu_score=0.49)]),
    ]
    asked[2]["output"][0]["answer"] = "earth"  # in a passage, which all the same was badly mapped
    path = write_jsonl(tmp_path / "made-train-kilt.jsonl", asked)
    output = tmp_path / "mined.json"
    result = dense("mine", "--index", folder / "ix", "--dataset", path, "--output", output, "--quiet")
    assert result.exit_code == 0, result.output
    assert "2 left out for lack of a positive passage" in result.output
    (only,) = json.loads(output.read_text())
    assert only["question"] == "moon paris capital"
    assert [p["passage_id"] for p in only["positive_ctxs"]] == ["8-0"]
    assert {p["passage_id"] for p in only["hard_negative_ctxs"]} == {"7-0", "7-1", "9-0"}
    asked[0]["output"][0]["provenance"].append(span("9", 1, 0, 1, 5, bleu_score=0.2))
    write_jsonl(path, asked)
    dense("mine", "--index", folder / "ix", "--dataset", path, "--output", output, "--quiet")
    (only,) = json.loads(output.read_text())
    assert [p["passage_id"] for p in only["positive_ctxs"]] == ["8-0"]
    assert {p["passage_id"] for p in only["hard_negative_ctxs"]} == {"7-0", "7-1"}, "mapped badly: neither"


@pytest.mark.jvm
def test_training_data_of_entity_linking(
    folder: Path, tmp_path: Path, write_jsonl: Callable[..., Path], own_logger: None
) -> None:
    """Where provenance names pages alone, the first passage is positive, and none of the page negative."""
    asked = [
        question("there", "the moon [START_ENT] moon [END_ENT] paris", [{"wikipedia_id": "7", "title": "M"}]),
        question("absent", "moon", [{"wikipedia_id": "77", "title": "Berlin"}]),
    ]
    asked.append(question("plain", "the moon", [{"wikipedia_id": "77", "title": "Berlin"}]))
    asked[1]["input"] += " [START_ENT] moon [END_ENT]"
    for one in asked:
        one["output"][0]["answer"] = "earth"  # what stands in some passage of another page
    path = write_jsonl(tmp_path / "aidayago2-train-kilt.jsonl", asked)
    output = tmp_path / "mined.json"
    given = ("--index", folder / "ix", "--dataset", path, "--output", output, "--with-answers", "--quiet")
    result = dense("mine", *given)
    assert result.exit_code == 0, result.output
    assert "1 left out for lack of a positive passage" in result.output
    linked, plain = json.loads(output.read_text())
    assert plain["question"] == "the moon", "its answer is found, if its page is not"
    assert [p["passage_id"] for p in linked["positive_ctxs"]] == ["7-0"]
    negatives = [p["passage_id"] for p in linked["hard_negative_ctxs"]]
    assert negatives
    assert not any(one.startswith("7-") for one in negatives)


@pytest.mark.jvm
def test_pages_of_another_index(
    folder: Path, tmp_path: Path, write_jsonl: Callable[..., Path], own_logger: None
) -> None:
    """Of entity linking nothing but pages is known: one is told when none of them is found."""
    page = [{"wikipedia_id": "77", "title": "Berlin"}]
    asked = write_jsonl(tmp_path / "aidayago2-dev-kilt.jsonl", [question("q", "Paris", page)])
    result = hybrid("eval", "--index", folder / "ix", "--dataset", asked, "--no-dense")
    assert result.exit_code == 0
    assert "no channel found a page" in result.stderr


def test_a_task_is_no_test_set_of_its_own(tmp_path: Path, write_jsonl: Callable[..., Path]) -> None:
    path = write_jsonl(tmp_path / "fever-dev-kilt.jsonl", QUESTIONS)
    result = sparta("eval", path)
    assert result.exit_code == 2
    assert f"hybrid eval --index FOLDER --dataset {path}" in result.stderr


CHUNKS = [
    ("p-0", {"start_paragraph_id": 1, "start_character": 0, "end_paragraph_id": 2, "end_character": 10}),
    ("p-1", {"start_paragraph_id": 2, "start_character": 11, "end_paragraph_id": 2, "end_character": 50}),
    ("p-2", {"start_paragraph_id": 4, "start_character": 0, "end_paragraph_id": 4, "end_character": 9}),
]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ((1, 5), (1, 9), ["p-0"]),
        ((1, 0), (1, float("inf")), ["p-0"]),  # a whole paragraph
        ((2, 5), (2, 20), ["p-0", "p-1"]),
        ((2, 10), (2, 11), ["p-1"]),  # the space between two passages
        ((2, 11), (2, 11), ["p-1"]),  # an empty span
        ((3, 0), (3, 7), ["p-2"]),  # a heading
        ((2, 40), (3, 7), ["p-1"]),
        ((1, 0), (4, 1), ["p-0", "p-1", "p-2"]),
        ((4, 9), (4, 12), []),  # behind the text
    ],
)
def test_which_passages_a_span_overlaps(
    start: tuple[int, float], end: tuple[int, float], expected: list[str]
) -> None:
    assert overlapping(CHUNKS, PagePosition(*start), PagePosition(*end)) == expected


def test_what_a_page_is() -> None:
    assert page_of("p", {"wikipedia_id": 12, "title": "Moon"}) == "12"
    assert page_of("p", {"wikipedia_id": None, "title": "Moon"}) == "Moon"
    assert page_of("p", {"title": " "}) == "p"
