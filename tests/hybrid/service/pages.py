"""What the tests of the page share: odd passages, its views, services, how it writes numbers."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = os.environ.get("SPARTA_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
ODD = [
    {
        "id": "a-script/?#&",
        "title": "<script>document.title = 'taken'</script>",
        "text": "<img src=x onerror=\"document.title='taken'\"> A quokka & <b>quokkas</b> say &amp; hello.",
        "lang": "en",
        "year": 1999,
        "tags": ["<i>a</i>", "b"],
    },
    {"id": "rtl", "title": "الكوكا", "text": "الكوكا quokka حيوان صغير يعيش في أستراليا.", "lang": "ar"},
    {
        "id": "zh",
        "title": "短尾矮袋鼠",
        "text": "短尾矮袋鼠 quokka 是小动物。北京是中国的首都。🦘 quokka",
        "lang": "zh",
    },
    {
        "id": "long",
        "title": "w" * 300,
        "text": "quokka " + "island marsupial " * 1200 + "x" * 400,
        "lang": "en",
    },
]
VIEWS = {
    "welcome": "",
    "ranking": "?q=who+founded+google",
    "hybrid": "?q=who+founded+google&by=hybrid&a=1.5",
    "side by side": "?q=what+is+the+largest+planet&vs=bm25",
    "passage": "?q=who+founded+google&id=google",
    "odd": "?q=quokka",
    "long passage": "?q=quokka&id=long",
    "nothing": "?q=🙂",
    "error": "?id=nowhere",
}


def sparta(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "cli._sparta", *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


@contextlib.contextmanager
def serving(index: Path, *arguments: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A service of its own: its address, and its process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = sparta("serve", "--index", str(index), "--port", str(port), *arguments)
    address = f"http://127.0.0.1:{port}/"
    process = subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL)
    try:
        for _ in range(900):
            with contextlib.suppress(OSError), urllib.request.urlopen(address + "ready"):
                break
            assert process.poll() is None, command
            time.sleep(0.1)
        yield address, process
    finally:
        process.terminate()
        process.wait(timeout=60)


def forget(visit: Any, status: int) -> None:
    """The browser itself tells of every answer that is an error."""
    visit.told[:] = [text for text in visit.told if f"status of {status}" not in text]


def titles(hits: list[dict[str, Any]]) -> list[str]:
    return [hit["title"] or hit["id"] for hit in hits]


def shown(page: Any) -> Any:
    return page.locator(".hits h3")


def fixed(x: float, plus: str = "") -> str:
    written = f"{x:.3f}"
    if not written.strip("-0."):
        return "0.000"
    return f"{plus if x > 0 else ''}{written}".replace("-", "−")


def rows(table: Any) -> list[list[str]]:
    """The cells of a table, once it has a row."""
    table.locator("tbody tr").first.wait_for()
    return [row.locator("th, td").all_text_contents() for row in table.locator("tbody tr").all()]
