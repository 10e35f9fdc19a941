"""Hostile files: what is damaged, how, and which command meets it."""

from __future__ import annotations

import math
import pickle
import struct
from typing import NamedTuple

import numpy as np

from tests.hostile.damages import (
    CHANNEL,
    DEEP,
    SHARD,
    STORE,
    Command,
    Damage,
    claim,
    cut,
    edited,
    faiss_claims,
    faiss_vectors,
    gz,
    high_number,
    last,
    link,
    new_id,
    npy,
    npy_of,
    other_faiss,
    overwritten,
    planted,
    planted_shard,
    replaced,
    rows,
    safetensors,
    tensor_of,
    torch_file,
    unchecked,
    vector_shard,
)


class Case(NamedTuple):
    """A hostile file: its kind and damage, and the arguments of the commands that must refuse it.

    `damage` gets a folder with copies of the originals; `verified` has `sparta verify` find it, too.
    """

    kind: str
    what: str
    damage: Damage
    arguments: tuple[str, ...]
    verified: bool = False


SEARCH = ("search", "the moon", "--index", "index")
DENSE = (*SEARCH, "--channel", "dense")
UPDATE = ("update", "--corpus", "corpus.jsonl", "--index", "index")
ENCODE = ("encode", "--corpus", "corpus.jsonl", "--model", "model", "--output", "new")
ENCODE_DENSE = ("dense", "encode", "--corpus", "corpus.jsonl", "--model", "dense", "--output", "new")
INDEX = ("index", "--channels", "bm25", "--index", "new", "--corpus")
VECTORS = ("index", "--index", "new", "--vectors")


MANIFEST = "index/manifest.json"
MANIFESTS = [
    Case("index manifest", what, edited(MANIFEST, **change), SEARCH, verified=True)
    for what, change in (
        ("number is text", {"live__number": "1"}),
        ("number is negative", {"live__number": -1}),
        ("number of 30 digits", {"live__number": 10**30}),
        ("number of 5,000 digits", {"live__number": 10**4000}),
        ("live is a list", {"live": [1]}),
        ("live is missing", {"live": ...}),
        ("model is a list", {"live__model": []}),
        ("model name is a number", {"live__model__name": 7}),
        ("quantizer of 10⁶ bits", {"live__model__quantizer__bits": 10**6}),
        ("quantizer bits are text", {"live__model__quantizer__bits": "8"}),
        ("max_weight is NaN", {"live__model__quantizer__max_weight": math.nan}),
        ("weighted_queries is a list", {"live__model__weighted_queries": [0]}),
        ("language is a list", {"live__language": ["en"]}),
        ("language is unknown", {"live__language": "../en"}),
        ("unit is unknown", {"live__unit": "chunk:x"}),
        ("job is null", {"live__job": None}),
        ("source is a list", {"live__job__source": ["/etc/passwd"]}),
        ("codec is a list", {"live__codec": []}),
        ("counts are text", {"live__counts": "many"}),
        ("analyzer is a list", {"live__analyzer": []}),
        ("analyzer is unknown", {"live__analyzer": "../x"}),
        ("unknown field", {"live__evil": 1}),
        ("version of 4,000 digits", {"format_version": 10**4000}),
    )
] + [
    Case("index manifest", "200,000 brackets", replaced(MANIFEST, DEEP), SEARCH, True),
    Case("index manifest", "not UTF-8", replaced(MANIFEST, b"\xff\xfe{}"), SEARCH, True),
]

LINKS = [
    Case("link", f"{name} ({command[0]})", link(f"index/{name}"), command, True)
    for name in (
        "manifest.json",
        "sparta-000001",
        "tokenizer-000001/tokenizer.json",
        "dense-000001",
        "dense-000001/rows-000001.npy",
        "dense-000001/vectors-000001/shard-00000.safetensors",
    )
    for command in (DENSE, UPDATE)
] + [
    Case("link", "the next rows", planted(f"{CHANNEL}/rows-000002.npy"), UPDATE, True),
    Case("link", "the lock", lambda f: ((f / "index/lock").unlink(), planted("index/lock")(f)), UPDATE, True),
    Case("link", "a shard", planted_shard, (*ENCODE_DENSE[:-1], "vectors", "--resume")),
]

CHANNELS = [
    Case("dense manifest", what, edited(f"{CHANNEL}/manifest.json", **change), DENSE, verified=True)
    for what, change in (
        ("store above the index", {"store": "../../outside"}),
        ("store is absolute", {"store": "/tmp"}),
        ("serial is negative", {"serial": -1}),
        ("serial is text", {"serial": "1"}),
        ("10⁸ passages", {"passages": 10**8}),
        ("10¹² shards", {"shards": 10**12}),
        ("shards is null", {"shards": None}),
        ("search kind is unknown", {"search__kind": "x"}),
        ("search is null", {"search": None}),
        ("model is null", {"model": None}),
        ("checksums are a list", {"crc32": [1]}),
    )
] + [
    Case("vectors manifest", what, edited(f"{STORE}/manifest.json", **change), DENSE, verified=True)
    for what, change in (
        ("width of 10⁹", {"width": 10**9}),
        ("width is text", {"width": "32"}),
        ("dtype is object", {"dtype": "O"}),
        ("model is a list", {"model": []}),
    )
]

SHARDS = [
    Case("vector shard", what, replaced(SHARD, data), DENSE, verified=True)
    for what, data in (
        ("10⁸ rows in 320 bytes", vector_shard(10**8)),
        ("10⁸ rows of width 0", vector_shard(10**8, 0)),
        ("2⁶³ rows", vector_shard(2**63)),
        ("−1 rows", vector_shard(-1)),
        ("header of 2⁶³ bytes", struct.pack("<Q", 2**63) + b"{}"),
        ("header of 200,000 brackets", safetensors(DEEP)),
        ("header is a list", safetensors([])),
        ("no metadata", safetensors({"vectors": claim("F16", [1, 32], 0, 64)}, bytes(64))),
        ("unknown dtype", vector_shard(0, positions=claim("X9", [0], 0, 0))),
        ("shape is text", vector_shard(0, positions={"dtype": "I64", "shape": "0", "data_offsets": [0, 0]})),
        ("vectors over positions", vector_shard(1, data=bytes(64), hashes=claim("U64", [1], 0, 8))),
        ("empty", b""),
    )
]

ROWS = [
    Case("rows", what, unchecked(damage), DENSE, verified=True)
    for what, damage in (
        ("10⁹ rows in 400 bytes", replaced(f"{CHANNEL}/rows-000001.npy", npy_of("1000000000"))),
        ("10³⁰ rows", replaced(f"{CHANNEL}/rows-000001.npy", npy_of("1" + "0" * 30))),
        ("a pickle", replaced(f"{CHANNEL}/rows-000001.npy", npy_of("40", "'|O'"))),
        ("header is code", replaced(f"{CHANNEL}/rows-000001.npy", npy("__import__('os').system('x')"))),
        ("header of 2³² bytes", replaced(f"{CHANNEL}/rows-000001.npy", b"\x93NUMPY\2\0\xff\xff\xff\xff{}")),
        ("a negative row", rows(-5)),
        ("a row that is not there", rows(10**6)),
        ("nodes: 10⁹", replaced(f"{CHANNEL}/nodes-000001.npy", npy_of("1000000000"))),
    )
]

FAISS = [
    Case("FAISS", what, unchecked(damage), DENSE, verified=True)
    for what, damage in (
        ("4 GB in its first array", faiss_claims(1 << 29)),
        ("2⁶² entries", faiss_claims(1 << 62)),
        ("−1 entries", faiss_claims(-1)),
        ("2⁴⁰ vectors", faiss_vectors(1 << 40)),
        ("−1 vectors", faiss_vectors(-1)),
        ("another kind of index", other_faiss),
        ("half of it", cut(f"{CHANNEL}/search-000001.faiss")),
        ("other bytes", replaced(f"{CHANNEL}/search-000001.faiss", b"IHNs" + b"\xff" * 20_000)),
    )
]

LUCENE = [
    Case("Lucene", what, damage, SEARCH, verified=True)
    for what, damage in (
        ("segments_N: other bytes", overwritten("index/sparta-*/segments_*", 40, b"\xff" * 60)),
        ("segments_N: half", cut("index/sparta-*/segments_*")),
        ("segments_N: user data", overwritten("index/sparta-*/segments_*", -200, b"\x7f" * 60)),
        ("compound file: end", overwritten("index/sparta-*/*.cfs", -400, b"\xff" * 380)),
        ("compound file: entries", overwritten("index/sparta-*/*.cfe", 50, b"\x7f" * 60)),
        ("segment info", overwritten("index/sparta-*/*.si", 50, b"\x7f" * 60)),
    )
]

MODELS = [
    Case("model", what, edited("model/config.json", **change), ENCODE)
    for what, change in (
        ("10⁶ layers", {"num_hidden_layers": 10**6}),
        ("2³¹ wordpieces", {"vocab_size": 2**31}),
        ("width of 10⁶", {"hidden_size": 10**6}),
        ("10⁹ positions", {"max_position_embeddings": 10**9}),
        ("no heads", {"num_attention_heads": 0}),
        ("10⁹ logarithms", {"sparta__log_count": 10**9}),
        ("length is text", {"sparta__layout__max_length": "x"}),
        ("length of 10⁹", {"sparta__layout__max_length": 10**9}),
        ("quantizer of 10⁶ bits", {"sparta__quantizer__bits": 10**6}),
        ("quantizer bits are text", {"sparta__quantizer__bits": "8"}),
        ("model type is code", {"model_type": "../x"}),
        ("vocab_size is text", {"vocab_size": "x"}),
    )
] + [
    Case("model", "config of 200,000 brackets", replaced("model/config.json", DEEP), ENCODE),
    Case("model", "wordpiece 2³¹", lambda f: high_number(f, "model"), ENCODE),
    Case("model", "tokenizer of 200,000 brackets", replaced("model/tokenizer.json", DEEP), ENCODE),
    Case("model", "tokenizer is empty", replaced("model/tokenizer.json", "{}"), ENCODE),
    Case(
        "model",
        "weights: 10⁹ numbers in none",
        replaced("model/model.safetensors", safetensors({"a": claim("F32", [10**9], 0, 4 * 10**9)})),
        ENCODE,
    ),
    Case("model", "weights: header of 2⁶³ bytes", replaced("model/model.safetensors", b"\xff" * 100), ENCODE),
    Case("model", "weights: half", cut("model/model.safetensors"), ENCODE),
    Case("dense model", "10⁹ codes", edited("dense/config.json", dense__codes=10**9), ENCODE_DENSE),
    Case("dense model", "10⁶ layers", edited("dense/config.json", num_hidden_layers=10**6), ENCODE_DENSE),
    Case(
        "dense model",
        "10⁶ experts",
        edited("dense/config.json", dense__routing="det", dense__experts=10**6),
        ENCODE_DENSE,
    ),
    Case("dense model", "wordpiece 2³¹", lambda f: high_number(f, "dense"), ENCODE_DENSE),
    Case(
        "dense model",
        "period 0",
        edited("dense/config.json", dense__routing="det", dense__period=0),
        ENCODE_DENSE,
    ),
]

CONVERT = ("dense", "convert", "--from", "model.bin", "--tokenizer", "model", "--output", "new")
CHECKPOINTS = [
    Case("checkpoint", "pickle runs a command", replaced("model.bin", pickle.dumps(Command())), CONVERT),
    Case(
        "checkpoint",
        "pickle in a zip file",
        torch_file({"data.pkl": pickle.dumps(Command(), 2), "version": b"3"}),
        CONVERT,
    ),
    Case(
        "checkpoint",
        "1 GB in 1 MB",
        torch_file({"data.pkl": pickle.dumps({}, 2), "version": b"3", "data/0": bytes(1 << 28)}),
        CONVERT,
    ),
]

ENCODED = [
    Case("encoded shard", what, damage, (*VECTORS, "shards"))
    for what, damage in (
        ("an id twice", new_id(3, "p1")),
        ("an id without characters", new_id(3, "")),
        ("an id with a space", new_id(3, "p 1")),
        ("an id that is a list", new_id(3, [1])),
        ("term 2³¹", tensor_of("term_ids", lambda t: last(t, 2**31))),
        ("term 2¹⁶", tensor_of("term_ids", lambda t: last(t, 2**16))),
        ("rows that go back", tensor_of("indptr", lambda t: t[::-1].copy())),
        ("10¹² postings", tensor_of("indptr", lambda t: last(t, 10**12))),
        ("weights are whole numbers", tensor_of("weights", lambda t: t.astype(np.int32))),
        ("weights are NaN", tensor_of("weights", lambda t: t * np.float32(math.nan))),
        ("no counts", edited("shards/manifest.json", counts=...)),
        ("options are a list", edited("shards/manifest.json", options=[])),
        ("10⁹ passages", edited("shards/manifest.json", counts__encoded=10**9)),
    )
]

TEXTS = [
    Case(
        "corpus", "3 GB record in 3 MB of gzip", replaced("x.jsonl.gz", gz(3 << 30)), (*INDEX, "x.jsonl.gz")
    ),
    Case("corpus", "3 GB line of TSV", replaced("x.tsv.gz", gz(3 << 30, b"a\t")), (*INDEX, "x.tsv.gz")),
    Case(
        "corpus",
        "3 GB in a JSON list",
        replaced("x.json.gz", gz(3 << 30, b'[{"id": "a", "text": "')),
        (*INDEX, "x.json.gz"),
    ),
    Case(
        "corpus", "200,000 brackets", replaced("x.jsonl", f'{{"id": "a", "text": {DEEP}'), (*INDEX, "x.jsonl")
    ),
    Case("corpus", "list of 200,000 brackets", replaced("x.json", DEEP), (*INDEX, "x.json")),
    Case(
        "corpus",
        "number of 10⁶ digits",
        replaced("x.jsonl", f'{{"id": {"9" * 10**6}, "text": "a"}}'),
        (*INDEX, "x.jsonl"),
    ),
    Case(
        "JSON vectors",
        "impact of 10⁶ digits",
        replaced("x.jsonl", f'{{"id": "a", "contents": "", "vector": {{"moon": {"9" * 10**6}}}}}'),
        (*VECTORS, "x.jsonl"),
    ),
    Case(
        "JSON vectors",
        "200,000 brackets",
        replaced("x.jsonl", f'{{"id": "a", "contents": "", "vector": {DEEP}'),
        (*VECTORS, "x.jsonl"),
    ),
    Case(
        "JSON vectors",
        "3 GB vector",
        replaced("x.jsonl.gz", gz(3 << 30, b'{"id": "a", "contents": "", "vector": {"')),
        (*VECTORS, "x.jsonl.gz"),
    ),
    Case(
        "JSON vectors",
        "terms of no tokenizer",
        replaced("x.jsonl", '{"id": "a", "contents": "", "vector": {"Zürich": 2}}'),
        (*VECTORS, "x.jsonl"),
    ),
    Case(
        "queries",
        "3 GB query",
        replaced("x.tsv.gz", gz(3 << 30, b"1\t")),
        ("search", "--queries", "x.tsv.gz", "--output", "run.trec", "--index", "index"),
    ),
    Case(
        "questions",
        "3 GB of SQuAD",
        replaced("x.json.gz", gz(3 << 30, b'{"data": [{"title": "')),
        ("hybrid", "eval", "--dataset", "x.json.gz", "--index", "index"),
    ),
]

CASES = [
    *MANIFESTS,
    *LINKS,
    *CHANNELS,
    *SHARDS,
    *ROWS,
    *FAISS,
    *LUCENE,
    *MODELS,
    *CHECKPOINTS,
    *ENCODED,
    *TEXTS,
]
