"""What is chosen on the page is what the service gets."""

import json
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from tests.hybrid.service.pages import BROWSER, ODD, fixed, shown, titles

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
    page = visit(answers=True)
    page.route("**/answer", answer)
    page.goto(page.url + f"?q=quokka&by=bm25&filter={json.dumps(kept)}")
    expect(page.locator(".answer.none")).to_be_visible()
    with page.expect_response("**/answer"):
        page.get_by_label("hybrid", exact=True).check()
    own = {"query": "quokka", "n": 3, "filter": kept}
    assert read == [{**own, "channels": "bm25"}, {**own, "channels": "impact,bm25=1"}]


@pytest.mark.parametrize("usual", ["impact,bm25=1.2", "impact=2,bm25", "bm25=1.23,impact", "bm25"])
def test_without_a_choice_the_ranking_is_the_service_s_own(visit, ask, usual):
    page = visit(f"?q={QUESTION}", usual=usual)
    hits = ask("search", query=QUESTION, channels=usual)["hits"]
    expect(shown(page)).to_have_text(titles(hits))
    expect(page.locator(".hits .score")).to_have_text([fixed(hit["score"]) for hit in hits])
    assert "by=" not in page.url
    if usual == "impact,bm25=1.2":
        assert page.get_by_label("Weight of BM25").input_value() == "1.2"
    page.get_by_label("impact", exact=True).check()
    expect(shown(page)).to_have_text(titles(ask("search", query=QUESTION, channels="impact")["hits"]))
    assert "by=impact" in page.url
    page.go_back()
    expect(shown(page)).to_have_text(titles(hits))


def test_a_filter_that_cannot_be_joined_is_told_at_its_row(visit, ask):
    page = visit("?q=quokka")
    page.get_by_text("Filter", exact=True).click()
    for value in ("ar", "zh"):
        page.get_by_role("button", name="Add a filter").click()
        row = page.get_by_role("group", name="Filter", exact=True).last
        row.get_by_label("Field").select_option("lang")
        row.get_by_label("Value").fill(value)
        row.get_by_label("Value").press("Enter")
    hits = ask("search", query="quokka", filter={"lang": "ar"})["hits"]
    expect(shown(page)).to_have_text(titles(hits))
    expect(row.get_by_role("alert")).to_contain_text("is one of")
    row.get_by_label("Field").select_option("year")
    row.get_by_label("Condition").select_option("gte")
    row.get_by_label("Value").fill("1990")
    row.get_by_label("Value").press("Enter")
    expect(page.get_by_role("alert")).to_have_count(0)
    page.get_by_role("group", name="Filter", exact=True).first.get_by_label("Remove this filter").click()
    expect(shown(page)).to_have_text([ODD[0]["title"]])
    page.get_by_role("button", name="Add a filter").click()
    row = page.get_by_role("group", name="Filter", exact=True).last
    row.get_by_label("Field").select_option("year")
    row.get_by_label("Condition").select_option("lt")
    row.get_by_label("Value").fill("1999")
    row.get_by_label("Value").press("Enter")
    expect(page.get_by_role("heading", level=2)).to_have_text(
        "The filter leaves no passage for this question."
    )


@pytest.mark.parametrize(
    "kept",
    [
        {"not": {"lang": "en"}},
        {"or": [{"lang": "ar"}, {"year": {"gte": 1990}}]},
        {"lang": {"not": {"in": ["ar", "zh"]}}},
        {"year": {"gte": "1990"}},
    ],
    ids=json.dumps,
)
def test_a_filter_without_controls_is_kept_until_it_is_removed(visit, ask, kept):
    def expect_filter(filter: dict[str, Any]) -> None:
        expect(shown(page)).to_have_text(titles(ask("search", query="quokka", filter=filter)["hits"]))
        assert json.loads(parse_qs(urlsplit(page.url).query)["filter"][0]) == filter

    page = visit(f"?q=quokka&filter={quote(json.dumps(kept))}")
    expect_filter(kept)
    lines = page.get_by_role("group", name="Filter", exact=True)
    expect(lines.locator("code")).to_have_text([json.dumps(kept, separators=(",", ":"))])
    expect(page.locator(".filters .count")).to_have_text(" · 1 on")
    page.get_by_role("button", name="Add a filter").click()
    lines.last.get_by_label("Field").select_option("tags")
    lines.last.get_by_label("Condition").select_option("lacks")
    expect_filter({**kept, "tags": {"exists": False}})
    lines.first.get_by_label("Remove this filter").click()
    expect_filter({"tags": {"exists": False}})
