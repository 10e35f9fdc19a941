import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparta.base.errors import IndexStateError, InputError, JavaError, SpartaError, StorageError
from sparta.data.languages import LANGUAGES
from sparta.lucene import bridge as lucene
from sparta.lucene.bridge import ImpactSearcher, ImpactWriter

ROOT = Path(__file__).parents[3]
WORDS = (
    "river",
    "stone",
    "founded",
    "google",
    "city",
    "of",
    "light",
    "the",
    "water's",
    "edge",
    "running",
    "king",
)


class Collection:
    """Random impacts as a dense matrix, in a corpus order that is not the order of writing."""

    def __init__(self, seed: int, n: int, vocabulary: int, highest: int, density: float) -> None:
        random = np.random.default_rng(seed)
        self.terms = [f"##t{i}" if i % 2 else f"größe{i}" for i in range(vocabulary)]
        self.ids = [f"id-{i}" for i in range(n)]
        self.positions = random.permutation(n)
        present = random.random((n, vocabulary)) < density
        self.matrix = np.where(present, random.integers(1, highest + 1, (n, vocabulary)), 0)
        self.texts = [" ".join(random.choice(WORDS, 12)) for _ in range(n)]

    def write(self, path: Path, *, batch: int = 97, commits: int = 3, **options: Any) -> None:
        n = len(self.ids)
        with ImpactWriter(path, **options) as writer:
            writer.add_terms(self.terms)
            for start in range(0, n, batch):
                rows = range(start, min(n, start + batch))
                part = self.matrix[rows.start : rows.stop]
                indptr = np.concatenate([[0], np.cumsum((part > 0).sum(1))])
                writer.add(
                    self.ids[rows.start : rows.stop],
                    [json.dumps({"id": self.ids[i]}) for i in rows],
                    self.texts[rows.start : rows.stop],
                    self.positions[rows.start : rows.stop],
                    indptr,
                    np.nonzero(part)[1],
                    part[part > 0],
                )
                if (start // batch) % max(1, n // batch // commits) == 0:
                    writer.commit(f"up to {rows.stop}")
            writer.commit("all")

    def search(self, query: dict[str, int]) -> tuple[list[str], list[float]]:
        """Brute force: ids and scores of all that match, ties by corpus position."""
        columns = [self.terms.index(term) for term in query if term in self.terms]
        weights = np.array([weight for term, weight in query.items() if term in self.terms], np.int64)
        scores = (self.matrix[:, columns] * weights).sum(1)
        order = np.lexsort((self.positions, -scores))
        order = order[self.matrix[order][:, columns].any(1)]
        return [self.ids[i] for i in order], scores[order].tolist()


def random_query(random: np.random.Generator, terms: list[str], *, weighted: bool = False) -> dict[str, int]:
    chosen = random.choice([*terms, "unheard-of"], random.integers(1, 12), replace=False)
    weights = random.integers(1, 16 if weighted else 3, len(chosen))
    return {str(term): int(weight) for term, weight in zip(chosen, weights, strict=True)}


@pytest.fixture(scope="module", params=["lucene", "fast"])
def collection(request, tmp_path_factory: pytest.TempPathFactory) -> tuple[Collection, Path]:
    path = tmp_path_factory.mktemp("index")
    made = Collection(seed=7, n=1500, vocabulary=120, highest=40, density=0.15)
    made.write(path, codec=request.param)
    return made, path


@pytest.mark.jvm
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("highest", "density"), [(3, 0.3), (255, 0.2), (65535, 0.2)])
def test_top_k_equals_brute_force(tmp_path, highest, density, weighted):
    made = Collection(highest, 1200, 80, highest, density)
    made.write(tmp_path, threads=2)
    random = np.random.default_rng(3)
    queries = [random_query(random, made.terms, weighted=weighted) for _ in range(200)]
    expected = [made.search(query) for query in queries]
    with ImpactSearcher(tmp_path) as searcher:
        for k, threads in ((1, 1), (10, 2), (100, 1), (5000, 2)):
            hits = searcher.search_impacts(queries, k, threads)
            assert len(hits) == len(queries)
            found = searcher.ids(hits.docids)
            for q, (ids, scores) in enumerate(expected):
                assert found[hits.indptr[q] : hits.indptr[q + 1]] == ids[:k]
                assert hits.query(q)[1].tolist() == scores[:k]


@pytest.mark.jvm
def test_more_than_java_can_count(collection):
    made, path = collection
    query = random_query(np.random.default_rng(4), made.terms, weighted=False)
    ids, _ = made.search(query)
    with ImpactSearcher(path) as searcher:
        hits = searcher.search_impacts([query, query], 2**40, 2**31)
        assert searcher.ids(hits.query(1)[0]) == ids
        both = searcher.search_both([query], ["no such word"], 2**31, 2**40)
        assert searcher.ids(both.query(0)[0]) == ids
        assert not len(searcher.search_text(["no such word"], 2**31).docids)


@pytest.mark.jvm
def test_reading_back(collection):
    made, path = collection
    with ImpactSearcher(path) as searcher:
        assert searcher.num_docs == 1500
        assert searcher.user_data == "all"
        some = [3, 1499, 0, 700, 3]
        docids = searcher.docids([made.ids[i] for i in some])
        assert searcher.ids(docids) == [made.ids[i] for i in some]
        assert searcher.positions(docids).tolist() == made.positions[some].tolist()
        assert [json.loads(raw)["id"] for raw in searcher.raws(docids)] == [made.ids[i] for i in some]
        assert searcher.docids(["nobody"]).tolist() == [-1]
        for i, docid in zip(some, docids, strict=True):
            assert searcher.impacts(docid, [*made.terms, "unheard-of"]).tolist() == [
                *made.matrix[i].tolist(),
                0,
            ]
            expected = {term: int(x) for term, x in zip(made.terms, made.matrix[i], strict=True) if x}
            assert searcher.vector(docid) == expected
        assert sorted(searcher.ids(searcher.live())) == sorted(made.ids)


@pytest.mark.jvm
def test_rank(collection):
    made, path = collection
    query = {made.terms[0]: 1, made.terms[5]: 2, made.terms[9]: 1}
    ids, _ = made.search(query)
    with ImpactSearcher(path) as searcher:
        for rank in (1, 2, 17, len(ids)):
            assert searcher.rank(query, searcher.docids([ids[rank - 1]])[0]) == rank
        outsider = next(id_ for id_ in made.ids if id_ not in set(ids))
        assert searcher.rank(query, searcher.docids([outsider])[0]) == 0


@pytest.mark.jvm
@pytest.mark.parametrize("budget", [1, 5000, 10**9])
def test_postings(collection, budget):
    made, path = collection
    rows = {id_: i for i, id_ in enumerate(made.ids)}
    found = np.zeros_like(made.matrix)
    seen: list[str] = []
    with ImpactSearcher(path) as searcher:
        for page in searcher.postings(budget):
            ids = searcher.ids(page.docids)
            for t, term in enumerate(page.terms):
                part = range(page.indptr[t], page.indptr[t + 1])
                found[[rows[ids[i]] for i in part], made.terms.index(term)] = page.impacts[
                    part.start : part.stop
                ]
            seen += page.terms
    assert np.array_equal(found, made.matrix)
    assert seen == sorted(seen, key=str.encode)


@pytest.mark.jvm
def test_empty_queries_and_large_k(collection):
    _, path = collection
    with ImpactSearcher(path) as searcher:
        hits = searcher.search_impacts([{}, {"unheard-of": 1}], 10**9, threads=4)
        assert hits.indptr.tolist() == [0, 0, 0]
        assert len(searcher.search_impacts([], 10)) == 0
        assert searcher.search_text(["", "the of", "!?"], 10).indptr.tolist() == [0, 0, 0, 0]
        assert searcher.ids([]) == []


@pytest.mark.jvm
def test_passage_without_impacts_is_found_by_text_and_id(tmp_path):
    with ImpactWriter(tmp_path) as writer:
        writer.add(["a"], ["{}"], ["lonely words"], [0], [0, 0], [], [])
        writer.commit("")
    with ImpactSearcher(tmp_path) as searcher:
        assert searcher.docids(["a"]).tolist() == [0]
        assert searcher.search_text(["word"], 5).docids.tolist() == [0]
        assert searcher.vector(0) == {}


@pytest.mark.jvm
def test_update_delete_commit_and_rollback(tmp_path):
    with ImpactWriter(tmp_path) as writer:
        writer.add_terms(["a"])
        writer.add(["x", "y"], ["1", "2"], ["", ""], [0, 1], [0, 1, 2], [0, 0], [5, 6])
        writer.commit("first")
        writer.add(["x"], ["3"], [""], [0], [0, 1], [0], [9], update=True)
        assert writer.delete(["y", "nobody"]) == 1
        with ImpactSearcher(tmp_path) as before:
            assert before.num_docs == 2
            writer.force_merge(1)
            writer.commit("second")
            assert before.search_impacts([{"a": 1}], 9).scores.tolist() == [6.0, 5.0]
        writer.delete(["x"])
        writer.rollback()
    with ImpactSearcher(tmp_path) as searcher:
        assert searcher.user_data == "second"
        hits = searcher.search_impacts([{"a": 1}], 9)
        assert searcher.raws(hits.docids) == ["3"]
        assert hits.scores.tolist() == [9.0]


@pytest.mark.jvm
def test_sentences_are_found_whichever_are_left(tmp_path):
    names = ["p", *(f"p#{n}" for n in range(200)), "p#x", "q#3", "größe#0"]
    n = len(names)
    with ImpactWriter(tmp_path) as writer:
        writer.add(names, ["{}"] * n, [""] * n, range(n), [0] * (n + 1), [], [])
        writer.remove([f"p#{i}" for i in range(150)])
        writer.commit("")
    with ImpactSearcher(tmp_path) as searcher:
        left = [f"p#{i}" for i in range(150, 200)]
        assert searcher.sentences(["p", "größe", "nobody"]) == ["größe#0", *left]
        assert searcher.sentences([]) == []


@pytest.mark.jvm
def test_wrong_batches(tmp_path):
    def add(impacts=(1, 2), term_ids=(0, 1), positions=(0,), ids=("a",)):
        writer.add(list(ids), ["{}"], [""], positions, [0, 2], term_ids, impacts)

    with ImpactWriter(tmp_path) as writer:
        writer.add_terms(["a", "b"])
        for arguments, message in (
            ({"impacts": (1, 0)}, "impact 0 of term id 1"),
            ({"impacts": (1, -4)}, "impact -4"),
            ({"impacts": (1.5, 2.0)}, "impacts: expected one row of integers, found float64"),
            ({"impacts": (1, 2**31)}, "does not fit into int32"),
            ({"impacts": (1,)}, "impacts: expected 2 entries, found 1"),
            ({"term_ids": (0, 2)}, "term id 2 is outside the vocabulary of 2 terms"),
            ({"positions": (0, 1)}, "positions: expected 1 entries, found 2"),
            ({"ids": ("\ud800",)}, "lone surrogate"),
            ({"ids": ("x" * 40_000,)}, "40000 bytes"),
        ):
            with pytest.raises(InputError, match=message):
                add(**arguments)
        with pytest.raises(InputError, match="32767 bytes"):
            writer.add_terms(["ok", "x" * 32_767])
        writer.commit("")
    with ImpactSearcher(tmp_path) as searcher:
        assert searcher.num_docs == 0
        with pytest.raises(InputError, match="has weight -1"):
            searcher.search_impacts([{"a": -1}], 1)
        for weight in (0.5, float("nan")):
            with pytest.raises(InputError, match="query-term weights: expected one row of integers"):
                searcher.search_impacts([{"a": weight}], 1)  # type: ignore[dict-item]
        with pytest.raises(InputError, match="k must be 1 or more"):
            searcher.search_impacts([{"a": 1}], 0)


@pytest.mark.jvm
def test_states_of_the_folder(tmp_path):
    with pytest.raises(IndexStateError, match="there is no Lucene index"):
        ImpactSearcher(tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(InputError, match="unknown language 'xx'; known are ar"):
        ImpactWriter(tmp_path / "none", language="xx")
    path = tmp_path / "index"
    with ImpactWriter(path) as writer:
        with pytest.raises(IndexStateError, match="another writer holds the index"):
            ImpactWriter(path)
        writer.commit("")
        writer.add_terms(["a"])
        writer.add(["x"], ["{}"], [""], [0], [0, 1], [0], [5])
        writer.commit("one")
    with pytest.raises(IndexStateError, match="closed"):
        writer.commit("")
    (tmp_path / "file").touch()
    with pytest.raises(StorageError):
        ImpactWriter(tmp_path / "file")
    segments = next(path.glob("segments_*"))
    segments.write_bytes(segments.read_bytes()[:-20])
    with pytest.raises(IndexStateError, match=r"damaged|cut short"):
        ImpactSearcher(path)


def numbered(folder: Path, n: int, codec: str) -> None:
    """n passages, of which each has one of two terms, with impacts from 1 to 200."""
    with ImpactWriter(folder, codec=codec) as writer:
        writer.add_terms(["even", "odd"])
        terms, impacts = [i % 2 for i in range(n)], [1 + i % 200 for i in range(n)]
        ids, empty = [str(i) for i in range(n)], [""] * n
        writer.add(ids, empty, empty, range(n), range(n + 1), terms, impacts)
        writer.commit("")


@pytest.mark.jvm
def test_a_thread_that_ends_leaves_nothing_in_java(tmp_path):
    """Servers begin and end threads; what Java keeps of each would fill its memory."""
    numbered(tmp_path, 20_000, "fast")

    def ask(searcher: ImpactSearcher) -> None:
        searcher.search_impacts([{"even": 1, "odd": 1}, {"even": 2}], 10)

    with ImpactSearcher(tmp_path) as searcher:
        from jnius import autoclass

        count = autoclass("java.lang.Thread").activeCount
        ask(searcher)
        before = count()
        for _ in range(50):
            thread = threading.Thread(target=ask, args=(searcher,))
            thread.start()
            thread.join()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: ask(searcher), range(20)))
        assert count() <= before + 2


def searched_until_closed(searcher: ImpactSearcher, other: ImpactSearcher, wanted: Any) -> list[Any]:
    """Search until the searcher is closed, then another one; what was not as it should be."""
    query, wrong = [{"even": 1, "odd": 2}] * 4, []
    while True:
        try:
            found = searcher.search_impacts(query, 100, 2)
        except IndexStateError as error:
            wrong += [] if "closed" in error.message else [error]
            break
        wrong += [] if np.array_equal(found.scores, wanted) else [found]
    try:
        other.search_impacts(query, 100, 2)
    except SpartaError as error:
        wrong.append(error)
    return wrong


@pytest.mark.jvm
@pytest.mark.parametrize("codec", ["fast", "lucene"])
def test_closing_does_not_disturb_who_searches(tmp_path, codec):
    """A search that runs comes to its end, and its thread can go on with other indexes."""
    for name in ("a", "b"):
        numbered(tmp_path / name, 9000, codec)
    with ImpactSearcher(tmp_path / "b") as other, ThreadPoolExecutor(3) as pool:
        wanted = other.search_impacts([{"even": 1, "odd": 2}] * 4, 100, 2).scores
        for _ in range(5):
            searcher = ImpactSearcher(tmp_path / "a")
            searching = [pool.submit(searched_until_closed, searcher, other, wanted) for _ in range(3)]
            time.sleep(0.02)
            searcher.close()
            assert [one.result() for one in searching] == [[], [], []]
            with pytest.raises(IndexStateError, match="closed"):
                _ = searcher.num_docs


@pytest.mark.jvm
@pytest.mark.parametrize("codec", ["fast", "lucene"])
def test_scores_beyond_24_bits_are_rounded(tmp_path, codec):
    """Lucene's scores are float32: 2^24 + 1 is none, and ties with 2^24."""
    numbered(tmp_path, 1000, codec)
    with ImpactSearcher(tmp_path) as searcher:
        exact = searcher.search_impacts([{"even": 2**16, "odd": 2**16}], 1000).scores
        assert exact.tolist() == sorted((2**16 * (1 + i % 200) for i in range(1000)), reverse=True)
        with ImpactWriter(tmp_path, codec=codec) as writer:
            writer.add_terms(["one", "many"])
            writer.add(["x", "y"], ["", ""], ["", ""], [1, 0], [0, 2, 3], [0, 1, 1], [1, 2**24, 2**24])
            writer.commit("")
    with ImpactSearcher(tmp_path) as searcher:
        hits = searcher.search_impacts([{"one": 1, "many": 1}], 10)
        assert hits.scores.tolist() == [2**24, 2**24]
        assert searcher.ids(hits.docids) == ["y", "x"]


@pytest.mark.jvm
def test_a_writer_that_cannot_begin_lets_go_of_the_folder(tmp_path):
    with pytest.raises(InputError, match="threads must be 1 to 1024"):
        ImpactWriter(tmp_path, threads=2**28)
    numbered(tmp_path, 10, "lucene")


SMALL_HEAP = """
import sys
import numpy as np
from sparta.base.errors import JavaError
from sparta.lucene.bridge import ImpactSearcher, ImpactWriter
long = "x" * 150_000_000
with ImpactWriter(sys.argv[1]) as writer:
    writer.commit("")
    with ImpactSearcher(sys.argv[1]) as searcher:
        for call in (
            lambda: writer.add(["a"], [long], [""], [0], [0, 0], [], []),
            lambda: writer.delete([long]),
            lambda: searcher.search_text([long], 10),
            lambda: searcher.ids(np.zeros(40_000_000, np.int32)),
        ):
            try:
                call()
            except JavaError as error:
                print("ran out of memory" in error.message and "SPARTA_JVM_HEAP" in error.remedy)
"""


@pytest.mark.jvm
def test_batch_larger_than_javas_memory(tmp_path):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "SPARTA_JVM_ARCHIVE": "off", "SPARTA_JVM_HEAP": "64m"}
    command = [sys.executable, "-c", SMALL_HEAP, str(tmp_path)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n" * 4), done.stderr


@pytest.mark.parametrize(
    ("name", "message", "reading", "kind"),
    [
        ("java.lang.OutOfMemoryError", "Java heap space", False, JavaError),
        ("java.io.IOException", "No space left on device", False, StorageError),
        ("java.nio.file.AccessDeniedException", "/x/write.lock", False, StorageError),
        ("org.apache.lucene.index.IndexFormatTooNewException", "version 99", True, IndexStateError),
        ("org.apache.lucene.index.CorruptIndexException", "checksum", True, IndexStateError),
        ("java.nio.file.NoSuchFileException", "_0.cfs", True, IndexStateError),
        ("java.lang.ArrayIndexOutOfBoundsException", "Index 9 out of bounds", True, IndexStateError),
        ("java.lang.NullPointerException", "", True, JavaError),
    ],
)
def test_translation(name, message, reading, kind):
    """The cause decides, however deeply it is wrapped."""

    class ThrownError(Exception):
        classname = "java.io.IOException"
        innermessage = f"indexing failed: {name}: {message}"
        stacktrace = (
            "java.io.IOException: indexing failed",
            "a.B.c(B.java:1)",
            "Caused by:",
            f"{name}: {message}",
        )

    error = lucene.translate(ThrownError(), Path("/x"), reading=reading)
    assert type(error) is kind
    assert message in error.message
    assert error.where == "/x"
    assert error.remedy
    if "OutOfMemory" in name:
        assert "SPARTA_JVM_HEAP" in error.remedy


def test_string_tables():
    strings = ["", "a", "größer", "東京", "\U0001f600", ""]
    data = lucene.pack_strings(strings)
    assert lucene.unpack_strings(data) == strings
    assert lucene.unpack_strings(b"head" + data, 4) == strings
    assert (
        lucene.pack_strings(["a", "bc"]).hex() == "02000000" + "00000000" + "01000000" + "03000000" + "616263"
    )


SENTENCES = {
    "en": "Google's founders were running the companies' servers at Stanford's U.S. campus — naïvely, 1998!",
    "de": "Die Gründer der Universität führten größere Häuser.",
    "ja": "東京の大学で研究をしています。",
    "zh": "谁创立了谷歌公司？",
    "pl": "Założyciele firm mieszkali w dużych domach.",
    "uk": "Засновники компаній жили у великих будинках.",
    "ar": "أسس الطلاب الشركة في الجامعة",
    "ko": "구글을 설립한 사람은 누구인가",
    "fr": "L'été, les fondateurs voyageaient beaucoup.",
}


@pytest.mark.jvm
def test_the_languages_are_those_of_the_analyzers(tmp_path):
    with pytest.raises(InputError) as refused:
        ImpactWriter(tmp_path / "none", language="none")
    assert refused.value.message.endswith(f"known are {', '.join(LANGUAGES)}")


@pytest.mark.jvm
@pytest.mark.parametrize("language", SENTENCES)
def test_analysis_is_anserinis(tmp_path, language):
    texts = [SENTENCES[language], SENTENCES["en"], "", "x'y a.b 12,5 foo_bar C++"]
    with ImpactWriter(tmp_path, language=language) as writer:
        writer.add([str(i) for i in range(4)], ["{}"] * 4, texts, range(4), [0] * 5, [], [])
        writer.commit("")
    from jnius import autoclass

    utils = autoclass("io.anserini.analysis.AnalyzerUtils")
    if language == "en":
        analyzer = autoclass("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
    else:
        analyzer = autoclass("io.anserini.analysis.AnalyzerMap").getLanguageSpecificAnalyzer(language)
    expected: Counter[str] = Counter()
    for text in texts:
        tokens = utils.analyze(analyzer, text)
        expected.update(tokens.get(i) for i in range(tokens.size()))
    paths, directories = autoclass("java.nio.file.Paths"), autoclass("org.apache.lucene.store.FSDirectory")
    reader = autoclass("org.apache.lucene.index.DirectoryReader").open(
        directories.open(paths.get(str(tmp_path)))
    )
    cursor = reader.leaves().get(0).reader().terms("text").iterator()
    found: Counter[str] = Counter()
    while (term := cursor.next()) is not None:
        found[term.utf8ToString()] = cursor.totalTermFreq()
    reader.close()
    assert found == expected
    assert len(found) > 12


def same_ranking(ours: list[tuple[str, float]], theirs: list[list], precision: float) -> None:
    """Equal order where scores differ, equal sets where they tie; the last group may be cut off."""
    assert len(ours) == len(theirs)
    assert [score for _, score in theirs] == pytest.approx([score for _, score in ours], abs=precision)
    groups: dict[float, list[int]] = {}
    for place, (_, score) in enumerate(ours):
        groups.setdefault(score, []).append(place)
    for places in list(groups.values())[:-1]:
        assert {ours[p][0] for p in places} == {theirs[p][0] for p in places}


@pytest.mark.jvm
@pytest.mark.slow
def test_pyserinis_searchers_give_our_ranking(collection, ask_pyserini):
    made, path = collection
    random = np.random.default_rng(11)
    queries = [random_query(random, made.terms) for _ in range(40)]
    texts = ["who founded google", "city of light", "the king's edge", "unheard-of"]
    k = 50
    theirs = ask_pyserini(path, queries, texts, "id-3", k)
    assert json.loads(theirs["raw"]) == {"id": "id-3"}
    with ImpactSearcher(path) as searcher:
        for hits, rankings in (
            (searcher.search_impacts(queries, k), theirs["sparta"]),
            (searcher.search_text(texts, k), theirs["bm25"]),
        ):
            ids = searcher.ids(hits.docids)
            for q, ranking in enumerate(rankings):
                part = slice(hits.indptr[q], hits.indptr[q + 1])
                ours = list(zip(ids[part], hits.scores[part].tolist(), strict=True))
                same_ranking(ours, ranking, precision=1e-3)
