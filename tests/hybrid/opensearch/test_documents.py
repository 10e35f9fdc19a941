"""What OpenSearch is given says what the index holds, and what it could not say is refused."""

from __future__ import annotations

import hashlib
import io
import json
import random
import re
import resource
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from hybrid.opensearch.documents import check_sayable, document, hash_of, index_body, opened_source
from hybrid.opensearch.files import export_opensearch
from hybrid.opensearch.query_side import (
    query_weights,
    side_document,
    side_of_document,
    tokenizer_zip,
    weight_scale,
)
from sparta.base.errors import IndexStateError, InputError, StorageError
from sparta.export.exporters import StoredPassage
from sparta.index.folder import IndexFolder
from sparta.models.quantize import Quantizer, QueryQuantizer
from sparta.models.query_encoder import QuerySide
from sparta.search.searcher import Searcher
from tests.moments import no_temporary_files
from tests.sparta.index.building import Builder, Doc


@pytest.fixture
def side(tiny_tokenizer: Tokenizer) -> QuerySide:
    return QuerySide(tiny_tokenizer, None, "model", "hash", Quantizer(8.0))


@pytest.fixture
def weighted(tiny_tokenizer: Tokenizer) -> QuerySide:
    weights = np.arange(tiny_tokenizer.get_vocab_size(), dtype=np.int32) % 200
    return QuerySide(tiny_tokenizer, weights, "model", "hash", Quantizer(8.0), QueryQuantizer(4.0, 8))


@pytest.fixture
def write(
    tmp_path: Path, side: QuerySide, tiny_vocabulary: list[str]
) -> Callable[..., tuple[Path, list[Doc]]]:
    """A function that writes an index of `n` passages with impacts up to `highest`."""

    def make(n: int = 40, highest: int = 255, unit: str = "passage") -> tuple[Path, list[Doc]]:
        rng = random.Random(3)
        suffix = "#0" if unit == "sentence" else ""
        docs = [
            Doc(f'p{i}é"{suffix}', {t: rng.randint(1, highest) for t in rng.sample(tiny_vocabulary[15:], 9)})
            for i in range(n)
        ]
        builder = Builder(IndexFolder(tmp_path / "index"), side)
        builder.write(builder.source(docs, unit=unit))
        return builder.folder.path, docs

    return make


def bulk(folder: Path) -> list[tuple[str, dict[str, object]]]:
    """Ids and documents of all bulk requests, in order."""
    files = sorted((folder / "bulk").iterdir())
    lines = [json.loads(line) for file in files for line in file.read_bytes().splitlines()]
    return [(action["index"]["_id"], body) for action, body in zip(lines[::2], lines[1::2], strict=True)]


@pytest.mark.jvm
def test_bulk_requests_hold_the_index(write, tmp_path: Path) -> None:
    path, docs = write()
    with Searcher(path) as searcher:
        assert export_opensearch(searcher, tmp_path / "out", most_bytes=2000) == (40, 360)
        export_opensearch(searcher, tmp_path / "again", most_bytes=2000)
    found = bulk(tmp_path / "out")
    assert [i for i, _ in found] == [doc.passage_id for doc in docs]
    for position, (doc, (_, body)) in enumerate(zip(docs, found, strict=True)):
        assert body.pop("hash")
        assert body == {
            "position": position,
            "fields": [],
            "numbers": [],
            "text": f"text of {doc.passage_id}",
            "impacts": doc.vector,
            "record": doc.record,
        }
    files = sorted((tmp_path / "out" / "bulk").iterdir())
    assert len(files) > 3
    assert all(file.stat().st_size <= 2000 for file in files)
    for file in (tmp_path / "out").rglob("*.*"):
        other = tmp_path / "again" / file.relative_to(tmp_path / "out")
        assert file.read_bytes() == other.read_bytes()  # the same index, the same bytes


@pytest.mark.jvm
def test_the_folder_says_how_it_is_loaded(write, tmp_path: Path) -> None:
    with Searcher(write()[0]) as searcher:
        export_opensearch(searcher, tmp_path / "out")
        with pytest.raises(IndexStateError, match="already contains files"):
            export_opensearch(searcher, tmp_path / "out")
    readme = (tmp_path / "out" / "README.md").read_text()
    for name in re.findall(r"@([a-z]+\.[a-z]+)", readme):
        assert (tmp_path / "out" / name).is_file()
    told = json.loads((tmp_path / "out" / "model.json").read_text())
    model = (tmp_path / "out" / "model.zip").read_bytes()
    assert told["model_content_hash_value"] == hashlib.sha256(model).hexdigest()
    assert told["model_content_size_in_bytes"] == len(model)
    body = json.loads((tmp_path / "out" / "index.json").read_text())
    assert body["mappings"]["_source"] == {"excludes": ["impacts", "text", "fields", "numbers"]}
    assert body["mappings"]["_meta"]["sparta"]["passages"] == 40


@pytest.mark.jvm
@pytest.mark.parametrize("there", [False, True])
def test_a_failed_export_leaves_nothing_behind(
    write, tmp_path: Path, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    if there:
        out.mkdir()

    def full(*_: object) -> None:
        raise StorageError("cannot be written: No space left on device")

    with Searcher(write()[0]) as searcher:
        with monkeypatch.context() as patched:
            patched.setattr("hybrid.opensearch.files.write_manifest", full)
            with pytest.raises(StorageError, match="No space left"):
                export_opensearch(searcher, out)
        assert out.exists() == there
        assert not list(out.rglob("*"))
        export_opensearch(searcher, out)
        assert (out / "manifest.json").is_file()


@pytest.mark.jvm
def test_a_file_in_the_place_of_the_folder_is_named(write, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with (
        Searcher(write()[0]) as searcher,
        pytest.raises(InputError, match="the output is a file, not a folder"),
    ):
        export_opensearch(searcher, tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.jvm
def test_impacts_that_would_be_rounded_are_refused(write) -> None:
    with (
        Searcher(write(highest=600)[0]) as searcher,
        pytest.raises(InputError, match="impacts up to 511 exactly"),
        opened_source(searcher),
    ):
        pass
    check_sayable(511, "en")
    with pytest.raises(InputError, match="OpenSearch has no analyzer"):
        check_sayable(1, "te")


@pytest.mark.jvm
def test_another_content_has_another_identity(write, side: QuerySide) -> None:
    path, docs = write()
    builder = Builder(IndexFolder(path), side)
    with Searcher(path) as searcher:
        with opened_source(searcher) as source:
            first, mapping = source.identity, index_body(source, shards=4)
        with opened_source(searcher) as source:
            assert source.identity == first
        more = [doc._replace(passage_id=f"q{i}") for i, doc in enumerate(docs)]
        builder.write(builder.source(more, name="b.jsonl"), "append")
        searcher.refresh()
        with opened_source(searcher) as source:
            assert source.identity != first
    assert mapping["settings"]["index"]["number_of_shards"] == 4
    assert mapping["settings"]["index"]["similarity"]["sparta_bm25"] == {"type": "BM25", "k1": 0.9, "b": 0.4}


def test_a_document_changes_its_hash_with_anything_in_it() -> None:
    one = StoredPassage("p#1", 7, '{"id": "p#1", "title": "T", "contents": "é"}', ["a", "##b"], [3, 511])
    made = document(one, cut=True)
    assert json.loads(made) == {
        "hash": hash_of(made),
        "position": 7,
        "passage": "p",
        "fields": ["title\0T"],
        "numbers": [],
        "text": "T é",
        "impacts": {"a": 3, "##b": 511},
        "record": {"id": "p#1", "title": "T", "contents": "é"},
    }
    others = [
        one._replace(position=8),
        one._replace(raw=one.raw.replace("T", "U")),
        one._replace(impacts=[3, 4]),
    ]
    assert len({hash_of(document(other)) for other in (one, *others)}) == 4
    with pytest.raises(InputError, match="accepts at most 512"):
        document(one._replace(passage_id="é" * 257))


def test_the_searched_text_is_composed_and_the_record_stays_as_it_is() -> None:
    typed = "cafe\u0301"
    one = StoredPassage("p", 0, json.dumps({"id": "p", "contents": typed}, ensure_ascii=False), [], [])
    made = json.loads(document(one))
    assert made["text"] == "caf\u00e9"
    assert made["record"]["contents"] == typed


# ---------------------------------------------------------------- the query side


def test_weights_fit_into_what_opensearch_takes() -> None:
    assert weight_scale({}) == 1
    assert weight_scale({"a": 64}) == 1
    assert weight_scale({"a": 65}) == 2
    assert weight_scale({"a": 1, "b": 65535}) == 1024


def test_the_zip_holds_tokenizer_and_weights(weighted: QuerySide, side: QuerySide) -> None:
    with zipfile.ZipFile(io.BytesIO(tokenizer_zip(weighted))) as archive:
        assert archive.namelist() == ["tokenizer.json", "idf.json"]
        tokenizer = Tokenizer.from_str(archive.read("tokenizer.json").decode())
        weights = json.loads(archive.read("idf.json"))
    assert tokenizer.encode("the moon").ids == weighted.tokenizer.encode("the moon").ids
    assert weights == query_weights(weighted)
    assert all(0 < weight <= 64 for weight in weights.values())
    for term, weight in weights.items():
        index = weighted.tokenizer.token_to_id(term)
        assert round(weight * 4) == weighted.weights[index]  # 199 / 4 < 64
    assert query_weights(side) == {}  # each counts 1
    assert tokenizer_zip(weighted) == tokenizer_zip(weighted)


def test_a_query_side_comes_back(weighted: QuerySide, side: QuerySide, tmp_path: Path) -> None:
    for made in (side, weighted):
        made.save(tmp_path)
        one = QuerySide.load(tmp_path, made.identity())
        stored = json.loads(json.dumps(side_document(one)))
        back = side_of_document(stored)
        for query in ("the moon of the earth", "[SEP] larry page", "月亮"):
            assert back.query_tokenizer().terms(query) == one.query_tokenizer().terms(query)
        stored["tokenizer"] = stored["tokenizer"].replace("moon", "noom")
        with pytest.raises(IndexStateError, match="damaged"):
            side_of_document(stored)


@pytest.mark.jvm
def test_a_full_folder_for_temporary_files_is_told(write) -> None:
    """Files of this process may hold nothing for a moment, as with a quota that is used up."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Searcher(write()[0]) as searcher, opened_source(searcher) as source:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, usual[1]))
        try:
            with pytest.raises(StorageError, match="cannot be written: File too large") as caught:
                list(source.documents())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert caught.value.where == tempfile.gettempdir()
    assert "TMPDIR" in caught.value.remedy.for_command_line()


@pytest.mark.jvm
def test_without_a_folder_for_temporary_files_the_remedy_is_to_name_one(write, monkeypatch) -> None:
    with Searcher(write()[0]) as searcher, opened_source(searcher) as source:
        monkeypatch.setattr("tempfile.gettempdir", no_temporary_files)
        with pytest.raises(StorageError, match=r"no folder for temporary files .*\n.*set TMPDIR"):
            list(source.documents())
