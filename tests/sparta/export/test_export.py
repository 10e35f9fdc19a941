"""What another engine reads is what the index holds: term by term, passage by passage, in any segments."""

from __future__ import annotations

import errno
import gzip
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from sparta.base.errors import InputError, StorageError
from sparta.export import ciff
from sparta.export import exporters as export
from sparta.export.exporters import Blocks, BlockSizes, Contents, export_index, export_query_weights
from sparta.index.build import delete_passages, write_index
from sparta.index.folder import IndexFolder
from sparta.index.generation import Job
from sparta.index.inputs.impact_batches import ImpactBatch
from sparta.index.inputs.sources import vectors_source
from sparta.index.jobs import Source, WriteOptions
from sparta.lucene.bridge import ImpactSearcher
from sparta.models.quantize import Quantizer
from sparta.models.query_encoder import QuerySide
from sparta.search.searcher import Searcher
from tests.moments import at

TERMS = [*(f"term{i}" for i in range(60)), "##ing", '"', "日本", "é", "𝄞", "\\", "~", "never"]
Vectors = dict[str, dict[str, int]]

# ---------------------------------------------------------------- an index, and what it should hold


def side() -> QuerySide:
    tokenizer = Tokenizer(models.WordLevel({t: i for i, t in enumerate([*TERMS, "[UNK]"])}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["[UNK]"])
    return QuerySide(tokenizer, None, "a tiny model", "", Quantizer(5.0, 16))


def source(vectors: Vectors, *, batch: int = 7, job: str = "first") -> Source:
    def batches(done: int, last: str = "") -> Iterator[ImpactBatch]:
        items = list(vectors.items())[done:]
        for begin in range(0, len(items), batch):
            part = items[begin : begin + batch]
            lengths = [len(vector) for _, vector in part]
            yield ImpactBatch(
                [i for i, _ in part],
                [json.dumps({"id": i, "title": f"Title {i}", "contents": text(i)}) for i, _ in part],
                [f"Title {i} {text(i)}" for i, _ in part],
                np.cumsum([0, *lengths], dtype=np.int32),
                np.array([TERMS.index(t) for _, vector in part for t in vector], np.int32),
                np.array([v for _, vector in part for v in vector.values()], np.int32),
            )

    return Source(Job(source=job, sha256=job), side(), batches)


def text(passage_id: str) -> str:
    return f"passage {passage_id} says “{'so ' * (len(passage_id) % 3)}”\nand more"


def random_vectors(prefix: str, count: int, seed: int) -> Vectors:
    """Every sixth passage has no terms at all; impacts take one to three bytes."""
    rng = np.random.default_rng(seed)
    found: Vectors = {}
    for i in range(count):
        terms = rng.permutation(len(TERMS) - 1)[: rng.integers(1, 30)] if i % 6 else []
        found[f"{prefix}{i}"] = {TERMS[t]: int(rng.choice([1, 127, 128, 300, 16384, 65535])) for t in terms}
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Vectors]:
    """Several segments, passages deleted and replaced: Lucene's order is not the corpus's."""
    folder = tmp_path_factory.mktemp("export") / "index"
    index = IndexFolder(folder)
    vectors = random_vectors("p", 90, seed=1)
    write_index(index, source(vectors), WriteOptions(threads=2))
    more = random_vectors("q", 20, seed=2)
    write_index(index, source(more, job="second"), WriteOptions(mode="append"))
    changed = {f"p{i}": vector for i, vector in enumerate(random_vectors("x", 12, seed=3).values(), 30)}
    write_index(index, source(changed, job="third"), WriteOptions(mode="update"))
    gone = ["p0", "p1", "p40", "q19"]
    delete_passages(index, gone)
    held = {**vectors, **more, **changed}
    return folder, {i: vector for i, vector in held.items() if i not in gone}


@pytest.fixture
def searcher(built: tuple[Path, Vectors]) -> Iterator[Searcher]:
    with Searcher(built[0]) as opened:
        yield opened


def in_byte_order(terms: set[str]) -> list[str]:
    return sorted(terms, key=str.encode)


# ---------------------------------------------------------------- protobuf's own reader of CIFF


def messages() -> dict[str, Any]:
    """The classes that protobuf makes of the published definition, version 1."""
    pytest.importorskip("google.protobuf")
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = {"int32": 5, "int64": 3, "double": 1, "string": 9, "Posting": 11}
    definition = {
        "Header": "int32 version, int32 num_postings_lists, int32 num_docs, int32 total_postings_lists,"
        " int32 total_docs, int64 total_terms_in_collection, double average_doclength, string description",
        "Posting": "int32 docid, int32 tf",
        "PostingsList": "string term, int64 df, int64 cf, Posting postings",
        "DocRecord": "int32 docid, string collection_docid, int32 doclength",
    }
    file = descriptor_pb2.FileDescriptorProto(name="ciff.proto", package="ciff", syntax="proto3")
    for name, fields in definition.items():
        message = file.message_type.add(name=name)
        for number, field in enumerate(fields.split(","), 1):
            kind, label = field.split()
            added = message.field.add(name=label, number=number, type=kinds[kind], label=1)
            if kind == "Posting":
                added.label, added.type_name = 3, ".ciff.Posting"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {n: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ciff.{n}")) for n in definition}


def delimited(message: Any) -> bytes:
    from google.protobuf.internal.encoder import _VarintBytes

    return _VarintBytes(message.ByteSize()) + message.SerializeToString(deterministic=True)


def read_ciff(data: bytes) -> tuple[Any, list[Any], list[Any]]:
    """Header, posting lists and document records; every byte is accounted for."""
    from google.protobuf.proto import parse_length_prefixed

    kinds, stream = messages(), io.BytesIO(data)
    header = parse_length_prefixed(kinds["Header"], stream)
    lists = [parse_length_prefixed(kinds["PostingsList"], stream) for _ in range(header.num_postings_lists)]
    records = [parse_length_prefixed(kinds["DocRecord"], stream) for _ in range(header.num_docs)]
    assert stream.read() == b""
    return header, lists, records


def vectors_of(lists: list[Any], records: list[Any]) -> Vectors:
    """Turn posting lists back into vectors by passage id."""
    found: Vectors = {record.collection_docid: {} for record in records}
    for one in lists:
        docid = 0
        for posting in one.postings:
            docid += posting.docid
            found[records[docid].collection_docid][one.term] = posting.tf
    return found


# ---------------------------------------------------------------- the wire format alone


def test_messages_are_the_bytes_that_protobuf_writes() -> None:
    kinds = messages()
    rng = np.random.default_rng(7)
    terms = ["a", "日本", "x" * 200, "z"]
    docids = [
        np.array([0]),
        np.array([5, 132, 133, 2**31 - 1]),
        np.cumsum(rng.integers(1, 300, 3000)),
        np.concatenate(([0], np.cumsum(2 ** rng.integers(0, 23, 100)))),
    ]
    impacts = [rng.choice([1, 127, 128, 16383, 16384, 65535, 2**31 - 1], len(d)) for d in docids]
    expected = []
    for term, ids, tfs in zip(terms, docids, impacts, strict=True):
        one = kinds["PostingsList"](term=term, df=len(ids), cf=int(tfs.sum()))
        for gap, tf in zip(np.diff(ids, prepend=0).tolist(), tfs.tolist(), strict=True):
            one.postings.add(docid=gap, tf=tf)
        expected.append(delimited(one))
    indptr = np.cumsum([0, *map(len, docids)], dtype=np.int32)
    flat = np.concatenate(docids).astype(np.int32), np.concatenate(impacts).astype(np.int32)
    assert list(ciff.postings_lists(terms, indptr, *flat)) == expected

    header = kinds["Header"](
        version=1,
        num_postings_lists=3,
        total_postings_lists=3,
        num_docs=200,
        total_docs=200,
        total_terms_in_collection=2**40,
        average_doclength=2**40 / 200,
        description="é",
    )
    assert ciff.Header(3, 200, 2**40, "é").encode() == delimited(header)
    assert ciff.Header(0, 0, 0, "").encode() == delimited(kinds["Header"](version=1))
    for docid, passage_id, length in [(0, "a", 0), (300, "日本", 2**31 - 1)]:
        record = kinds["DocRecord"](docid=docid, collection_docid=passage_id, doclength=length)
        assert ciff.doc_record(docid, passage_id, length) == delimited(record)


def test_blocks_hold_what_was_asked_and_never_less_than_a_passage() -> None:
    sizes = np.array([3, 3, 9, 0, 0, 4, 3, 0])
    blocks = Blocks.of(sizes, 6)
    assert blocks.edges == [0, 2, 3, 6, 8]
    assert blocks.block_of.tolist() == [0, 0, 1, 2, 2, 2, 3, 3]
    assert blocks.starts.tolist() == [0, 6, 15, 19, 22]
    assert Blocks.of(np.zeros(0, np.int64), 6).edges == [0]


# ---------------------------------------------------------------- whole files


@pytest.mark.jvm
def test_ciff_holds_the_index(built: tuple[Path, Vectors], searcher: Searcher, tmp_path: Path) -> None:
    held = built[1]
    output = tmp_path / "index.ciff"
    postings = sum(map(len, held.values()))
    assert export_index(searcher, "ciff", output) == (len(held), postings)
    header, lists, records = read_ciff(output.read_bytes())

    assert vectors_of(lists, records) == held
    assert [one.term for one in lists] == in_byte_order({t for vector in held.values() for t in vector})
    assert [r.docid for r in records] == list(range(len(held)))
    assert [r.collection_docid for r in records] == list(held)  # the corpus's order
    assert [r.doclength for r in records] == [sum(vector.values()) for vector in held.values()]
    for one in lists:
        impacts = [vector[one.term] for vector in held.values() if one.term in vector]
        assert [p.tf for p in one.postings] == impacts
        assert (one.df, one.cf) == (len(impacts), sum(impacts))
    total = sum(sum(vector.values()) for vector in held.values())
    assert (header.version, header.total_docs, header.total_postings_lists) == (1, len(held), len(lists))
    assert header.total_terms_in_collection == total
    assert header.average_doclength == total / len(held)
    assert "a tiny model; an impact of 1 is a weight of 7.62951e-05" in header.description  # 5 / 65535


@pytest.mark.jvm
def test_json_holds_the_index(built: tuple[Path, Vectors], searcher: Searcher, tmp_path: Path) -> None:
    held = built[1]
    output = tmp_path / "vectors.jsonl"
    assert export_index(searcher, "pyserini-json", output) == (len(held), sum(map(len, held.values())))
    lines = [json.loads(line) for line in output.read_bytes().splitlines()]
    assert [line["id"] for line in lines] == list(held)
    assert {line["id"]: line["vector"] for line in lines} == held
    assert all(list(line["vector"]) == in_byte_order(set(line["vector"])) for line in lines)
    assert all(line["contents"] == f"Title {line['id']} {text(line['id'])}" for line in lines)
    assert all(list(line) == ["id", "contents", "vector"] for line in lines)


@pytest.mark.jvm
@pytest.mark.parametrize("form", export.FORMATS)
def test_gzip_by_name_with_the_same_bytes_each_time(searcher: Searcher, form: str, tmp_path: Path) -> None:
    for name in ("plain", "one.gz", "two.gz"):
        export_index(searcher, form, tmp_path / name)
    zipped = (tmp_path / "one.gz").read_bytes()
    assert zipped == (tmp_path / "two.gz").read_bytes()
    assert gzip.decompress(zipped) == (tmp_path / "plain").read_bytes()
    assert {p.name for p in tmp_path.iterdir()} == {"plain", "one.gz", "two.gz"}


@pytest.mark.jvm
@pytest.mark.parametrize("form", export.FORMATS)
def test_pages_and_blocks_change_nothing(searcher: Searcher, form: str, tmp_path: Path) -> None:
    export_index(searcher, form, tmp_path / "large")
    export_index(searcher, form, tmp_path / "small", BlockSizes(50, 40, 3))
    assert (tmp_path / "small").read_bytes() == (tmp_path / "large").read_bytes()


class Failing:
    """A Lucene index that fails when it reads the ids of passages."""

    def __init__(self, lucene: ImpactSearcher, error: BaseException) -> None:
        self._lucene, self._error = lucene, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lucene, name)

    def ids(self, docids: Any) -> list[str]:
        raise self._error


def failing(searcher: Searcher, error: BaseException) -> Any:
    """The part of a searcher that an export needs, with a failing Lucene index."""

    @contextmanager
    def snapshot() -> Iterator[SimpleNamespace]:
        with searcher.reader.snapshot() as view:
            names = ("require_impacts", "tokenizer", "generation", "quantizer")
            parts = {name: getattr(view, name) for name in names}
            yield SimpleNamespace(lucene=Failing(view.lucene, error), **parts)

    return SimpleNamespace(reader=SimpleNamespace(snapshot=snapshot))


def indexed_again(searcher: Searcher, folder: Path) -> Path:
    """Build an index from what another exports."""
    side().save(folder / "tokenizer")
    vectors = folder / "vectors.jsonl.gz"
    export_index(searcher, "pyserini-json", vectors)
    write_index(
        IndexFolder(folder / "again"),
        vectors_source([vectors], folder / "tokenizer"),
        WriteOptions(threads=2),
    )
    return folder / "again"


def rankings(folder: Path, channel: str, queries: list[str]) -> dict[str, list[tuple[str, float]]]:
    with Searcher(folder, channel=channel) as opened:
        found = opened.batch_search(queries, queries, k=25)
        return {q: [(hit.passage_id, hit.score) for hit in hits] for q, hits in found.items()}


@pytest.mark.jvm
def test_indexing_the_json_again_gives_the_same_rankings(searcher: Searcher, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    queries = sorted({" ".join(rng.choice(TERMS, rng.integers(1, 8))) for _ in range(40)})
    expected = rankings(searcher.reader.folder.path, "sparta", queries)
    assert rankings(indexed_again(searcher, tmp_path), "sparta", queries) == expected
    assert sum(map(len, expected.values())) > 400


def test_weights_of_questions_are_those_of_wordpieces(tmp_path: Path) -> None:
    """A model may have more rows than wordpieces; what counts nothing is left out."""
    tokenizer = side().tokenizer
    weights = np.full(tokenizer.get_vocab_size() + 3, 3, np.int32)
    weights[[TERMS.index("term1"), TERMS.index("日本")]] = 0, 15
    asked: Any = SimpleNamespace(tokenizer=SimpleNamespace(tokenizer=tokenizer, weights=weights))
    written = export_query_weights(asked, tmp_path / "w.json")
    found = json.loads((tmp_path / "w.json").read_text(encoding="utf-8"))
    expected = {**dict.fromkeys([*TERMS, "[UNK]"], 3), "日本": 15}
    del expected["term1"]
    assert found == expected
    assert len(found) == written


@pytest.mark.jvm
def test_bm25_too_is_the_same_where_nothing_was_deleted(tmp_path: Path) -> None:
    """Elsewhere Lucene still counts what was deleted until it is merged away."""
    index = IndexFolder(tmp_path / "index")
    write_index(index, source(random_vectors("p", 30, seed=4)), WriteOptions())
    queries = ["passage so", "title p7", "more p3 p4", "says and"]
    expected = rankings(index.path, "bm25", queries)
    with Searcher(index.path) as opened:
        assert rankings(indexed_again(opened, tmp_path), "bm25", queries) == expected
    assert all(expected.values())


@pytest.mark.jvm
def test_bm25_reads_of_json_vectors_what_their_export_writes(tmp_path: Path) -> None:
    lines = [
        {"id": "a", "contents": "the day star", "title": "Sun", "vector": {"term1": 1}},
        {"id": "b", "contents": "none of them", "title": None, "vector": {"term1": 2}},
        {"id": "c", "contents": "the moon", "vector": {"term1": 3}},
    ]
    vectors = tmp_path / "given.jsonl"
    vectors.write_text("".join(json.dumps(line) + "\n" for line in lines))
    index = IndexFolder(tmp_path / "index")
    side().save(tmp_path / "tokenizer")
    write_index(index, vectors_source([vectors], tmp_path / "tokenizer"), WriteOptions())
    found = rankings(index.path, "bm25", ["sun", "none", "moon"])
    assert [[docid for docid, _ in hits] for hits in found.values()] == [["a"], ["b"], ["c"]]
    with Searcher(index.path) as opened:
        export_index(opened, "pyserini-json", tmp_path / "out.jsonl")
        texts = [json.loads(line)["contents"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        assert texts == ["Sun the day star", "none of them", "the moon"]
        assert rankings(indexed_again(opened, tmp_path), "bm25", list(found)) == found


@pytest.mark.jvm
def test_an_index_without_passages(tmp_path: Path) -> None:
    index = IndexFolder(tmp_path / "index")
    write_index(index, source({"a": {"term1": 3}}), WriteOptions())
    delete_passages(index, ["a"])
    with Searcher(index.path) as opened:
        assert export_index(opened, "pyserini-json", tmp_path / "vectors.jsonl") == (0, 0)
        assert export_index(opened, "ciff", tmp_path / "index.ciff") == (0, 0)
    assert (tmp_path / "vectors.jsonl").read_bytes() == b""
    header, lists, records = read_ciff((tmp_path / "index.ciff").read_bytes())
    assert (header.num_docs, header.average_doclength, lists, records) == (0, 0.0, [], [])


# ---------------------------------------------------------------- what can go wrong


@pytest.mark.jvm
def test_another_format_is_refused(searcher: Searcher, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"unknown export format 'anserini'"):
        export_index(searcher, "anserini", tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.jvm
def test_a_folder_is_refused_as_output(searcher: Searcher, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the output is a folder"):
        export_index(searcher, "ciff", tmp_path)
    with pytest.raises(InputError, match="No such file"):
        export_index(searcher, "ciff", tmp_path / "nowhere" / "index.ciff")


@pytest.mark.jvm
@pytest.mark.parametrize("form", export.FORMATS)
def test_a_folder_that_may_not_be_written(searcher: Searcher, form: str, tmp_path: Path) -> None:
    def refuse() -> None:
        raise OSError(errno.EACCES, "Permission denied")

    with (
        at("write", ".sparta-*.tmp", refuse),
        pytest.raises(StorageError, match="cannot be written: Permission denied"),
    ):
        export_index(searcher, form, tmp_path / "x")
    assert not list(tmp_path.iterdir())


@pytest.mark.jvm
@pytest.mark.parametrize("form", export.FORMATS)
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_half_way_leaves_the_old_file(
    searcher: Searcher, form: str, error: BaseException, tmp_path: Path
) -> None:
    output = tmp_path / "x"
    output.write_bytes(b"old")
    with pytest.raises(StorageError if isinstance(error, OSError) else KeyboardInterrupt):
        export_index(failing(searcher, error), form, output)
    assert output.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


@pytest.mark.jvm
def test_a_passage_too_long_for_ciff_is_named(
    built: tuple[Path, Vectors], searcher: Searcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with searcher.reader.snapshot() as view:
        contents = Contents.read(view.lucene)
    sums = contents.sums.copy()
    sums[3] = 2**31
    monkeypatch.setattr(Contents, "read", lambda *_: replace(contents, sums=sums))
    with pytest.raises(InputError, match=rf"'{list(built[1])[3]}' add up to 2,147,483,648"):
        export_index(searcher, "ciff", tmp_path / "x")
    assert not (tmp_path / "x").exists()
