"""Passages and sentences are updated and deleted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sparta import Index, IndexOptions
from sparta.base.errors import IndexStateError, InputError
from sparta.index.build import delete_passages
from sparta.index.folder import IndexFolder
from tests.sparta.index.building import Builder, Doc, Stop, snapshot

pytestmark = pytest.mark.jvm


def test_an_updated_passage_keeps_its_place(builder):
    same = {"moon": 2}
    builder.write(builder.source([Doc(i, same) for i in "abcde"]))
    assert builder.ranking("moon") == [(i, 2.0) for i in "abcde"]
    new = [Doc("x", same), Doc("d", {"moon": 2, "earth": 1}), Doc("b", same), Doc("y", same)]
    report = builder.write(builder.source(new, name="new"), "update", commit_seconds=0)
    assert (report.documents, report.written["passages"]) == (7, 4)
    assert builder.ranking("moon") == [(i, 2.0) for i in "abcdexy"]
    assert builder.ranking("earth") == [("d", 1.0)]
    builder.write(builder.source([Doc("a", {"earth": 9})], name="newer"), "update")
    assert builder.ranking("moon") == [(i, 2.0) for i in "bcdexy"]
    assert builder.ranking("earth") == [("a", 9.0), ("d", 1.0)]
    builder.write(builder.source([Doc("z", same)], name="z"), "append")
    assert builder.ranking("moon") == [(i, 2.0) for i in "bcdexyz"]


def test_delete(builder, docs):
    a = docs("a", 10)
    builder.write(builder.source(a))
    assert delete_passages(builder.folder, ["a2", "nobody", "a9"]) == (2, ["nobody"])
    left = [d for d in a if d.passage_id not in {"a2", "a9"}]
    assert builder.contents() == left
    before = snapshot(builder.folder.path)
    assert delete_passages(builder.folder, ["a2"]) == (0, ["a2"])
    assert snapshot(builder.folder.path) == before
    b = docs("b", 3)
    builder.write(builder.source(b, name="b"), "append")
    assert builder.contents() == left + b
    builder.write(builder.source([a[2]], name="c"), "append")
    assert builder.contents() == [*left, *b, a[2]]
    ids = [d.passage_id for d in builder.contents()]
    assert delete_passages(builder.folder, ids) == (12, [])
    assert builder.contents() == []
    assert builder.ranking("moon") == []


def test_what_was_deleted_is_not_up_to_date(builder, docs):
    a, b = docs("a", 4), docs("b", 3)
    builder.write(builder.source(a))
    delete_passages(builder.folder, ["a1"])
    with pytest.raises(IndexStateError, match="changed afterwards by sparta delete"):
        builder.write(builder.source(a))
    builder.write(builder.source(b, name="b"), "append")
    assert builder.write(builder.source(b, name="b"), "append").unchanged
    delete_passages(builder.folder, ["b0", "b1"])
    builder.write(builder.source(b, name="b"), "update")
    assert sorted(d.passage_id for d in builder.contents()) == ["a0", "a2", "a3", "b0", "b1", "b2"]


def test_delete_needs_a_finished_index(builder, docs):
    with pytest.raises(IndexStateError, match="there is no index here"):
        delete_passages(builder.folder, ["a"])
    assert not builder.folder.path.exists()
    with pytest.raises(KeyboardInterrupt):
        builder.write(builder.source(docs("a", 9), before=Stop(2, KeyboardInterrupt())))
    with pytest.raises(IndexStateError, match="is unfinished"):
        delete_passages(builder.folder, ["a0"])


def test_deleting_between_an_interruption_and_its_resumption(builder, docs):
    a, b = docs("a", 5), docs("b", 12)
    builder.write(builder.source(a))
    with pytest.raises(KeyboardInterrupt):
        builder.write(builder.source(b, name="b", before=Stop(2, KeyboardInterrupt())), "append")
    delete_passages(builder.folder, ["b1", "a0"])
    builder.write(builder.source(b, name="b"), "append", resume=True)
    assert builder.contents() == [*a[1:], b[0], *b[2:]]


@pytest.mark.parametrize("mode", ["append", "update"])
def test_what_was_deleted_from_an_interrupted_job_is_not_up_to_date(builder, docs, mode):
    """The resumed job does not bring it back, and the same job again is not taken for done."""
    a, b = docs("a", 3), docs("b", 12)
    builder.write(builder.source(a))
    with pytest.raises(KeyboardInterrupt):
        builder.write(builder.source(b, name="b", before=Stop(2, KeyboardInterrupt())), mode)
    delete_passages(builder.folder, ["b1"])
    builder.write(builder.source(b, name="b"), mode, resume=True)
    assert builder.contents() == [*a, b[0], *b[2:]]
    if mode == "append":
        with pytest.raises(InputError, match="the index already holds a passage with the id 'b0'"):
            builder.write(builder.source(b, name="b"), mode)
        mode = "update"
    assert not builder.write(builder.source(b, name="b"), mode).unchanged
    assert sorted(builder.contents()) == sorted(a + b)
    assert builder.write(builder.source(b, name="b"), mode).unchanged


def test_a_kill_right_after_the_commit_of_a_deletion(builder, docs, monkeypatch):
    a = docs("a", 4)
    builder.write(builder.source(a))

    def killed(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(IndexFolder, "write_state", killed)
        delete_passages(builder.folder, ["a1"])  # nothing but the commit is needed
    with pytest.raises(IndexStateError, match="changed afterwards by sparta delete"):
        builder.write(builder.source(a))


def sentences(passage_id: str, numbers: Sequence[int], vector: dict[str, int] | None = None) -> list[Doc]:
    return [Doc(f"{passage_id}#{n}", vector or {"moon": 1}) for n in numbers]


def test_a_passage_is_deleted_whatever_is_missing_of_it(builder):
    """Also behind a hole of many sentences, and nothing of its neighbours."""
    others = [*sentences("o", range(3)), *sentences("pp", range(2)), Doc("p#x", {}), Doc("q", {"moon": 1})]
    builder.write(builder.source([*sentences("p", range(140)), *others], unit="sentence"))
    assert delete_passages(builder.folder, [f"p#{n}" for n in range(130)]) == (130, [])
    assert delete_passages(builder.folder, ["p", "p#139", "q"]) == (11, [])
    assert builder.contents() == others[:-1]
    assert delete_passages(builder.folder, ["p"]) == (0, ["p"])


@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("commit_seconds", [0, 1e9])
def test_an_update_of_sentences_gives_one_order_however_it_is_interrupted(tmp_path, side, at, commit_seconds):
    """Also when a batch ends inside a passage, and the next one replaces old sentences of it."""
    old = [*sentences("p", range(9)), *sentences("q", range(3)), *sentences("r", range(12))]
    p, q, r, s = (sentences(i, range(n)) for i, n in {"p": 7, "q": 1, "r": 5, "s": 2}.items())
    new, order = [*r, *p, *s, *q], [*p, *q, *r, *s]
    builder = Builder(IndexFolder(tmp_path / "index"), side)
    builder.write(builder.source(old, unit="sentence"))
    stopped = builder.source(new, name="n", size=3, unit="sentence", before=Stop(at, KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        builder.write(stopped, "update", commit_seconds=commit_seconds)
    source = builder.source(new, name="n", size=3, unit="sentence")
    builder.write(source, "update", resume=True, commit_seconds=commit_seconds)
    assert builder.contents() == order
    assert builder.ranking("moon") == [(d.passage_id, 1.0) for d in order]


@pytest.mark.parametrize("size", [1, 2, 9])
def test_an_update_that_changes_a_passages_kind_leaves_nothing_of_the_old(builder, size):
    """A passage cut into sentences becomes an answer in a context, and the other way round."""
    p, q, rest = sentences("p", range(3)), Doc("q", {"moon": 1}), sentences("r", range(2))
    builder.write(builder.source([*p, q, *rest], unit="sentence"))
    now_p, now_q = Doc("p", {"moon": 2}), sentences("q", range(2), {"earth": 1})
    new = builder.source([*now_q, now_p], name="new", size=size, unit="sentence")
    builder.write(new, "update")
    assert builder.contents() == [*rest, *now_q, now_p]


def test_an_update_removes_sentences_behind_a_hole(builder):
    builder.write(builder.source(sentences("p", range(140)), unit="sentence"))
    delete_passages(builder.folder, [f"p#{n}" for n in range(2, 135)])
    builder.write(builder.source(sentences("p", range(2)), name="new", unit="sentence"), "update")
    assert builder.contents() == sentences("p", range(2))


def test_a_filter_deletes_all_its_matches(tmp_path):
    records = [
        {"id": f"p{i}", "text": f"moon {i}", "year": i, "by": {"name": "AB"[i % 2]}} for i in range(20)
    ]
    with Index.create(tmp_path / "ix", records, options=IndexOptions(channels="bm25")) as index:
        kept = {"p0", "p1", "p2", "p3", "p4", "p6", "p8", *(f"p{i}" for i in range(10, 20))}
        assert index.delete(filter={"by.name": "B", "year": {"gte": 5, "lt": 10}}) == 3
        assert {hit.passage_id for hit in index.search("moon", 50)} == kept
        assert index.delete(filter={"year": {"gt": 1000}}) == 0
        version = index.version
        with pytest.raises(
            InputError, match="matches 10 of the index's 17 passages, which is more than half"
        ):
            index.delete(filter={"year": {"gte": 10}})
        with pytest.raises(InputError, match="a metadata field"):
            index.delete(filter={"yaer": {"not": 5}}, yes=True)
        with pytest.raises(InputError, match="either passage ids or a filter"):
            index.delete(["p0"], filter={"year": 10})
        assert (index.delete(), index.delete(filter={}), index.version) == (0, 0, version)
        assert index.delete(filter={"year": {"gte": 10}}, yes=True) == 10
        assert len(index) == 7


def test_a_filter_deletes_whole_passages_of_sentences(tmp_path):
    text = "The moon is far. The sun is near. The river is long."
    records = [{"id": f"p{i}", "text": text, "year": i} for i in range(5)]
    options = IndexOptions(channels="bm25", unit="sentence")
    with Index.create(tmp_path / "ix", records, options=options) as index:
        assert len(index) == 15
        assert index.delete(filter={"year": {"in": [1, 3]}}) == 2
        assert len(index) == 9
