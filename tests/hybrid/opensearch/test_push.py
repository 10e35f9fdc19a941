"""What is pushed is what the index holds, whatever happens meanwhile; searches there rank as here."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from hybrid.opensearch import remote
from hybrid.opensearch.documents import Action, batches
from hybrid.opensearch.push import PushOptions, push
from hybrid.opensearch.searcher import open_opensearch
from hybrid.opensearch.server import Access, Server
from hybrid.opensearch.state import indices_of, meta_of, refresh, scan, whole_prefix
from hybrid.opensearch.update import delete, update
from sparta.base.errors import IndexStateError, InputError, ServerError
from sparta.index.build import delete_passages
from sparta.index.folder import IndexFolder
from sparta.search.retriever import Page
from sparta.search.searcher import Searcher
from tests.hybrid.opensearch.fake import Held, failure

pytestmark = pytest.mark.jvm
ROOT = Path(__file__).parents[3]


def held(server: Server, name: str) -> list[str]:
    """The ids behind an alias, in corpus order."""
    (index,) = indices_of(server, name)
    refresh(server, index)
    return [one.passage_id for one in scan(server, index)]


def same_rankings(searcher: Searcher, server: Server, name: str, questions: list[str], k: int = 10) -> None:
    there = open_opensearch(server, name)
    ids = [str(i) for i in range(len(questions))]
    expected = searcher.run(questions, ids, k)
    assert there.run(questions, ids, k) == expected
    assert any(len({p.score for p in own}) < len(own) for own in expected.values())  # there are ties


def test_a_pushed_index_ranks_as_here(opened, server, name, questions) -> None:
    told: list[int] = []
    report = push(opened, server, name, PushOptions(shards=3), advance=told.append)
    assert (report.passages, report.sent, report.kept, report.replaced) == (60, 60, 0, ())
    assert sum(told) == 60
    assert held(server, name) == [f"a{i}" for i in range(60)]
    same_rankings(opened, server, name, questions)
    there = open_opensearch(server, name)
    assert there.search(questions[0], 5) == opened.search(questions[0], 5)  # records too
    assert there.num_docs == 60
    meta = meta_of(server, report.index)
    assert (meta["complete"], meta["passages"]) == (True, 60)


def test_pushing_again_changes_nothing(opened, server, name) -> None:
    first = push(opened, server, name)
    again = push(opened, server, name)
    assert (again.unchanged, again.index, again.sent) == (True, first.index, 0)


def test_another_deletion_is_another_content(opened, builder, server, name, tmp_path) -> None:
    """The commit counts what was deleted, but does not name it."""
    copy = tmp_path / "copy"
    shutil.copytree(builder.folder.path, copy)
    delete_passages(builder.folder, ["a10"])
    delete_passages(IndexFolder(copy), ["a20"])
    opened.refresh()
    push(opened, server, name)
    with Searcher(copy) as other:
        report = push(other, server, name)
    assert not report.unchanged
    assert "a10" in held(server, name)
    assert "a20" not in held(server, name)


def test_a_user_who_may_not_read_the_health(opened, server, name, monkeypatch, caplog) -> None:
    request = server.request

    def refused(method: str, path: str, *arguments, **options):
        if path.startswith("/_cluster/health"):
            raise ServerError("no permission", where=server.where)
        return request(method, path, *arguments, **options)

    monkeypatch.setattr(server, "request", refused)
    assert push(opened, server, name).sent == 60
    assert "the health of the index cannot be read" in caplog.text
    assert indices_of(server, name)


def test_another_content_takes_the_alias(opened, builder, docs, server, name, questions) -> None:
    first = push(opened, server, name)
    builder.write(builder.source(docs("b", 30), name="b.jsonl"), "append")
    opened.refresh()
    second = push(opened, server, name)
    assert second.replaced == (first.index,)
    assert indices_of(server, name) == [second.index]
    with pytest.raises(IndexStateError):
        meta_of(server, first.index)
    same_rankings(opened, server, name, questions)


def test_an_open_searcher_follows_the_alias(opened, builder, docs, server, name, questions) -> None:
    push(opened, server, name)
    there = open_opensearch(server, name)
    builder.write(builder.source(docs("b", 30), name="b.jsonl"), "append")
    opened.refresh()
    (old,) = there.rank([questions[0]], Page(5))
    push(opened, server, name)
    assert there.search(questions[0], 20) == opened.search(questions[0], 20)
    with pytest.raises(IndexStateError, match="replaced or deleted"):
        there.records(old.docids)  # never the records of others at the same positions


def test_an_open_searcher_follows_the_alias_from_an_index_that_is_kept(
    opened, builder, docs, server, name, questions, monkeypatch
) -> None:
    push(opened, server, name)
    there, fused = open_opensearch(server, name), open_opensearch(server, name, "impact,bm25=0.01")
    before, first = there.search(questions[0], 20), there.opened.view
    builder.write(builder.source(docs("b", 30), name="b.jsonl"), "append")
    opened.refresh()
    push(opened, server, name, PushOptions(keep_old=True))
    monkeypatch.setattr(remote, "CHECK_SECONDS", 3600)
    assert there.search(questions[0], 20) == before
    monkeypatch.setattr(remote, "CHECK_SECONDS", 0)
    there.in_context(before)
    assert there.opened.view is first, "hits get the contexts of their own index"
    newest = opened.search(questions[0], 20)
    assert there.search(questions[0], 20) == newest != before
    assert {hit.passage_id for hit in fused.search(questions[0], 20)} & {f"b{i}" for i in range(30)}


def test_an_update_sends_what_changed(opened, builder, docs, server, name, questions) -> None:
    before = push(opened, server, name).index
    builder.write(builder.source(docs("b", 7), name="b.jsonl"), "append")
    changed = docs("a", 4, seed=9)
    builder.write(builder.source(changed, name="c.jsonl"), "update")
    delete_passages(builder.folder, ["a10", "a59", "b6"])
    opened.refresh()
    report = update(opened, server, name)
    assert (report.index, report.passages, report.written, report.deleted) == (before, 64, 4 + 6, 2)
    assert held(server, name) == [doc.passage_id for doc in builder.contents()]
    same_rankings(opened, server, name, questions)
    assert update(opened, server, name).written == 0
    assert push(opened, server, name).unchanged


@pytest.mark.slow
def test_an_update_moves_ids_both_ways(opened, builder, docs, server, name, questions) -> None:
    """Positions of the same ids go up (deleted and appended), then down (all written anew)."""
    push(opened, server, name)
    delete_passages(builder.folder, ["a0", "a7"])
    builder.write(builder.source(docs("a", 8)[::7], name="b.jsonl"), "append")
    opened.refresh()
    report = update(opened, server, name)
    assert (report.written, report.deleted) == (2, 0)
    assert held(server, name)[-2:] == ["a0", "a7"]
    same_rankings(opened, server, name, questions)
    builder.write(builder.source(docs("a", 60)[::-1], name="c.jsonl"), "overwrite")
    opened.refresh()
    update(opened, server, name)
    assert held(server, name) == [f"a{i}" for i in reversed(range(60))]
    same_rankings(opened, server, name, questions)


def test_an_update_needs_the_same_model(opened, builder, docs, server, name) -> None:
    with pytest.raises(IndexStateError, match="must point to one index"):
        update(opened, server, name)
    push(opened, server, name)
    from dataclasses import replace

    other = replace(builder.side, model_hash="another")
    builder.write(builder.source(docs("a", 5), name="d.jsonl", side=other), "overwrite")
    opened.refresh()
    with pytest.raises(IndexStateError, match="was built with another model"):
        update(opened, server, name)


def test_passages_are_deleted_by_id(opened, server, name) -> None:
    push(opened, server, name)
    assert delete(server, name, ["nope", "no"]).missing == ("nope", "no")
    assert push(opened, server, name).unchanged
    report = delete(server, name, ["a3", "a5", "nope", "a3"])
    assert (report.requested, report.deleted, report.missing) == (3, 2, ("nope",))
    assert held(server, name) == [f"a{i}" for i in range(60) if i not in (3, 5)]
    with pytest.raises(IndexStateError, match="changed after") as refused:
        push(opened, server, name)
    assert refused.value.remedy.for_command_line() == "push with --update, which writes only the differences"
    assert not update(opened, server, name).deleted  # the index here still has them
    assert len(held(server, name)) == 60


def test_all_sentences_of_a_passage_are_deleted(builder, docs, server, name) -> None:
    made = [doc._replace(passage_id=f"p{i // 4}#{i % 4}") for i, doc in enumerate(docs("a", 20))]
    builder.write(builder.source(made, unit="sentence"))
    with Searcher(builder.folder.path) as searcher:
        push(searcher, server, name)
    report = delete(server, name, ["p1", "p2#0", "p9"])
    assert (report.requested, report.deleted, report.missing) == (3, 5, ("p9",))
    left = [doc.passage_id for doc in made if not doc.passage_id.startswith("p1#")]
    assert held(server, name) == [i for i in left if i != "p2#0"]


# ---------------------------------------------------------------- what goes wrong


def broken_after(fake, requests: int):
    """The server is gone after some bulk requests, until the fault is taken away."""
    seen = []

    def fault(method: str, path: str, _body: bytes):
        if path.endswith("_bulk"):
            seen.append(path)
        return "drop" if len(seen) > requests else None

    fake.fault = fault


def small_batches(url: str, patience: float = 0.1) -> Server:
    return Server(Access(url, patience=patience, batch_bytes=1500, environment={}))


def test_an_interrupted_push_goes_on(opened, fake, questions) -> None:
    with small_batches(fake.url) as server:
        broken_after(fake, 4)
        with pytest.raises(ServerError, match="cannot be reached"):
            push(opened, server, "wiki")
        fake.fault = lambda *_: None
        assert not fake.aliases
        report = push(opened, server, "wiki")
        assert 0 < report.kept < 60
        assert report.kept + report.sent == 60
        assert held(server, "wiki") == [f"a{i}" for i in range(60)]
        same_rankings(opened, server, "wiki", questions)


def test_an_interrupted_update_leaves_no_content_that_it_names(
    opened, builder, docs, fake, questions
) -> None:
    """`opened` is of the commit that was pushed; what was updated since must be written back."""
    with small_batches(fake.url) as server:
        index = push(opened, server, "wiki").index
        builder.write(builder.source(docs("a", 30, seed=9), name="b.jsonl"), "update")
        broken_after(fake, 2)
        with Searcher(builder.folder.path) as newer, pytest.raises(ServerError, match="cannot be reached"):
            update(newer, server, "wiki")
        fake.fault = lambda *_: None
        with pytest.raises(IndexStateError, match="changed after"):
            push(opened, server, "wiki", PushOptions(sample=0))
        assert update(opened, server, "wiki").written
        same_rankings(opened, server, "wiki", questions)
        assert push(opened, server, "wiki").index == index


@pytest.mark.slow
@pytest.mark.parametrize("how", ["push", "keep", "update"])
def test_a_push_stopped_after_the_swap_is_finished(opened, fake, push_stopped_after_the_swap, how) -> None:
    """What it did not remove, the next command does, unless it is told to keep it."""
    with Server(Access(fake.url, patience=0.1, environment={})) as server:
        first = push_stopped_after_the_swap(server)
        if how == "update":
            index = update(opened, server, "wiki").index
        else:
            report = push(opened, server, "wiki", PushOptions(keep_old=how == "keep"))
            index = report.index
            assert (report.unchanged, report.replaced) == (True, () if how == "keep" else (first,))
        assert fake.aliases["wiki"] == {index}
        assert (first in fake.indices) == (how == "keep")
        assert push(opened, server, "wiki").replaced == ()


@pytest.mark.parametrize("keep", [False, True])
def test_a_push_mends_an_alias_with_two_indices(opened, builder, docs, fake, keep, questions) -> None:
    with Server(Access(fake.url, environment={})) as server:
        first = push(opened, server, "wiki").index
        builder.write(builder.source(docs("b", 30), name="b.jsonl"), "append")
        opened.refresh()
        second = push(opened, server, "wiki", PushOptions(keep_old=True)).index
        fake.aliases["wiki"] = {first, second}
        fake.indices["sparta-models"].documents.clear()
        with pytest.raises(IndexStateError, match="must point to one index") as refused:
            open_opensearch(server, "wiki")
        assert "sparta push --opensearch URL --name wiki" in refused.value.remedy.for_command_line()
        report = push(opened, server, "wiki", PushOptions(keep_old=keep))
        assert (report.unchanged, report.replaced) == (True, () if keep else (first,))
        assert fake.aliases["wiki"] == {second}
        assert (first in fake.indices) == keep
        same_rankings(opened, server, "wiki", questions)


def test_no_index_of_others_is_removed_from_an_alias(opened, fake) -> None:
    with Server(Access(fake.url, environment={})) as server:
        index = push(opened, server, "wiki").index
        fake.indices["other"] = Held({}, {})
        fake.aliases["wiki"] = {index, "other"}
        with pytest.raises(IndexStateError, match="'other' was not created by sparta push"):
            push(opened, server, "wiki")
    assert fake.aliases["wiki"] == {index, "other"}
    assert "other" in fake.indices


def test_an_unfinished_push_of_other_content_is_reported(opened, builder, docs, fake, caplog) -> None:
    with small_batches(fake.url) as server:
        broken_after(fake, 4)
        with pytest.raises(ServerError, match="cannot be reached"):
            push(opened, server, "wiki")
        fake.fault = lambda *_: None
        (unfinished,) = (index for index in fake.indices if index.startswith("wiki-"))
        builder.write(builder.source(docs("b", 30), name="b.jsonl"), "append")
        opened.refresh()
        push(opened, server, "wiki")
        assert f"{unfinished}: a push of other content is unfinished" in caplog.text
        method, url = caplog.text.split("delete its index: ")[1].split()
        server.request(method, url.removeprefix(fake.url))
        caplog.clear()
        assert push(opened, server, "wiki").unchanged
        assert not caplog.text


@pytest.mark.parametrize("whole", [True, False])
def test_shards_of_an_existing_index_are_compared(opened, fake, whole) -> None:
    with small_batches(fake.url) as server:
        broken_after(fake, 99 if whole else 4)
        with nullcontext() if whole else pytest.raises(ServerError, match="cannot be reached"):
            push(opened, server, "wiki", PushOptions(shards=2))
        fake.fault = lambda *_: None
        with pytest.raises(InputError, match="already exists with 2 primary shards, expected 3") as refused:
            push(opened, server, "wiki", PushOptions(shards=3))
        assert push(opened, server, "wiki", PushOptions(shards=2)).unchanged == whole
        remedy = refused.value.remedy.for_command_line()
        assert "omit --shards" in remedy
        if whole:
            assert "push with another --name" in remedy
            assert "DELETE" not in remedy, "the index is live"
            index = push(opened, server, "wiki3", PushOptions(shards=3)).index
        else:
            method, url = remedy.split(": ")[1].split()
            server.request(method, url.removeprefix(fake.url))
            index = push(opened, server, "wiki", PushOptions(shards=3)).index
    assert fake.indices[index].settings["index"]["number_of_shards"] == 3


def test_holes_are_filled(opened, fake, questions) -> None:
    """Requests run side by side, so a later one may be there and an earlier one not."""
    with Server(Access(fake.url, environment={})) as server:
        index = push(opened, server, "wiki").index
        for i in (20, 21, 40):
            del fake.indices[index].documents[f"a{i}"]
        fake.aliases.clear()
        assert whole_prefix(server, index, range(60)) == 20
        report = push(opened, server, "wiki")
        assert (report.kept, report.sent) == (20, 40)
        same_rankings(opened, server, "wiki", questions)


def test_what_a_busy_server_refuses_is_sent_again(opened, fake, questions) -> None:
    refused: list[bytes] = []

    def fault(method: str, path: str, body: bytes):
        if not path.endswith("_bulk") or len(refused) >= 6:
            return None
        refused.append(body)
        if len(refused) % 2:
            return failure(503, "unavailable", "no copy at the moment")
        items = [json.loads(line)["index"]["_id"] for line in body.splitlines()[::2]]
        said = {"error": {"type": "rejected", "reason": "queue full"}, "status": 429}
        return 200, {"errors": True, "items": [{"index": {"_id": i, **said}} for i in items]}

    fake.fault = fault
    with small_batches(fake.url, patience=60) as server:
        assert push(opened, server, "wiki").sent == 60
        assert len(refused) == 6
        same_rankings(opened, server, "wiki", questions)


def test_a_refused_passage_is_named(opened, fake) -> None:
    def fault(method: str, path: str, body: bytes):
        if not path.endswith("_bulk"):
            return None
        items = [json.loads(line)["index"]["_id"] for line in body.splitlines()[::2]]
        wrong = {"error": {"type": "mapper_parsing_exception", "reason": "failed to parse"}, "status": 400}
        return 200, {
            "errors": True,
            "items": [{"index": {"_id": i, **(wrong if i == "a7" else {"status": 201})}} for i in items],
        }

    fake.fault = fault
    with (
        Server(Access(fake.url, environment={})) as server,
        pytest.raises(ServerError, match=r"rejects passage 'a7' \(400\): failed to parse"),
    ):
        push(opened, server, "wiki")
    assert not fake.aliases


@pytest.mark.parametrize("damage", ["gone", "record", "impacts", "more"])
def test_verification_sees_what_is_not_as_pushed(opened, fake, damage) -> None:
    with Server(Access(fake.url, environment={})) as server:
        index = push(opened, server, "wiki").index
        documents = fake.indices[index].documents
        chosen = next(i for i, one in documents.items() if one["impacts"])
        if damage == "gone":
            del documents[chosen]
        elif damage == "record":
            documents[chosen]["record"]["contents"] = "another"
        elif damage == "impacts":
            documents[chosen]["impacts"] = {t: 1 + i for t, i in documents[chosen]["impacts"].items()}
        else:
            documents["x"] = documents[chosen]
        with pytest.raises(ServerError, match=r"expected .* found"):
            push(opened, server, "wiki")


def test_names_that_are_taken_are_left_alone(opened, fake) -> None:
    fake.indices["mine"] = Held({}, {})
    fake.indices["other"] = Held({}, {})
    fake.aliases["theirs"] = {"other"}
    with Server(Access(fake.url, environment={})) as server:
        with pytest.raises(IndexStateError, match="an index already has this name"):
            push(opened, server, "mine")
        with pytest.raises(IndexStateError, match="was not created by sparta push"):
            push(opened, server, "theirs")
    assert not fake.indices["other"].documents
    assert set(fake.indices) == {"mine", "other"}


@pytest.mark.slow
def test_a_killed_push_is_finished_by_the_same_command(opened, fake, questions) -> None:
    """kill -9 while requests are answered slowly: what is there stays, and nothing is there twice."""

    def slow(method: str, path: str, body: bytes):
        if path.endswith("_bulk"):
            time.sleep(0.2)

    fake.fault = slow
    command = [sys.executable, "-m", "cli._sparta", "push", "--index", str(opened.reader.folder.path)]
    whole = [*command, "--opensearch", fake.url, "--name", "wiki", "--batch-bytes", "1500"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    first = subprocess.Popen(whole, env=environment, stderr=subprocess.DEVNULL)
    ends = time.monotonic() + 120

    def there() -> int:
        return sum(len(one.documents) for index, one in fake.indices.items() if index.startswith("wiki"))

    while there() < 10 and time.monotonic() < ends:
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert 10 <= there() < 60
    assert not fake.aliases
    done = subprocess.run(whole, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "60 passages" in done.stdout
    assert "from before" in done.stdout
    with Server(Access(fake.url, environment={})) as server:
        assert held(server, "wiki") == [f"a{i}" for i in range(60)]
        same_rankings(opened, server, "wiki", questions)


def test_batches_are_bounded() -> None:
    actions = [Action(str(i), b"x" * size) for i, size in enumerate([4, 4, 4, 30, 1, 1])]
    assert [[len(a.lines) for a in batch] for batch in batches(actions, 10)] == [[4, 4], [4], [30], [1, 1]]
    assert list(batches([], 10)) == []
