"""Answers over HTTP are those of the reader that reads what the index finds."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from sparta.reader.records import Span
from tests.hybrid.service.services import QUESTION, GivenReader

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


def test_an_answer_is_that_of_the_answerer(built, open_client) -> None:
    from hybrid import open_answerer

    client = open_client(built)
    assert client.get("/info").json()["answers"] is True
    for channels in ("impact", "bm25", "impact,bm25"):
        body = {"query": QUESTION, "n": 2, "depth": 3, "channels": channels}
        found = client.post("/answer", json=body).json()
        with open_answerer(built, channels, depth=3) as answerer:
            expected = [one.as_dict() for one in answerer.answer(QUESTION, 2)]
        assert found["answers"] == expected
        assert found["answers"][0]["passage_id"] == "google"
        by_url = client.get("/answer", params={"q": QUESTION, "n": 2, "depth": 3, "channels": channels})
        assert by_url.json() == found
    kept = {"lang": "fr"}
    with open_answerer(built, "bm25", depth=3) as answerer:
        hits = answerer.retriever.search("la moon", 3, filter=kept)
        expected = [[one.as_dict() for one in answerer.answer_hits("la moon", hits, 2)]]
        expected += [[one.as_dict() for one in answerer.answer("", 1)]]
    body = {"query": "la moon", "n": 2, "depth": 3, "channels": "bm25", "filter": kept}
    found = [client.post("/answer", json=own).json()["answers"] for own in (body, {"query": ""})]
    assert found == expected
    assert {one["passage_id"] for one in found[0]} == {"lune"}
    by_url = client.get("/answer?q=la+moon&n=2&depth=3&channels=bm25&filter=lang=fr")
    assert by_url.json()["answers"] == found[0]


def test_answers_are_told_apart_by_the_rules_of_the_language(
    tmp_path, tiny_model_folder, open_client
) -> None:
    """In German, "der Mond" and "Mond" are the same answer."""
    from sparta.index.inputs.options import IndexOptions
    from sparta.index.pipeline import build_index

    readers = GivenReader(lambda _: [Span(0, 0, 8, 2.0), Span(0, 10, 14, 1.0)])
    for language, answers in (("de", ["der Mond"]), ("en", ["der Mond", "Mond"])):
        options = IndexOptions(channels="bm25", model=str(tiny_model_folder), language=language)
        build_index(tmp_path / language, [{"id": "1", "text": "der Mond, Mond"}], "create", options)
        client = open_client(tmp_path / language, readers)
        found = client.post("/answer", json={"query": "Mond", "n": 2}).json()["answers"]
        assert [one["answer"] for one in found] == answers


@pytest.mark.parametrize("unit", ["sentence", "chunk:6:0:sentence"])
def test_the_place_of_an_answer_counts_in_its_passage(
    tmp_path, tiny_model_folder, open_client, unit: str
) -> None:
    """A sentence is read in its passage, a chunk by itself."""
    from hybrid import open_answerer
    from sparta.index.inputs.options import IndexOptions
    from sparta.index.pipeline import build_index

    options = IndexOptions(channels="bm25", model=str(tiny_model_folder), unit=unit)
    text = "Google is a company. It was founded by Larry Page. He was a student."
    build_index(tmp_path / "ix", [{"id": "g", "title": "Google", "text": text}], "create", options)
    found = open_client(tmp_path / "ix").post("/answer", json={"query": QUESTION, "n": 2}).json()
    with open_answerer(tmp_path / "ix") as answerer:
        assert found["answers"] == [one.as_dict() for one in answerer.answer(QUESTION, 2)]
    for answer in found["answers"]:
        start = answer["text_start"] + answer["start"]
        assert text[start : start + len(answer["answer"])] == answer["answer"]
        assert (answer["text"] == text) == (unit == "sentence")


QUIBBLE = "The Quibble hat company of Leeds makes hats. Its owner was Jane Roe, since 1950. She died in York."


@pytest.mark.parametrize(
    ("answer", "depth", "passage_id"),
    [
        ("Leeds", 1, "quibble#0"),
        ("Jane Roe", 10, "quibble#1"),
        ("Jane Roe", 1, "quibble"),  # no hit is the sentence
        ("1950. She", 10, "quibble"),  # it crosses the end of a sentence
    ],
)
def test_the_passage_of_an_answer_holds_it(
    tmp_path, tiny_model_folder, open_client, answer: str, depth: int, passage_id: str
) -> None:
    from sparta.index.inputs.options import IndexOptions
    from sparta.index.pipeline import build_index

    options = IndexOptions(channels="bm25", model=str(tiny_model_folder), unit="sentence")
    build_index(tmp_path / "ix", [{"id": "quibble", "title": "Quibble", "text": QUIBBLE}], "create", options)
    place = QUIBBLE.index(answer), QUIBBLE.index(answer) + len(answer)
    client = open_client(tmp_path / "ix", GivenReader(lambda _: [Span(0, *place, 2.0)]))
    question = {"query": "the Quibble hat company of Leeds", "depth": depth}
    [best] = client.post("/answer", json=question).json()["answers"]
    assert (best["text"][best["start"] : best["end"]], best["passage_id"]) == (answer, passage_id)
    assert answer in client.get(f"/passages/{quote(passage_id)}").json()["text"]


def test_a_sentence_that_is_a_passage_of_its_own_keeps_its_id(
    tmp_path, tiny_model_folder, open_client
) -> None:
    """The index has no passage p, and the record of p#0 holds the text around the sentence."""
    from sparta.index.inputs.options import IndexOptions
    from sparta.index.pipeline import build_index

    end = QUIBBLE.index(" Its")
    record = {"id": "p#0", "passage_id": "p", "text": QUIBBLE[:end]}
    record |= {"context": QUIBBLE, "start": 0, "end": end}
    options = IndexOptions(channels="bm25", model=str(tiny_model_folder))
    build_index(tmp_path / "ix", [record], "create", options)
    place = QUIBBLE.index("Jane Roe"), QUIBBLE.index("Jane Roe") + 8
    client = open_client(tmp_path / "ix", GivenReader(lambda _: [Span(0, *place, 2.0)]))
    [best] = client.post("/answer", json={"query": "Quibble hat"}).json()["answers"]
    assert (best["answer"], best["passage_id"]) == ("Jane Roe", "p#0")
    assert "Jane Roe" in client.get(f"/passages/{quote('p#0')}").json()["metadata"]["context"]


def test_the_service_abstains_below_a_threshold(built, open_client) -> None:
    client = open_client(built)
    sure = client.post("/answer", json={"query": QUESTION, "threshold": 0}).json()
    assert (sure["abstained"], sure["best_guess"], sure["threshold"]) == (False, None, 0)
    unsure = client.post("/answer", json={"query": QUESTION, "threshold": 1}).json()
    assert client.get("/answer", params={"q": QUESTION, "threshold": "1.0"}).json() == unsure
    assert (unsure["answers"], unsure["abstained"], unsure["threshold"]) == ([], True, 1)
    assert unsure["best_guess"] == sure["answers"][0]
    assert client.post("/answer", json={"query": QUESTION, "threshold": 1.5}).status_code == 400
    assert client.post("/answer", json={"query": QUESTION}).json()["threshold"] > 0
    assert client.post("/answer", json={"query": QUESTION, "channels": "sparta"}).json()["threshold"] > 0
