import gzip
import hashlib
import io
import json
import math
import os
import random
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import batched
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from sparta.base.errors import IndexStateError, InputError, SpartaError, StorageError
from sparta.index.build import IndexReport, delete_passages, write_index
from sparta.index.folder import IndexFolder
from sparta.index.impact_batches import ImpactBatch, JsonVectors
from sparta.index.jobs import Progress, Source, WriteOptions, skip_passages
from sparta.index.sources import corpus_source, vectors_source
from sparta.index.view import OpenIndex
from sparta.lucene.bridge import ImpactSearcher
from sparta.models.quantize import Quantizer
from sparta.models.query_encoder import QuerySide
from sparta.search.searcher import Searcher
from sparta.shards.store import read_shard

pytestmark = pytest.mark.jvm


class Doc(NamedTuple):
    """A passage and its impacts, by wordpiece."""

    passage_id: str
    vector: dict[str, int]

    @property
    def record(self) -> dict[str, Any]:
        return {"id": self.passage_id, "contents": f"text of {self.passage_id}"}


@pytest.fixture
def side(tiny_tokenizer) -> QuerySide:
    return QuerySide(tiny_tokenizer, None, "model", "hash", Quantizer(8.0))


@pytest.fixture
def docs(tiny_vocabulary) -> Callable[..., list[Doc]]:
    """A function `(prefix, n, seed) -> docs` of random impacts on few terms, so that there are many ties."""
    terms = [t for t in tiny_vocabulary if t.isalpha() and len(t) > 3][:12]

    def make(prefix: str, n: int, seed: int = 0) -> list[Doc]:
        rng = random.Random(f"{prefix}{seed}")
        return [
            Doc(f"{prefix}{i}", {t: rng.randint(1, 3) for t in rng.sample(terms, rng.randint(0, 5))})
            for i in range(n)
        ]

    return make


@dataclass
class Builder:
    """Writes documents into one index; a batch is `size` of them."""

    folder: IndexFolder
    side: QuerySide

    def source(
        self,
        docs: Sequence[Doc],
        *,
        name: str = "a.jsonl",
        size: int = 4,
        side: QuerySide | None = None,
        before: Callable[[int], object] = lambda number: None,
        unit: str = "passage",
    ) -> Source:
        side = side or self.side
        ids = side.tokenizer.get_vocab()

        def batches(done: int) -> Iterator[ImpactBatch]:
            number = done // size
            for number, rows in enumerate(batched(docs[done:], size), done // size):
                before(number)
                yield ImpactBatch(
                    [d.passage_id for d in rows],
                    [json.dumps(d.record) for d in rows],
                    [d.record["contents"] for d in rows],
                    np.cumsum([0, *(len(d.vector) for d in rows)]).astype(np.int32),
                    np.array([ids[t] for d in rows for t in d.vector], dtype=np.int32),
                    np.array([i for d in rows for i in d.vector.values()], dtype=np.int32),
                )
            before(math.ceil(len(docs) / size))

        fingerprint = hashlib.sha256(repr(docs).encode()).hexdigest()
        job = {"from": "corpus", "source": name, "sha256": fingerprint, "unit": unit}
        return Source(job, side, batches, lambda: {"read": len(docs), "used": len(docs)})

    def write(
        self, source: Source, mode: str = "create", *, commit_seconds: float = 1e9, **options: Any
    ) -> IndexReport:
        chosen = WriteOptions(mode=mode, commit_seconds=commit_seconds, ram_buffer_mb=16, **options)
        return write_index(self.folder, source, chosen)

    def contents(self) -> list[Doc]:
        """What the index holds, in the order of corpus positions, which differ from each other."""
        with self.reader() as reader:
            docids = reader.live()
            positions = reader.positions(docids)
            order = np.argsort(positions)
            assert len(set(positions.tolist())) == len(positions)
            found = [Doc(i, reader.vector(d)) for i, d in zip(reader.ids(docids), docids, strict=True)]
            assert [json.loads(raw) for raw in reader.raws(docids)] == [doc.record for doc in found]
            return [found[i] for i in order]

    def reader(self) -> ImpactSearcher:
        return ImpactSearcher(self.folder.lucene_path(self.folder.state().searchable))

    def progress(self) -> Progress:
        with self.reader() as reader:
            return Progress.loads(reader.user_data or "")

    def ranking(self, query: str = "", k: int = 1000, **options: Any) -> list[tuple[str, float]]:
        with Searcher(self.folder.path, **options) as searcher:
            return [(hit.passage_id, hit.score) for hit in searcher.search(query, k)]

    def generations(self) -> list[str]:
        return sorted(p.name for p in self.folder.path.iterdir() if p.is_dir())


@pytest.fixture
def builder(tmp_path, side) -> Builder:
    return Builder(IndexFolder(tmp_path / "index"), side)


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = (p for p in folder.rglob("*") if p.is_file() and p.name not in {"lock", "write.lock"})
    return {str(p.relative_to(folder)): (p.stat().st_mtime_ns, p.read_bytes()) for p in files}


class Stop:
    """Raises once, before batch `at`."""

    def __init__(self, at: int, error: BaseException) -> None:
        self.at, self.error = at, error

    def __call__(self, number: int) -> None:
        if number == self.at:
            self.at = -1
            raise self.error


# ---------------------------------------------------------------- create


def test_create(builder, docs):
    made = docs("a", 10)
    report = builder.write(builder.source(made), threads=3, commit_seconds=0)
    assert builder.contents() == made
    postings = sum(len(d.vector) for d in made)
    assert (report.documents, report.written["passages"], report.written["postings"]) == (10, 10, postings)
    assert report.source == {"read": 10, "used": 10}
    assert not report.unchanged
    live = builder.folder.state().live
    assert live.complete
    assert live.counts == {**report.written, "read": 10, "used": 10}
    assert builder.folder.state().building is None
    assert builder.generations() == ["sparta-000001", "tokenizer-000001"]


def test_unchanged_input_is_left_alone(builder, docs):
    builder.write(builder.source(docs("a", 10)))
    before = snapshot(builder.folder.path)
    for options in ({}, {"resume": True}):
        report = builder.write(builder.source(docs("a", 10)), **options)
        assert report.unchanged
        assert report.documents == 10
    moved = replace(builder.side, model="the same model, in another folder")
    assert builder.write(builder.source(docs("a", 10), side=moved)).unchanged
    assert snapshot(builder.folder.path) == before


def test_input_that_cannot_be_compared_is_never_the_same(builder, docs):
    source = builder.source(docs("a", 5))
    source.job["sha256"] = None
    builder.write(source)
    with pytest.raises(IndexStateError):
        builder.write(source)


def test_an_index_is_not_changed_without_being_told(builder, docs):
    made = docs("a", 10)
    builder.write(builder.source(made))
    before = snapshot(builder.folder.path)
    other = replace(builder.side, model_hash="another")
    for source, options in (
        (builder.source(docs("b", 3)), {}),
        (builder.source(made, name="elsewhere.jsonl"), {}),
        (builder.source(made, side=other), {}),
        (builder.source(made), {"language": "de"}),
        (builder.source(docs("b", 3)), {"resume": True}),
    ):
        with pytest.raises(IndexStateError, match="an index of other input, or made with other") as caught:
            builder.write(source, **options)
        assert "--append" in caught.value.remedy
        assert "--overwrite" in caught.value.remedy
    assert snapshot(builder.folder.path) == before


def test_optimize_merges_into_one_segment(builder, docs):
    made = docs("a", 20)
    builder.write(builder.source(made), commit_seconds=0, optimize=True)
    assert builder.contents() == made
    lucene = builder.folder.lucene_path(builder.folder.state().live)
    assert len(list(lucene.glob("_*.si"))) == 1


def test_unknown_mode(builder, docs):
    with pytest.raises(InputError, match="expected a mode of create, overwrite, append, update, found 'x'"):
        builder.write(builder.source(docs("a", 3)), "x")


# ---------------------------------------------------------------- append, update, delete


def test_append(builder, docs):
    a, b, c = docs("a", 10), docs("b", 7), docs("c", 1)
    builder.write(builder.source(a))
    report = builder.write(builder.source(b, name="b"), "append", commit_seconds=0)
    assert (report.documents, report.written["passages"]) == (17, 7)
    assert builder.contents() == a + b
    assert builder.write(builder.source(b, name="b"), "append").unchanged
    builder.write(builder.source(c, name="c"), "append")
    assert builder.contents() == a + b + c
    assert builder.folder.state().live.complete
    assert builder.generations() == ["sparta-000001", "tokenizer-000001"]


def test_what_grew_is_not_what_was_appended(builder, docs):
    """After A and B neither A nor B alone is `up to date`."""
    a, b = docs("a", 5), docs("b", 5)
    builder.write(builder.source(a, name="a"))
    builder.write(builder.source(b, name="b"), "append")
    for same, name in ((a, "a"), (b, "b")):
        with pytest.raises(IndexStateError, match="other input"):
            builder.write(builder.source(same, name=name))
    assert builder.contents() == a + b


@pytest.mark.parametrize("mode", ["append", "update"])
def test_growing_needs_an_index(builder, docs, mode):
    with pytest.raises(IndexStateError, match="there is no index here"):
        builder.write(builder.source(docs("a", 3)), mode)
    assert not builder.folder.path.exists()
    with pytest.raises(KeyboardInterrupt):
        builder.write(builder.source(docs("a", 9), before=Stop(2, KeyboardInterrupt())))
    with pytest.raises(IndexStateError, match="still being built"):
        builder.write(builder.source(docs("b", 3)), mode)


def test_an_index_knows_what_it_was_made_from(builder, docs):
    """After every job, of whatever mode; an overwrite makes it from something else."""
    a, b = docs("a", 3), docs("b", 3)

    def corpus() -> Path | None:
        return builder.folder.state().live.corpus

    builder.write(builder.source(a, name="/data/a"))
    assert corpus() == Path("/data/a")
    assert "origin" not in json.loads((builder.folder.path / "manifest.json").read_text())["live"]
    builder.write(builder.source(b, name="/data/b"), "append")
    assert corpus() == Path("/data/a")
    with pytest.raises(InputError):
        builder.write(builder.source(b, name="/data/c"), "append")
    builder.write(builder.source(b[:1], name="/data/d"), "update")
    delete_passages(builder.folder, ["a1"])
    assert corpus() == Path("/data/a")
    assert builder.folder.state().live.job["source"] == "/data/d"
    builder.write(builder.source(a, name="-"), "overwrite")
    assert corpus() is None
    builder.write(builder.source(b, name="/data/b"), "append")
    assert corpus() is None


def test_an_id_twice_stops_an_append(builder, docs, caplog):
    """Nothing of it stays, and the index is as good as before."""
    a, b = docs("a", 10), docs("b", 7)
    builder.write(builder.source(a))
    before = builder.folder.state()
    with pytest.raises(InputError, match="the id 'a3', which the index already holds") as caught:
        builder.write(builder.source([*b, a[3]], name="b"), "append")
    assert "sparta update" in caught.value.remedy
    assert builder.folder.state() == before
    assert builder.contents() == a
    assert builder.ranking("moon") is not None
    assert not caplog.records
    builder.write(builder.source(b, name="b"), "append")
    assert builder.contents() == a + b


def test_an_append_that_failed_late_is_mended_by_an_update(builder, docs, caplog):
    a, b = docs("a", 10), docs("b", 8)
    changed = Doc("a3", {"moon": 3})
    builder.write(builder.source(a))
    with pytest.raises(InputError, match="'a3'"):
        builder.write(builder.source([*b, changed], name="b"), "append", commit_seconds=0)
    assert builder.contents() == a + b
    with pytest.raises(IndexStateError, match="the append of b to be finished first"):
        builder.write(builder.source(docs("c", 1), name="c"), "append")
    builder.ranking("moon")
    assert "incomplete" in caplog.text
    builder.write(builder.source([*b, changed], name="b"), "update")
    assert builder.contents() == [*a[:3], changed, *a[4:], *b]
    assert builder.folder.state().live.complete


def test_an_append_killed_before_it_wrote_hinders_nothing(builder, docs):
    a, b = docs("a", 10), docs("b", 8)
    builder.write(builder.source(a))
    state = builder.folder.state()
    begun = {**builder.source(b, name="b").job, "mode": "append"}
    builder.folder.write_state(replace(state, live=replace(state.live, job=begun, complete=False)))
    builder.write(builder.source(docs("c", 2), name="c"), "append")
    assert builder.contents() == a + docs("c", 2)
    assert builder.folder.state().live.complete


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
    assert delete_passages(builder.folder, ["a2"]) == (0, ["a2"])
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
    with pytest.raises(IndexStateError, match="an index of other input"):
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
    with pytest.raises(IndexStateError, match="still being built"):
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
        with pytest.raises(InputError, match="the id 'b0', which the index already holds"):
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
    with pytest.raises(IndexStateError, match="an index of other input"):
        builder.write(builder.source(a))


# ---------------------------------------------------------------- sentences


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


# ---------------------------------------------------------------- overwrite


def test_overwrite_swaps_at_the_end(builder, docs):
    a, b = docs("a", 10), docs("b", 12)
    builder.write(builder.source(a))
    reader = builder.reader()
    seen: list[list[Doc]] = []
    source = builder.source(b, before=lambda number: seen.append(builder.contents()))
    builder.write(source, "overwrite", commit_seconds=0)
    assert seen == [a] * 4
    assert builder.contents() == b
    assert builder.generations() == ["sparta-000002", "tokenizer-000002"]
    assert reader.num_docs == 10  # who had it open goes on with the old one
    assert reader.docids(["a9"])[0] >= 0
    reader.close()


def test_a_searcher_that_opens_while_the_swap_happens(builder, docs, monkeypatch):
    """It has read the manifest when the generation that stands there is removed."""
    builder.write(builder.source([Doc("old", {"moon": 1})]))
    choose = OpenIndex._newest
    swaps = iter([lambda: builder.write(builder.source([Doc("new", {"moon": 2})], name="new"), "overwrite")])

    def slowly(self: OpenIndex) -> Any:
        chosen = choose(self)
        next(swaps, lambda: None)()
        return chosen

    monkeypatch.setattr(OpenIndex, "_newest", slowly)
    assert builder.ranking("moon") == [("new", 2.0)]


def test_overwrite_takes_another_model(builder, docs, tiny_tokenizer):
    builder.write(builder.source(docs("a", 4)))
    weights = np.full(tiny_tokenizer.get_vocab_size(), 2, np.int32)
    other = replace(builder.side, weights=weights, model_hash="other", quantizer=Quantizer(2.0, 4))
    builder.write(builder.source([Doc("x", {"moon": 3})], side=other), "overwrite", language="de")
    assert builder.ranking("moon") == [("x", 6)]
    state = builder.folder.state()
    assert state.live.language == "de"
    assert state.live.model == other.identity()


def test_a_failed_overwrite_leaves_the_old_index(builder, docs, caplog):
    a, b = docs("a", 10), docs("b", 12)
    builder.write(builder.source(a))
    for error in (InputError("a bad record"), OSError("broken"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            builder.write(builder.source(b, before=Stop(2, error)), "overwrite", commit_seconds=0)
        assert builder.contents() == a
        assert len(builder.ranking("moon")) == sum("moon" in d.vector for d in a)
        assert not caplog.records
    assert builder.folder.state().building is not None
    builder.write(builder.source(b), "overwrite", resume=True)
    assert builder.contents() == b
    assert len(builder.generations()) == 2


def test_growing_leaves_an_interrupted_overwrite_to_be_finished(builder, docs):
    a, b, c = docs("a", 10), docs("b", 12), docs("c", 2)
    builder.write(builder.source(a))
    with pytest.raises(KeyboardInterrupt):
        builder.write(builder.source(b, before=Stop(2, KeyboardInterrupt())), "overwrite")
    builder.write(builder.source(c, name="c"), "append")
    assert builder.contents() == a + c
    seen: list[int] = []
    builder.write(builder.source(b, before=seen.append), "overwrite", resume=True)
    assert builder.contents() == b
    assert seen == [2, 3]


def test_an_overwrite_begun_again_drops_the_unfinished_one(builder, docs):
    builder.write(builder.source(docs("a", 10)))
    for name in ("b", "c"):
        stopped = builder.source(docs(name, 12), before=Stop(2, KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            builder.write(stopped, "overwrite")
        assert len(builder.generations()) == 4
    with pytest.raises(IndexStateError, match="the input and options that this index was begun with"):
        builder.write(builder.source(docs("b", 12)), "overwrite", resume=True)
    assert builder.contents() == docs("a", 10)


def test_a_finished_overwrite_is_not_repeated_by_resume(builder, docs):
    builder.write(builder.source(docs("a", 4)))
    builder.write(builder.source(docs("b", 4)), "overwrite")
    assert builder.write(builder.source(docs("b", 4)), "overwrite", resume=True).unchanged
    assert not builder.write(builder.source(docs("b", 4)), "overwrite").unchanged


# ---------------------------------------------------------------- going on


ERRORS = {"Ctrl-C": KeyboardInterrupt, "bad input": InputError, "another": OSError}


@pytest.mark.parametrize("commit_seconds", [0, 1e9])
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("mode", ["create", "overwrite", "append", "update"])
def test_resume_after_an_exception_at_each_batch(tmp_path, side, docs, mode, error, commit_seconds):
    old, new = docs("a", 6), docs("b", 11)
    if mode == "update":
        new[5] = Doc("a2", {"moon": 1})
    expected = old + new if mode == "append" else new
    if mode == "update":
        expected = [*old[:2], new[5], *old[3:], *new[:5], *new[6:]]
    for at in range(4):
        builder = Builder(IndexFolder(tmp_path / str(at)), side)
        if mode != "create":
            builder.write(builder.source(old))
        stopped = builder.source(new, name="new", before=Stop(at, ERRORS[error]("stopped")))
        with pytest.raises(ERRORS[error]):
            builder.write(stopped, mode, commit_seconds=commit_seconds)
        kept = error == "Ctrl-C" or (error == "bad input" and mode in ("create", "overwrite"))
        consumed = min(11, 4 * at) if kept or not commit_seconds else 0
        check_kept(builder, mode, old, new, consumed)
        read: list[int] = []
        builder.write(builder.source(new, name="new", before=read.append), mode, resume=True)
        assert read == list(range(math.ceil(consumed / 4), 4))
        assert builder.contents() == expected
        assert builder.folder.state().building is None
        assert builder.folder.state().live.complete
        assert builder.progress().consumed == 11
        assert len(builder.generations()) == 2


def check_kept(builder: Builder, mode: str, old: list[Doc], new: list[Doc], consumed: int) -> None:
    """What a stopped job left: every passage it committed, and the index as it was otherwise."""
    state = builder.folder.state()
    if mode == "create":
        if not consumed:
            assert not any(builder.folder.lucene_path(state.building).glob("segments_*"))
            return
        assert builder.contents() == new[:consumed]
    elif mode == "overwrite":
        assert builder.contents() == old
    elif mode == "append":
        assert builder.contents() == old + new[:consumed]
        assert state.live.complete is (consumed == 0)
    else:
        ids = {d.passage_id for d in builder.contents()}
        assert ids == {d.passage_id for d in (*old, *new[:consumed])}


def test_an_unfinished_index_is_neither_forgotten_nor_mixed_up(builder, docs, caplog):
    a = docs("a", 12)
    with pytest.raises(KeyboardInterrupt):
        builder.write(builder.source(a, before=Stop(2, KeyboardInterrupt())))
    assert len(builder.ranking("moon")) == sum("moon" in d.vector for d in a[:8])
    assert "incomplete: searching what is committed" in caplog.text
    with pytest.raises(IndexStateError, match=r"an unfinished index of a\.jsonl is here") as caught:
        builder.write(builder.source(a))
    assert "--resume" in caught.value.remedy
    other = replace(builder.side, quantizer=Quantizer(9.0))
    for source, options, message in (
        (builder.source(docs("b", 12)), {}, "another sha256"),
        (builder.source(a, name="b.jsonl"), {}, "another source"),
        (builder.source(a), {"language": "de"}, "another language"),
        (builder.source(a, side=other), {}, r"differing: quantizer"),
    ):
        with pytest.raises(IndexStateError, match=message):
            builder.write(source, resume=True, **options)
    assert builder.contents() == a[:8]
    builder.write(builder.source(a), resume=True)
    assert builder.contents() == a


def test_a_build_without_a_commit_is_simply_begun_again(builder, docs, caplog):
    with pytest.raises(OSError, match="x"):
        builder.write(builder.source(docs("a", 12), before=Stop(2, OSError("x"))))
    with pytest.raises(IndexStateError, match="holds no passages yet"):
        Searcher(builder.folder.path)
    builder.write(builder.source(docs("b", 3)))
    assert builder.contents() == docs("b", 3)
    assert builder.generations() == ["sparta-000002", "tokenizer-000002"]
    assert not caplog.records


@pytest.mark.parametrize("mode", ["create", "append"])
def test_ctrl_c_between_writing_a_batch_and_counting_it(builder, docs, monkeypatch, mode):
    old = docs("o", 3) if mode == "append" else []
    if old:
        builder.write(builder.source(old))
    a = docs("a", 12)
    add = Progress.add

    def interrupted(self: Progress, batch: ImpactBatch) -> None:
        if self.consumed == 4:
            raise KeyboardInterrupt
        add(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            builder.write(builder.source(a, name="new"), mode, commit_seconds=0)
    assert builder.contents() == old + a[:4]
    builder.write(builder.source(a, name="new"), mode, resume=True)
    assert builder.contents() == old + a


def test_a_kill_between_the_last_commit_and_the_manifest(builder, docs, monkeypatch):
    a = docs("a", 12)
    with monkeypatch.context() as patch:
        patch.setattr(IndexFolder, "finish", lambda *_: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            builder.write(builder.source(a))
    read: list[int] = []
    report = builder.write(builder.source(a, before=read.append), resume=True)
    assert read == []
    assert report.written["passages"] == 12
    assert report.source == {"read": 12, "used": 12}
    assert builder.contents() == a
    assert builder.folder.state().live.complete


def test_every_commit_carries_its_progress(builder, docs):
    a, b = docs("a", 10), docs("b", 10)
    builder.write(builder.source(a))
    seen: list[tuple[int, int, int, str, bool]] = []

    def look(number: int) -> None:
        with builder.reader() as reader:
            progress = Progress.loads(reader.user_data)
            state = (progress.consumed, progress.next_position, progress.last_id, progress.done)
            seen.append((reader.num_docs, *state))

    builder.write(builder.source(b, name="b", before=look), "append", commit_seconds=0)
    assert seen[1:] == [(14, 4, 14, "b3", False), (18, 8, 18, "b7", False), (20, 10, 20, "b9", False)]
    assert seen[0] == (10, 10, 10, "a9", True)
    last = builder.progress()
    assert (last.consumed, last.done, last.counts["passages"]) == (10, True, 10)


def test_progress_survives_its_text():
    assert Progress.loads("") == Progress()
    progress = Progress("j", 5, "größe", 9, True, {"clipped": 1, "absolute_error": 0.25}, {"read": 5})
    assert Progress.loads(progress.dumps()) == progress


def test_skipping_never_cuts_a_batch():
    def batch(*ids: str) -> ImpactBatch:
        empty = np.zeros(0, np.int32)
        return ImpactBatch(ids, ids, ids, np.zeros(len(ids) + 1, np.int32), empty, empty, [f"t{ids[0]}"])

    batches = [batch("a", "b"), batch("c"), batch("d", "e"), batch("f")]

    def left(count: int) -> list[tuple[str, list[str]]]:
        return [("".join(b.passage_ids), list(b.new_terms)) for b in skip_passages(batches, count)]

    assert left(0) == [("ab", ["ta"]), ("c", ["tc"]), ("de", ["td"]), ("f", ["tf"])]
    assert left(3) == [("de", ["ta", "tc", "td"]), ("f", ["tf"])]
    assert left(6) == []
    checked: list[tuple[int, str]] = []
    for count in (0, 3, 9):
        list(skip_passages(batches, count, lambda *seen: checked.append(seen)))
    assert checked == [(3, "c"), (6, "f")]
    for count in (1, 4):
        with pytest.raises(IndexStateError, match="cut in another way"):
            left(count)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize("mode", ["append", "update"])
def test_vectors_of_another_model_are_refused(builder, docs, mode, tiny_tokenizer):
    from tokenizers import Tokenizer

    builder.write(builder.source(docs("a", 5)))
    before = snapshot(builder.folder.path)
    larger = Tokenizer.from_str(tiny_tokenizer.to_str())
    larger.add_tokens(["jabberwocky"])
    weights = np.ones(tiny_tokenizer.get_vocab_size(), np.float32)
    for change, named in (
        ({"model_hash": "other"}, "sha256"),
        ({"quantizer": Quantizer(8.0, 7)}, "quantizer"),
        ({"quantizer": Quantizer(8.5)}, "quantizer"),
        ({"tokenizer": larger}, "tokenizer_sha256"),
        ({"weights": weights}, "weighted_queries"),
    ):
        source = builder.source(docs("b", 5), side=replace(builder.side, model="theirs", **change))
        with pytest.raises(IndexStateError, match=f"the index's own model 'model'.*differing: {named}"):
            builder.write(source, mode)
    assert snapshot(builder.folder.path) == before


def test_a_newer_format_is_refused(builder, docs):
    builder.write(builder.source(docs("a", 5)))
    path = builder.folder.path / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "format_version": 2}))
    for attempt in (
        lambda: Searcher(builder.folder.path),
        lambda: delete_passages(builder.folder, ["a1"]),
        *(
            lambda mode=mode: builder.write(builder.source(docs("b", 5)), mode)
            for mode in ("create", "append", "update", "overwrite")
        ),
    ):
        with pytest.raises(IndexStateError, match="format version 2 is newer") as caught:
            attempt()
        assert "upgrade sparta" in caught.value.remedy
    path.write_text(json.dumps(manifest))
    assert builder.contents() == docs("a", 5)


@pytest.mark.parametrize("lost", ["weighted_queries", "quantizer", "weights"])
def test_a_damaged_description_of_the_model_is_told(builder, docs, tiny_tokenizer, lost):
    weights = np.ones(tiny_tokenizer.get_vocab_size(), np.float32)
    builder.write(builder.source(docs("a", 5), side=replace(builder.side, weights=weights)))
    path = builder.folder.path / "manifest.json"
    manifest = json.loads(path.read_text())
    if lost == "weights":
        (builder.folder.path / "tokenizer-000001" / "query_weights.safetensors").write_bytes(b"no weights")
    else:
        del manifest["live"]["model"][lost]
    path.write_text(json.dumps(manifest))
    with pytest.raises(IndexStateError, match="found it damaged") as caught:
        Searcher(builder.folder.path)
    assert caught.value.remedy


def test_a_second_writer_is_refused(builder, docs):
    a = docs("a", 5)

    def second(number: int) -> None:
        for attempt in (
            lambda: builder.write(builder.source(docs("b", 5)), "overwrite"),
            lambda: builder.write(builder.source(docs("b", 5))),
        ):
            with pytest.raises(IndexStateError, match="another process is writing"):
                attempt()

    builder.write(builder.source(a, before=second))
    with builder.folder.lock():
        for attempt in (
            lambda: builder.write(builder.source(docs("b", 5)), "append"),
            lambda: delete_passages(builder.folder, ["a0"]),
        ):
            with pytest.raises(IndexStateError, match="another process is writing"):
                attempt()
        assert builder.contents() == a  # reading needs no lock
    builder.write(builder.source(docs("b", 5)), "append")


def test_a_failed_writer_lets_go_of_the_lock(builder, docs):
    with pytest.raises(OSError, match="x"):
        builder.write(builder.source(docs("a", 5), before=Stop(0, OSError("x"))))
    builder.write(builder.source(docs("a", 5)), resume=True)
    assert builder.contents() == docs("a", 5)


# ---------------------------------------------------------------- JSON vectors


@pytest.fixture
def json_vectors(tmp_path, tiny_tokenizer) -> Callable[..., Source]:
    """Lines of JSON vectors as a source."""
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    tiny_tokenizer.save(str(folder / "tokenizer.json"))

    def make(*lines: str | bytes | dict[str, Any], name: str = "vectors.jsonl") -> Source:
        rows = [json.dumps(line) if isinstance(line, dict) else line for line in lines]
        path = tmp_path / name
        path.write_bytes(b"\n".join(r.encode() if isinstance(r, str) else r for r in rows))
        return vectors_source([path], folder)

    return make


def line(passage_id: str, **vector: Any) -> dict[str, Any]:
    return {"id": passage_id, "contents": f"text of {passage_id}", "vector": vector}


def test_json_vectors(builder, json_vectors):
    long = "ü" * 255
    report = builder.write(
        json_vectors(
            line("a", moon=37, earth=1),
            "",
            line("b", moon=65535, nought=0, unheard=12),
            {"_id": 7, "text": "text of 7", "vector": {}},
            line("c", **{long: 3, "two words": 4}),
        )
    )
    assert builder.contents() == [
        Doc("a", {"moon": 37, "earth": 1}),
        Doc("b", {"moon": 65535, "unheard": 12}),
        Doc("7", {}),
        Doc("c", {long: 3, "two words": 4}),
    ]
    assert report.written["zeros"] == 1
    assert report.written["postings"] == 6
    assert builder.ranking("the moon, moon") == [("b", 131070.0), ("a", 74.0)]
    assert builder.ranking("text", channel="bm25") != []


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (line("b", moon=1.5), "expected an integer impact from 0 to 65535, found 1.5 for the term 'moon'"),
        (line("b", moon=2.0), "found 2.0"),
        (line("b", moon=-1), "found -1"),
        (line("b", moon=65536), "found 65536"),
        (line("b", moon=True), "found True"),
        (line("b", moon="3"), "found '3'"),
        (line("b", moon=None), "found None"),
        ('{"id": "b", "contents": "", "vector": {"moon": NaN}}', "finite number, found NaN"),
        (line("b", **{"x" * 300: 1}), "terms of 1 to 255 characters, found one of 300"),
        (line("b", **{"": 1}), "found one of 0"),
        ({"id": "b", "contents": ""}, "expected a vector"),
        ({"id": "b", "contents": "", "vector": [1]}, "expected a vector"),
        ({"id": "b", "vector": {}}, "missing the text"),
        ({"contents": "", "vector": {}}, "missing id"),
        (line("a", moon=1), "duplicate id: 'a' was already the id of .*:1"),
        ("{", "broken JSON"),
        ("[]", "not an object"),
        (b'{"id": "b", "contents": "\xff", "vector": {}}', "invalid UTF-8"),
    ],
)
def test_bad_json_vectors(builder, json_vectors, bad, message):
    with pytest.raises(InputError, match=message) as caught:
        builder.write(json_vectors(line("a", moon=1), bad))
    assert caught.value.where.endswith("vectors.jsonl:2")


def test_repeated_ids_are_found_across_batches_and_files(builder, json_vectors, tmp_path, monkeypatch):
    monkeypatch.setattr("sparta.index.impact_batches.JSON_BATCH", 2)
    lines = [line(f"x{i}", moon=1) for i in range(5)]
    with pytest.raises(InputError, match="duplicate id: 'x0'"):
        builder.write(json_vectors(*lines, lines[0]))
    folder = tmp_path / "several"
    folder.mkdir()
    for name in ("b.json", "a.jsonl"):
        (folder / name).write_text(json.dumps(line("x", moon=1)))
    with pytest.raises(InputError, match=r"'x' was already the id of .*a\.jsonl:1") as caught:
        list(JsonVectors(folder))
    assert caught.value.where == f"{folder / 'b.json'}:1"


def test_empty_and_missing_json_vectors(builder, json_vectors, tmp_path):
    with pytest.raises(InputError, match="empty file"):
        builder.write(json_vectors("", " "))
    with pytest.raises(InputError, match="found nothing"):
        vectors_source([tmp_path / "none.jsonl"], tmp_path / "tokenizer")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="found neither"):
        vectors_source([tmp_path / "empty"], tmp_path / "tokenizer")
    with pytest.raises(InputError, match="one file or folder of JSON vectors"):
        vectors_source([tmp_path / "empty", tmp_path / "tokenizer"])


@pytest.mark.parametrize("done", range(4))
def test_json_vectors_resume_with_the_right_terms(builder, json_vectors, monkeypatch, done):
    """Terms get their numbers as they come; those of passages that are not read again count, too."""
    monkeypatch.setattr("sparta.index.impact_batches.JSON_BATCH", 3)
    names = ["moon", "earth", "sun", "star", "river", "road", "town"]
    expected = [Doc(f"x{i}", {names[i % 7]: i + 1, names[(3 * i + 1) % 7]: 9}) for i in range(10)]
    source = json_vectors(*(line(d.passage_id, **d.vector) for d in expected))

    def stopping(skip: int) -> Iterator[ImpactBatch]:
        for number, batch in enumerate(source.batches(skip)):
            if number == done:
                raise KeyboardInterrupt
            yield batch

    with pytest.raises(KeyboardInterrupt):
        builder.write(replace(source, batches=stopping), commit_seconds=0)
    builder.write(source, resume=True)
    assert builder.contents() == expected


def test_json_vectors_up_to_date_and_append(builder, json_vectors):
    first = [line("a", moon=1)]
    builder.write(json_vectors(*first))
    assert builder.write(json_vectors(*first)).unchanged
    with pytest.raises(IndexStateError, match="other input"):
        builder.write(json_vectors(line("a", moon=2)))
    builder.write(json_vectors(line("b", road=3), name="more.jsonl"), "append")
    assert builder.contents() == [Doc("a", {"moon": 1}), Doc("b", {"road": 3})]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_json_vectors_from_a_pipe(builder, json_vectors, tmp_path):
    """As in --vectors <(zcat v.gz): what is read to be hashed is not there to be indexed."""
    json_vectors(line("a", moon=1), line("b", road=2))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    content = gzip.compress((tmp_path / "vectors.jsonl").read_bytes())
    writer = threading.Thread(target=pipe.write_bytes, args=[content], daemon=True)
    writer.start()
    source = vectors_source([pipe], tmp_path / "tokenizer")
    assert source.job == {"from": "json", "source": str(pipe), "sha256": None}
    builder.write(source)
    writer.join()
    assert builder.contents() == [Doc("a", {"moon": 1}), Doc("b", {"road": 2})]
    with pytest.raises(IndexStateError, match="an index of other input"):
        builder.write(source)


# ---------------------------------------------------------------- from the model


@pytest.fixture
def encoded(tmp_path, tiny_model, make_records, write_jsonl, one_thread) -> tuple[Path, list[Path], Any]:
    """A corpus, its shards in two folders, and the options they were made with."""
    from sparta.shards.encode import EncodeOptions, encode_corpus

    corpus = write_jsonl(tmp_path / "corpus.jsonl", make_records(30, seed=4))
    options = EncodeOptions(shard_size=8, dtype="fp32")
    folders = [tmp_path / "part0", tmp_path / "part1"]
    for i, folder in enumerate(folders):
        encode_corpus(corpus, folder, tiny_model, replace(options, part=(i, 2)))
    return corpus, folders, options


def test_shards_and_corpus_give_the_same_index(encoded, tmp_path, tiny_model):
    corpus, folders, options = encoded
    made = {}
    for name, source in {
        "corpus": corpus_source(corpus, tiny_model, options),
        "shards": vectors_source(folders),
    }.items():
        index = IndexFolder(tmp_path / name)
        write_index(index, source, WriteOptions(ram_buffer_mb=16))
        with ImpactSearcher(index.lucene_path(index.state().live)) as reader:
            docids = reader.docids([f"p{i}" for i in range(30)])
            assert reader.positions(docids).tolist() == list(range(30))
            vectors = [reader.vector(d) for d in docids]
            raws = reader.raws(docids)
            made[name] = (reader.num_docs, vectors, raws)
        with Searcher(index.path) as searcher:
            hits = searcher.batch_search(["moon earth", "the city of paris", "who"], "abc", 30)
            made[name] += ([[(h.passage_id, h.score) for h in found] for found in hits.values()],)
    assert made["corpus"] == made["shards"]
    weights = tiny_model.encode_document(json.loads(made["corpus"][2][3])["contents"], dtype="fp32")
    step = tiny_model.config.quantizer.max_weight / 255
    for term, impact in made["corpus"][1][3].items():
        weight = weights[0, tiny_model.tokenizer.token_to_id(term)]
        assert abs(weight - impact * step) <= step * 0.5001 or impact in (1, 255)


def test_shards_of_another_standard_input_are_no_resumption(
    builder, tmp_path, tiny_model, make_records, monkeypatch, one_thread
):
    """Nothing is known of the corpus but its shards, which lie in the same folder as those of the first."""
    from sparta.shards.encode import EncodeOptions, encode_corpus

    def source(prefix: str, seed: int) -> Source:
        lines = "".join(json.dumps(r) + "\n" for r in make_records(24, seed=seed, prefix=prefix))
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
        shutil.rmtree(tmp_path / "sh", ignore_errors=True)
        encode_corpus("-", tmp_path / "sh", tiny_model, EncodeOptions(shard_size=8, dtype="fp32"))
        return vectors_source([tmp_path / "sh"])

    def stopping(skip: int) -> Iterator[ImpactBatch]:
        yield next(whole.batches(skip))
        raise KeyboardInterrupt

    whole = source("a", 1)
    with pytest.raises(KeyboardInterrupt):
        builder.write(replace(whole, batches=stopping))
    for prefix, seed in (("b", 1), ("a", 2)):
        with pytest.raises(IndexStateError, match="another sha256"):
            builder.write(source(prefix, seed), resume=True)
    builder.write(source("a", 1), resume=True)
    with builder.reader() as reader:
        assert sorted(reader.ids(reader.live())) == sorted(f"a{i}" for i in range(24))
    assert builder.write(source("a", 1)).unchanged


def test_shards_in_another_arithmetic_are_other_input(builder, tmp_path, encoded, tiny_model):
    """The same corpus and options: what differs is in the weights."""
    from sparta.shards.encode import encode_corpus

    corpus, folders, options = encoded
    builder.write(vectors_source(folders))
    assert builder.write(vectors_source(folders)).unchanged
    for i, folder in enumerate(folders):
        shutil.rmtree(folder)
        encode_corpus(corpus, folder, tiny_model, replace(options, dtype="bf16", part=(i, 2)))
    with pytest.raises(IndexStateError, match="an index of other input"):
        builder.write(vectors_source(folders))


def test_shards_resume_without_reading_what_is_skipped(encoded, monkeypatch):
    _, folders, _ = encoded
    read: list[str] = []

    def reading(path: Path) -> Any:
        read.append(path.name)
        return read_shard(path)

    monkeypatch.setattr("sparta.index.sources.read_shard", reading)
    source = vectors_source(folders)
    ids = [i for batch in source.batches(16) for i in batch.passage_ids]
    assert ids == [f"p{i}" for i in range(16, 30)]
    assert read == ["shard-000002.safetensors", "shard-000003.safetensors"]
    assert list(source.batches(30)) == []
    for done in (5, 31):
        with pytest.raises(IndexStateError, match="cut in another way"):
            list(source.batches(done))
    source.expect_last("p15")
    assert len(list(source.batches(16))) == 2
    source.expect_last("p14")
    with pytest.raises(InputError, match=r"expected passage 16 of the input to be 'p14'.*found 'p15'"):
        list(source.batches(16))


def test_appending_shards_to_an_index_made_from_a_corpus(encoded, tmp_path, tiny_model, make_records):
    from sparta.shards.encode import encode_corpus

    corpus, _, options = encoded
    index = IndexFolder(tmp_path / "index")
    write_index(index, corpus_source(corpus, tiny_model, options), WriteOptions(ram_buffer_mb=16))
    more = tmp_path / "more.jsonl"
    more.write_text("".join(json.dumps(r) + "\n" for r in make_records(5, seed=9, prefix="q")))
    encode_corpus(more, tmp_path / "more", tiny_model, options)
    source = vectors_source([tmp_path / "more"])
    assert write_index(index, source, WriteOptions("append", ram_buffer_mb=16)).documents == 35


def test_shards_that_do_not_belong_together(encoded, tmp_path, make_tiny_model, tiny_model, make_records):
    from sparta.shards.encode import encode_corpus

    corpus, folders, options = encoded
    with pytest.raises(InputError, match="a gap"):
        list(vectors_source(folders[1:]).batches(0))
    other = tmp_path / "other.jsonl"
    other.write_text("".join(json.dumps(r) + "\n" for r in make_records(30, seed=5)))
    second = make_tiny_model(tiny_model.config, seed=3)
    for source, model, change, named in (
        (corpus, second, {}, "model"),
        (corpus, tiny_model, {"top_k": 3}, "top_k"),
        (other, tiny_model, {}, "corpus"),
    ):
        folder = tmp_path / f"strange-{named}"
        encode_corpus(source, folder, model, replace(options, part=(1, 2), **change))
        with pytest.raises(InputError, match=f"found another {named}") as caught:
            vectors_source([folders[0], folder])
        assert caught.value.where == str(folder)


def test_unfinished_shards_are_refused(encoded):
    _, folders, _ = encoded
    path = folders[0] / "manifest.json"
    path.write_text(path.read_text().replace('"complete": true', '"complete": false'))
    with pytest.raises(InputError, match="still to be completed"):
        vectors_source(folders)


def test_a_corpus_is_encoded_only_from_where_it_goes_on(
    tmp_path, tiny_model, make_records, write_jsonl, one_thread
):
    from sparta.shards.encode import EncodeOptions

    corpus = write_jsonl(tmp_path / "corpus.jsonl", make_records(30, seed=4))
    source = corpus_source(corpus, tiny_model, EncodeOptions(shard_size=8, dtype="fp32"))
    whole = list(source.batches(0))
    rest = list(source.batches(16))
    assert [len(b) for b in rest] == [8, 6]
    for ours, theirs in zip(rest, whole[2:], strict=True):
        assert ours.passage_ids == theirs.passage_ids
        np.testing.assert_array_equal(ours.impacts, theirs.impacts)
    assert source.describe()["read"] == 30


# ---------------------------------------------------------------- disks


@pytest.fixture
def mounted(tmp_path) -> Iterator[Callable[..., Path]]:
    """Mount a disk at a folder, where that is allowed."""
    points: list[Path] = []

    def mount(*arguments: str) -> Path:
        point = tmp_path / f"disk{len(points)}"
        point.mkdir()
        if os.geteuid() or subprocess.run(["mount", *arguments, point], capture_output=True).returncode:
            pytest.skip("needs the right to mount a disk")
        points.append(point)
        return point

    yield mount
    for point in points:
        subprocess.run(["umount", point], check=True)


def test_a_full_disk_leaves_the_last_commit(mounted, side, docs, tiny_vocabulary):
    builder = Builder(IndexFolder(mounted("-t", "tmpfs", "-o", "size=2m", "none") / "index"), side)
    a = docs("a", 10)
    builder.write(builder.source(a))
    words = [t for t in tiny_vocabulary if t.isalpha()]
    rng = random.Random(1)
    large = [
        Doc(f"b{i}" + "x" * 400, {w: rng.randint(1, 10**6) for w in rng.sample(words, 150)})
        for i in range(1500)
    ]
    source = builder.source(large, name="b", size=500)
    with pytest.raises(StorageError) as caught:
        builder.write(source, "append")
    assert "room" in caught.value.remedy or "space" in caught.value.remedy
    assert builder.contents() == a
    assert builder.folder.state().live.complete
    small = docs("c", 3)
    builder.write(builder.source(small, name="c"), "append")
    assert builder.contents() == a + small


def test_a_read_only_folder_can_be_searched_and_not_written(mounted, builder, docs):
    a = docs("a", 10)
    builder.write(builder.source(a))
    expected = builder.ranking("moon")
    point = mounted("--bind", "-o", "ro", str(builder.folder.path))
    subprocess.run(["mount", "-o", "remount,bind,ro", point], check=True)
    frozen = Builder(IndexFolder(point), builder.side)
    assert frozen.contents() == a
    assert frozen.ranking("moon") == expected
    for mode in ("create", "append", "overwrite", "update"):
        with pytest.raises(StorageError):
            frozen.write(frozen.source(docs("b", 2), name="b"), mode)
    with pytest.raises(StorageError):
        delete_passages(frozen.folder, ["a1"])
    fresh = Builder(IndexFolder(point / "inside"), builder.side)
    with pytest.raises(SpartaError):
        fresh.write(fresh.source(a))
    assert builder.contents() == a


# ---------------------------------------------------------------- codec


@pytest.mark.parametrize("codec", ["lucene", "fast"])
def test_codec_stays_with_the_index(builder, docs, codec):
    a, b = docs("a", 6), docs("b", 4)
    builder.write(builder.source(a), codec=codec)
    before = builder.ranking("moon")
    builder.write(builder.source(b, name="b"), "append")
    delete_passages(builder.folder, ["a1"])
    assert builder.folder.state().live.codec == codec
    assert builder.contents() == [a[0], *a[2:], *b]
    assert [hit for hit in builder.ranking("moon") if hit[0].startswith("a")] == [
        hit for hit in before if hit[0] != "a1"
    ]
    other = {"lucene": "fast", "fast": "lucene"}[codec]
    with pytest.raises(InputError, match="own codec"):
        builder.write(builder.source(docs("c", 2), name="c"), "append", codec=other)


def test_resuming_checks_where_the_input_was_left(tiny_model, tmp_path):
    from sparta.index.sources import corpus_source
    from sparta.shards.encode import EncodeOptions

    corpus = tmp_path / "c.jsonl"
    corpus.write_text("".join(json.dumps({"id": f"p{i}", "text": "the moon"}) + "\n" for i in range(10)))

    def source():
        return corpus_source(corpus, tiny_model, EncodeOptions(shard_size=4))

    good = source()
    good.expect_last("p3")
    assert [i for batch in good.batches(4) for i in batch.passage_ids] == [f"p{i}" for i in range(4, 10)]
    for done, last in ((4, "other"), (11, "p9")):
        bad = source()
        bad.expect_last(last)
        with pytest.raises(InputError, match="written last"):
            list(bad.batches(done))
