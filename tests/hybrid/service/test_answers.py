"""Answers over HTTP are those of the reader that reads what the index finds."""

from __future__ import annotations

import pytest

from tests.hybrid.service.services import QUESTION

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
    assert client.post("/answer", json={"query": ""}).json()["answers"] is not None
