"""Take docs/images/page.png: what a browser shows of `sparta serve` on the example corpus. Needs Chromium."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "page.png"
PORT = 8379
VIEW = "?q=who+founded+google&by=hybrid&base=impact&a=0"
ALPHA = "0.8"
WIDTH, HEIGHT = 880, 980
SCALE = 1280 / WIDTH


def sparta(*arguments: str) -> list[str]:
    """A command of this tree."""
    return [sys.executable, "-m", "cli._sparta", *arguments]


@contextmanager
def service() -> Iterator[str]:
    """The address of a service on the example corpus."""
    with tempfile.TemporaryDirectory() as folder:
        index = str(Path(folder) / "index")
        corpus = str(ROOT / "examples" / "wiki.jsonl")
        subprocess.run(sparta("index", "--corpus", corpus, "--index", index), cwd=ROOT, check=True)
        command = sparta("serve", "--index", index, "--port", str(PORT), "--log-level", "error")
        process = subprocess.Popen(command, cwd=ROOT)
        address = f"http://127.0.0.1:{PORT}/"
        try:
            while process.poll() is None:
                with suppress(OSError), urllib.request.urlopen(f"{address}ready"):
                    break
                time.sleep(0.2)
            yield address
        finally:
            process.terminate()
            process.wait()


def main() -> None:
    """Open the page, wait for the answer, move α, and save what is seen."""
    browser = os.environ.get("SPARTA_CHROMIUM") or shutil.which("chromium")
    with service() as address, sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = opened.new_page(viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=SCALE)
        page.goto(address + VIEW)
        page.wait_for_selector(".answer h2", timeout=120_000)
        page.get_by_label("Weight of BM25").fill(ALPHA)  # the ranking moves
        page.evaluate("document.activeElement.blur()")
        page.wait_for_selector(".moved")
        page.wait_for_timeout(1000)
        shown = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        opened.close()
    shown.quantize(256, kmeans=8, dither=Image.Dither.NONE).save(PICTURE, optimize=True)
    print(f"{PICTURE}: {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
