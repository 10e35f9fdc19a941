"""docs/integrations.md: the example of every framework runs, on a small index."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.hybrid.integrations.sets import local_task, write_set

pytestmark = [pytest.mark.jvm, pytest.mark.slow]
ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
NEEDED = {
    "LangChain": "langchain_core",
    "LlamaIndex": "llama_index.core",
    "Haystack": "haystack",
    "MCP": "fastmcp",
    "PyTerrier": "pyterrier",
    "BEIR": "beir",
    "MTEB": "mteb",
    "sentence-transformers": "sentence_transformers",
}


def test_every_framework_has_a_section() -> None:
    assert list(SECTIONS) == list(NEEDED)


@pytest.fixture(scope="module")
def place(make_records: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the page speaks of: my-index, made by the model that ships, and my-set."""
    from sparta import Index

    folder = tmp_path_factory.mktemp("page")
    passages = [
        {"id": "ms", "title": "Microsoft", "text": "Bill Gates founded Microsoft with Paul Allen in 1975."},
        {"id": "moon", "title": "Moon", "text": "The Moon is the only natural satellite of the Earth."},
        {"id": "apple", "title": "Apple", "text": "Steve Jobs founded Apple in a garage."},
    ]
    Index.create(folder / "my-index", passages).close()
    write_set(folder / "my-set", make_records(8, seed=1), n=5)
    return folder


@pytest.mark.parametrize("section", NEEDED)
def test_the_example_runs(
    section: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(NEEDED[section])
    monkeypatch.chdir(place)
    if section == "MTEB":  # its task would be downloaded
        import mteb

        monkeypatch.setenv("MTEB_CACHE", str(place / "cache"))
        monkeypatch.setattr(mteb, "get_task", lambda name: local_task(place / "my-set"))
    if section == "sentence-transformers":
        from sparta.export.sentence_transformers import export_sentence_transformers

        export_sentence_transformers(None, Path("exported"))
    code = "\n".join(re.findall(r"```python\n(.*?)```", SECTIONS[section], re.DOTALL))
    assert code
    exec(compile(code, f"{section} of integrations.md", "exec"), {"__name__": "example"})
    said = capsys.readouterr().out
    assert said.strip()
    if section not in ("BEIR", "MTEB", "sentence-transformers"):
        assert "ms" in said.split()[0] or "'ms'" in said or " ms " in said
