"""A small index, and the retriever whose answers every adapter has to give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

QUESTIONS = [
    "who founded google",
    "the moon of the earth",
    "a city in france and its people",
    "query engine",
    "☃",  # no word of it is known
]


@pytest.fixture(scope="module")
def index(
    tiny_model_folder: Path,
    make_records: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Sixty passages with a further field, many of which score the same: each text is there twice."""
    from sparta import Index
    from sparta.index.inputs.options import IndexOptions

    records = make_records(30, seed=4)
    twins = [{**record, "id": f"twin-{record['id']}"} for record in records]
    given = [
        {**record, "lang": "en" if i % 3 else "de", "year": i} for i, record in enumerate(records + twins)
    ]
    folder = tmp_path_factory.mktemp("integrations") / "my-index"
    Index.create(folder, given, options=IndexOptions(model=str(tiny_model_folder), dtype="fp32")).close()
    return folder


@pytest.fixture(scope="module", params=["impact", "bm25=1.2,impact"])
def channels(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def retriever(index: Path, channels: str) -> Iterator[Any]:
    """The retriever itself: the oracle."""
    from hybrid.retrieval.searcher import open_retriever

    with open_retriever(index, channels) as opened:
        yield opened


@pytest.fixture
def options(tiny_model_folder: Path) -> Any:
    from sparta.index.inputs.options import IndexOptions

    return IndexOptions(model=str(tiny_model_folder), dtype="fp32")
