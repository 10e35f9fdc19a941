"""Channels side by side, on channels that are made up."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

import hybrid.retrieval.channels
from hybrid.retrieval.channels import Channels
from hybrid.retrieval.fusion import Fusion
from hybrid.retrieval.hits import fused
from hybrid.retrieval.searcher import HybridSearcher, open_retriever
from sparta.base.errors import IndexStateError, InputError, JavaError
from sparta.base.filters import Filter
from sparta.base.records import Ranking, ScoredPassage
from sparta.index.reader import IndexReader
from sparta.lucene.bridge import Bm25
from sparta.lucene.jvm import start_jvm
from sparta.rerank.reranked import reranked
from sparta.search.retriever import Page, Retriever
from sparta.search.searcher import Searcher
from tests.sparta.rerank.cross_encoders import save_cross_encoder


class Fake(Retriever):
    """A channel whose answers are known: {question: {passage id: score}}, best first."""

    num_docs, tokenizer, language, unit = 3, None, "en", "passage"  # type: ignore[assignment]

    def __init__(
        self, answers: dict[str, dict[str, float]], wait: float = 0.0, fails: bool = False, name: str = ""
    ) -> None:
        self.name = name
        self.answers, self.wait, self.fails = answers, wait, fails
        self.closed = False
        self.other: Fake | None = None
        self.threads: set[int] = set()
        self.searches: list[tuple[float, float]] = []  # when each began and ended
        self.filters: list[object] = []
        self.groups: dict[int, str] = {}

    def rank(self, queries: Sequence[str], page: Page, threads: int = 1) -> list[Ranking]:
        self.filters.append(page.filter)
        self.threads.add(threading.get_ident())
        began = time.monotonic()
        time.sleep(self.wait)
        self.searches.append((began, time.monotonic()))
        if self.fails:
            raise IndexStateError("the index is gone")
        return [self._ranking(list(self.answers[q].items())[: page.k]) for q in queries]

    def _ranking(self, best: list[tuple[str, float]]) -> Ranking:
        return Ranking([p for p, _ in best], [DOCIDS.index(p) for p, _ in best], [score for _, score in best])

    def rank_both(
        self, queries: Sequence[str], page: Page, threads: int = 1
    ) -> tuple[list[Ranking], list[Ranking]]:
        assert self.other
        return self.rank(queries, page), self.other.rank(queries, page)

    def records(self, docids: Sequence[int]) -> list[dict[str, Any]]:
        return [{"text": f"{self.name} {docid}"} for docid in docids]

    def keys(self, docids: Sequence[int], field: str) -> list[str | None]:
        return [self.groups.get(docid) for docid in docids]

    def close(self) -> None:
        self.closed = True


class NoReader(IndexReader):
    """The reader of made-up channels."""

    def __init__(self) -> None:
        pass

    @contextmanager
    def holding(self, snapshot: Any = None) -> Iterator[Any]:
        yield snapshot


DOCIDS = ["a", "b", "c", "d"]
Make = Callable[..., dict[str, Fake]]


@pytest.fixture
def channels(monkeypatch: pytest.MonkeyPatch) -> Make:
    """A function that puts made-up channels in the place of those of an index; they come back."""

    def make(**made: Fake) -> dict[str, Fake]:
        if {"impact", "bm25"} <= made.keys():
            made["impact"].other = made["bm25"]
        monkeypatch.setattr(hybrid.retrieval.channels, "open_channel", lambda _index, name: made[name])
        return made

    return make


FOUND = {
    "bm25": {"q": {"b": 9.0, "d": 5.0}},
    "impact": {"q": {"a": 30.0, "b": 20.0, "c": 10.0}},
    "dense": {"q": {"c": 1.0}},
}


def test_the_former_name_of_impact_is_understood(channels: Make) -> None:
    channels(**{n: Fake(f) for n, f in FOUND.items()})
    found = {}
    for name in ("sparta", "impact"):
        with HybridSearcher(NoReader(), Fusion({name: 1.0, "bm25": 1.0})) as searcher:
            found[name] = searcher.search("q", 3)
    assert found["sparta"] == found["impact"]


@pytest.mark.slow
def test_dense_search_runs_beside_the_others(channels: Make) -> None:
    waits = {"bm25": 0.1, "impact": 0.1, "dense": 0.5}  # made-up ones of Lucene's come one after the other
    opened = channels(**{n: Fake(f, wait=waits[n]) for n, f in FOUND.items()})
    fusion = Fusion({"impact": 1.0, "bm25": 1.2, "dense": 0.5})
    with HybridSearcher(NoReader(), fusion) as searcher:
        hits = searcher.search("q", 3)
        (dense_began, dense_ended), *_ = opened["dense"].searches
        others = [opened[name].searches[0] for name in ("bm25", "impact")]
        assert all(began < dense_ended and dense_began < ended for began, ended in others), "side by side"
        expected = fusion.fuse(
            {n: [ScoredPassage(*pair) for pair in own["q"].items()] for n, own in FOUND.items()}, 3
        )
        assert [(h.passage_id, h.score) for h in hits] == expected
        ranks = {
            h.passage_id: {n: p.rank for n, p in h.channels.items() if p.rank}
            for h in searcher.search("q", 10)
        }
        assert ranks == {
            "a": {"impact": 1},
            "b": {"impact": 2, "bm25": 1},
            "c": {"impact": 3, "dense": 1},
            "d": {"bm25": 2},
        }
        batch = searcher.batch_search(["q", "q"], ["1", "2"], 10)
        assert batch["1"] == batch["2"] == searcher.search("q", 10)
        assert searcher.num_docs == 3
        assert searcher.run(["q"], ["1"], 3) == {"1": expected}
        with pytest.raises(InputError, match="every query needs one query id"):
            searcher.batch_search(["q"], [])
        with pytest.raises(InputError, match="k must be at least 1"):
            searcher.search("q", 0)
    assert all(fake.closed for fake in opened.values())
    assert len({thread for fake in opened.values() for thread in fake.threads}) == 2
    assert threading.get_ident() in opened["dense"].threads, "torch works in the caller's thread"


def test_a_channel_that_fails(channels: Make) -> None:
    opened = channels(bm25=Fake(FOUND["bm25"], fails=True), impact=Fake(FOUND["impact"], wait=0.1))
    with Channels(NoReader(), ["impact", "bm25"]) as pair:
        with pytest.raises(IndexStateError, match="the index is gone"):
            pair.search("q", 5)
        assert pair.search("q", 5, ["impact"])["impact"].passage_ids[0] == "a"
    assert all(fake.closed for fake in opened.values())


def test_the_dense_side_fails_when_the_other_is_done(channels: Make) -> None:
    opened = channels(bm25=Fake(FOUND["bm25"], wait=0.1), dense=Fake(FOUND["dense"], fails=True))
    with Channels(NoReader(), ["bm25", "dense"]) as pair:
        started = time.monotonic()
        with pytest.raises(IndexStateError, match="the index is gone"):
            pair.search("q", 5)
        assert time.monotonic() - started > 0.09
        assert pair.search("q", 5, ["bm25"])["bm25"].passage_ids == ["b", "d"]
    with pytest.raises(IndexStateError, match="the channels are closed"):
        pair.search("q", 5)
    assert all(fake.closed for fake in opened.values())


def test_a_hit_leads_to_the_first_channel_that_found_it() -> None:
    """Of a document in an index of chunks, two channels may have found two chunks."""
    rankings = {"dense": Ranking(["a"], [7], [1.0]), "bm25": Ranking(["a", "b"], [3, 4], [2.0, 1.0])}
    best = fused(Fusion({"dense": 1.0, "bm25": 1.0}), rankings, Page(5))
    assert (list(best.passage_ids), best.docids) == (["a", "b"], [7, 4])
    assert best.places() == [
        {"dense": (1, 1.0, 0.5), "bm25": (1, 2.0, 0.5)},
        {"dense": (None, None, -0.5), "bm25": (2, 1.0, -0.5)},
    ]
    assert best[1:].places() == best.places()[1:]
    assert best.at([1]).docids == [4]


def test_closing_again_does_nothing(channels: Make) -> None:
    before = threading.active_count()
    made = channels(bm25=Fake(FOUND["bm25"]), dense=Fake(FOUND["dense"]))
    opened = Channels(NoReader(), ["bm25", "dense"])
    opened.close()
    assert all(fake.closed for fake in made.values())
    assert threading.active_count() == before
    opened.close()
    assert threading.active_count() == before
    with pytest.raises(IndexStateError, match="the channels are closed"):
        opened.search("q", 5)


@pytest.mark.jvm
def test_a_fork_has_no_thread_that_answers(channels: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    channels(bm25=Fake(FOUND["bm25"]), dense=Fake(FOUND["dense"]))
    start_jvm()
    with Channels(NoReader(), ["bm25", "dense"]) as pair, monkeypatch.context() as fork:
        fork.setattr(os, "getpid", lambda: -1)
        with pytest.raises(JavaError, match="cannot be used in its fork"):
            pair.search("q", 5)


def test_channels_while_python_ends(channels: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function of `atexit` may search and close: at that time, no thread starts."""
    monkeypatch.setattr("concurrent.futures.thread._shutdown", True)
    channels(bm25=Fake(FOUND["bm25"]), dense=Fake(FOUND["dense"]))
    with Channels(NoReader(), ["bm25", "dense"]) as pair:
        rankings = pair.search("q", 5)
    assert [rankings[name].passage_ids for name in ("bm25", "dense")] == [["b", "d"], ["c"]]


def test_an_unknown_channel() -> None:
    with pytest.raises(InputError, match="unknown channel 'splade'"):
        Channels(Path("nowhere"), ["splade"])


def test_no_torch_without_the_dense_channel() -> None:
    code = """
import sys
from contextlib import contextmanager
from pathlib import Path
import hybrid.evaluation.compare, hybrid.evaluation.tune
from hybrid.retrieval.channels import Channels
from sparta.base.errors import IndexStateError
try:
    Channels(Path("nowhere"), ["impact", "bm25"])
except IndexStateError:
    print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "False\n", done.stderr


def test_filters_pages_and_groups_of_a_fused_ranking(channels: Make) -> None:
    opened = channels(**{n: Fake(f, name=n) for n, f in FOUND.items()})
    fusion = Fusion({"impact": 1.0, "bm25": 1.2, "dense": 0.5}, candidates=4)
    kept = {"lang": "en"}
    with HybridSearcher(NoReader(), fusion) as searcher:
        whole = searcher.search("q", 4, filter=kept)
        assert searcher.search("q", 2, offset=1) == whole[1:3]
        assert searcher.run(["q"], ["1"], 2, offset=2, filter=kept)["1"] == [
            (h.passage_id, h.score) for h in whole[2:4]
        ]
        for fake in opened.values():
            assert fake.filters == [Filter.of(kept), None, Filter.of(kept)]
        opened["impact"].groups = {0: "x", 1: "y", 2: "x"}  # of a, b, c; d has none
        ids = [h.passage_id for h in whole]
        later = max("ac", key=ids.index)
        assert searcher.keys([0, 3], "title") == ["x", None]  # a retriever over this searcher can group too
        found = [h.passage_id for h in searcher.search("q", 4, collapse="title")]
        assert found == [i for i in ids if i != later]
        assert searcher.search("q", 1, offset=1, collapse="title")[0].passage_id == found[1]
        for call in (searcher.search, lambda *a, **o: searcher.batch_search(["q"], ["1"], *a[1:], **o)):
            with pytest.raises(
                InputError, match=r"ranks 4 to 5 need more than the 4 candidates(.|\n)*candidates=5"
            ):
                call("q", 2, offset=3)
            with pytest.raises(InputError, match=r"ranks 1 to 5 need more than the 4 candidates"):
                call("q", 5)
        with pytest.raises(InputError, match=r"ranks 1 to 5 need more than the 4 candidates"):
            searcher.run(["q"], ["1"], 5)


@pytest.mark.parametrize("query", [None, 5, ["q"], "\ud800"])
def test_what_is_no_query(channels: Make, query: Any) -> None:
    channels(**{n: Fake(f) for n, f in FOUND.items()})
    with (
        HybridSearcher(NoReader(), {"impact": 1, "bm25": 1}) as searcher,
        pytest.raises(InputError, match=r"the query must be a string|lone surrogate"),
    ):
        searcher.search(query)


@pytest.mark.parametrize("queries", ["q", {"1": "q"}, [None]])
def test_what_is_no_list_of_queries(channels: Make, queries: Any) -> None:
    channels(**{n: Fake(f) for n, f in FOUND.items()})
    with HybridSearcher(NoReader(), {"impact": 1, "bm25": 1}) as searcher:
        for ask in (searcher.batch_search, searcher.run):
            with pytest.raises(InputError, match="queries"):
                ask(queries, ["1"])
            with pytest.raises(InputError, match="threads must be"):
                ask(["q"], ["1"], threads=0)
            with pytest.raises(InputError, match="must be the name of a metadata field"):
                ask(["q"], ["1"], collapse=5)


def test_what_is_no_fusion_and_no_channels() -> None:
    with pytest.raises(InputError, match="found 5"):
        HybridSearcher("nowhere", 5)
    for nothing in ([], "bm25"):
        with pytest.raises(InputError, match=r"\bchannels?\b"):
            Channels("nowhere", nothing)


def test_rankings_of_other_settings_have_other_names(built_dense_index: Path) -> None:
    """A reader's threshold holds for the ranking that it was tuned on."""
    weights = {"impact": 1.0, "bm25": 1.2}

    def name(fusion: Fusion, bm25: Bm25 | None = None) -> str:
        with HybridSearcher(built_dense_index, fusion, bm25=bm25) as searcher:
            return searcher.ranking_name

    assert name(Fusion(weights)) == name(Fusion(weights), Bm25()) == "bm25=1.2,impact"
    assert name(Fusion(weights, "rrf")) == "bm25=1.2,impact(method=rrf)"
    assert name(Fusion(weights, candidates=20)) == "bm25=1.2,impact(candidates=20)"
    assert name(Fusion(weights), Bm25(2, 0.9)) == "bm25=1.2,impact(k1=2,b=0.9)"
    assert name(Fusion({"impact": 1.0}), Bm25(2, 0.9)) == "impact"
    with Searcher(built_dense_index, bm25=Bm25(2, 0.9)) as searcher:
        assert searcher.ranking_name == "impact"
        assert searcher.beside("bm25").ranking_name == "bm25(k1=2,b=0.9)"


def test_an_open_index_keeps_its_parameters_and_channels(built_dense_index: Path) -> None:
    with Channels(built_dense_index, ["bm25"]) as channels:
        reader, other = channels.reader, Bm25(2, 0.9)
        for attempt in (
            lambda: Searcher(reader, channel="bm25", bm25=other),
            lambda: open_retriever(reader, "bm25", bm25=other),
            lambda: HybridSearcher(channels, bm25=other),
            lambda: Channels(reader, ["bm25"], other),
        ):
            with pytest.raises(InputError, match="the open index has other parameters of BM25"):
                attempt()
        assert Searcher(reader, channel="bm25", bm25=Bm25()).ranking_name == "bm25"
        with pytest.raises(IndexStateError, match="the open channels lack impact; they are bm25"):
            HybridSearcher(channels, {"bm25": 1, "impact": 1})


def test_reranked_rankings_have_names_of_their_own(
    built_dense_index: Path, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    folder = save_cross_encoder(tiny_tokenizer, tmp_path / "cross")
    with HybridSearcher(built_dense_index, {"impact": 1.0, "bm25": 1.2}) as searcher:
        names = [reranked(searcher, folder, depth).ranking_name for depth in (5, 20)]
        (folder / "config.json").write_text((folder / "config.json").read_text() + " ")  # another hash
        names.append(reranked(searcher, folder, 5).ranking_name)
    assert len(set(names)) == 3
    assert all(name.startswith("bm25=1.2,impact+rerank(cross-") for name in names)
