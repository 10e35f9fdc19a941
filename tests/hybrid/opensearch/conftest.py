"""An index to push, and servers to push it to."""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from hybrid.opensearch.push import push
from hybrid.opensearch.server import Access, Server
from sparta.base.errors import IndexStateError, ServerError
from sparta.index.folder import IndexFolder
from sparta.models.quantize import Quantizer
from sparta.models.query_encoder import QuerySide
from sparta.search.searcher import Searcher
from tests.hybrid.opensearch.fake import Fake, serving
from tests.sparta.index.building import Builder, Doc, random_docs

URL = os.environ.get("SPARTA_OPENSEARCH_URL")
CLUSTER = pytest.param(
    "cluster",
    marks=[pytest.mark.cluster, pytest.mark.skipif(not URL, reason="$SPARTA_OPENSEARCH_URL is not set")],
)


@pytest.fixture
def fake() -> Iterator[Fake]:
    with serving(Fake()) as running:
        yield running


@pytest.fixture(params=["fake", CLUSTER])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A fake server and, where there is one, the real cluster."""
    url = request.getfixturevalue("fake").url if request.param == "fake" else str(URL)
    with Server(Access(url, patience=5 if request.param == "fake" else 60, environment={})) as opened:
        yield opened


@pytest.fixture
def name(server: Server) -> Iterator[str]:
    """An alias of a test's own; what was pushed under it is removed."""
    alias = f"test-{uuid.uuid4().hex[:12]}"
    yield alias
    try:
        indices = server.request("GET", f"/_alias/{alias}", ignore=(404,))
    except IndexStateError:
        return
    for index in indices if "error" not in indices else ():
        server.request("DELETE", f"/{index}", ignore=(404,))


@pytest.fixture(scope="session")
def words(tiny_vocabulary) -> list[str]:
    return [t for t in tiny_vocabulary if t.isalpha() and len(t) > 3][:12]


@pytest.fixture
def docs(words) -> Callable[..., list[Doc]]:
    return partial(random_docs, words)


@pytest.fixture
def side(tiny_tokenizer) -> QuerySide:
    return QuerySide(tiny_tokenizer, None, "model", "hash", Quantizer(8.0))


@pytest.fixture
def builder(tmp_path, side) -> Builder:
    return Builder(IndexFolder(tmp_path / "index"), side)


@pytest.fixture
def opened(builder: Builder, docs) -> Iterator[Searcher]:
    """An index of 60 passages with many ties."""
    builder.write(builder.source(docs("a", 60)))
    with Searcher(builder.folder.path) as searcher:
        yield searcher


@pytest.fixture
def push_stopped_after_the_swap(opened, builder, docs, fake) -> Callable[[Server], str]:
    """Pushes the index, and pushes it again with more passages, which loses the server after the swap.

    The call returns the first index, which the second push should have deleted.
    """

    def stopped(server: Server) -> str:
        first: str = push(opened, server, "wiki").index
        builder.write(builder.source(docs("b", 30), name="b.jsonl"), "append")
        opened.refresh()
        fake.fault = lambda method, *_: "drop" if method == "DELETE" else None
        with pytest.raises(ServerError, match="cannot be reached"):
            push(opened, server, "wiki")
        fake.fault = lambda *_: None
        return first

    return stopped


@pytest.fixture
def questions(words) -> list[str]:
    rng = random.Random(4)
    return [" ".join(rng.choices(words, k=rng.randint(1, 5))) for _ in range(25)]
