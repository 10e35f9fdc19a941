"""KILT's knowledge source and provenance, in small files of the published form."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from sparta.base.errors import InputError
from sparta.data.corpus import open_corpus
from sparta.data.kilt import ABSTRACT, LEAST_BLEU, PagePosition, evidence_of, page_passages, well_mapped
from sparta.data.parsing import BadRecordError

PAGE: dict[str, Any] = {
    "_id": "1101759",
    "wikipedia_id": "1101759",
    "wikipedia_title": "Email marketing",
    "text": [
        "Email marketing\n",
        f"{' '.join(f'a{n}' for n in range(70))}.\n",
        "Section::::History.\n",
        f"BULLET::::- {' '.join(f'b{n}' for n in range(50))}\n",
        "BULLET::::1. last one\n",
    ],
    "anchors": [{"text": "a1", "href": "A1", "paragraph_id": 1, "start": 3, "end": 5}],
    "categories": "Marketing,Email",
    "history": {"pageid": 1101759},
    "wikidata_info": None,
}


def test_a_page_is_cut_into_passages_of_100_words() -> None:
    """70 words of paragraph 1 and 30 of paragraph 3 make the first; headings and marks are no words."""
    first, second = page_passages(PAGE)
    assert first["text"].split() == [f"a{n}" for n in range(69)] + ["a69."] + [f"b{n}" for n in range(30)]
    assert second["text"].split() == [f"b{n}" for n in range(30, 50)] + ["last", "one"]
    assert [p["id"] for p in (first, second)] == ["1101759-0", "1101759-1"]
    assert [p["section"] for p in (first, second)] == [ABSTRACT, "Section::::History."]
    assert {p["title"] for p in (first, second)} == {"Email marketing"}
    assert {p["wikipedia_id"] for p in (first, second)} == {"1101759"}
    for passage in (first, second):  # the places are those of the published paragraphs
        assert text_between(passage) == passage["text"].split()
    assert (first["start_paragraph_id"], first["end_paragraph_id"]) == (1, 3)
    assert (second["start_paragraph_id"], second["end_paragraph_id"]) == (3, 4)


def text_between(passage: dict[str, Any]) -> list[str]:
    """The words between the places that a passage names, read from the page itself: the oracle."""
    first, last = passage["start_paragraph_id"], passage["end_paragraph_id"]
    parts = []
    for number in range(first, last + 1):
        start = passage["start_character"] if number == first else 0
        end = passage["end_character"] if number == last else None
        if not PAGE["text"][number].startswith("Section::::"):
            parts += PAGE["text"][number][start:end].split()
    return [word for word in parts if not word.startswith("BULLET::::")]


def test_a_page_without_text_is_found_by_its_title() -> None:
    only = list(page_passages({**PAGE, "text": ["Email marketing\n"]}))
    assert [(p["id"], p["text"]) for p in only] == [("1101759-0", "")]
    assert [p.text for p in open_corpus([{**PAGE, "text": []}])] == ["Email marketing"]


def test_the_knowledge_source_is_a_corpus(tmp_path: Path) -> None:
    """One object a line, in a file whose name ends in .json; pages and plain records may be mixed."""
    path = tmp_path / "kilt_knowledgesource.json"
    other = {
        **PAGE,
        "_id": "12",
        "wikipedia_id": 12,
        "wikipedia_title": "Other",
        "text": ["Other\n", "It is."],
    }
    path.write_text("".join(json.dumps(record) + "\n" for record in (PAGE, other, {"id": "x", "text": "y"})))
    reader = open_corpus(path)
    assert [(p.passage_id, p.title) for p in reader] == [
        ("1101759-0", "Email marketing"),
        ("1101759-1", "Email marketing"),
        ("12-0", "Other"),
        ("x", ""),
    ]
    assert reader.counts.used == 4
    assert [p.passage_id for p in open_corpus([PAGE, other])] == ["1101759-0", "1101759-1", "12-0"]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"text": ["Email marketing", 3]}, "every paragraph"),
        ({"wikipedia_title": None}, "title of the wrong type"),
        ({"wikipedia_id": "a b"}, "one word"),
    ],
)
def test_a_page_of_another_form(tmp_path: Path, change: dict[str, Any], found: str) -> None:
    path = tmp_path / "pages.json"
    path.write_text(json.dumps(PAGE) + "\n" + json.dumps({**PAGE, **change}) + "\n")
    with pytest.raises(InputError, match=found) as raised:
        list(open_corpus(path))
    assert f"{path}:2" in str(raised.value)
    skipping = open_corpus(path, skip_invalid=True)
    assert [p.passage_id for p in skipping] == ["1101759-0", "1101759-1"]
    assert skipping.counts.skipped == 1


def test_a_page_that_comes_twice(tmp_path: Path) -> None:
    path = tmp_path / "pages.json"
    path.write_text(2 * (json.dumps(PAGE) + "\n"))
    with pytest.raises(InputError, match=r"'1101759-0' was already the id of .*:1"):
        list(open_corpus(path))


def test_a_page_that_comes_again_with_more_text_loses_no_passage_that_is_new(tmp_path: Path) -> None:
    path, more = tmp_path / "pages.json", {**PAGE, "text": [*PAGE["text"], "c " * 150]}
    path.write_text(json.dumps(PAGE) + "\n" + json.dumps(more) + "\n")
    reader = open_corpus(path, skip_invalid=True)
    assert [p.passage_id for p in reader] == ["1101759-0", "1101759-1", "1101759-2"]
    assert reader.counts.reasons == {"duplicate id": 2}


SPAN = {
    "wikipedia_id": "10287141",
    "title": "Chen Yi-hsiung",
    "section": "Section::::Abstract.",
    "start_paragraph_id": 5,
    "start_character": 190,
    "end_paragraph_id": 6,
    "end_character": 197,
    "bleu_score": 0.4,
    "meta": {},
}


def test_provenance_as_published_and_in_our_form() -> None:
    ours = {"wikipedia_title": "Berlin", "passage_ids": ["3354-0", "k7"]}
    page = {"wikipedia_id": 5, "title": "Five"}
    outputs = [{"answer": "a", "provenance": [SPAN, page]}, {"answer": "b"}, {"provenance": [ours]}]
    (span, alone), (passages,) = evidence_of(outputs)
    assert (span.wikipedia_id, span.title, span.section) == ("10287141", "Chen Yi-hsiung", SPAN["section"])
    assert (span.start, span.end, span.bleu) == (PagePosition(5, 190), PagePosition(6, 197), 0.4)
    assert (alone.wikipedia_id, alone.start, alone.bleu) == ("5", None, 1.0)
    assert (passages.title, passages.passage_ids, passages.start) == ("Berlin", ("3354-0", "k7"), None)


def test_the_bleu_filter() -> None:
    """Below 0.5 is left out, 0.5 is not, nor what has no score; an output of nothing else goes too."""
    at_border = {**SPAN, "bleu_score": LEAST_BLEU}
    unknown = {k: v for k, v in SPAN.items() if k != "bleu_score"}
    outputs = [{"provenance": [SPAN, at_border]}, {"provenance": [SPAN]}, {"provenance": [unknown]}]
    evidence = evidence_of(outputs)
    assert [[one.bleu for one in own] for own in evidence] == [[0.4, 0.5], [0.4], [1.0]]
    assert [[one.bleu for one in own] for own in well_mapped(evidence)] == [[0.5], [1.0]]
    assert well_mapped(evidence, 0.4) == evidence


def test_places_that_are_not_known() -> None:
    """KILT writes −1 for a character that is not known, and nothing where the page is all."""
    bare = {**SPAN, "start_character": -1, "end_character": -1}
    assert evidence_of([{"provenance": [bare]}])[0][0].end == PagePosition(6, math.inf)
    none = {**SPAN, "start_paragraph_id": -1, "end_paragraph_id": -1}
    assert evidence_of([{"provenance": [none]}])[0][0].start is None
    only_start = {**SPAN, "end_paragraph_id": None, "end_character": None}
    assert evidence_of({"provenance": [only_start]})[0][0].end == PagePosition(5, math.inf)


@pytest.mark.parametrize(
    ("provenance", "found"),
    [
        ("x", "list of objects"),
        ([3], "list of objects"),
        ([{"passage_ids": "k1"}], "passage_ids a list of strings"),
        ([{"title": 3}], "title must be a string"),
        ([{**SPAN, "start_paragraph_id": "five"}], "start_paragraph_id must be a whole number"),
        ([{**SPAN, "end_paragraph_id": 2}], "paragraph 2, its end, is before paragraph 5"),
    ],
)
def test_provenance_of_another_form(provenance: Any, found: str) -> None:
    with pytest.raises(BadRecordError, match=found):
        evidence_of([{"answer": "a", "provenance": provenance}])
