"""BEIR's SPARTA checkpoints, and plain encoders that are read like them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from sparta.base.errors import ModelError
from sparta.base.records import Passage
from sparta.base.remedies import Command
from sparta.models.folders.foreign import load_beir_sparta
from sparta.models.load import load_model
from sparta.models.stored_model import StoredModel

pytestmark = pytest.mark.usefixtures("one_thread")

MARKS = set(".,;:!?'\"()")


@pytest.fixture
def beir_folder(tiny_vocabulary: list[str], tmp_path: Path) -> Path:
    """A DistilBERT as `save_pretrained` writes it, with a vocab.txt and no tokenizer.json."""
    from transformers import DistilBertConfig, DistilBertModel

    torch.manual_seed(11)
    config = DistilBertConfig(
        vocab_size=len(tiny_vocabulary), dim=32, hidden_dim=64, n_layers=2, n_heads=2, initializer_range=0.4
    )
    folder = tmp_path / "beir"
    DistilBertModel(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(tiny_vocabulary) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true, "model_max_length": 512}')
    return folder


@pytest.mark.parametrize("pool_special", [False, True])
def test_beir_checkpoints_equal_brute_force(
    beir_folder: Path, tiny_tokenizer: Tokenizer, pool_special: bool
) -> None:
    from transformers import DistilBertModel

    encoder = DistilBertModel.from_pretrained(beir_folder).eval()
    words = encoder.get_input_embeddings().weight
    passage = Passage("1", "Sergey Brin founded Google", title="Larry Page")
    encoded = tiny_tokenizer.encode("Larry Page Sergey Brin founded Google")
    with torch.no_grad():
        states = encoder(input_ids=torch.tensor([encoded.ids])).last_hidden_state[0]
    states = states if pool_special else states[1:-1]
    expected = torch.stack([(states @ word).max() for word in words]).relu().log1p().detach().numpy()
    expected[:15] = 0  # special and unused ones, by the making of the vocabulary
    expected[[i for t, i in tiny_tokenizer.get_vocab().items() if t.removeprefix("##") in MARKS]] = 0
    ours = load_beir_sparta(beir_folder, pool_special=pool_special)
    assert ours.config.layout.max_length == 500
    row = ours.encode_document([passage, Passage("2", "the moon " * 40)], dtype="fp32").toarray()[0]
    assert (expected > 0).sum() > 50
    np.testing.assert_allclose(row, expected, atol=1e-5)
    assert ours.encode_query("moon moon").sum() == 2
    if not pool_special:
        by_openvino = load_model(beir_folder, device="cpu")
        assert isinstance(by_openvino, StoredModel)
        np.testing.assert_allclose(
            by_openvino.encode_document(passage, dtype="fp32").toarray()[0], row, atol=1e-5
        )


def test_load_model_reads_a_plain_encoder_so(beir_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = load_model(beir_folder)
    assert "read like a SPARTA checkpoint of BEIR" in caplog.text
    assert model.config.quantizer is not None
    assert model.name == str(beir_folder)


def test_a_dense_model_is_told_from_a_plain_encoder(
    beir_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = json.loads((beir_folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "dense": {"pooling": "cls"}}))
    with pytest.raises(ModelError, match="the model is dense, not a SPARTA model") as caught:
        load_model(tmp_path)
    assert caught.value.remedy.commands == [Command.of("dense index", model=tmp_path)]
    assert "BEIR" not in caplog.text


def test_a_folder_that_is_no_encoder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "not-a-model"}')
    with pytest.raises(ModelError, match=r"no usable config\.json"):
        load_beir_sparta(tmp_path)
