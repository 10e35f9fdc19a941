"""Pushes that stopped when the server had all passages: the next push finishes, removes or reports them."""

from __future__ import annotations

import pytest

from hybrid.opensearch.push import push
from hybrid.opensearch.server import Access, Server
from sparta.base.errors import ServerError

pytestmark = pytest.mark.jvm


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_push_stopped_before_the_swap_is_finished_or_reported(
    opened, builder, docs, fake, is_changed, caplog
) -> None:
    with Server(Access(fake.url, patience=0.0, environment={})) as server:
        fake.fault = lambda _, path, *__: "drop" if path == "/_aliases" else None
        with pytest.raises(ServerError, match="cannot be reached"):
            push(opened, server, "wiki")
        fake.fault = lambda *_: None
        (filled,) = (index for index in fake.indices if index.startswith("wiki-"))
        if is_changed:
            builder.write(builder.source(docs("b", 30), name="b.jsonl"), "append")
            opened.refresh()
        report = push(opened, server, "wiki")
        assert (report.index == filled, report.sent) == ((False, 90) if is_changed else (True, 0))
        assert (f"{filled}: a push of other content is unfinished" in caplog.text) == is_changed


def test_a_push_of_other_content_removes_what_a_push_stopped_after_the_swap_left(
    opened, builder, docs, fake, push_stopped_after_the_swap, caplog
) -> None:
    with Server(Access(fake.url, patience=0.0, environment={})) as server:
        first = push_stopped_after_the_swap(server)
        (second,) = fake.aliases["wiki"]
        builder.write(builder.source(docs("c", 30), name="c.jsonl"), "append")
        opened.refresh()
        report = push(opened, server, "wiki")
        assert set(report.replaced) == {first, second}
        assert {index for index in fake.indices if index.startswith("wiki-")} == {report.index}
        assert "unfinished" not in caplog.text


@pytest.mark.parametrize("stops_at", [1, 2, 3])
def test_a_push_stopped_at_each_of_its_last_steps_is_finished(opened, fake, stops_at, caplog) -> None:
    """The last steps: the metadata, the alias, and again the metadata."""
    steps: list[str] = []

    def fault(method: str, path: str, _: bytes) -> str | None:
        if path == "/_aliases" or (method == "PUT" and path.endswith("_mapping")):
            steps.append(path)
        return "drop" if len(steps) >= stops_at else None

    with Server(Access(fake.url, patience=0.0, environment={})) as server:
        fake.fault = fault
        with pytest.raises(ServerError, match="cannot be reached"):
            push(opened, server, "wiki")
        fake.fault = lambda *_: None
        assert push(opened, server, "wiki").sent == 0
        fake.requests.clear()
        assert push(opened, server, "wiki").unchanged
        assert not any(method == "PUT" and path.endswith("_mapping") for method, path in fake.requests)
        assert "unfinished" not in caplog.text
