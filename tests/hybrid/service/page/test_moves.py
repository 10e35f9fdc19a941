"""What stays and what goes as one moves about in the page: answers, places in it, keys, filters."""

import contextlib
import json
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from tests.hybrid.service.pages import BROWSER, forget, shown

pytest.importorskip("fastapi")
sync = pytest.importorskip("playwright.sync_api")
expect = sync.expect

QUESTION = "who founded google"
BEST = {
    "answer": "Larry Page",
    "score": 0.9,
    "passage_id": "google",
    "start": 0,
    "end": 10,
    "title": "Google",
    "text": "Larry Page founded Google.",
}

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium (or its path in SPARTA_CHROMIUM)"),
]


def answered(route: Any) -> None:
    with contextlib.suppress(sync.Error):  # it was aborted
        route.fulfill(json={"query": "", "answers": [BEST]})


def refused(route: Any, *, status: int = 429) -> None:
    error = {"code": "busy", "message": "too much at a time"}
    route.fulfill(status=status, json={"error": error, "request_id": "r-1"})


def asked(page: Any, question: str) -> None:
    page.get_by_label("Question", exact=True).fill(question)
    page.keyboard.press("Enter")


@pytest.mark.parametrize("then", ["welcome", "failure"])
def test_a_late_answer_does_not_come_where_its_question_is_gone(visit, then):
    held: list[Any] = []
    page = visit(answers=True)
    page.route("**/answer", lambda route: held.append(route))
    with page.expect_request("**/answer"):
        asked(page, QUESTION)
    if then == "welcome":
        page.get_by_role("link", name="sparta", exact=True).click()
        expect(page.locator(".welcome")).to_be_visible()
    else:
        page.route("**/search", refused)
        asked(page, "moon")
        expect(page.get_by_role("alert")).to_contain_text("too much at a time")
        forget(visit, 429)
    answered(held[0])
    page.wait_for_timeout(300)
    expect(page.locator(".answer")).to_have_count(0)


def test_an_answer_between_long_runs_without_spaces_has_them_around_it(visit):
    text = "都" * 200 + " 北京 " + "市" * 200
    best = {**BEST, "answer": "北京", "text": text, "start": 201, "end": 203}
    page = visit(answers=True)
    page.route("**/answer", lambda route: route.fulfill(json={"query": "", "answers": [best]}))
    asked(page, QUESTION)
    expect(page.locator(".answer .snippet")).to_have_text(f"… {'都' * 109} 北京 {'市' * 109} …")


def test_back_from_home_shows_the_answer_again(visit):
    page = visit(answers=True)
    page.route("**/answer", answered)
    asked(page, QUESTION)
    expect(page.locator(".answer h2")).to_have_text("Larry Page")
    page.get_by_role("link", name="sparta", exact=True).click()
    expect(page.locator(".answer")).to_have_count(0)
    page.go_back()
    expect(page.locator(".answer h2")).to_have_text("Larry Page")


def test_after_a_failed_answer_the_same_question_asks_again(visit):
    page = visit(answers=True)
    page.route("**/answer", refused)
    asked(page, QUESTION)
    expect(page.locator("#answer").get_by_role("alert")).to_contain_text("too much at a time")
    forget(visit, 429)
    page.unroute("**/answer")
    page.route("**/answer", answered)
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".answer h2")).to_have_text("Larry Page")


def test_links_to_places_in_the_page_ask_nothing(visit):
    page = visit("?q=what is the largest planet&vs=bm25", viewport={"width": 1280, "height": 500})
    address, entries = page.url, page.evaluate("history.length")
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    link = page.locator(".summary a").last
    link.click()
    title = link.text_content()
    expect(page.locator("li:focus h3")).to_have_text(title)
    expect(page.locator("li:focus")).to_be_in_viewport()
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#results")).to_be_focused()
    page.wait_for_timeout(300)
    assert requests == []
    assert (page.url, page.evaluate("history.length")) == (address, entries)


@pytest.mark.parametrize("key", ["a–key-to-read-0123456789", "a-key-\u200bto-read-0123456789", "a key é"])
def test_a_key_that_cannot_be_sent_is_refused_in_the_form(visit, key):
    page = visit()
    page.route("**/search", lambda route: refused(route, status=401))
    asked(page, QUESTION)
    page.get_by_label("API key").fill(key)
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("a key must be ASCII")
    assert page.evaluate("sessionStorage.length") == 0
    page.unroute("**/search")
    page.get_by_label("API key").fill(" a-key-to-read-0123456789 ")
    page.keyboard.press("Enter")
    expect(shown(page)).to_have_count(10)
    forget(visit, 401)


def test_values_with_commas_stay_whole(visit):
    kept = {"lang": {"in": ["ar", "Paris, France", 'the "best"', ""]}}
    page = visit(f"?q=quokka&filter={quote(json.dumps(kept))}")
    row = page.get_by_role("group", name="Filter", exact=True)
    assert row.get_by_label("Value").input_value() == 'ar, "Paris, France", "the ""best""", ""'
    row.get_by_label("Value").press("End")
    row.get_by_label("Value").type(", zh")
    row.get_by_label("Value").press("Enter")
    expect(shown(page)).to_have_count(2)
    filter = json.loads(parse_qs(urlsplit(page.url).query)["filter"][0])
    assert filter == {"lang": {"in": [*kept["lang"]["in"], "zh"]}}
