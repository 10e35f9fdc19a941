"""Folders of others' models: settings that change the wordpieces, gaps in the vocabulary, unread weights."""

from __future__ import annotations

import copy
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from sparta.base.errors import ModelError
from sparta.base.records import Passage
from sparta.models.folders.foreign import load_beir_sparta
from sparta.models.folders.tokenizer import load_tokenizer
from sparta.models.load import load_model, load_module
from sparta.models.stored_model import StoredModel
from sparta.neural.checkpoint import from_pretrained

pytestmark = pytest.mark.usefixtures("one_thread")
TEXT = "the moon [SEP] the [MASK] of the earth"


def bert(folder: Path, tokenizer: Tokenizer, **settings: Any) -> Any:
    """Save a BERT with random weights and its tokenizer."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(3)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    size = 1 + max(tokenizer.get_vocab().values())
    model = BertModel(
        BertConfig(vocab_size=size, initializer_range=0.4, **sizes, **settings), add_pooling_layer=False
    )
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return model.eval()


def test_copies_of_a_model_read_special_tokens_as_characters(tiny_model_folder: Path) -> None:
    """Other devices and machines get copies of the model."""
    model, module = load_model(tiny_model_folder, device="cpu"), load_module(tiny_model_folder)
    expected = model.tokenizer.encode(TEXT).tokens
    assert (expected.count("[SEP]"), expected.count("[MASK]")) == (1, 0)
    for copied in (
        pickle.loads(pickle.dumps(model)),
        copy.deepcopy(module),
        pickle.loads(pickle.dumps(module)),
    ):
        assert copied.tokenizer.encode(TEXT).tokens == expected
    passages = [Passage("1", TEXT)]
    copied = copy.deepcopy(module).encode_document(passages, dtype="fp32")
    np.testing.assert_array_equal(copied.toarray(), module.encode_document(passages, dtype="fp32").toarray())


@pytest.mark.parametrize(
    ("file", "settings"),
    [
        ("tokenizer_config.json", {"do_lower_case": False}),
        ("tokenizer_config.json", {"strip_accents": False, "do_lower_case": True}),
        ("tokenizer_config.json", {"tokenize_chinese_chars": False}),
    ],
)
def test_settings_beside_the_tokenizer(
    tiny_tokenizer: Tokenizer, tmp_path: Path, file: str, settings: dict[str, Any]
) -> None:
    """The wordpieces are those of transformers."""
    from transformers import BertTokenizerFast

    tiny_tokenizer.save(str(tmp_path / "tokenizer.json"))
    plain = load_tokenizer(tmp_path)
    (tmp_path / file).write_text(json.dumps({"tokenizer_class": "BertTokenizer", **settings}))
    text = "The Café of 北京 was Large"
    expected = BertTokenizerFast.from_pretrained(tmp_path).tokenize(text)
    ours = load_tokenizer(tmp_path).encode(text, add_special_tokens=False).tokens
    assert ours == expected != plain.encode(text, add_special_tokens=False).tokens


def test_lowercase_of_sentence_transformers(tiny_tokenizer: Tokenizer, tmp_path: Path) -> None:
    cased = Tokenizer.from_str(tiny_tokenizer.to_str())
    normalizer: Any = cased.normalizer
    normalizer.lowercase = False
    cased.save(str(tmp_path / "tokenizer.json"))
    assert "[UNK]" in load_tokenizer(tmp_path).encode("Moon").tokens
    (tmp_path / "sentence_bert_config.json").write_text('{"do_lower_case": true, "max_seq_length": 64}')
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode("Moon", add_special_tokens=False).tokens == ["moon"]
    assert copy.deepcopy(tokenizer).encode("Moon", add_special_tokens=False).tokens == ["moon"]


def test_wordpieces_above_a_gap_get_impacts(tiny_tokenizer: Tokenizer, tmp_path: Path) -> None:
    settings = json.loads(tiny_tokenizer.to_str())
    vocabulary = settings["model"]["vocab"]
    size, moon = len(vocabulary), vocabulary["moon"]
    vocabulary["moon"] = size + 2  # the numbers `moon`, size and size + 1 have no wordpiece
    model = bert(tmp_path, Tokenizer.from_str(json.dumps(settings)))
    assert model.config.vocab_size == size + 3
    for ours in (load_beir_sparta(tmp_path), load_model(tmp_path, device="cpu")):
        row = ours.encode_document([Passage("1", "the moon of the earth " * 9)], dtype="fp32").toarray()[0]
        assert row[size + 2] > 0
        assert not row[[moon, size, size + 1]].any()
    assert len(ours.query_side().vocabulary()) == size + 3
    assert ours.query_tokenizer().bag("moon") == {size + 2: 1}


def test_a_plain_bert_is_read_without_segments(tiny_tokenizer: Tokenizer, tmp_path: Path) -> None:
    """BEIR's code gives every token segment 0."""
    model = bert(tmp_path, tiny_tokenizer)
    text = "the moon of the earth"
    with torch.no_grad():
        states = model(torch.tensor([tiny_tokenizer.encode(text).ids])).last_hidden_state[0, 1:-1]
        words = model.get_input_embeddings().weight
        expected = (states @ words.T).max(0).values.relu().log1p().numpy()
    for ours in (load_beir_sparta(tmp_path), load_model(tmp_path, device="cpu")):
        row = ours.encode_document([Passage("1", text)], dtype="fp32").toarray()[0]
        assert (row > 0).sum() > 20
        np.testing.assert_allclose(row[row > 0], expected[row > 0], atol=2e-5)


def test_relative_positions_are_refused(tiny_tokenizer: Tokenizer, tmp_path: Path) -> None:
    """transformers has no relative positions of BERT any more; it would compute absolute ones."""
    from transformers import AutoModel

    bert(tmp_path, tiny_tokenizer)
    config = json.loads((tmp_path / "config.json").read_text())
    config["position_embedding_type"] = "relative_key_query"
    (tmp_path / "config.json").write_text(json.dumps(config))
    weights = load_file(tmp_path / "model.safetensors")
    for layer in range(2):
        name = f"encoder.layer.{layer}.attention.self.distance_embedding.weight"
        weights[name] = torch.zeros(2 * 512 - 1, 16)
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match="has no relative positions, but the model has them"):
        from_pretrained(AutoModel, tmp_path, add_pooling_layer=False)


def test_weights_are_not_read_from_a_folder_that_changed(tiny_model_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_model_folder, tmp_path / "model"))
    model = load_model(folder, device="cpu")
    assert isinstance(model, StoredModel)
    passages = [Passage("1", "the moon of the earth")]
    before = model.encode_document(passages, dtype="fp32").toarray()  # releases the weights
    weights = load_file(folder / "model.safetensors")
    name = next(name for name, values in weights.items() if values.ndim == 2 and values.is_floating_point())
    weights[name] = weights[name] + 1
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    np.testing.assert_array_equal(model.encode_document(passages, dtype="fp32").toarray(), before)
    for read in (model.as_module, lambda: pickle.dumps(model)):
        with pytest.raises(ModelError, match="the files of the model have changed since it was opened"):
            read()
