"""The page on Chinese: found in the other script, shown and marked as the text stands."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparta.data.languages import simplified
from tests.chinese import RECORDS, save_model
from tests.hybrid.service.pages import BROWSER, serving

pytest.importorskip("fastapi")
pytest.importorskip("opencc")
sync = pytest.importorskip("playwright.sync_api")
pytestmark = [
    pytest.mark.jvm,
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium (or its path in SPARTA_CHROMIUM)"),
]
TEXTS = {record["id"]: record["text"] for record in RECORDS}


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    with sync.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser.new_page()
        browser.close()


@contextlib.contextmanager
def served(folder: Path, model: Path | None) -> Iterator[str]:
    from sparta.index.inputs.options import IndexOptions
    from sparta.index.pipeline import build_index

    options = IndexOptions(model=str(model), dtype="fp32") if model else IndexOptions(channels="bm25")
    options = IndexOptions(channels=options.channels, model=options.model, dtype="fp32", language="zh")
    build_index(folder / "ix", RECORDS, options=options)
    with serving(folder / "ix") as (address, _):
        yield address


@pytest.mark.parametrize("with_model", [False, True], ids=["bm25", "impact"])
def test_a_question_in_either_script(
    page: Any, tmp_path: Path, make_tiny_model: Callable[..., Any], *, with_model: bool
) -> None:
    model = save_model(make_tiny_model, tmp_path / "model") if with_model else None
    with served(tmp_path, model) as address:
        shown = []
        for question in ("中國的首都在哪裡", "中国的首都在哪里"):
            page.goto(f"{address}?q={question}")
            page.wait_for_selector("#results[aria-busy=false] .hits h3")
            shown.append(page.locator(".hits .snippet").all_text_contents())
            marks = page.locator(".hits mark").all_text_contents()
            assert {simplified(mark) for mark in marks} & {"中国的首都", "中国", "首都"}
            assert any(simplified(mark) != mark for mark in marks) or not with_model
            shares = page.locator(".hits mark[title]").count()
            assert shares == (len(marks) if with_model else 0), "BM25 tells no shares"
        assert shown[0] == shown[1]
        assert set(shown[0]) <= set(TEXTS.values())
        page.goto(f"{address}?q={question}&id=huanghe")
        page.wait_for_selector(".passage .text")
        assert page.locator(".passage .text").text_content() == TEXTS["huanghe"]
        if with_model:
            assert "中國" in page.locator(".passage mark").all_text_contents()
        else:
            assert page.locator(".hits h3").count() == 0
