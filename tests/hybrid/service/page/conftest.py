"""A service of the example corpus, and a browser that opens its page."""

import json
import shutil
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hybrid.service.pages import BROWSER, ODD, ROOT, environment, serving, sparta


@pytest.fixture(scope="session")
def index(made_once: Callable[..., Path]) -> Path:
    """The example corpus, with passages that a page could trip over."""

    def make(folder: Path) -> None:
        examples = ROOT / "examples"
        odd = "".join(json.dumps(record) + "\n" for record in ODD)
        (folder / "wiki.jsonl").write_text((examples / "wiki.jsonl").read_text() + odd)
        shutil.copy(examples / "questions.jsonl", folder)
        command = sparta("index", "--corpus", str(folder / "wiki.jsonl"), "--index", str(folder / "index"))
        subprocess.run(command, env=environment(), check=True, capture_output=True)

    return made_once("page", make) / "index"


@pytest.fixture(scope="session")
def service(index) -> Iterator[str]:
    with serving(index) as (address, _):
        yield address


@pytest.fixture(scope="session")
def ask(service) -> Callable[..., Any]:
    """What the API itself answers: `ask("search", query=…)`, `ask("passages/google")`."""

    def call(path: str, **body: Any) -> Any:
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(service + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as response:
            return json.load(response)

    return call


@pytest.fixture(scope="module")  # while it is open, nothing else may run a loop of asyncio in this thread
def browser() -> Iterator[Any]:
    sync = pytest.importorskip("playwright.sync_api")
    with sync.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def visit(browser, service) -> Iterator[Callable[..., Any]]:
    """Open an address of the page; nothing may be told on the console, and no other host be asked.

    `answers`: whether the service says that it reads; to read for every question would take long.
    `usual`: the channels that it says to search where none are named.
    """
    contexts: list[Any] = []
    told: list[str] = []
    hosts: set[str] = set()

    def open_page(
        address: str = "", *, at: str = service, answers: bool = False, usual: str = "impact", **options: Any
    ) -> Any:
        def told_info(route: Any) -> None:
            response = route.fetch()
            own = {"answers": answers, "default_channels": usual} if response.ok else {}
            route.fulfill(response=response, json={**response.json(), **own})

        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda message: told.append(message.text))
        page.on("pageerror", lambda error: told.append(str(error)))
        page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
        page.route("**/info", told_info)
        page.goto(at + address)
        page.wait_for_selector("#results[aria-busy=false], #results form")
        return page

    open_page.told = told  # type: ignore[attr-defined]
    yield open_page
    for context in contexts:
        context.close()
    assert all(host.startswith("127.0.0.1:") for host in hosts)
    assert told == []
