"""Corpora as streams: counts, fingerprints, look-ahead, repeated ids."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import random
import sqlite3
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from tqdm import tqdm

from sparta.base.errors import InputError, StorageError
from sparta.base.records import Passage
from sparta.data.corpus import open_corpus
from sparta.data.seen_ids import SeenIds
from sparta.shards.store import stored_record
from tests.sparta.data.corpora import small, written


def random_line(rng: random.Random, used: set[str]) -> tuple[str, str]:
    """A line, and what must become of it."""
    kind = rng.choice(["good", "good", "good", "blank", "empty", "duplicate", "broken", "no text", "list"])
    fresh = f"{len(used)}-{rng.getrandbits(40)}"
    if kind == "good" or (kind == "duplicate" and not used):
        used.add(fresh)
        return json.dumps({"id": fresh, "text": "t" * rng.randint(1, 50)}), "good"
    lines = {
        "blank": " " * rng.randint(0, 3),
        "empty": json.dumps({"id": fresh, "text": " "}),
        "duplicate": json.dumps({"_id": rng.choice(sorted(used)) if used else "", "contents": "again"}),
        "broken": '{"id": "' + fresh,
        "no text": json.dumps({"id": fresh}),
        "list": "[]",
    }
    return lines[kind], kind


@pytest.mark.parametrize("seed", range(8))
def test_counts_add_up_at_every_moment(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    sizes = rng.randint(1, 40), rng.choice([1, 200, 1 << 20])
    used: set[str] = set()
    lines = [random_line(rng, used) for _ in range(rng.randint(50, 300))]
    fates = [fate for _, fate in lines]
    reader = open_corpus(
        written(tmp_path / "c.jsonl", "\n".join(line for line, _ in lines)), skip_invalid=True
    )
    reader.batch_records, reader.batch_bytes = sizes
    for count, passage in enumerate(reader, 1):
        number = int(passage.where.rpartition(":")[2])
        before = Counter(fates[:number])
        assert fates[number - 1] == "good"
        assert reader.counts.used == count == before["good"]
        assert reader.counts.read == number - before["blank"]
        assert reader.counts.read == reader.counts.used + reader.counts.skipped
    names = {
        "empty": "empty text",
        "duplicate": "duplicate id",
        "broken": "broken JSON",
        "no text": "missing text",
    }
    expected = Counter(
        names.get(fate, "not a JSON object") for fate in fates if fate not in ("good", "blank")
    )
    assert reader.counts.reasons == expected
    assert reader.counts.used == len(used)
    assert reader.counts.read == len(fates) - fates.count("blank")


def test_a_second_iteration_starts_anew(tmp_path: Path) -> None:
    reader = open_corpus(written(tmp_path / "c.jsonl", small("a", "b")))
    next(iter(reader))
    assert len(list(reader)) == len(list(reader)) == reader.counts.used == 2


def test_the_fingerprint_is_of_the_bytes_as_stored(tmp_path: Path) -> None:
    first = gzip.compress(small("a").encode())
    second = b"\xef\xbb\xbf\r\n" + small("b").encode()
    written(tmp_path / "a.jsonl.gz", first)
    written(tmp_path / "b.jsonl", second)
    reader = open_corpus(tmp_path)
    assert len(list(reader)) == 2
    assert reader.fingerprint() == {
        "source": str(tmp_path),
        "bytes": len(first + second),
        "sha256": hashlib.sha256(first + second).hexdigest(),
    }
    assert {**reader.identity(), "source": str(tmp_path)} == reader.fingerprint()


def test_the_fingerprint_of_a_folder_of_texts_is_also_of_paths_and_ends(tmp_path: Path) -> None:
    """Ids and titles come from the paths."""
    seen = set()
    for names, texts in (
        (("a.txt", "b.txt"), ("moon", "sun")),
        (("a.txt", "c.txt"), ("moon", "sun")),
        (("a.txt", "far/b.txt"), ("moon", "sun")),
        (("a.txt", "b.txt"), ("moons", "un")),
        (("a.txt", "b.txt.gz"), ("moon", "sun")),
    ):
        folder = tmp_path / str(len(seen))
        for name, text in zip(names, texts, strict=True):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            written(folder / name, gzip.compress(text.encode()) if name.endswith("gz") else text)
        reader = open_corpus(folder)
        assert len(list(reader)) == 2
        found = reader.fingerprint()
        assert {**reader.identity(), "source": str(folder)} == found
        assert found["bytes"] == sum(path.stat().st_size for path in folder.rglob("*.*"))
        seen.add(found["sha256"])
    assert len(seen) == 5


def test_the_fingerprint_waits_for_the_end(tmp_path: Path) -> None:
    reader = open_corpus(written(tmp_path / "c.jsonl", small("a", "b")))
    next(iter(reader))
    with pytest.raises(ValueError, match="to its end"):
        reader.fingerprint()


def test_standard_input_has_none() -> None:
    reader = open_corpus("-")
    with CliRunner().isolation(input=small("a")):
        assert len(list(reader)) == 1
    assert reader.fingerprint() == {"source": "-", "bytes": None, "sha256": None}
    assert reader.identity() == reader.fingerprint()


class Endless(io.RawIOBase):
    """A corpus without end, made while it is read."""

    def __init__(self, text: str = "some text") -> None:
        self.records = 0
        self._text = text

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        line = json.dumps({"id": self.records, "text": self._text}).encode() + b"\n"
        buffer[: len(line)] = line
        self.records += 1
        return len(line)


@contextmanager
def endless(text: str = "some text") -> Iterator[tuple[Endless, Iterator[Passage]]]:
    raw = Endless(text)
    with CliRunner().isolation(input=io.BufferedReader(raw, 1 << 16)):
        yield raw, iter(open_corpus("-"))


def test_the_reader_looks_ahead_by_at_most_one_batch() -> None:
    with endless() as (raw, passages):
        for count in range(1, 3501):
            assert next(passages).passage_id == str(count - 1)
            assert raw.records <= count + 1000
        assert raw.records == 4000


def test_a_batch_of_long_lines_is_shorter() -> None:
    with endless("x" * 60_000) as (raw, passages):
        next(passages)
        assert raw.records * 60_000 < 9 << 20


def test_a_pipe_is_read_while_it_is_written(tmp_path: Path) -> None:
    pipe = tmp_path / "corpus.jsonl"
    os.mkfifo(pipe)
    read_some = threading.Event()

    def write() -> None:
        with pipe.open("w") as stream:
            stream.write(small(*map(str, range(1000))))
            stream.flush()
            assert read_some.wait(10)
            stream.write(small("last"))

    writer = threading.Thread(target=write)
    writer.start()
    passages = iter(open_corpus(pipe))
    assert next(passages).passage_id == "0"  # the writer waits: no end of file is needed
    read_some.set()
    assert [p.passage_id for p in passages][-1] == "last"
    writer.join(10)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus() -> None:
    with endless("some text " * 60) as (_, passages):
        tracemalloc.start()
        for _ in range(2_000):
            next(passages)
        tracemalloc.reset_peak()
        start = tracemalloc.get_traced_memory()[0]
        for _ in range(10_000):
            next(passages)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak - start < 4 << 20  # a batch or two; the texts alone are 6 MB


def test_seen_ids_name_the_first_place() -> None:
    with SeenIds() as seen:
        assert seen.add([("a", "x:y:1"), ("b", "x:y:2")]) == {}
        assert seen.add([("c", "z:1"), ("a", "z:2"), ("c", "z:3")]) == {1: "x:y:1", 2: "z:1"}
        assert seen.add([("a", "z:9"), ("A", "z:10"), ("a ", "z:11")]) == {0: "x:y:1"}
        assert seen.add([("p", "z:12"), ("b", "z:12"), ("p", "z:12")]) == {1: "x:y:2", 2: "z:12"}
        assert seen.add([]) == {}


def test_seen_ids_agree_with_a_dictionary() -> None:
    rng = random.Random(2)
    known: dict[str, str] = {}
    line = 0
    with SeenIds() as seen:
        for _ in range(60):
            batch = [(str(rng.randint(0, 3000)), f"f:{line + i}") for i in range(rng.randint(0, 80))]
            line += len(batch)
            expected = {
                n: known[i] for n, (i, where) in enumerate(batch) if known.setdefault(i, where) != where
            }
            assert seen.add(batch) == expected


def test_a_full_temporary_disk_is_a_storage_error() -> None:
    with SeenIds() as seen:
        seen._database.execute("PRAGMA max_page_count = 10")  # noqa: SLF001 (stands for a full disk)
        with pytest.raises(StorageError, match="full") as caught:
            seen.add([(f"{i:0500d}", f"f:{i}") for i in range(1000)])
    assert "TMPDIR" in str(caught.value.remedy)
    assert isinstance(caught.value.__cause__, sqlite3.Error)


def test_collections_that_can_be_read_twice() -> None:
    records = [{"id": "1", "text": "a"}]
    by_name = {"a": records[0]}
    for corpus in (records, tuple(records), by_name.values(), np.array(records)):
        assert open_corpus(corpus).is_rereadable
    for iterator in (iter(records), tqdm(iter(records), total=1, disable=True)):
        assert not open_corpus(iterator).is_rereadable


def test_arrays_without_dimensions_are_their_values() -> None:
    record = {"number": np.array(5), "day": np.array(np.datetime64("2020-01-02")), "word": np.array("moon")}
    (passage,) = open_corpus([{"id": "a", "text": "b", **record}])
    stored = json.loads(stored_record(passage))
    assert {name: stored[name] for name in record} == {
        "number": 5,
        "day": "2020-01-02T00:00:00",
        "word": "moon",
    }
    with pytest.raises(InputError, match="not JSON-serializable"):
        list(open_corpus([{"id": "a", "text": "b", "number": np.array(1j)}]))
