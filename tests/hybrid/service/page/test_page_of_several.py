"""The pages of a service with several indexes, in a real browser."""

import pytest

from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from tests.hybrid.service.pages import BROWSER, serving
from tests.hybrid.service.services import FRENCH, RECORDS

pytest.importorskip("fastapi")
sync = pytest.importorskip("playwright.sync_api")
expect = sync.expect
KEYS = {"news": "a-key-to-news-0123456789", "wiki": "a-key-to-wiki-0123456789"}

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium (or its path in SPARTA_CHROMIUM)"),
]


@pytest.fixture
def indexes(tmp_path, monkeypatch):
    """The option values of two indexes, relative to the working folder."""
    for name, records in (("news", [FRENCH]), ("wiki", RECORDS)):
        build_index(tmp_path / name, records, "create", IndexOptions(channels="bm25"))
        (tmp_path / f"{name}.keys").write_text(f"read {KEYS[name]}\n")
    monkeypatch.chdir(tmp_path)
    return ["news=news", "--index", "wiki=wiki"]


def test_the_first_page_leads_to_each_index_and_the_api_is_described(indexes, browser) -> None:
    with serving(*indexes) as (address, _):
        page = browser.new_page()
        told: list[str] = []
        page.on("console", lambda message: told.append(message.text))
        page.goto(address)
        expect(page.locator("#results a")).to_have_text(["news", "wiki"])
        page.get_by_role("link", name="wiki").click()
        expect(page.locator("#facts")).to_contain_text("wiki · 3 passages")
        page.get_by_label("Question", exact=True).fill("founded google")
        page.keyboard.press("Enter")
        expect(page.locator(".hits h3").first).to_contain_text("Google")
        assert page.url.startswith(f"{address}indexes/wiki/?q=")
        page.goto(f"{address}docs")
        search = page.locator("summary", has_text="POST /indexes/{index}/search")
        search.click()
        example = f"curl '{address}indexes/news/search'"
        expect(page.locator("details[open] pre").first).to_contain_text(example)
        page.goto(f"{address}indexes/wiki/docs")
        expect(page.locator("summary", has_text="POST /search")).to_have_count(1)
        page.close()
        assert not told


def test_each_index_asks_for_its_own_key(indexes, browser) -> None:
    keys = ["--keys", "news=news.keys", "--keys", "wiki=wiki.keys"]
    with serving(*indexes, *keys) as (address, _):
        page = browser.new_page()
        page.goto(address)
        page.get_by_label("API key").fill(KEYS["news"])
        page.keyboard.press("Enter")
        page.get_by_role("link", name="news").click()
        expect(page.locator("#facts")).to_contain_text("news")
        page.goto(f"{address}indexes/wiki/")
        page.get_by_label("API key").fill(KEYS["wiki"])
        page.keyboard.press("Enter")
        expect(page.locator("#facts")).to_contain_text("wiki")
        page.close()
