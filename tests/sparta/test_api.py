"""`Index`: what it accepts, what it refuses, writes from several threads, and its end."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparta import Bm25, Hit, Index, IndexOptions, IndexReader, Page, Ranking, Retriever
from sparta.base.errors import IndexStateError, InputError, JavaError
from sparta.search.retriever import hit_of

pytestmark = pytest.mark.jvm

PASSAGES = [
    {
        "id": "fox",
        "text": "the red fox",
        "lang": "en",
        "year": np.int64(1990),
        "score": np.float32(0.5),
        "is_red": np.bool_(True),
        "day": np.datetime64("2020-01-02"),
    },
    {"id": np.int64(3), "text": "the moon of the earth", "lang": "en", "year": 2000},
]


@pytest.fixture(scope="module")
def folder(tiny_model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("api") / "index"
    Index.create(path, PASSAGES, options=IndexOptions(model=str(tiny_model_folder), dtype="fp32")).close()
    return path


@pytest.fixture
def index(folder: Path) -> Iterator[Index]:
    with Index(str(folder)) as opened:
        yield opened


Call = Callable[..., object]
NEW = [{"id": "new", "text": "red"}]
REFUSED: dict[str, tuple[Call, str]] = {
    "a text for queries": (lambda ix: ix.batch_search("red"), "a list of queries, found str"),
    "a dictionary for queries": (lambda ix: ix.run({"q1": "red fox"}), "a list of queries, found dict"),
    "a retriever": (lambda ix: ix.retriever().run("red", ["1"]), "a list of queries, found str"),
    "a query": (lambda ix: ix.explain(None, "fox"), "the query must be a string"),
    "threads": (lambda ix: ix.run(["red"], threads=0), "threads must be at least 1"),
    "no threads": (lambda ix: ix.run(["red"], threads=None), "threads must be a whole number"),
    "a channel": (lambda ix: ix.search("red", channel=5), "unknown channel 5"),
    "channels": (lambda ix: ix.search("red", channel=["bm25"]), r"unknown channel \['bm25'\]"),
    "an empty field": (
        lambda ix: ix.search("red", collapse=""),
        "collapse must be the name of a metadata field, found ''",
    ),
    "a field": (
        lambda ix: ix.search("red", collapse=5),
        "collapse must be the name of a metadata field, found 5",
    ),
    "fields": (lambda ix: ix.run(["red"], collapse=["lang"]), "must be the name of a metadata field, found"),
    "terms": (lambda ix: ix.terms("fox", -1), "n must be at least 1"),
    "no passages": (lambda ix: ix.append(None), "the corpus must be a file, a folder or a list of passages"),
    "an id": (lambda ix: ix.delete(5), "a list of passage ids, found int"),
    "ids": (lambda ix: ix.delete([None]), "passage ids must be strings or whole numbers, found None"),
    "options": (lambda ix: ix.append(NEW, options={"bits": 8}), r"must be IndexOptions\(…\), found dict"),
    "options of a sync": (lambda ix: ix.sync(ix.path, options={}), r"must be IndexOptions\(…\), found dict"),
    "channels of an index": (
        lambda ix: ix.append(NEW, options=IndexOptions(channels=1)),
        "channels, found int",
    ),
    "a query of records": (
        lambda ix: ix.append(NEW, options=IndexOptions(query="SELECT 1")),
        "an SQLite dat",
    ),
    "a query encoder": (
        lambda ix: ix.append(NEW, options=IndexOptions(query_encoder="x")),
        "query_encoder must be network or none, found 'x'",
    ),
    "a text field": (lambda ix: ix.append(NEW, options=IndexOptions(text_field=5)), "found int"),
    "a weight": (
        lambda ix: IndexOptions(min_weight="a").for_encoding(),
        "min_weight of at least 0, found 'a'",
    ),
    "seconds": (
        lambda ix: Index(ix.path, refresh_seconds="x"),
        "refresh_seconds must be a number of seconds",
    ),
    "an unknown channel": (lambda ix: IndexReader(ix.path, channels=["x"]), "unknown channel 'x'; known"),
    "a facet": (lambda ix: ix.facets("red", [None]), "names of metadata fields, found None"),
    **{
        f"IndexOptions({name}={value!r})": (
            lambda ix, name=name, value=value: IndexOptions(**{name: value}),
            said,
        )
        for name, value, said in (
            ("model", 5, "the path of a model, found int"),
            ("device", ["cpu"], r"device must be a string, found \['cpu'\]"),
            ("query", 5, "query must be a string, found 5"),
            ("bits", "8", "bits must be a whole number, found '8'"),
            ("threads", "2", "threads must be a whole number, found '2'"),
            ("threads", 1025, "threads must be at most 1024, found 1025"),
            ("commit_seconds", -1, "commit_seconds must be a number of seconds of at least 0, found -1"),
        )
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(index: Index, name: str) -> None:
    call, said = REFUSED[name]
    with pytest.raises(InputError, match=said):
        call(index)


def test_an_unknown_channel_names_those_of_the_index(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparta.api.other_channels", lambda path: ["dense"])
    with pytest.raises(InputError, match="unknown channel 'x'; available channels: impact, bm25, dense"):
        index.search("red", channel="x")


def test_other_forms_of_options_and_filters(index: Index) -> None:
    with pytest.raises(InputError, match="the unit 'passage', but the input has 'sentence'"):
        index.append(NEW, options=IndexOptions(channels=index.channels, unit="sentence"))
    page: Any = Page(filter={"year": 2000})  # type: ignore[arg-type]
    assert [ranking.passage_ids for ranking in index.searcher.rank(["red moon"], page)] == [["3"]]


def test_generators_of_queries(index: Index) -> None:
    asked = {"a": "red fox", "b": "moon"}
    expected = index.run(list(asked.values()), list(asked))
    assert index.run((q for q in asked.values()), (i for i in asked)) == expected
    assert list(index.batch_search(q for q in asked.values())) == ["0", "1"]


def test_numbers_of_numpy(index: Index) -> None:
    assert index.passage("fox")["year"] == 1990
    assert index.passage("fox")["score"] == 0.5
    assert index.passage("fox")["is_red"] is True
    assert index.passage("fox")["day"] == "2020-01-02T00:00:00"
    assert index.passage(3)["text"] == "the moon of the earth"
    for kept in ({"year": np.int64(1990)}, {"year": {"lt": np.float32(1995)}}, {"is_red": np.bool_(True)}):
        assert [hit.passage_id for hit in index.search("red moon", channel="bm25", filter=kept)] == ["fox"]


def test_the_old_key_of_a_text(index: Index) -> None:
    passage = index.passage(3)
    assert list(passage)[:3] == ["id", "title", "text"]
    with pytest.warns(DeprecationWarning, match="The key 'contents' is now 'text'"):
        assert passage["contents"] == passage["text"]


def test_a_retriever_whose_records_have_the_old_key() -> None:
    with pytest.warns(DeprecationWarning, match="The key 'contents' of a record is now 'text'"):
        hit = hit_of("a", 1.0, {"id": "a", "title": "Sun", "contents": "a star", "year": 1990})
    assert hit == Hit("a", 1.0, "Sun", "a star", {"year": 1990})
    assert len({hit, Hit("a", 1.0, "Sun", "a star", {"year": 1990}), Hit("b", 1.0)}) == 2


class Nothing(Retriever):
    """A retriever with what docs/python.md says that it needs."""

    num_docs, tokenizer, language, unit = 0, None, "en", "passage"  # type: ignore[assignment]

    def rank(self, queries: Sequence[str], page: Page, threads: int = 1) -> list[Ranking]:
        return [Ranking() for _ in queries]

    def records(self, docids: Sequence[int]) -> list[dict[str, Any]]:
        return []


def test_a_retriever_of_a_user_is_closed_and_not_copied() -> None:
    with Nothing() as retriever:
        assert retriever.search("red") == []
    with pytest.raises(
        TypeError, match=r"^a Nothing cannot be pickled or copied: make a new one in the other"
    ):
        pickle.dumps(retriever)


@pytest.mark.parametrize("wrong", [{"k1": 1.0, "b": 0.5}, Bm25("x", 0.5), (0.9, 0.4)])
def test_parameters_of_bm25(folder: Path, wrong: Any) -> None:
    with pytest.raises(InputError, match=r"bm25 must be Bm25\(k1=…, b=…\)"):
        Index(folder, bm25=wrong)


def test_no_path() -> None:
    with pytest.raises(InputError, match="the path of an index folder, found int"):
        Index(5)


def test_its_repr_says_what_it_holds(folder: Path) -> None:
    with Index(folder) as index:
        shown = f"<Index {folder.resolve()}: {len(index):,} passages, channels {', '.join(index.channels)}>"
        assert repr(index) == shown
    assert repr(index) == f"<Index {folder.resolve()}: closed>"


def test_in_a_fork(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java's threads do not survive a fork, so the index can only be shown and closed there."""
    with Index(folder) as index, monkeypatch.context() as fork:
        fork.setattr(os, "getpid", lambda: -1)
        assert repr(index).endswith("and cannot be used in its fork, process -1>")
        with pytest.raises(JavaError):
            index.search("red")
        index.close()
        assert repr(index).endswith(": closed>")


def test_after_its_end(folder: Path) -> None:
    closed = Index(folder)
    closed.close()
    for call in (closed.refresh, closed.__enter__, lambda: closed.search("red")):
        with pytest.raises(IndexStateError, match="the index is closed"):
            call()


def test_passages_that_write_to_their_index_are_refused(tmp_path: Path) -> None:
    with Index.create(tmp_path / "ix", PASSAGES, options=IndexOptions(channels="bm25")) as index:

        def passages() -> Iterator[dict[str, str]]:
            index.delete(["fox"])
            yield {"id": "new", "text": "red"}

        with pytest.raises(IndexStateError, match="this thread is writing to the index already"):
            index.append(passages())
        assert index.delete(["fox"]) == 1


@pytest.mark.parametrize("is_closed", [False, True])
def test_an_index_searches_what_a_failed_write_committed(tmp_path: Path, is_closed: bool) -> None:
    """The error is the write's, also if the index can no longer be searched."""
    options = IndexOptions(channels="bm25", commit_seconds=0)
    with Index.create(tmp_path / "ix", PASSAGES, options=options) as index:

        def passages() -> Iterator[dict[str, str]]:
            for number in range(2500):  # the writer commits the first 1,000
                yield {"id": f"new{number}", "text": "zebra"}
            if is_closed:
                index.close()
            raise ConnectionError

        with pytest.raises(ConnectionError):
            index.append(passages(), options=options)
        assert is_closed or len(index) == len(PASSAGES) + 1000


def test_what_python_is_told_works_in_python(tmp_path: Path) -> None:
    options = IndexOptions(channels="bm25")
    with Index.create(tmp_path / "ix", PASSAGES, options=options) as index:
        with pytest.raises(IndexStateError, match=r"with Index\.append, .* or name another path") as told:
            Index.create(tmp_path / "ix", PASSAGES[:1], options=options)
        assert "with --append, " in told.value.for_command_line()
        assert "name another --index" in told.value.for_command_line()
        with pytest.raises(InputError, match=r'as filter={"lang": "en"}, ') as told:
            index.search("red", filter="lang=en")  # type: ignore[arg-type]  # a wrong type is the case
        assert "--filter lang=en," in told.value.for_command_line()
        assert index.search("red", filter={"lang": "en"})
    with pytest.raises(IndexStateError, match="another index with path or"):
        Index(tmp_path / "none")


def test_remedies_in_python_name_arguments_of_python(tmp_path: Path) -> None:
    """Also where the command line has an option or a command."""
    path, options, resumed = tmp_path / "ix", IndexOptions(channels="bm25"), "IndexOptions(resume=True)"

    def failing() -> Iterator[dict[str, str]]:
        yield {"id": "1", "text": "red"}
        raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        Index.create(path, failing(), options=options)
    with pytest.raises(IndexStateError, match="holds no passages yet") as told:
        Index(path)
    assert f"from the same records with {resumed}; if" in str(told.value.remedy)
    assert "use overwrite=True instead" in str(told.value.remedy)
    assert "--resume" not in told.value.for_command_line()  # no command can read the records again
    with Index.create(path, PASSAGES, options=replace(options, resume=True)) as index:
        with pytest.raises(InputError) as told:
            index.append(PASSAGES[:1])
        assert str(told.value.remedy).endswith(" or replace passages with: Index.update")
        assert told.value.for_command_line().endswith(f"with: sparta update --corpus FILE --index {path}")
        with pytest.raises(InputError) as told:
            index.append([{"id": "", "text": "red"}])
        assert "(for an index: IndexOptions(skip_invalid=True))" in str(told.value.remedy)
        assert told.value.for_command_line().endswith("skip such records with --skip-invalid")


@pytest.mark.slow
def test_threads_write_through_one_index(tmp_path: Path) -> None:
    options = IndexOptions(channels="bm25")
    with Index.create(tmp_path / "index", [{"id": "0", "text": "red"}], options=options) as index:

        def write(number: int) -> None:
            index.append([{"id": f"a{number}", "text": "fox"}, {"id": f"b{number}", "text": "fox"}])
            index.delete([f"b{number}"])

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(4)))
        assert {hit.passage_id for hit in index.search("fox")} == {"a0", "a1", "a2", "a3"}
