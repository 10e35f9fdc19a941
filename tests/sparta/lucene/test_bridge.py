"""Impacts cross into Lucene and come back."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from sparta.base.errors import InputError, JavaError
from sparta.lucene.bridge import ImpactSearcher, ImpactWriter
from tests.sparta.lucene.collections_of_impacts import Collection, random_query


@pytest.mark.slow
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
        both = searcher.search([query], ["no such word"], 2**31, 2**40)
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
        assert searcher.ids(searcher.in_corpus_order()) == [made.ids[i] for i in np.argsort(made.positions)]
        in_order = sorted(some, key=lambda i: made.positions[i])
        assert searcher.ids(searcher.in_corpus_order(docids)) == [made.ids[i] for i in in_order]


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
            ({"impacts": (1.5, 2.0)}, "impacts must be a one-dimensional array of integers, found float64"),
            ({"impacts": (1, 2**31)}, "do not fit into int32"),
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
            with pytest.raises(
                InputError, match="query-term weights must be a one-dimensional array of integers"
            ):
                searcher.search_impacts([{"a": weight}], 1)  # type: ignore[dict-item]
        with pytest.raises(InputError, match="k must be 1 or more"):
            searcher.search_impacts([{"a": 1}], 0)


@pytest.mark.jvm
def test_threads_read_their_own_index(tmp_path):
    """pyjnius stores the receiver in the method object, which all searchers share."""
    searchers = []
    for impact in (1, 2, 3):
        with ImpactWriter(tmp_path / str(impact)) as writer:
            writer.add_terms(["t"])
            writer.add(["x"], ["{}"], [f"word{impact}"], [0], [0, 1], [0], [impact])
            writer.commit("")
        searchers.append(ImpactSearcher(tmp_path / str(impact)))

    def faults(number: int) -> list[object]:
        impact = number % 3 + 1
        searcher = searchers[impact - 1]
        expected = ([impact], {"t": impact}, [impact], 1, 1)
        read = (
            (
                searcher.search_impacts([{"t": 1}], 1).scores.tolist(),
                searcher.vector(0),
                searcher.impacts(0, ["t"]).tolist(),
                searcher.rank_text(f"word{impact}", 0),
                len(searcher.word_scores(f"word{impact}", [0])),
            )
            for _ in range(250)
        )
        return [values for values in read if values != expected]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(6) as pool:
            assert list(pool.map(faults, range(6))) == [[]] * 6
    finally:
        sys.setswitchinterval(interval)
        for searcher in searchers:
            searcher.close()


@pytest.mark.jvm
def test_more_threads_than_java_has(tmp_path):
    """An error of pyjnius itself has no class and no message of Java's."""
    with pytest.raises(JavaError, match="pyjnius: No sparta/lucene/ImpactWriter constructor"):
        ImpactWriter(tmp_path, threads=3_000_000_000)
