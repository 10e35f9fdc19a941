"""The page in a real browser: what it shows is what the API says."""

import contextlib
import itertools
import json
import time
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.hybrid.service.pages import (
    BROWSER,
    ODD,
    VIEWS,
    fixed,
    forget,
    rows,
    serving,
    shown,
    titles,
)

pytest.importorskip("fastapi")
sync = pytest.importorskip("playwright.sync_api")
expect = sync.expect

QUESTION = "who founded google"
KEY = "a-key-to-read-0123456789"

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium (or its path in SPARTA_CHROMIUM)"),
]


def test_a_question_its_hits_and_their_bars(visit, ask):
    page = visit()
    expect(page.locator(".examples a").first).to_have_text(QUESTION)
    page.get_by_label("Question", exact=True).fill(QUESTION)
    page.keyboard.press("Enter")
    hits = ask("search", query=QUESTION, channels="impact", explain=True)["hits"]
    expect(shown(page)).to_have_text(titles(hits))
    expect(page.locator(".hits .score")).to_have_text([f"{hit['score']:,}" for hit in hits])
    expect(page.locator("#status")).to_contain_text("10 passages by impact")
    assert "q=who+founded+google" in page.url

    full = page.locator(".hits .bar").first.bounding_box()["width"]
    for bar, hit in zip(page.locator(".hits .bar").all(), hits, strict=True):
        terms = {term["term"]: term["share"] for term in hit["terms"] if term["share"]}
        parts = {part.get_attribute("title").split(":")[0]: part for part in bar.locator(".seg").all()}
        assert set(parts) == set(terms)
        for term, part in parts.items():
            expected = full * terms[term] / hits[0]["score"]
            assert part.bounding_box()["width"] == pytest.approx(expected, abs=2.5)

    best, first = hits[0], page.locator(".hits li").first
    first.locator("summary").click()
    assert rows(first.locator("table")) == [
        [
            t["term"],
            *(str(t[name]) for name in ("count", "impact", "share")),
            f"{100 * t['share'] / best['score']:.0f} %",
        ]
        for t in best["terms"]
    ]
    words = [best["snippet"][start:end] for start, end, _ in best["marks"]]
    assert first.locator("mark").all_text_contents() == words == ["Google", "founded"]


def test_alpha_moves_the_ranking_as_the_api_says(visit, ask):
    question = "what was a computer scientist born in moscow known for"
    page = visit(f"?q={question}&by=hybrid&a=0")
    slider, orders = page.get_by_label("Weight of BM25"), []
    for steps, alpha in ((0, "0"), (8, "0.4"), (22, "1.5"), (30, "3")):
        for _ in range(steps):
            slider.press("ArrowRight")
        hits = ask("search", query=question, channels=f"impact,bm25={alpha}", explain=True)["hits"]
        expect(shown(page)).to_have_text(titles(hits))
        expect(page.locator(".hits .score")).to_have_text([fixed(hit["score"]) for hit in hits])
        expect(page.locator("output")).to_have_text(alpha)
        added = [channel["contribution"] for hit in hits for channel in hit["channels"].values()]
        expect(page.locator(".channels .n:not(.place)")).to_have_text([fixed(x, "+") for x in added])
        orders.append(titles(hits))
    assert len({tuple(order) for order in orders}) == 4
    page.wait_for_url("**a=3**")

    page.wait_for_timeout(500)
    moving = """async field => {
      field.value = 0;
      field.dispatchEvent(new Event("input", {bubbles: true}));
      for (let i = 0; i < 1000; i++) {
        await new Promise(requestAnimationFrame);
        if (document.getAnimations().some(one => one.effect.target.matches(".hits li"))) return true;
      }
    }"""
    assert slider.evaluate(moving)
    expect(shown(page)).to_have_text(orders[0])


def test_those_who_want_no_motion_get_none(visit, ask):
    page = visit("?q=moscow&by=hybrid&a=0", reduced_motion="reduce")
    page.evaluate("() => { Element.prototype.animate = () => { throw Error('moved') } }")
    page.get_by_label("Weight of BM25").fill("3")
    hits = ask("search", query="moscow", channels="impact,bm25=3")["hits"]
    expect(page.locator(".hits .score")).to_have_text([fixed(hit["score"]) for hit in hits])


def test_side_by_side_shows_what_one_found_and_the_other_did_not(visit, ask):
    question = "what is the largest planet"
    page = visit(f"?q={question}")
    page.get_by_label("Beside it").select_option("bm25")
    found = {name: ask("search", query=question, channels=name, k=50)["hits"] for name in ("impact", "bm25")}
    for i, (name, other) in enumerate((("impact", "bm25"), ("bm25", "impact"))):
        side, hits = page.locator(f"[data-side='{i}']"), found[name][:10]
        expect(side.locator("h3")).to_have_text(titles(hits))
        ranks = {hit["id"]: hit["rank"] for hit in found[other]}
        alone = [hit for hit in hits if ranks.get(hit["id"], 99) > 10]
        assert alone
        expect(side.locator("li.alone h3")).to_have_text(titles(alone))
        deeper = [
            f"#{ranks[h['id']]} in {other}" if h["id"] in ranks else f"not among the 50 best of {other}"
            for h in alone
        ]
        expect(side.locator(".note.alone")).to_have_text([f"only here: {text}" for text in deeper])
        expect(page.locator(".summary")).to_contain_text(f"Only {name}: {', '.join(titles(alone))}.")
        expect(page.locator(".slopes path")).to_have_count(10 - len(alone))


def test_a_passage_with_its_terms_and_its_score(visit, ask):
    page = visit(f"?q={QUESTION}")
    page.get_by_role("link", name="Google", exact=True).click()
    expect(page.locator("h2:focus")).to_have_text("Google")
    passage, terms = ask("passages/google"), ask("terms/google?n=100")["terms"]
    why = ask("explain", query=QUESTION, id="google")
    assert page.locator(".text").text_content() == passage["text"]
    expect(page.locator(".text mark")).to_have_text(["Google", "founded"])
    expect(page.locator(".verdict")).to_have_text(f"{why['score']} by impacts, rank {why['rank']}")
    text = f"{passage['title']} {passage['text']}".lower()
    strongest = page.locator(".terms")
    page.get_by_role("button", name="All of the 100 strongest").click()
    assert [row[:2] for row in rows(strongest)] == [
        [t["term"].replace("##", "‑") + ("" if known else " (not in the text)"), str(t["impact"])]
        for t in terms
        for known in [t["term"].removeprefix("##") in text]
    ]
    added = [t["term"] for t in terms if t["term"].removeprefix("##") not in text]
    assert 0 < len(added) < 100
    assert strongest.locator(".added").count() == len(added)
    page.go_back()
    expect(page.get_by_role("link", name="Google", exact=True)).to_be_focused()


def test_an_answer_stands_on_top(visit, ask):
    question = "who sent the first email"
    page = visit(f"?q={question}", answers=True)
    best = ask("answer", query=question, n=3)["answers"][0]
    expect(page.locator(".answer h2")).to_have_text(best["answer"], timeout=60_000)
    expect(page.locator(".sure")).to_have_text(f"score {best['score']:.2f}")
    assert page.locator(".answer .snippet strong").text_content() == best["text"][best["start"] : best["end"]]
    page.locator(".answer a").click()
    expect(page.locator("h2:focus")).to_have_text(best["title"])


def test_an_address_shows_what_its_sender_saw(visit, ask):
    page = visit(f"?q={QUESTION}")
    page.get_by_label("hybrid", exact=True).check()
    page.get_by_label("Weight of BM25").fill("0.8")
    page.get_by_label("Hits").select_option("20")
    expect(shown(page)).to_have_count(20)
    other = visit(page.url.rsplit("/", 1)[1])
    hits = ask("search", query=QUESTION, channels="impact,bm25=0.8", k=20)["hits"]
    expect(shown(other)).to_have_text(titles(hits))
    assert other.get_by_label("Weight of BM25").input_value() == "0.8"
    page.go_back()
    page.go_back()
    expect(page.locator(".hits .score").first).to_have_text(
        str(ask("search", query=QUESTION)["hits"][0]["score"])
    )


def test_all_of_it_by_keyboard(visit):
    page = visit("?q=moon")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.get_by_label("Question", exact=True).focus()
    page.keyboard.press("Control+A")
    page.keyboard.type(QUESTION)
    page.keyboard.press("Enter")
    expect(shown(page).first).to_have_text("Google")
    stops: list[str] = []
    while "Google" not in stops and len(stops) < 40:
        page.keyboard.press("Tab")
        stops.append(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
    assert {"by-impact", "vs", "k", "google", "Google"} <= set(stops)
    page.keyboard.press("Enter")
    expect(page.locator("h2:focus")).to_have_text("Google")
    page.keyboard.press("Escape")
    expect(shown(page)).to_have_count(10)


def test_texts_are_texts(visit, ask):
    page = visit("?q=quokka")
    found = {hit["id"]: hit for hit in ask("search", query="quokka", explain=True)["hits"]}
    for record in ODD:
        card = page.locator(".hits li", has=page.locator(f"[class=id]:text-is({json.dumps(record['id'])})"))
        assert card.locator(".snippet").text_content() == found[record["id"]]["snippet"]
        assert "quokka" in card.locator("mark").all_text_contents()
        score = f"{found[record['id']]['score']:,}"
        assert card.locator(".bar").get_attribute("aria-label") == f"{score} = quokka {score}"  # of 2 pieces
        card.locator("h3 a").click()
        expect(page.locator("h2:focus")).to_have_text(record["title"])
        assert page.locator(".text").text_content() == record["text"]
        fields = [value for name, value in record.items() if name not in ("id", "title", "text")]
        assert page.locator(".metadata dd").all_text_contents() == [
            value if isinstance(value, str) else json.dumps(value, separators=(",", ":")) for value in fields
        ]
        page.go_back()
        expect(page.locator(".hits")).to_be_visible()
    assert page.title() == "quokka – sparta"
    assert page.locator("main script, main img").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_and_nothing_scrolls_sideways(visit, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for name, address in VIEWS.items():
        page = visit(address, color_scheme=scheme)
        for summary in page.locator(".hits summary").all()[:1]:
            summary.click()
        for width in (1280, 360, 320):
            page.set_viewport_size({"width": width, "height": 740})
            page.wait_for_timeout(100)
            assert (name, page.evaluate("document.documentElement.scrollWidth")) == (name, width)
        page.wait_for_timeout(400)
        found = axe.run(page).response["violations"]
        serious = [one for one in found if one["impact"] in ("serious", "critical")]
        assert [(name, one["id"], one["nodes"][0]["html"]) for one in serious] == []
    forget(visit, 400)
    forget(visit, 404)


def test_errors_are_shown_as_they_are_said(visit, ask):
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask("search", query="x" * 5000)
    error = json.load(refused.value)["error"]
    page = visit()
    page.get_by_label("Question", exact=True).fill("x" * 5000)
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert").locator("strong")).to_have_text(error["message"])
    expect(page.get_by_role("alert")).to_contain_text(error["remedy"])
    page.get_by_label("Question", exact=True).fill("🙂")
    expect(page.get_by_role("heading", level=2)).to_have_text(
        "No passage has a word or a term of this question."
    )
    forget(visit, 400)


def test_a_busy_service_says_when_to_ask_again(visit):
    page = visit()
    said = {
        "error": {"code": "busy", "message": "256 queries wait already", "remedy": "ask fewer"},
        "request_id": "r-7",
    }
    page.route("**/search", lambda route: route.fulfill(status=429, headers={"Retry-After": "2"}, json=said))
    page.get_by_label("Question", exact=True).fill("moon")
    page.keyboard.press("Enter")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("256 queries wait already→ ask fewer; ask again in 2 s")
    expect(alert).to_contain_text("busy · 429 · request r-7")
    page.unroute("**/search")
    alert.get_by_role("button", name="Ask again").click()
    expect(shown(page)).to_have_count(10)
    forget(visit, 429)


def test_a_service_that_went_away(visit, index):
    with serving(index) as (address, process):
        page = visit(at=address)
        process.kill()
        process.wait()
        page.get_by_label("Question", exact=True).fill("moon")
        expect(page.get_by_role("alert")).to_contain_text("the service cannot be reached")
        expect(page.get_by_role("button", name="Ask again")).to_be_visible()
    visit.told.clear()


def test_a_key_is_asked_for_and_kept_in_the_tab(visit, index, tmp_path):
    (tmp_path / "keys").write_text(f"read {KEY}\n")
    with serving(index, "--keys", str(tmp_path / "keys")) as (address, _):
        page = visit(f"?q={QUESTION}", at=address)
        page.get_by_label("API key").fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("key")
        page.get_by_label("API key").fill(KEY)
        page.keyboard.press("Enter")
        expect(shown(page)).to_have_count(10)
        assert page.evaluate("[localStorage.length, sessionStorage.getItem('sparta-key')]") == [0, KEY]
        page.reload()
        expect(shown(page)).to_have_count(10)
    forget(visit, 401)


def test_a_late_answer_does_not_replace_a_newer_one(visit):
    def late(route: Any) -> None:
        if "moon" in (route.request.post_data or ""):
            time.sleep(1)
        with contextlib.suppress(sync.Error):  # it was aborted
            route.continue_()

    page = visit()
    page.route("**/search", late)
    page.get_by_label("Question", exact=True).fill("moon")
    page.keyboard.press("Enter")
    page.get_by_label("Question", exact=True).fill(QUESTION)
    page.keyboard.press("Enter")
    expect(shown(page).first).to_have_text("Google")
    page.wait_for_timeout(1000)
    assert shown(page).first.text_content() == "Google"


def test_pages(visit, ask):
    page = visit(f"?q={QUESTION}")
    page.get_by_role("link", name="Next").click()
    expect(shown(page)).to_have_text(titles(ask("search", query=QUESTION, offset=10)["hits"]))
    expect(page.locator(".rank").first).to_have_text("11")
    expect(page.locator("#results")).to_be_focused()
    page.get_by_role("link", name="Before").click()
    expect(page.locator(".rank").first).to_have_text("1")


def test_no_page_is_offered_that_the_service_refuses(visit):
    page = visit(f"?q={QUESTION}&by=hybrid&k=50")
    expect(page.get_by_role("link", name="Next")).to_be_visible()
    page = visit(f"?q={QUESTION}&by=hybrid&k=50&page=2")
    expect(page.locator(".rank").last).to_have_text("100")
    expect(page.get_by_role("link", name="Next")).to_have_count(0)
    page = visit("?q=quokka&page=9")
    expect(page.get_by_role("link", name="Before")).to_be_visible()
    expect(page.locator(".pages [aria-current]")).to_have_text("")


def test_filters_and_one_hit_for_each_value(visit, ask):
    page = visit("?q=quokka")
    page.get_by_text("Filter", exact=True).click()
    page.get_by_role("button", name="Add a filter").click()
    row = page.get_by_role("group", name="Filter", exact=True)
    row.get_by_label("Field").select_option("lang")
    row.get_by_label("Condition").select_option("in")
    row.get_by_label("Value").fill("ar, zh")
    row.get_by_label("Value").press("Enter")
    hits = ask("search", query="quokka", filter={"lang": {"in": ["ar", "zh"]}})["hits"]
    assert {hit["id"] for hit in hits} == {"rtl", "zh"}
    expect(shown(page)).to_have_text(titles(hits))
    assert visit(page.url.rsplit("/", 1)[1]).get_by_label("Value").input_value() == "ar, zh"
    row.get_by_label("Field").select_option("year")
    row.get_by_label("Condition").select_option("gte")
    row.get_by_label("Value").fill("1990")
    row.get_by_label("Value").press("Enter")
    expect(shown(page)).to_have_text([ODD[0]["title"]])
    page.get_by_role("button", name="Remove this filter").click()
    expect(shown(page)).to_have_text(titles(ask("search", query="quokka")["hits"]))
    page.get_by_label("One hit for each").select_option("lang")
    hits = ask("search", query="quokka", collapse="lang")["hits"]
    expect(shown(page)).to_have_text(titles(hits))
    assert [hit["metadata"]["lang"] for hit in hits if "lang" in hit["metadata"]] in (
        [list(order) for order in itertools.permutations(["en", "ar", "zh"])]
    )


def test_the_policy_allows_nothing_else(visit, service):
    page = visit()
    for path in ("", "static/app.js", "static/style.css"):
        with urllib.request.urlopen(service + path) as response:
            assert response.headers["Content-Security-Policy"] == "frame-ancestors 'none'"
            assert response.headers["Cache-Control"] == "no-cache"
    violated = page.evaluate(
        "() => new Promise(done => {"
        " addEventListener('securitypolicyviolation', event => done(event.violatedDirective));"
        " const own = document.createElement('script'); own.textContent = 'document.title = 1';"
        " document.body.append(own) })"
    )
    assert violated.startswith("script-src")
    assert page.title() == "sparta"
    visit.told.clear()
