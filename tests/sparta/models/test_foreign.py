"""Models that others trained give the weights and scores that others' code gives them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from sparta.base.errors import ModelError
from sparta.base.records import Passage
from sparta.models.folders.foreign import load_sparse_encoder
from sparta.models.load import load_model
from sparta.models.quantize import QueryQuantizer
from sparta.models.sparse import SparseEncoder
from sparta.models.stored_model import StoredModel
from tests.sparta.models.language_models import language_model, save_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = [
    "Larry Page and Sergey Brin founded Google in a small house.",
    "the moon",
    "北京 is a city, a large city in China",
    "the earth of all the years and the west of the east " * 3,
]
QUESTIONS = ["who founded google", "the moon of the moon", "what is the largest city in 中国"]


Maker = Callable[..., Any]


@pytest.fixture
def make_sparse(tiny_tokenizer: Tokenizer, tmp_path: Path) -> Maker:
    """Save a SparseEncoder with sentence-transformers into tmp_path/"model", and give it back."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import (
        MLMTransformer,
        Router,
        SparseStaticEmbedding,
        SpladePooling,
        Transformer,
    )

    def make(
        kind: str = "bert",
        *,
        activation: str = "relu",
        pooling: str = "max",
        legacy: bool = False,
    ) -> Any:
        source = tmp_path / "source"
        size = tiny_tokenizer.get_vocab_size()
        language_model(kind, size).save_pretrained(source)
        fast = save_tokenizer(tiny_tokenizer, source)
        if legacy:
            transformer: Any = MLMTransformer(str(source))
        else:
            transformer = Transformer(str(source), transformer_task="fill-mask")
        document: list[Any] = [transformer, SpladePooling(pooling, activation_function=activation)]
        weights = torch.rand(size, generator=torch.Generator().manual_seed(5)) * 3
        query = [SparseStaticEmbedding(fast, weight=weights)]
        modules = [Router.for_query_document(query_modules=query, document_modules=document)]
        encoder = SparseEncoder(modules=modules, device="cpu")
        encoder.save_pretrained(str(tmp_path / "model"))
        return encoder

    return make


def edit_json(path: Path, change: Callable[[Any], Any]) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def check_equal(theirs: Any, folder: Path) -> SparseEncoder:
    """Weights of all terms but special and unused ones, and scores, are those of sentence-transformers."""
    ours = load_sparse_encoder(folder)
    ours.config = replace(ours.config, query_quantizer=QueryQuantizer(3.0, 16))  # too fine to matter here
    documents = ours.encode_document(TEXTS, dtype="fp32")
    expected = theirs.encode_document(TEXTS).to_dense().numpy()
    terms = ~ours.excluded_terms().numpy()
    assert (expected > 0).mean() > 0.2
    np.testing.assert_allclose(documents.toarray()[:, terms], expected[:, terms], atol=1e-5)
    assert not documents.toarray()[:, ~terms].any()
    scores = theirs.similarity(theirs.encode_query(QUESTIONS), theirs.encode_document(TEXTS))
    similarity = ours.similarity(ours.encode_query(QUESTIONS), documents)
    np.testing.assert_allclose(similarity, scores.numpy(), rtol=1e-4, atol=1e-3)
    if json.loads((document_network(folder) / "config.json").read_text())["model_type"] in DECODERS:
        by_openvino = load_model(folder, device="cpu")
        assert isinstance(by_openvino, StoredModel)
        encoded = by_openvino.encode_document(TEXTS, dtype="fp32").toarray()
        np.testing.assert_allclose(encoded, documents.toarray(), atol=2e-5)
    return ours


DECODERS = "bert", "distilbert"


def document_network(folder: Path) -> Path:
    """The folder of the document side's transformer."""
    return next(
        path.parent
        for path in sorted(folder.rglob("config.json"))
        if (path.parent / "tokenizer.json").is_file()
    )


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
@pytest.mark.parametrize("kind", ["bert", "distilbert"])
def test_equal_to_sentence_transformers(
    make_sparse: Maker, tmp_path: Path, kind: str, activation: str, legacy: bool
) -> None:
    theirs = make_sparse(kind, activation=activation, legacy=legacy)
    ours = check_equal(theirs, tmp_path / "model")
    assert ours.config.log_count == (1 if activation == "relu" else 2)
    assert ours.config.pool_special
    assert ours.config.layout.max_length == 96


def test_a_question_token_counts_once(make_sparse: Maker, tmp_path: Path) -> None:
    make_sparse()
    ours = load_sparse_encoder(tmp_path / "model")
    once, twice = ours.encode_query(["the moon", "moon the moon"]).toarray()
    np.testing.assert_array_equal(once, twice)
    assert ours.query_weights is not None
    moon = ours.tokenizer.token_to_id("moon")
    assert ours.query_quantizer is not None
    assert once[moon] == pytest.approx(ours.query_weights[moon], abs=ours.query_quantizer.step / 2)


def test_unknown_words_of_a_question_have_no_weight(make_sparse: Maker, tmp_path: Path) -> None:
    make_sparse()
    ours = load_sparse_encoder(tmp_path / "model")
    assert ours.encode_query("☃").nnz == 0
    assert (ours.encode_query("☃ moon") != ours.encode_query("moon")).nnz == 0


def test_older_layouts(make_sparse: Maker, tmp_path: Path) -> None:
    """Asym with its settings in config.json, and the class names of sentence-transformers 5."""
    theirs = make_sparse(legacy=True, activation="log1p_relu")
    folder = tmp_path / "model"
    document = folder / "document_0_MLMTransformer"
    (folder / "router").mkdir()
    for path in [p for p in folder.iterdir() if p.is_dir() and p.name != "router"]:
        path.rename(folder / "router" / path.name)
    (folder / "router_config.json").rename(folder / "router" / "config.json")
    kinds = "sentence_transformers.sparse_encoder.models"
    edit_json(
        folder / "modules.json",
        lambda _: [{"idx": 0, "name": "0", "path": "router", "type": "sentence_transformers.models.Asym"}],
    )
    edit_json(
        folder / "router" / "config.json",
        lambda value: {
            **value,
            "types": {key: f"{kinds}.{kind.rpartition('.')[2]}" for key, kind in value["types"].items()},
        },
    )
    edit_json(
        folder / "router" / "document_1_SpladePooling" / "config.json",
        lambda _: {"activation_function": "log1p_relu", "word_embedding_dimension": None},
    )
    (folder / "router" / document.name / "sentence_bert_config.json").write_text(
        '{"max_seq_length": 64, "do_lower_case": false}'
    )
    ours = check_equal(theirs, folder)
    assert ours.config.layout.max_length == 64


def test_the_model_at_the_root_of_the_folder(make_sparse: Maker, tmp_path: Path) -> None:
    theirs = make_sparse(legacy=True)
    folder = tmp_path / "model"
    for path in (folder / "document_0_MLMTransformer").iterdir():
        path.rename(folder / path.name)

    def rename(value: Any) -> Any:
        text = json.dumps(value).replace('"document_0_MLMTransformer"', '""')
        return json.loads(text)

    edit_json(folder / "router_config.json", rename)
    check_equal(theirs, folder)


@pytest.mark.parametrize("path", ["idf.json", "elsewhere/of/the/author/idf.json"])
@pytest.mark.parametrize("place", ["", "query_0_SparseStaticEmbedding"])
def test_query_weights_in_json(make_sparse: Maker, tmp_path: Path, path: str, place: str) -> None:
    theirs = make_sparse()
    folder = tmp_path / "model"
    query = folder / "query_0_SparseStaticEmbedding"
    ours = load_sparse_encoder(folder)
    assert ours.query_weights is not None
    stored = {ours.tokenizer.id_to_token(i): float(weight) for i, weight in enumerate(ours.query_weights)}
    (folder / place / "idf.json").write_text(json.dumps({**stored, "not-in-the-vocabulary": 7.0}))
    (query / "model.safetensors").unlink()
    edit_json(query / "config.json", lambda value: {**value, "path": path})
    check_equal(theirs, folder)


def test_small_query_weights_are_kept(make_sparse: Maker, tmp_path: Path) -> None:
    """With 15 steps for the largest weight, a query term of a small weight found nothing."""
    make_sparse()
    folder = tmp_path / "model"
    query = folder / "query_0_SparseStaticEmbedding"
    (query / "idf.json").write_text(json.dumps({"moon": 9.0, "the": 0.25}))
    (query / "model.safetensors").unlink()
    edit_json(query / "config.json", lambda value: {**value, "path": "idf.json"})
    tokenizer = load_model(folder, device="cpu").query_tokenizer()
    weights = {term: count * tokenizer.step for term, count in tokenizer.terms("the moon").items()}
    assert weights == {"moon": pytest.approx(9.0, rel=0.01), "the": pytest.approx(0.25, rel=0.1)}


def test_query_weights_in_a_torch_file(make_sparse: Maker, tmp_path: Path) -> None:
    theirs = make_sparse()
    query = tmp_path / "model" / "query_0_SparseStaticEmbedding"
    (query / "model.safetensors").unlink()
    torch.save(
        {"weight": theirs[0].sub_modules["query"][0].weight.detach().clone()}, query / "pytorch_model.bin"
    )
    check_equal(theirs, tmp_path / "model")


def test_negative_query_weights_count_as_zero(
    make_sparse: Maker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_sparse()
    query = tmp_path / "model" / "query_0_SparseStaticEmbedding"
    edit_json(query / "config.json", lambda value: {**value, "path": "idf.json"})
    (query / "idf.json").write_text('{"moon": -1, "the": 2}')
    ours = load_sparse_encoder(tmp_path / "model")
    assert ours.query_tokenizer().terms("the moon of earth") == {"the": 15}
    assert "1 query terms have negative weights" in caplog.text


@pytest.mark.parametrize("weights", ["{}", '{"moon": -1, "the": 0}'])
def test_a_model_that_weighs_no_query_term_is_refused(
    make_sparse: Maker, tmp_path: Path, weights: str
) -> None:
    make_sparse()
    query = tmp_path / "model" / "query_0_SparseStaticEmbedding"
    edit_json(query / "config.json", lambda value: {**value, "path": "idf.json"})
    (query / "idf.json").write_text(weights)
    with pytest.raises(ModelError, match="no term of the model has a query weight above 0"):
        load_sparse_encoder(tmp_path / "model")


def test_query_weights_that_are_no_numbers(make_sparse: Maker, tmp_path: Path) -> None:
    make_sparse()
    query = tmp_path / "model" / "query_0_SparseStaticEmbedding"
    edit_json(query / "config.json", lambda value: {**value, "path": "idf.json"})
    (query / "idf.json").write_text('{"moon": "much"}')
    with pytest.raises(ModelError, match="the weight of the term 'moon' must be a number, found str"):
        load_sparse_encoder(tmp_path / "model")


def test_a_title_is_joined_by_a_space(make_sparse: Maker, tmp_path: Path) -> None:
    make_sparse()
    ours = load_sparse_encoder(tmp_path / "model")
    apart = ours.encode_document(Passage("1", "the earth", title="the moon"), dtype="fp32")
    assert (apart != ours.encode_document("the moon the earth", dtype="fp32")).nnz == 0


def test_load_model_calibrates_it(make_sparse: Maker, tmp_path: Path) -> None:
    make_sparse()
    model = load_model(tmp_path / "model")
    assert model.config.quantizer == load_model(tmp_path / "model").config.quantizer
    side = model.query_side()
    assert side.identity()["weighted_queries"]


def test_sum_pooling_is_refused(make_sparse: Maker, tmp_path: Path) -> None:
    make_sparse(pooling="sum")
    with pytest.raises(ModelError, match=r"must pool by max.*, found sum"):
        load_sparse_encoder(tmp_path / "model")


BROKEN: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "modules-form": ("modules.json", lambda _: {"a": 1}, "not a valid sentence-transformers SparseEncoder"),
    "module-escape": ("modules.json", lambda v: [{**v[0], "path": "../x"}], "outside the model's folder"),
    "module-unknown": (
        "modules.json",
        lambda v: [{**v[0], "type": "x.y.Dense"}],
        "known kind of sparse model: it has the modules Dense",
    ),
    "types-missing": (
        "router_config.json",
        lambda v: {"structure": v["structure"]},
        "not a valid sentence-transformers SparseEncoder",
    ),
    "no-query": (
        "router_config.json",
        lambda v: {**v, "structure": {"document": v["structure"]["document"]}},
        "needs the routes query and document, found document",
    ),
    "extra-module": (
        "router_config.json",
        lambda v: {**v, "structure": {**v["structure"], "document": v["structure"]["document"] * 2}},
        "it has the modules Transformer",
    ),
    "task": (
        "document_0_Transformer/sentence_bert_config.json",
        lambda v: {**v, "transformer_task": "feature-extraction"},
        "task fill-mask, found feature-extraction",
    ),
    "activation": (
        "document_1_SpladePooling/config.json",
        lambda v: {**v, "activation_function": "gelu"},
        "found gelu",
    ),
    "prompt": (
        "config_sentence_transformers.json",
        lambda v: {**v, "prompts": {"query": "question: "}},
        "adds prompts",
    ),
    "cosine": (
        "config_sentence_transformers.json",
        lambda v: {**v, "similarity_fn_name": "cosine"},
        "similarity_fn_name is cosine",
    ),
    "no-json-weights": (
        "query_0_SparseStaticEmbedding/config.json",
        lambda v: {**v, "path": "idf.json"},
        "query weights, idf.json, is missing",
    ),
}


@pytest.fixture(scope="module")
def whole_folder(tiny_tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all that is to be broken."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import (
        Router,
        SparseStaticEmbedding,
        SpladePooling,
        Transformer,
    )

    folder = tmp_path_factory.mktemp("whole")
    language_model("distilbert", tiny_tokenizer.get_vocab_size()).save_pretrained(folder / "source")
    fast = save_tokenizer(tiny_tokenizer, folder / "source")
    transformer = Transformer(str(folder / "source"), transformer_task="fill-mask")
    router = Router.for_query_document(
        query_modules=[SparseStaticEmbedding(fast)], document_modules=[transformer, SpladePooling("max")]
    )
    SparseEncoder(modules=[router], device="cpu").save_pretrained(str(folder / "model"))
    return folder / "model"


@pytest.mark.parametrize("case", list(BROKEN))
def test_what_cannot_be_read_is_refused(whole_folder: Path, tmp_path: Path, case: str) -> None:
    name, change, message = BROKEN[case]
    folder = shutil.copytree(whole_folder, tmp_path / "model")
    edit_json(folder / name, change)
    with pytest.raises(ModelError, match=message):
        load_sparse_encoder(folder)


def test_a_limit_on_the_number_of_terms_is_named(
    whole_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = shutil.copytree(whole_folder, tmp_path / "model")
    edit_json(folder / "config_sentence_transformers.json", lambda value: {**value, "max_active_dims": 7})
    load_sparse_encoder(folder)
    assert "the 7 strongest terms of a text, sparta keeps all; prune passages by --top-k 7" in caplog.text


def test_broken_files_are_refused(whole_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(whole_folder, tmp_path / "model")
    weights = folder / "document_0_Transformer" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match="could not load it"):
        load_sparse_encoder(folder)
    weights.write_bytes(whole)
    (folder / "query_0_SparseStaticEmbedding" / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"query weights, model\.safetensors, is missing"):
        load_sparse_encoder(folder)
    (folder / "modules.json").write_text("[")
    with pytest.raises(ModelError, match="the list of the model's modules cannot be read"):
        load_sparse_encoder(folder)


def test_two_tokenizers_are_refused(whole_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(whole_folder, tmp_path / "model")
    edit_json(
        folder / "query_0_SparseStaticEmbedding" / "tokenizer.json",
        lambda value: {**value, "normalizer": None},
    )
    with pytest.raises(ModelError, match="different tokenizers for queries and documents"):
        load_sparse_encoder(folder)


def test_a_head_that_was_not_saved_is_refused(whole_folder: Path, tmp_path: Path) -> None:
    """Without this, transformers would fill the head with random numbers."""
    from transformers import DistilBertModel

    folder = shutil.copytree(whole_folder, tmp_path / "model")
    document = folder / "document_0_Transformer"
    DistilBertModel.from_pretrained(document).save_pretrained(document)
    with pytest.raises(ModelError, match="lacks weights of DistilBertForMaskedLM"):
        load_sparse_encoder(folder)
