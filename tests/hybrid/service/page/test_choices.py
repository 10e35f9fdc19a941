"""What is chosen on the page is what the service is asked for."""

import json
from typing import Any

import pytest

from tests.hybrid.service.pages import BROWSER

pytest.importorskip("fastapi")
expect = pytest.importorskip("playwright.sync_api").expect

QUESTION = "who founded google"

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium (or its path in SPARTA_CHROMIUM)"),
]


def test_an_answer_is_read_in_what_is_ranked(visit):
    read: list[Any] = []

    def answer(route: Any) -> None:
        read.append(route.request.post_data_json)
        route.fulfill(json={"query": "", "answers": []})

    kept = {"lang": "ar"}
    page = visit(f"?q=quokka&by=bm25&filter={json.dumps(kept)}", answers=True)
    page.route("**/answer", answer)
    expect(page.locator(".answer.none")).to_be_visible()
    page.get_by_label("hybrid", exact=True).check()
    page.wait_for_timeout(1500)
    own = {"query": "quokka", "n": 3, "filter": kept}
    assert read == [{**own, "channels": "bm25"}, {**own, "channels": "impact,bm25=1"}]
