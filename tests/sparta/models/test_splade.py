"""SPLADE: passages and queries have sentence-transformers' weights, and are searched exactly."""

from __future__ import annotations

import gc
import json
import shutil
import sys
import threading
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from tokenizers import Tokenizer

from hybrid.service.app import create_app
from hybrid.service.settings import Settings
from sparta import Index
from sparta.base.errors import IndexStateError, Interrupted, ModelError, NewerFormatError
from sparta.base.manifest import INDEX_KIND, read_manifest
from sparta.base.remedies import Option
from sparta.doctor import examine
from sparta.index.changes import how_to_rebuild
from sparta.index.folder import FORMAT_VERSION, IndexFolder
from sparta.index.inputs.options import IndexOptions
from sparta.index.inputs.sources import vectors_source
from sparta.index.pipeline import build_index
from sparta.models.load import load_model, load_module
from sparta.models.network_queries import QueryNetwork, open_query_network, query_network
from sparta.models.resolve import hash_folder
from sparta.models.stored_model import StoredModel
from sparta.runtime.ahead import begin
from sparta.shards.encode import EncodeOptions, encode_corpus
from sparta.shards.store import ShardFolder
from tests.sparta.models.language_models import language_model, save_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = [
    "Larry Page and Sergey Brin founded Google in a small house.",
    "the moon, the moon!",
    "the earth of all the years and the west of the east " * 2,
]
QUERIES = ["who founded google?", "the moon of the moon", "what is the largest city in 中国"]
LAYOUTS = ("bert", "untied", "distilbert", "gamma", "modules", "legacy", "router")


@pytest.fixture(scope="module")
def folders(tiny_tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each layout."""
    from safetensors.numpy import load_file, save_file
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import (
        MLMTransformer,
        Router,
        SpladePooling,
        Transformer,
    )

    root, size = tmp_path_factory.mktemp("splade"), tiny_tokenizer.get_vocab_size()
    for kind in ("bert", "untied", "distilbert"):
        language_model(kind, size).save_pretrained(root / kind)
        save_tokenizer(tiny_tokenizer, root / kind)
    shutil.copytree(root / "bert", root / "gamma")
    weights = load_file(root / "gamma" / "model.safetensors")
    old_names = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    renamed = {
        next((n.replace(new, old) for new, old in old_names.items() if n.endswith(new)), n): w
        for n, w in weights.items()
    }
    assert renamed.keys() != weights.keys()
    save_file(renamed, root / "gamma" / "model.safetensors", metadata={"format": "pt"})

    def network(kind: str, *, legacy: bool = False) -> list[Any]:
        source = str(root / kind)
        is_old = MLMTransformer(source) if legacy else Transformer(source, transformer_task="fill-mask")
        return [is_old, SpladePooling("max")]

    both = Router.for_query_document(query_modules=network("bert"), document_modules=network("distilbert"))
    for name, modules in {
        "modules": network("bert"),
        "legacy": network("distilbert", legacy=True),
        "router": [both],
    }.items():
        SparseEncoder(modules=modules, device="cpu").save_pretrained(str(root / name))
    return {name: root / name for name in LAYOUTS}


def of_sentence_transformers(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The weights of QUERIES and of TEXTS, by sentence-transformers."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import SpladePooling, Transformer

    if (folder / "modules.json").is_file():
        model = SparseEncoder(str(folder), device="cpu")
    else:
        network = Transformer(str(folder), transformer_task="fill-mask")
        model = SparseEncoder(modules=[network, SpladePooling("max")], device="cpu")
    return model.encode_query(QUERIES).to_dense().numpy(), model.encode_document(TEXTS).to_dense().numpy()


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_weights_equal_sentence_transformers(folders: dict[str, Path], layout: str) -> None:
    queries, documents = of_sentence_transformers(folders[layout])
    model = load_model(folders[layout], device="cpu")
    assert isinstance(model, StoredModel)
    np.testing.assert_allclose(model.encode_document(TEXTS, dtype="fp32").toarray(), documents, atol=1e-5)
    assert documents[:, :15].any(), "special and unused terms have weights too"
    network = open_query_network(folders[layout])
    in_numpy = network.weights(QUERIES)
    np.testing.assert_allclose(in_numpy, queries, atol=1e-5)
    bert = vars(vars(network)["_encode"])["_in_numpy"][0]
    of_numpy = weakref.ref(vars(bert)["_encoder"].layers[0].query.weight)
    del bert
    many = network.weights(QUERIES * 12)  # enough for OpenVINO to take over
    gc.collect()
    assert of_numpy() is None, "OpenVINO has weights of its own"
    np.testing.assert_allclose(many, np.tile(in_numpy, (12, 1)), atol=1e-5)
    grid = model.config.query_quantizer
    assert grid is not None
    np.testing.assert_allclose(model.encode_query(QUERIES).toarray(), queries, atol=0.51 * grid.step)


def test_torch_gives_the_same_passages(folders: dict[str, Path]) -> None:
    stored, module = load_model(folders["bert"], device="cpu"), load_module(folders["bert"])
    ours, theirs = (model.encode_document(TEXTS, dtype="fp32").toarray() for model in (stored, module))
    np.testing.assert_allclose(ours, theirs, atol=2e-5)
    assert module.query_side().identity() == stored.query_side().identity()


def test_term_embeddings_without_a_wordpiece_count_nowhere(tiny_tokenizer: Tokenizer, tmp_path: Path) -> None:
    size = tiny_tokenizer.get_vocab_size()
    padded = language_model("bert", size + 4)
    models = []
    for bias in (200.0, -200.0):
        padded.get_output_embeddings().bias.data[size:] = bias
        padded.save_pretrained(tmp_path / str(bias))
        save_tokenizer(tiny_tokenizer, tmp_path / str(bias))
        models.append(load_model(tmp_path / str(bias), device="cpu"))
    model, other = models
    assert model.config.query_quantizer == other.config.query_quantizer
    for matrix in (model.encode_query(QUERIES), model.encode_document(TEXTS, dtype="fp32")):
        assert matrix[:, :size].nnz > 0
        assert matrix[:, size:].nnz == 0


def test_a_module_has_the_quantizers_of_its_model(folders: dict[str, Path]) -> None:
    """Without the network, punctuation has no weights, so that other weights are the largest."""
    stored = load_model(folders["bert"], device="cpu", query_encoder="none")
    assert stored.config.quantizer != load_model(folders["bert"], device="cpu").config.quantizer
    assert stored.as_module().query_side().identity() == stored.query_side().identity()


def index_with_network(folders: dict[str, Path], folder: Path) -> Index:
    """An index of TEXTS; the network for its queries lies beside it, and no process has opened it yet."""
    model = shutil.copytree(folders["bert"], folder / "splade")
    return Index.create(
        folder / "ix", TEXTS, options=IndexOptions(model=str(model), dtype="fp32", device="cpu")
    )


@pytest.fixture(scope="module")
def index(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Index:
    """An index that no test changes."""
    return index_with_network(folders, tmp_path_factory.mktemp("index"))


@pytest.mark.slow
def test_a_search_sums_integers(index: Index, folders: dict[str, Path]) -> None:
    model = load_model(folders["bert"], device="cpu")
    quantizer = model.config.quantizer
    assert quantizer is not None
    rows = model.encode_document(TEXTS, dtype="fp32").toarray()
    impacts = np.where(rows > 0, np.clip(np.rint(rows / quantizer.step), 1, 255), 0)
    for query in QUERIES:
        bag = np.zeros(rows.shape[1])
        for term, weight in index.searcher.tokenizer.bag(query).items():
            bag[term] = weight
        hits = index.search(query)
        assert {int(hit.passage_id): hit.score for hit in hits} == dict(enumerate(impacts @ bag))
        explanation = index.explain(query, hits[0].passage_id)
        assert (explanation.score, explanation.rank) == (hits[0].score, 1)
    assert index.search("?!") == []


@pytest.mark.slow
def test_a_resumed_build_keeps_its_queries(
    index: Index, folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command that finishes an interrupted build need not say that no network encodes queries."""
    corpus, whole = tmp_path / "c.jsonl", IndexOptions(model=str(folders["bert"]), device="cpu")
    corpus.write_text(
        "".join(json.dumps({"id": str(n), "text": text}) + "\n" for n, text in enumerate(TEXTS))
    )
    monkeypatch.setattr("sparta.index.inputs.options._PASSAGES_PER_BATCH", 1)

    def stop(passages: int) -> None:
        if passages:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        build_index(
            *(tmp_path / "ix", corpus),
            options=replace(whole, query_encoder="none", commit_seconds=0),
            advance=stop,
        )
    assert build_index(tmp_path / "ix", corpus, options=replace(whole, resume=True)).documents == len(TEXTS)
    live = IndexFolder(tmp_path / "ix").require_live()
    assert not live.model.get("query_network")
    without_network = Option("query_encoder", "none")
    assert without_network in how_to_rebuild(tmp_path / "ix", live).options
    assert without_network not in how_to_rebuild(index.path, index.reader.folder.require_live()).options


@pytest.mark.slow
def test_an_index_follows_its_model(folders: dict[str, Path], tmp_path: Path) -> None:
    """It appends with the same queries, refuses others, and says that the model is gone."""
    index = index_with_network(folders, tmp_path)
    index.append([{"id": "9", "text": "the queen of the year"}])
    assert index.searcher.num_docs == len(TEXTS) + 1
    with pytest.raises(IndexStateError, match=r"differing: .*query_network") as refused:
        index.append([{"id": "10", "text": "x"}], options=IndexOptions(query_encoder="none"))
    assert "encode with query_encoder='network'" in str(refused.value)
    folder = Path(index.reader.folder.require_live().model["name"])
    folder.rename(folder.with_name("moved"))
    with Index(index.path) as opened:
        with pytest.raises(IndexStateError, match="queries of this index need its model"):
            opened.search("who founded google")
        assert "queries of this index need its model" in str(examine(index.path, quick=True))
        with pytest.raises(IndexStateError, match="queries of this index need its model"):
            TestClient(create_app(Settings(index=index.path))).__enter__()
        folder.with_name("moved").rename(folder)
        assert opened.search("who founded google")


def test_queries_without_the_network(folders: dict[str, Path], tmp_path: Path) -> None:
    options = IndexOptions(model=str(folders["bert"]), query_encoder="none", dtype="fp32", device="cpu")
    index = Index.create(tmp_path / "ix", TEXTS, options=options)
    assert index.searcher.tokenizer.terms("the moon, the moon") == {"the": 1, "moon": 1}
    identity = index.reader.folder.require_live().model
    assert identity["weighted_queries"]
    assert "query_network" not in identity
    index.append([{"id": "9", "text": "one more"}])  # keeps the query encoder of the index


def test_queries_of_json_vectors_are_counted_with_a_warning(
    folders: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    vectors = tmp_path / "vectors.jsonl"
    vectors.write_text('{"id": "1", "vector": {"moon": 2.0}}\n')
    side = vectors_source([vectors], folders["bert"]).side
    assert (side.has_network, side.weights) == (False, None)
    assert f"{folders['bert']} weighs the terms of queries" in caplog.text
    caplog.clear()
    vectors_source([vectors])
    assert not caplog.text


def test_a_network_for_queries_that_is_missing(tiny_model_folder: Path) -> None:
    with pytest.raises(ModelError, match="the model has no network for queries"):
        load_model(tiny_model_folder, query_encoder="network")


def test_the_network_opens_before_the_first_query(folders: dict[str, Path], tmp_path: Path) -> None:
    """Then the query does not need the model's files; without a network, nothing is opened."""
    index = index_with_network(folders, tmp_path)
    plain = Index.create(tmp_path / "plain", TEXTS, options=IndexOptions(channels="bm25"))
    for path in (tmp_path / "nothing", plain.path, index.path):
        begin(IndexFolder(path).open_query_network)
        for thread in threading.enumerate():
            if thread.name == "ahead":
                thread.join(60)
    (tmp_path / "splade").rename(tmp_path / "moved")
    assert index.search("who founded google")


def test_a_query_encoded_again_is_not_computed(index: Index, calls: Any) -> None:
    computed = calls(QueryNetwork.weights)
    tokenizer = index.searcher.tokenizer
    query = f"{QUERIES[0]} again"
    once = tokenizer.terms(query)
    assert [call["texts"] for _, call in computed] == [[query]]
    assert tokenizer.terms(query) == once
    assert len(computed) == 1


def test_releases_that_would_ignore_the_network_refuse_the_index(
    index: Index, folders: dict[str, Path], tmp_path: Path
) -> None:
    """A release of format 2 ignores the field `query_network`: it would silently rank passages wrongly."""
    manifest = json.loads((index.path / "manifest.json").read_text())
    assert manifest["live"]["model"]["query_network"] is True
    with pytest.raises(NewerFormatError, match="format version 3 is newer than this sparta can read"):
        read_manifest(index.path, INDEX_KIND, FORMAT_VERSION)
    options = IndexOptions(model=str(folders["bert"]), query_encoder="none", dtype="fp32", device="cpu")
    plain = Index.create(tmp_path / "ix", TEXTS, options=options)
    assert read_manifest(plain.path, INDEX_KIND, FORMAT_VERSION)["format_version"] == FORMAT_VERSION


def test_releases_that_would_ignore_the_network_refuse_its_shards(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    corpus, model = tmp_path / "corpus.jsonl", str(folders["bert"])
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    for query_encoder, version in (("network", 2), ("none", 1)):
        folder = tmp_path / query_encoder
        encode_corpus(corpus, folder, model, EncodeOptions(devices=("cpu",)), query_encoder=query_encoder)
        assert ShardFolder(folder).manifest["format_version"] == version


def test_a_long_query_is_cut_with_a_warning(
    folders: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    network = open_query_network(folders["bert"])
    most = network.longest_query
    network.weights(["the " * most])
    network.fitted_grid(["." * (most + 1)])  # a line that no user typed
    assert not caplog.records
    network.weights(["the moon", "the " * (most + 1)])
    assert f"a query has {most + 1} wordpieces; the model reads the first {most}" in caplog.text


def test_a_cached_revision_needs_no_hub(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    revisions = tmp_path / "models--someone--splade" / "snapshots"
    for revision, layout in (("1a", "distilbert"), ("2b", "bert")):
        shutil.copytree(folders[layout], revisions / revision)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **_options: revisions / "1a")
    network = query_network("someone/splade", hash_folder(folders["bert"]))
    expected = open_query_network(folders["bert"]).weights(QUERIES)
    np.testing.assert_array_equal(network.weights(QUERIES), expected)
    with pytest.raises(IndexStateError, match="the model has changed"):
        query_network("someone/splade", "0" * 64)


def test_without_torch_a_damaged_folder_says_what_is_wrong(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installing torch, the former advice, would not have helped."""
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "transformers", None)
    folder = shutil.copytree(folders["bert"], tmp_path / "cut")
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:1000])
    with pytest.raises(ModelError, match="the weights cannot be read") as refused:
        load_model(folder, device="cpu")
    assert "copy the complete model folder again" in str(refused.value)
    folder = shutil.copytree(folders["bert"], tmp_path / "no-tokenizer")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"has no tokenizer\.json") as refused:
        load_model(folder, device="cpu")
    assert "add the model's tokenizer.json" in str(refused.value)
