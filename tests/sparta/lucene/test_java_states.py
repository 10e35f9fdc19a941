"""States, threads, memory and errors of the Java side; analysis; Pyserini."""

from __future__ import annotations

import errno
import json
import os
import re
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

from sparta.base.errors import (
    IndexStateError,
    InputError,
    JavaError,
    JavaMemoryError,
    NewerFormatError,
    SpartaError,
    StorageError,
)
from sparta.data.languages import LANGUAGES
from sparta.lucene import bridge as lucene
from sparta.lucene import jvm
from sparta.lucene.bridge import ImpactSearcher, ImpactWriter
from tests.sparta.lucene.collections_of_impacts import random_query

ROOT = Path(__file__).parents[3]


@pytest.mark.jvm
def test_states_of_the_folder(tmp_path):
    with pytest.raises(IndexStateError, match="there is no Lucene index"):
        ImpactSearcher(tmp_path / "none")
    with pytest.raises(IndexStateError, match="there is no Lucene index"):
        lucene.check_index(tmp_path / "none")
    with pytest.raises(IndexStateError, match="the commit was removed"):
        lucene.commit_files(tmp_path / "none", 1)
    assert not (tmp_path / "none").exists()
    with pytest.raises(InputError, match="unknown language 'xx'; known languages: ar"):
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


@pytest.mark.slow
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


@pytest.mark.slow
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
                print("ran out of memory" in error.message and "SPARTA_JVM_HEAP=128m" in str(error.remedy))
"""


@pytest.mark.slow
@pytest.mark.jvm
def test_batch_larger_than_javas_memory(tmp_path):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "SPARTA_JVM_HEAP": "64m"}
    command = [sys.executable, "-c", SMALL_HEAP, str(tmp_path)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n" * 4), done.stderr


@pytest.mark.jvm
def test_the_remedy_for_little_memory_names_no_more_than_the_machine_has(monkeypatch):
    jvm.start_jvm()
    assert re.fullmatch(r"SPARTA_JVM_HEAP=\d+m", jvm.doubled_heap())
    monkeypatch.setattr(jvm, "usable_memory", lambda: 2**26)
    assert jvm.doubled_heap() == "SPARTA_JVM_HEAP"


def thrown(name: str, message: str) -> Exception:
    """An exception as jnius raises it, with a cause."""

    class ThrownError(Exception):
        classname = "java.io.IOException"
        innermessage = f"indexing failed: {name}: {message}"
        stacktrace = (
            "java.io.IOException: indexing failed",
            "a.B.c(B.java:1)",
            "Caused by:",
            f"{name}: {message}",
        )

    return ThrownError()


@pytest.mark.parametrize(
    ("name", "message", "reading", "kind"),
    [
        ("java.lang.OutOfMemoryError", "Java heap space", False, JavaMemoryError),
        ("java.io.IOException", "No space left on device", False, StorageError),
        ("java.nio.file.AccessDeniedException", "/x/write.lock", False, StorageError),
        ("org.apache.lucene.index.IndexFormatTooNewException", "version 99", True, NewerFormatError),
        ("org.apache.lucene.index.CorruptIndexException", "checksum", True, IndexStateError),
        ("java.nio.file.NoSuchFileException", "_0.cfs", True, IndexStateError),
        ("java.nio.file.AccessDeniedException", "/ix/_0.cfs", True, StorageError),
        ("java.nio.file.FileSystemException", "/ix/_0.cfs: Too many open files", True, StorageError),
        ("java.nio.file.FileSystemException", "/ix/_0.si: Too many open files", False, StorageError),
        ("java.nio.file.FileSystemException", f"/ix/_0.cfs: {os.strerror(errno.ESTALE)}", True, StorageError),
        ("java.nio.file.FileSystemException", f"/ix/_0.cfs: {os.strerror(errno.EIO)}", False, StorageError),
        ("java.io.IOException", os.strerror(errno.ENOTCONN), True, StorageError),
        ("java.lang.ArrayIndexOutOfBoundsException", "Index 9 out of bounds", True, IndexStateError),
        ("java.lang.InternalError", "a fault in an unsafe memory access operation", True, IndexStateError),
        ("java.lang.NullPointerException", "", True, JavaError),
        ("java.lang.UnsupportedOperationException", "no support for Thai", False, JavaError),
    ],
)
def test_translation(name, message, reading, kind):
    """The cause decides, however deeply it is wrapped."""
    error = lucene.translate(thrown(name, message), Path("/x"), reading=reading)
    assert type(error) is kind
    assert message in error.message
    assert error.where == "/x"
    assert error.remedy
    if "OutOfMemory" in name:
        assert "SPARTA_JVM_HEAP" in str(error.remedy)
    if "Too many" in message:
        assert "ulimit -n" in str(error.remedy)
    if "file handle" in message or "I/O" in message:
        assert "dmesg" in str(error.remedy)
    if "Thai" in message:
        assert "SPARTA_JAVA_HOME" in str(error.remedy)


@pytest.mark.parametrize(
    ("reason", "advice"), [("Map failed", "vm.max_map_count"), ("No such device", "file system")]
)
def test_a_file_that_cannot_be_mapped_into_memory(reason, advice):
    """Lucene's message has 400 characters, most of them on limits that are not the reason."""
    message = f'{reason}: MemorySegmentIndexInput(path="/ix/_0.cfs") [this may be caused by lack of enough …'
    error = lucene.translate(thrown("java.io.IOException", message), Path("/x"), reading=True)
    assert type(error) is StorageError
    assert error.message == f"the index cannot be mapped into memory ({reason})"
    assert advice in str(error.remedy)


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
    assert refused.value.message.endswith(f"known languages: {', '.join(LANGUAGES)}")


@pytest.mark.slow
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


@pytest.mark.release
@pytest.mark.jvm
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
